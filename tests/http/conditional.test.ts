import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { serializeOnce } from '../../src/http/conditional.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { SECURITY_HEADERS } from '../support/contract.ts'
import { EVENT } from './requests.ts'

let api: TestApp
beforeAll(async () => {
  api = await createTestApp()
})
afterAll(() => api.close())

const ENTRY = '/projects/demo/entries/019ca8bb-b5c0-7000-8000-000000000001'

describe.each([
  ['getModule', '/projects/demo/modules/skin-quiz'],
  ['getModuleVersion', '/projects/demo/modules/skin-quiz/versions/2'],
  ['getEntry', ENTRY],
])('%s', (_, path) => {
  let etag: string
  beforeAll(async () => {
    etag = String((await api.call({ path })).headers.etag)
  })
  const getIfNoneMatch = (header: string, method: 'GET' | 'HEAD' = 'GET') =>
    api.call({ method, path, headers: { 'if-none-match': header } })

  test('has a strong entity tag that does not change', async () => {
    expect(etag).toMatch(/^"[A-Za-z0-9_-]{43}"$/)
    expect((await api.call({ path })).headers.etag).toBe(etag)
  })

  test.each<[string, (etag: string) => string]>([
    ['the tag', (tag) => tag],
    ['the weak tag', (tag) => `W/${tag}`],
    ['a list with it', (tag) => `"a", ${tag}, "b"`],
    ['a list without spaces', (tag) => `"a",W/${tag}`],
    ['a list with a comma within a tag', (tag) => `"a,b",${tag}`],
    ['a list with empty members', (tag) => `,, ${tag} ,`],
    ['*', () => '*'],
    ['* with white space', () => ' * '],
    ['* after a tag, as when the header is sent twice', () => '"a", *'],
  ])('is a 304 for %s, with GET and HEAD', async (_, header) => {
    for (const method of ['GET', 'HEAD'] as const) {
      const response = await getIfNoneMatch(header(etag), method)
      expect(response.statusCode).toBe(304)
      expect(response.body).toBe('')
      const { 'x-request-id': id, date: _date, connection: _connection, ...headers } = response.headers
      expect(id).toBeDefined()
      expect(headers).toEqual({
        etag,
        'cache-control': 'private, no-cache',
        vary: 'X-Api-Key',
        ...SECURITY_HEADERS,
      })
    }
  })

  test.each<[string, (etag: string) => string]>([
    ['another tag', () => '"other"'],
    ['a list of others', () => '"a", "b", W/"c"'],
    ['the tag without quotes', (tag) => tag.slice(1, -1)],
    ['the tag cut short', (tag) => `${tag.slice(0, -2)}"`],
    ['an open quote', (tag) => tag.slice(0, -1)],
    ['the tag within another', (tag) => `"x${tag.slice(1)}`],
    ['the tag in another case', (tag) => tag.toLowerCase()],
    ['an asterisk within a member', () => '"a", b*'],
    ['an asterisk before more', () => '*b'],
    ['the tag with something behind it', (tag) => `${tag}x`],
    ['10,000 quotes', () => '"'.repeat(9_999)],
  ])('is a 200 for %s', async (_, header) => {
    const response = await getIfNoneMatch(header(etag))
    expect(response.statusCode).toBe(200)
    expect(response.headers.etag).toBe(etag)
  })

  test('has the same headers for HEAD as for GET, and no body', async () => {
    const [get, head] = [await api.call({ path }), await api.call({ method: 'HEAD', path })]
    const comparable = ({ headers: { 'x-request-id': _id, date: _date, ...rest } }: typeof get) => rest
    expect(comparable(head)).toEqual(comparable(get))
    expect(head.body).toBe('')
  })

  test('is a 304 only for clients that may read it', async () => {
    expect((await api.call({ path, key: null, headers: { 'if-none-match': '*' } })).statusCode).toBe(401)
    const other = path.replace('skin-quiz', 'nowhere').replace(/0001$/, 'ffff')
    const missing = await api.call({ path: other, headers: { 'if-none-match': '*' } })
    expect(missing.statusCode).toBe(404)
    expect(missing.headers).not.toHaveProperty('etag')
  })

  test('refuses an empty If-None-Match', async () => {
    const response = await getIfNoneMatch('')
    expect(response.json().error.details).toEqual([{ pointer: '/headers/If-None-Match', message: 'must not be empty' }])
  })
})

