import { Readable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { buildApp } from '../../src/app.ts'
import { createKey } from '../../src/cli/keys.ts'
import { connectShared, openImportPool, openWritePool } from '../../src/database/open.ts'
import { formatKey, generateKey, parseKey, SCOPES } from '../../src/domain/api-key.ts'
import { type IsoTimestamp, toIsoTimestamp } from '../../src/domain/timestamp.ts'
import { updateKeyExpiry, updateKeyRevoked } from '../../src/queries/api-keys.ts'
import { createTestApp, PLAIN_CONFIG, type TestApp } from '../support/app.ts'
import { SECURITY_HEADERS } from '../support/contract.ts'
import { searchedLogger } from '../support/log-keys.ts'
import { holdLock } from '../support/waiting.ts'
import { EVENT, outliveKeyCache, rowCounts } from './requests.ts'

let api: TestApp
beforeAll(async () => {
  api = await createTestApp()
})
afterAll(() => api.close())

const MODULES = '/projects/demo/modules'
const ENTRY = '019ca8bb-b5c0-7000-8000-000000000001'

/** Creates a key, of project demo by default, and returns it with its parts. */
async function newKey(
  options: { scopes?: readonly string[]; expires_at?: IsoTimestamp | null } = {},
  project = 'demo',
) {
  const text = await createKey(api.db, project, { name: '', scopes: SCOPES, expires_at: null, ...options })
  const key = parseKey(text)
  if (!key) throw new Error(`createKey made ${text}`)
  return { text, ...key }
}

/** Every reason why a key gives no access to project demo: what is sent, and to which path. */
const REFUSALS: [string, () => Promise<{ key: string | null; path?: string; headers?: Record<string, string> }>][] = [
  ['none', async () => ({ key: null })],
  ['an empty one', async () => ({ key: '' })],
  ['one in the query only', async () => ({ key: null, path: `${MODULES}?x-api-key=${api.key}` })],
  ['one as a bearer token', async () => ({ key: null, headers: { authorization: `Bearer ${api.key}` } })],
  ['one sent twice', async () => ({ key: `${api.key}, ${api.key}` })],
  ['one with a space in it', async () => ({ key: `${api.key.slice(0, 20)} ${api.key.slice(20)}` })],
  [
    'one with its last character changed',
    async () => ({ key: api.key.slice(0, -1) + (api.key.endsWith('0') ? '1' : '0') }),
  ],
  ['one with a character of its secret changed', async () => ({ key: mistyped(api.key, 30) })],
  ['one with a character of its id changed', async () => ({ key: mistyped(api.key, 5) })],
  ['one cut short', async () => ({ key: api.key.slice(0, -1) })],
  ['one too long', async () => ({ key: `${api.key}0` })],
  ['one in upper case', async () => ({ key: api.key.toUpperCase() })],
  ['one in quotes', async () => ({ key: `"${api.key}"` })],
  ['10,000 characters', async () => ({ key: 'ft_'.padEnd(10_000, 'a') })],
  ['one not in ASCII', async () => ({ key: 'ft_schlüssel' })],
  ['an SQL injection', async () => ({ key: "ft_' OR 1=1; --" })],
  ['a well-formed one that was never created', async () => ({ key: formatKey(generateKey()) })],
  [
    'a known id with another secret',
    async () => ({ key: formatKey({ ...generateKey(), key_id: (await newKey()).key_id }) }),
  ],
  [
    'one of another project',
    async () => ({ key: await createKey(api.db, 'other', { name: '', scopes: SCOPES, expires_at: null }) }),
  ],
  [
    'one that has expired',
    async () => ({ key: (await newKey({ expires_at: toIsoTimestamp(new Date('2026-01-01T00:00:00.000Z')) })).text }),
  ],
  ['one that expires now', async () => ({ key: (await newKey({ expires_at: toIsoTimestamp(new Date()) })).text })],
  [
    'one that was revoked',
    async () => {
      const { text, key_id } = await newKey()
      await updateKeyRevoked(api.db, 'demo', key_id, toIsoTimestamp(new Date()))
      return { key: text }
    },
  ],
]

function mistyped(key: string, at: number): string {
  return key.slice(0, at) + (key[at] === 'a' ? 'b' : 'a') + key.slice(at + 1)
}

test.each(REFUSALS)('a key is refused: %s', async (_, request) => {
  const response = await api.call({ path: MODULES, ...(await request()) })
  expect(response.statusCode).toBe(401)
  // The same body, byte for byte, whatever the cause.
  expect(response.body).toBe(
    '{"error":{"code":"unauthorized","message":"Access to the project with the given key is not authorized."},"projectId":"demo"}',
  )
  const { 'x-request-id': _id, date: _date, ...headers } = response.headers
  expect(headers).toEqual({
    'content-type': 'application/json; charset=utf-8',
    'content-length': String(response.body.length),
    'cache-control': 'no-store',
    'www-authenticate': 'ApiKey realm="flowtrail"',
    ...SECURITY_HEADERS,
    connection: 'keep-alive',
  })
})

test('a project that does not exist gets the same response as one of another key', async () => {
  const bodyFor = async (project: string) => (await api.call({ path: `/projects/${project}/modules` })).body
  expect((await bodyFor('nowhere')).replace('nowhere', 'other')).toBe(await bodyFor('other'))
})

describe('another project, with a key of its own,', () => {
  let otherKey: string
  beforeAll(async () => {
    otherKey = await createKey(api.db, 'other', { name: '', scopes: SCOPES, expires_at: null })
  })

  test.each(['modules', 'entries-page-views'])('has no rows of this one in %s', async (path) => {
    expect((await api.call({ path: `/projects/other/${path}`, key: otherKey })).body).toBe('[]')
  })

  test.each([
    ['modules/skin-quiz', 'module_does_not_exist'],
    ['modules/skin-quiz/versions', 'module_does_not_exist'],
    ['modules/skin-quiz/versions/1', 'module_does_not_exist'],
    [`entries/${ENTRY}`, 'entry_not_found'],
    [`entries/${ENTRY}/events`, 'entry_not_found'],
  ])('has no %s, which this one has', async (path, code) => {
    expect((await api.call({ path: `/projects/demo/${path}` })).statusCode).toBe(200)
    const response = await api.call({ path: `/projects/other/${path}`, key: otherKey })
    expect(response.statusCode).toBe(404)
    expect(response.json().error.code).toBe(code)
  })

  test('cannot record for a module of this one', async () => {
    const response = await api.call({ method: 'POST', path: '/projects/other/events', key: otherKey, body: EVENT })
    expect(response.statusCode).toBe(404)
    expect(response.json().error.code).toBe('module_does_not_exist')
  })
})

test('the white space that HTTP allows around a value is trimmed from a key', async () => {
  const { text } = await newKey()
  expect((await api.call({ path: MODULES, key: text, headers: { 'X-API-KEY': text } })).statusCode).toBe(200)
})

test('revoking and expiring take effect within a second', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  const [revoked, expired] = [await newKey(), await newKey()]
  const statusWith = async (key: string) => (await api.call({ path: MODULES, key })).statusCode
  expect([await statusWith(revoked.text), await statusWith(expired.text)]).toEqual([200, 200])
  const now = toIsoTimestamp(new Date())
  await updateKeyRevoked(api.db, 'demo', revoked.key_id, now)
  await updateKeyExpiry(api.db, 'demo', expired.key_id, now)
  vi.advanceTimersByTime(1_000)
  expect([await statusWith(revoked.text), await statusWith(expired.text)]).toEqual([401, 401])
  vi.useRealTimers()
})

