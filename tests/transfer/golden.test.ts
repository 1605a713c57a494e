/** See tests/golden/README.md: a failure here means that stored data or clients would break. */
import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { withPool } from '../../src/database/open.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { createTestApp, importFile, type TestApp } from '../support/app.ts'
import { goldenFile, vectorsOf } from '../support/golden.ts'
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

test.each(vectorsOf('cursor'))('the next cursor of $list is $cursor', async ({ scope, cursor }) => {
  const [operation, , ...rest] = scope
  const direction = rest.pop()
  const [path, filters]: [string, (string | null)[]] =
    operation === 'listModuleVersions'
      ? [`modules/${rest[0]}/versions`, []]
      : operation === 'listEntryEvents'
        ? [`entries/${rest[0]}/events`, []]
        : ['entries-page-views', rest]
  const query = ['updated_after', 'updated_before'].flatMap((name, i) => (filters[i] ? [`&${name}=${filters[i]}`] : []))
  const response = await api.call({
    path: `/projects/acme/${path}?direction=${direction}&limit=1${query.join('')}`,
    key,
  })
  expect(response.headers['next-cursor']).toBe(cursor)
})

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
