import { PassThrough } from 'node:stream'
import { expect, test } from 'vitest'
import { createTestApp } from '../support/app.ts'

/** The logged client address of a request that comes from 127.0.0.1 with X-Forwarded-For. */
async function loggedAddress(trustProxy: boolean | string): Promise<unknown> {
  const log = new PassThrough()
  const api = await createTestApp({ config: { trustProxy }, logger: { level: 'info', stream: log } })
  await api.call({ path: '/projects/demo/modules', headers: { 'x-forwarded-for': '203.0.113.7' } })
  await api.close()
  const lines = String(log.read()).trim().split('\n')
  return lines.map((line) => JSON.parse(line).req?.ip).find((ip) => ip !== undefined)
}

test.each<[boolean | string, string]>([
  [false, '127.0.0.1'],
  [true, '203.0.113.7'],
  ['127.0.0.0/8', '203.0.113.7'],
  ['10.0.0.0/8', '127.0.0.1'],
])('TRUST_PROXY %s logs the client as %s', async (trustProxy, address) => {
  expect(await loggedAddress(trustProxy)).toBe(address)
})
