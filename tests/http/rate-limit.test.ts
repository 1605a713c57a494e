import { expect, test } from 'vitest'
import { createTestApp } from '../support/app.ts'

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
