import { expect, onTestFinished, test, vi } from 'vitest'
import { createTestApp } from '../support/app.ts'

/** How many refused keys of one address are looked up in a minute. */
const MAX_REFUSALS = 60

test.each<[boolean | string, string]>([
  [false, '127.0.0.1'],
  [true, '203.0.113.7'],
  ['127.0.0.0/8', '203.0.113.7'],
  ['10.0.0.0/8', '127.0.0.1'],
])('TRUST_PROXY %s takes %s for the client of a request that 127.0.0.1 forwards', async (trustProxy, address) => {
  const api = await createTestApp({ config: { trustProxy } })
  // So that the minute does not end in between.
  vi.useFakeTimers({ toFake: ['Date'] })
  onTestFinished(() => void vi.useRealTimers())
  const refused = (headers: Record<string, string>) =>
    api.call({ path: '/projects/other/modules', headers }).then(({ statusCode }) => statusCode)
  for (let i = 0; i < MAX_REFUSALS; i += 1) expect(await refused({ 'x-forwarded-for': '203.0.113.7' })).toBe(401)
  expect(await refused({ 'x-forwarded-for': '203.0.113.7' })).toBe(429)
  expect(await refused({})).toBe(address === '127.0.0.1' ? 429 : 401)
  await api.close()
})