test('a change produces another entity tag', async () => {
  const tag = async () => (await api.call({ path: ENTRY })).headers.etag
  const before = await tag()
  await api.db
    .updateTable('entries')
    .set({ entry_data: '{"skin_type":"oily"}' })
    .where('project_id', '=', 'demo')
    .execute()
  expect(await tag()).not.toBe(before)
})

test.each([
  '/projects/demo/modules',
  '/projects/demo/modules/skin-quiz/versions',
  `${ENTRY}/events`,
  '/projects/demo/entries-page-views',
])('the list %s has no entity tag and is not a 304', async (path) => {
  const response = await api.call({ path, headers: { 'if-none-match': '*' } })
  expect(response.statusCode).toBe(200)
  expect(response.headers).not.toHaveProperty('etag')
  expect(response.headers).toMatchObject({ 'cache-control': 'private, no-cache', vary: 'X-Api-Key, accept-encoding' })
})

test('concurrent requests share a result, each evaluates its own condition, and the next one sees a change', async () => {
  const path = '/projects/demo/modules/skin-quiz'
  const first = await api.call({ path })
  const together = await Promise.all([
    api.call({ path }),
    api.call({ path, headers: { 'if-none-match': String(first.headers.etag) } }),
    api.call({ method: 'HEAD', path }),
    api.call({ path: '/projects/demo/modules/absent' }),
    api.call({ path }),
  ])
  expect(together.map(({ statusCode, body }) => [statusCode, body.length > 0])).toEqual([
    [200, true],
    [304, false],
    [200, false],
    [404, true],
    [200, true],
  ])
  expect(together[0]?.body).toBe(first.body)
  expect(together[4]?.body).toBe(first.body)

  await api.db.updateTable('modules').set({ title: 'Renamed' }).where('module_id', '=', 'skin-quiz').execute()
  const renamed = await api.call({ path, headers: { 'if-none-match': String(first.headers.etag) } })
  expect(renamed.statusCode).toBe(200)
  expect(renamed.json()).toMatchObject({ title: 'Renamed' })
})

test('a recorded event has no entity tag and is not cached', async () => {
  const response = await api.call({
    method: 'POST',
    path: '/projects/demo/events',
    body: EVENT,
    headers: { 'if-none-match': '*' },
  })
  expect(response.statusCode).toBe(200)
  expect(response.headers).not.toHaveProperty('etag')
  expect(response.headers['cache-control']).toBe('no-store')
})

test.each([
  ['0a1B_~.+/=:@-', true],
  ['019ca8bb-b5c0-7a31-9b5e-3f1f6b3c2d10', true],
  ['x'.repeat(128), true],
  ['x'.repeat(129), false],
  ['', false],
  ['two words', false],
  ['<script>', false],
  ['a"b', false],
  ['schlüssel', false],
  ['a,b', false],
])('the X-Request-Id "%s" is echoed: %s', async (id, isAccepted) => {
  for (const path of ['/projects/demo/modules', '/projects/demo/modules/%ff', '/nowhere']) {
    const sent = (await api.call({ path, headers: { 'x-request-id': id } })).headers['x-request-id']
    if (isAccepted) expect(sent).toBe(id)
    else expect(sent).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/)
  }
})

test('a result that several requests share is serialized once', () => {
  const result = { module_id: 'ä' }
  expect(serializeOnce(result)).toEqual(Buffer.from('{"module_id":"ä"}'))
  expect(serializeOnce(result)).toBe(serializeOnce(result))
})