test('a key that is revoked while a body arrives records nothing', async () => {
  // Of its own, since what its cache still asks for when the clock goes back would be of the future to the next test.
  const own = await createTestApp({ twins: false, config: { rateLimitPerMinute: 1_000 } })
  onTestFinished(() => own.close())
  const key_id = parseKey(own.key)?.key_id as string
  const payload = Readable.from(
    (async function* () {
      const body = JSON.stringify(EVENT)
      yield Buffer.from(body.slice(0, 10))
      await updateKeyRevoked(own.db, 'demo', key_id, toIsoTimestamp(new Date()))
      outliveKeyCache()
      yield Buffer.from(body.slice(10))
    })(),
  )
  const before = await rowCounts(own.db)
  const headers = { 'x-api-key': own.key, 'content-type': 'application/json' }
  const response = await own.app.inject({ method: 'POST', url: '/projects/demo/events', payload, headers })
  expect([response.statusCode, await rowCounts(own.db)]).toEqual([401, before])
  // As any other 401.
  for (const header of ['ratelimit', 'ratelimit-policy']) expect(response.headers).not.toHaveProperty(header)
})

test('revoking takes effect within a second for a key in steady use', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  const { text, key_id } = await newKey()
  const status = async () => (await api.call({ path: MODULES, key: text })).statusCode
  for (let elapsed_ms = 0; elapsed_ms < 3_000; elapsed_ms += 90) {
    expect(await status()).toBe(200)
    vi.advanceTimersByTime(90)
  }
  await updateKeyRevoked(api.db, 'demo', key_id, toIsoTimestamp(new Date()))
  for (let elapsed_ms = 0; elapsed_ms < 1_000; elapsed_ms += 90) {
    await status()
    vi.advanceTimersByTime(90)
  }
  expect(await status()).toBe(401)
  vi.useRealTimers()
})

test('a cached key expires at its time', async () => {
  const expires_at = toIsoTimestamp(new Date('2036-03-01T09:30:00.000Z'))
  const { text } = await newKey({ expires_at })
  const status = async () => (await api.call({ path: MODULES, key: text })).statusCode
  // The clock that a cached key's age is counted on stands still.
  vi.useFakeTimers({ toFake: ['Date', 'performance'], now: Date.parse(expires_at) - 1 })
  try {
    expect(await status()).toBe(200)
    vi.setSystemTime(expires_at)
    expect(await status()).toBe(401)
  } finally {
    vi.useRealTimers()
  }
})

