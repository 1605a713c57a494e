import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createTestApp, type TestApp } from '../support/app.ts'

const ALLOWED = 'https://app.example.com'
const EXPOSED =
  'Link, Next-Cursor, ETag, X-Request-Id, Retry-After, RateLimit, RateLimit-Policy, Idempotent-Replayed, Consistency-Token'
const PREFLIGHT = { origin: ALLOWED, 'access-control-request-method': 'POST' }

describe('with CORS_ORIGINS', () => {
  let api: TestApp
  beforeAll(async () => {
    api = await createTestApp({ config: { corsOrigins: [ALLOWED, 'http://localhost:5173'] } })
  })
  afterAll(() => api.close())

  test.each(['/projects/demo/events', '/projects/demo/modules/skin-quiz'])(
    'a preflight of %s needs no key',
    async (path) => {
      const response = await api.call({ method: 'OPTIONS', path, key: null, headers: PREFLIGHT })
      expect(response.statusCode).toBe(204)
      expect(response.body).toBe('')
      expect(response.headers).toMatchObject({
        'access-control-allow-origin': ALLOWED,
        'access-control-allow-methods': 'GET, HEAD, POST',
        'access-control-allow-headers':
          'X-Api-Key, Content-Type, Idempotency-Key, If-None-Match, Consistency-Token, X-Request-Id',
        'access-control-max-age': '600',
        vary: 'Origin',
      })
      expect(response.headers).not.toHaveProperty('access-control-allow-credentials')
    },
  )

  test.each([{ origin: '' }, { 'access-control-request-method': '' }])(
    'a preflight with %j is none',
    async (header) => {
      const headers = { ...PREFLIGHT, ...header }
      const response = await api.call({ method: 'OPTIONS', path: '/projects/demo/events', headers })
      expect([response.statusCode, response.json().error.code]).toEqual([405, 'method_not_allowed'])
    },
  )

  test.each(['https://evil.example', 'https://app.example.com.evil.example', 'http://app.example.com', 'null'])(
    'the origin %s is not allowed',
    async (origin) => {
      const preflight = await api.call({
        method: 'OPTIONS',
        path: '/projects/demo/events',
        key: null,
        headers: { ...PREFLIGHT, origin },
      })
      const read = await api.call({ path: '/projects/demo/modules', headers: { origin } })
      expect(preflight.headers).not.toHaveProperty('access-control-allow-origin')
      expect(read.headers).not.toHaveProperty('access-control-allow-origin')
      expect(read.statusCode).toBe(200)
      expect(read.headers.vary).toBe('Origin, X-Api-Key, accept-encoding')
    },
  )

  test.each<[number, Parameters<TestApp['call']>[0]]>([
    [200, { path: '/projects/demo/modules' }],
    [200, { path: '/projects/demo/modules/skin-quiz' }],
    [304, { path: '/projects/demo/modules/skin-quiz', headers: { 'if-none-match': '*' } }],
    [400, { path: '/projects/demo/modules?x=1' }],
    [400, { path: '/projects/demo/modules?%' }],
    [400, { path: '/projects/demo/modules/%ff' }],
    [401, { path: '/projects/demo/modules', key: null }],
    [404, { path: '/projects/demo/modules/nowhere' }],
    [404, { path: '/nowhere' }],
    [405, { method: 'DELETE', path: '/projects/demo/modules' }],
    [405, { method: 'OPTIONS', path: '/projects/demo/modules' }],
    [404, { method: 'OPTIONS', path: '/nowhere' }],
    [413, { method: 'POST', path: '/projects/demo/events', body: ' '.repeat(300_000) }],
    [415, { method: 'POST', path: '/projects/demo/events', body: '{}', headers: { 'content-type': 'text/plain' } }],
  ])('a script can read a %i: %j', async (status, call) => {
    const response = await api.call({ ...call, headers: { ...call.headers, origin: ALLOWED } })
    expect(response.statusCode).toBe(status)
    expect(response.headers['access-control-allow-origin']).toBe(ALLOWED)
    expect(response.headers['access-control-expose-headers']).toBe(EXPOSED)
    expect(response.headers.vary).toMatch(/^Origin(, X-Api-Key(, accept-encoding)?)?$/)
    expect(response.headers['x-request-id']).toBeDefined()
  })

  test('a response cached without an Origin is not reused for a request with one', async () => {
    expect((await api.call({ path: '/projects/demo/modules' })).headers.vary).toBe('Origin, X-Api-Key, accept-encoding')
  })
})

test('CORS_ORIGINS=* allows every origin', async () => {
  const api = await createTestApp({ config: { corsOrigins: ['*'] } })
  const response = await api.call({ path: '/projects/demo/modules', headers: { origin: 'https://any.example' } })
  await api.close()
  expect(response.headers['access-control-allow-origin']).toBe('*')
})

test('without CORS_ORIGINS a preflight is a 405 and no response has CORS headers', async () => {
  const api = await createTestApp()
  const preflight = await api.call({ method: 'OPTIONS', path: '/projects/demo/events', headers: PREFLIGHT })
  const read = await api.call({ path: '/projects/demo/modules', headers: { origin: ALLOWED } })
  await api.close()
  expect(preflight.statusCode).toBe(405)
  for (const { headers } of [preflight, read]) {
    expect(Object.keys(headers).filter((name) => name.startsWith('access-control'))).toEqual([])
  }
  expect(read.headers.vary).toBe('X-Api-Key, accept-encoding')
})
