import { afterEach, expect, test, vi } from 'vitest'
import { createTestApp } from '../support/app.ts'

afterEach(() => void vi.useRealTimers())

test.each([
  [1, 'Rate limit of 1 request per minute exceeded; retry after Retry-After seconds.'],
  [2, 'Rate limit of 2 requests per minute exceeded; retry after Retry-After seconds.'],
])('a limit of %i per minute is reported with the right plural', async (rateLimitPerMinute, message) => {
  const api = await createTestApp({ config: { rateLimitPerMinute } })
  const request = () => api.call({ path: '/projects/demo/modules' })
  for (let i = 0; i < rateLimitPerMinute; i += 1) expect((await request()).statusCode).toBe(200)
  const response = await request()
  await api.close()
  expect(response.statusCode).toBe(429)
  expect(response.json().error).toEqual({ code: 'rate_limited', message })
})

test('Retry-After is the time to the end of the window in whole seconds, rounded up', async () => {
  const start = Date.parse('2026-03-01T09:30:00.000Z')
  vi.useFakeTimers({ toFake: ['Date'], now: start })
  const api = await createTestApp({ config: { rateLimitPerMinute: 1 } })
  const at = async (elapsed_ms: number) => {
    vi.setSystemTime(start + elapsed_ms)
    const { statusCode, headers } = await api.call({ path: '/projects/demo/modules' })
    return [statusCode, headers['retry-after'], headers.ratelimit]
  }
  expect(await at(0)).toEqual([200, undefined, '"default";r=0;t=60'])
  for (const [elapsed_ms, seconds] of [
    [0, 60],
    [1, 60],
    [999, 60],
    [1_000, 59],
    [1_001, 59],
    [58_999, 2],
    [59_000, 1],
    [59_999, 1],
  ] as const) {
    expect([elapsed_ms, ...(await at(elapsed_ms))]).toEqual([
      elapsed_ms,
      429,
      String(seconds),
      `"default";r=0;t=${seconds}`,
    ])
  }
  expect(await at(60_001)).toEqual([200, undefined, '"default";r=0;t=60'])
  await api.close()
})