test('revoking takes effect in another process as soon', async () => {
  vi.useFakeTimers({ toFake: ['performance'] })
  const db = connectShared(api.databaseUrl, { max: 1 })
  const writePool = openWritePool(api.databaseUrl, { max: 2 })
  const importPool = openImportPool(api.databaseUrl, { max: 2 })
  const second = await buildApp({ config: PLAIN_CONFIG, db, writePool, importPool, logger: searchedLogger() })
  const { text, key_id } = await newKey()
  const statusThere = async () => (await second.inject({ url: MODULES, headers: { 'x-api-key': text } })).statusCode
  expect(await statusThere()).toBe(200)
  await updateKeyRevoked(api.db, 'demo', key_id, toIsoTimestamp(new Date()))
  vi.advanceTimersByTime(1_000)
  expect(await statusThere()).toBe(401)
  vi.useRealTimers()
  await second.close()
  await Promise.all([db.destroy(), writePool.end(), importPool.end()])
})

test('concurrent keys of two projects read the same module id each in its own project', async () => {
  const other = await newKey({}, 'other')
  const responses = await Promise.all(
    [{ path: '/projects/demo/modules/skin-quiz' }, { path: '/projects/other/modules/skin-quiz', key: other.text }].map(
      (call) => api.call(call),
    ),
  )
  expect(responses.map((response) => response.json().project_id ?? response.json().error.code)).toEqual([
    'demo',
    'module_does_not_exist',
  ])
})

test('a key whose row is locked is accepted without waiting', async () => {
  const { text } = await newKey()
  const obstacle = await holdLock(api.databaseUrl, "SELECT FROM api_keys WHERE project_id = 'demo' FOR UPDATE")
  for (let i = 0; i < 5; i += 1) expect((await api.call({ path: MODULES, key: text })).statusCode).toBe(200)
  await obstacle.release()
})

test('a key gives access only to the operations of its scopes', async () => {
  const [reader, writer, neither] = [
    await newKey({ scopes: ['read'] }),
    await newKey({ scopes: ['events:write'] }),
    await newKey({ scopes: [] }),
  ]
  const before = await rowCounts(api.db)
  const post = (key: string) => api.call({ method: 'POST', path: '/projects/demo/events', key, body: EVENT })
  for (const key of [reader.text, neither.text]) {
    const response = await post(key)
    expect(response.statusCode).toBe(403)
    expect(response.json().error).toEqual({
      code: 'insufficient_scope',
      message: 'This key does not have the scope "events:write", which this operation requires.',
    })
  }
  for (const key of [writer.text, neither.text]) {
    const response = await api.call({ path: MODULES, key })
    expect(response.statusCode).toBe(403)
    expect(response.json().error.message).toContain('"read"')
  }
  expect(await rowCounts(api.db)).toEqual(before)
  expect((await post(writer.text)).statusCode).toBe(200)
  expect((await api.call({ path: MODULES, key: reader.text })).statusCode).toBe(200)
})

test('the use of a key is recorded to the minute, and that of a refused key is not', async () => {
  const [refused, used] = [await newKey(), await newKey()]
  const lastUse = async ({ key_id }: { key_id: string }) => {
    const row = api.db.selectFrom('api_keys').select('last_used_at').where('key_id', '=', key_id)
    return (await row.executeTakeFirstOrThrow()).last_used_at
  }
  await api.call({ path: MODULES, key: formatKey({ ...generateKey(), key_id: refused.key_id }) })
  await api.call({ path: MODULES, key: used.text })
  await expect.poll(() => lastUse(used)).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:00\.000Z$/)
  // It would have been written with the other, or before it.
  expect(await lastUse(refused)).toBeNull()
})

test('the use of a key is recorded again in each minute of use', async () => {
  const { text, key_id } = await newKey()
  const lastUse = async () => {
    const row = api.db.selectFrom('api_keys').select('last_used_at').where('key_id', '=', key_id)
    return (await row.executeTakeFirstOrThrow()).last_used_at
  }
  const start = Date.parse('2036-03-01T09:30:00.000Z')
  vi.useFakeTimers({ toFake: ['Date'] })
  try {
    for (const [elapsed_ms, minute] of [
      [59_999, '09:30'],
      [60_000, '09:31'],
      [119_999, '09:31'],
      [120_000, '09:32'],
      [3_600_000, '10:30'],
    ] as const) {
      vi.setSystemTime(start + elapsed_ms)
      expect((await api.call({ path: MODULES, key: text })).statusCode).toBe(200)
      await expect.poll(lastUse).toBe(`2036-03-01T${minute}:00.000Z`)
    }
  } finally {
    vi.useRealTimers()
  }
})
