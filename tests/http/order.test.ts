import { afterAll, beforeAll, expect, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { EVENT, rowCounts } from './requests.ts'

// The order of checks (docs/semantics.md#errors): a request has every error, and they are fixed one after another.

let api: TestApp
let key: string
let reader: string
beforeAll(async () => {
  api = await createTestApp({ config: { rateLimitPerMinute: 9 } })
  key = await createKey(api.db, 'demo', { name: '', scopes: SCOPES, expires_at: null })
  reader = await createKey(api.db, 'demo', { name: '', scopes: ['read'], expires_at: null })
  // Creates the second contact of a conflict, and uses the Idempotency-Key.
  await api.call({ method: 'POST', path: '/projects/demo/events', body: EVENT, headers: { 'idempotency-key': 'used' } })
  for (let i = 0; i < 9; i += 1) await api.call({ path: '/projects/demo/modules', key: reader })
})
afterAll(() => api.close())

const conflicting = [
  { key: 'email', value: '"amara.okafor@example.com"' },
  { key: 'phone', value: '"+1 555 0100"' },
]
const tooLarge = `${' '.repeat(256 * 1024)}{`
const invalid = { ...EVENT, module_id: 'nowhere', identifiers: conflicting }

test('recordCustomEvent checks in the documented order', async () => {
  const fresh = await createKey(api.db, 'demo', { name: '', scopes: ['read'], expires_at: null })
  const before = await rowCounts(api.db)
  const text = { 'content-type': 'text/plain', 'idempotency-key': 'used' }
  const json = { 'content-type': 'application/json', 'idempotency-key': 'used' }
  const steps: [number, string, Parameters<TestApp['call']>[0]][] = [
    [
      404,
      'route_not_found',
      { method: 'PUT', path: '/projects/demo/event?%', key: null, headers: text, body: tooLarge },
    ],
    [
      405,
      'method_not_allowed',
      { method: 'PUT', path: '/projects/demo/events', key: null, headers: text, body: tooLarge },
    ],
    [400, 'invalid_request', { path: '/projects/demo/events?%', key: null, headers: text, body: tooLarge }],
    [401, 'unauthorized', { path: '/projects/demo/events?x=1', key: null, headers: text, body: tooLarge }],
    [429, 'rate_limited', { path: '/projects/demo/events?x=1', key: reader, headers: text, body: tooLarge }],
    [403, 'insufficient_scope', { path: '/projects/demo/events?x=1', key: fresh, headers: text, body: tooLarge }],
    [415, 'unsupported_media_type', { path: '/projects/demo/events?x=1', headers: text, body: tooLarge }],
    [413, 'payload_too_large', { path: '/projects/demo/events?x=1', headers: json, body: tooLarge }],
    [400, 'invalid_request', { path: '/projects/demo/events?x=1', headers: json, body: '{' }],
    [400, 'invalid_request', { path: '/projects/demo/events?x=1', headers: json, body: invalid }],
    [422, 'idempotency_key_reused', { path: '/projects/demo/events', headers: json, body: invalid }],
    [404, 'module_does_not_exist', { path: '/projects/demo/events', body: invalid }],
    [409, 'identifier_conflict', { path: '/projects/demo/events', body: { ...invalid, module_id: 'skin-quiz' } }],
  ]
  const seen = []
  for (const [, , call] of steps) {
    const response = await api.call({ method: 'POST', key, ...call })
    seen.push([response.statusCode, response.json().error.code])
  }
  expect(seen).toEqual(steps.map(([status, code]) => [status, code]))
  expect(await rowCounts(api.db)).toEqual(before)
  expect((await api.call({ method: 'POST', path: '/projects/demo/events', key, body: EVENT })).statusCode).toBe(200)
})

test('reads check a path before a query, and both before existence', async () => {
  const codeOf = async (path: string) => (await api.call({ path })).json().error
  expect((await codeOf('/projects/demo/modules/%00/versions?limit=0')).details[0].pointer).toBe('/path/moduleId')
  expect((await codeOf('/projects/demo/modules/nowhere/versions?limit=0')).details[0].pointer).toBe('/query/limit')
  expect((await codeOf('/projects/demo/modules/nowhere/versions')).code).toBe('module_does_not_exist')
})

test('a 405 names the methods that exist, to everyone', async () => {
  for (const [path, allow] of [
    ['/projects/demo/events', 'GET, HEAD, POST'],
    ['/projects/demo/modules', 'GET, HEAD'],
    ['/projects/nowhere/entries/x/events', 'GET, HEAD'],
  ] as const) {
    for (const method of ['DELETE', 'PATCH', 'PUT', 'OPTIONS'] as const) {
      const response = await api.call({ method, path, key: null })
      expect(response.statusCode).toBe(405)
      expect(response.headers.allow).toBe(allow)
      expect(response.json()).toEqual({
        error: { code: 'method_not_allowed', message: `Method not allowed; this path supports ${allow}.` },
        projectId: path.split('/')[2],
      })
    }
  }
})
