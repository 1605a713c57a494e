/** See tests/golden/README.md: a failure here means that stored data or clients would break. */
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { withPool } from '../../src/database/open.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { createTestApp, importFile, type TestApp } from '../support/app.ts'
import { goldenFile, vectorsOf } from '../support/golden.ts'
import type { PagedList } from '../support/lists.ts'
import { dump, load } from './fixture.ts'

let api: TestApp
let key: string
beforeAll(async () => {
  api = await createTestApp({
    fill: async (url) => {
      await withPool(url, (pool) => load(pool, [{ type: 'project', project_id: 'demo' }]))
      await importFile(url, goldenFile('import.ndjson'))
    },
  })
  key = await createKey(api.db, 'acme', { name: '', scopes: SCOPES, expires_at: null })
})
afterAll(() => api.close())

test('the golden project is exported byte for byte', async () => {
  const exported = readFileSync(goldenFile('export.ndjson'), 'utf8')
  expect(await withPool(api.databaseUrl, (pool) => dump(pool))).toBe(exported)
})

const inWindow = ([after, before]: (string | null)[]) =>
  (after ? `&updated_after=${after}` : '') + (before ? `&updated_before=${before}` : '')

/** The path of each list, and its filters. */
const LISTS: Record<PagedList, (rest: (string | null)[]) => [path: string, filters?: string]> = {
  listModuleVersions: ([module_id]) => [`modules/${module_id}/versions`],
  listEntryEvents: ([entry_id]) => [`entries/${entry_id}/events`],
  listEntries: (bounds) => ['entries', inWindow(bounds)],
  listEntryPageViews: (bounds) => ['entries-page-views', inWindow(bounds)],
  listProjectEvents: () => ['events'],
  listErasures: () => ['erasures'],
}
const FEEDS: string[] = ['listProjectEvents', 'listErasures'] satisfies PagedList[]

test('every list with cursors has one among the vectors', () => {
  const lists = new Set<string>(vectorsOf('cursor').map(({ scope: [operation] }) => operation))
  expect(lists).toEqual(new Set(Object.keys(LISTS)))
})

test.each(vectorsOf('cursor'))(
  'the next cursor of $list is $cursor, and accepted',
  async ({ scope, key: [position], cursor }) => {
    const [operation, , ...rest] = scope
    const direction = rest.pop()
    const [path, filters = ''] = LISTS[operation](rest)
    const page = (start: string) =>
      api.call({ path: `/projects/acme/${path}?direction=${direction}&limit=1${filters}${start}`, key })
    const first = await page(FEEDS.includes(operation) ? `&after=${position}` : '')
    expect(first.headers['next-cursor']).toBe(cursor)
    expect((await page(`&cursor=${cursor}`)).statusCode).toBe(200)
  },
)

test.each(vectorsOf('request_digest'))(
  'the stored digest of the request $body is $digest',
  async ({ body, digest }) => {
    const headers = { 'idempotency-key': `golden-${digest}` }
    const response = await api.call({ method: 'POST', path: '/projects/acme/events', key, body, headers })
    expect(response.statusCode, response.body).toBe(200)
    const stored = await api.db
      .selectFrom('idempotency_keys')
      .select('request_digest')
      .where('idempotency_key', '=', headers['idempotency-key'])
      .executeTakeFirst()
    expect(stored?.request_digest.toString('hex')).toBe(digest)
  },
)
