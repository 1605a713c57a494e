/** Any list, walked with any limits, is the sorted list, each row once; a cursor works for its own walk only. */
import fc from 'fast-check'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { createPool } from '../../src/database/pool.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import type { FiniteList } from '../support/lists.ts'
import { runs, TEST_OPTIONS } from '../support/properties.ts'
import { load } from '../transfer/fixture.ts'

const PROJECT_ID = 'demo'
const LISTS: Record<FiniteList, { path: string; field: string; hasWindow: boolean }> = {
  listModuleVersions: { path: `/projects/${PROJECT_ID}/modules/m/versions`, field: 'version_number', hasWindow: false },
  listEntryEvents: { path: `/projects/${PROJECT_ID}/entries/e/events`, field: 'page_id', hasWindow: false },
  listEntries: { path: `/projects/${PROJECT_ID}/entries`, field: 'entry_id', hasWindow: true },
  listEntryPageViews: { path: `/projects/${PROJECT_ID}/entries-page-views`, field: 'entry_id', hasWindow: true },
}
const LIST_NAMES = Object.keys(LISTS) as FiniteList[]

const COUNT = 40
/** So few seconds that many rows coincide. */
const SECONDS = 6
const at = (second: number) => `2026-02-01T10:00:0${second}.000Z`
/** Ids that bytes sort otherwise than languages do, in an order unlike that of the rows. */
const id = (i: number) => `${['a', 'B', 'é', '🦉', '\uffee', '10', '9', '~'][i % 8]}-${(i * 7) % COUNT}`
const secondOf = (i: number) => (i * 5) % SECONDS

const bytewise = (a: string, b: string) => Buffer.compare(Buffer.from(a), Buffer.from(b))
const rows = Array.from({ length: COUNT }, (_, i) => ({ id: id(i), instant: at(secondOf(i)), number: i + 1 }))
const byInstant = rows.toSorted((a, b) => bytewise(a.instant, b.instant) || bytewise(a.id, b.id))

/** What a walk of a list has to give, from the first to the last row. */
function expected({ list, direction, after, before }: Request): (string | number)[] {
  const ascending =
    list === 'listModuleVersions'
      ? rows.map(({ number }) => number)
      : byInstant
          .filter(
            ({ instant }) => !LISTS[list].hasWindow || ((!after || instant >= after) && (!before || instant < before)),
          )
          .map((row) => row.id)
  return direction === 'ASC' ? ascending : ascending.toReversed()
}

let api: TestApp
let key: string
beforeAll(async () => {
  const own = { project_id: PROJECT_ID }
  const saved = { saved_at: at(0), published_at: at(0), json_string: '{}' }
  const view = { type: 'event', event_type: 'flowpage.viewed', view_type: 'flowpage', page_key: 'k', page_index: 0 }
  const updated = { module_id: 'm', contact_id: 'c', created_at: at(0) }
  const records = [
    { type: 'project' },
    { type: 'group', group_id: 'g' },
    { type: 'module', module_id: 'm', group_id: 'g', title: 'm' },
    ...rows.map(({ number }) => ({ type: 'module_version', module_id: 'm', version_number: number, ...saved })),
    { type: 'contact', contact_id: 'c', identifiers: [] },
    ...rows.map(({ id, instant }) => ({ type: 'entry', entry_id: id, ...updated, updated_at: instant })),
    // In the window of no test.
    { type: 'entry', entry_id: 'e', ...updated, updated_at: '2026-02-01T11:00:00.000Z' },
    ...rows.map(({ id, instant }) => ({ ...view, entry_id: 'e', event_id: id, page_id: id, timestamp: instant })),
  ]
  api = await createTestApp({
    fill: async (url) => {
      const pool = createPool(url, { max: 1 })
      await load(
        pool,
        records.map((record) => ({ ...record, ...own })),
      )
      await pool.end()
    },
  })
  key = await createKey(api.db, PROJECT_ID, { name: '', scopes: SCOPES, expires_at: null })
})
afterAll(() => api.close())

interface Request {
  list: FiniteList
  direction: 'ASC' | 'DESC'
  after: string | undefined
  before: string
}
const request: fc.Arbitrary<Request> = fc
  .record({
    list: fc.constantFrom(...LIST_NAMES),
    direction: fc.constantFrom('ASC' as const, 'DESC' as const),
    window: fc.tuple(fc.option(fc.nat(SECONDS), { nil: undefined }), fc.integer({ min: 1, max: SECONDS + 1 })),
  })
  .map(({ list, direction, window: [from, length] }) => ({
    ...{ list, direction },
    after: from === undefined ? undefined : at(from),
    before: at(Math.min((from ?? 0) + length, 9)),
  }))

const get = ({ list, direction, after, before }: Request, more: Record<string, string | number>) => {
  const filters = LISTS[list].hasWindow ? { ...(after && { updated_after: after }), updated_before: before } : {}
  const query = Object.entries({ direction, ...filters, ...more }).map(([name, value]) => `${name}=${value}`)
  return api.call({ path: `${LISTS[list].path}?${query.join('&')}`, key })
}
const cursorOf = (response: Awaited<ReturnType<typeof get>>) => response.headers['next-cursor'] as string | undefined

test('a list walked with any limits is the sorted list, each row once', TEST_OPTIONS, async () => {
  await fc.assert(
    fc.asyncProperty(request, fc.infiniteStream(fc.integer({ min: 1, max: 25 })), async (request, limits) => {
      const walked: unknown[] = []
      const all = expected(request)
      for (let cursor: string | undefined, isFirst = true; isFirst || cursor !== undefined; isFirst = false) {
        const limit = limits.next().value as number
        const response = await get(request, { limit, ...(cursor !== undefined && { cursor }) })
        expect(response.statusCode, response.body).toBe(200)
        const page = response.json() as Record<string, unknown>[]
        expect(page).toHaveLength(Math.min(limit, all.length - walked.length))
        walked.push(...page.map((row) => row[LISTS[request.list].field]))
        cursor = cursorOf(response)
      }
      expect(walked).toEqual(all)
    }),
    runs(80),
  )
})

test(
  'a cursor goes on behind its row whatever the limit, and in another list, direction or window is refused',
  TEST_OPTIONS,
  async () => {
    await fc.assert(
      fc.asyncProperty(request, request, fc.integer({ min: 1, max: 30 }), async (request, other, limit) => {
        const cursor = cursorOf(await get(request, { limit }))
        fc.pre(cursor !== undefined)
        const again = await get(request, { limit: 1, cursor: cursor as string })
        expect(again.json().map((row: Record<string, unknown>) => row[LISTS[request.list].field])).toEqual(
          expected(request).slice(limit, limit + 1),
        )
        const boundTo = ({ list, direction, after, before }: Request) =>
          JSON.stringify(LISTS[list].hasWindow ? [list, direction, after, before] : [list, direction])
        // Two random requests hardly ever differ in the list alone.
        for (const used of [other, ...LIST_NAMES.map((list) => ({ ...request, list }))]) {
          const { statusCode } = await get(used, { cursor: cursor as string })
          expect(statusCode, used.list).toBe(boundTo(used) === boundTo(request) ? 200 : 400)
        }
      }),
      runs(110),
    )
  },
)

test('a cursor with any change is refused', TEST_OPTIONS, async () => {
  const cursors = new Map<FiniteList, string>()
  const plain = (list: FiniteList): Request => ({ list, direction: 'ASC', after: undefined, before: at(9) })
  for (const list of LIST_NAMES) cursors.set(list, cursorOf(await get(plain(list), { limit: 3 })) ?? '')
  const change = fc.record({
    list: fc.constantFrom(...LIST_NAMES),
    at: fc.nat(100),
    removed: fc.nat(3),
    inserted: fc.string({ unit: fc.constantFrom('A', 'a', '0', '_', '-', '9'), maxLength: 4 }),
  })
  await fc.assert(
    fc.asyncProperty(change, async ({ list, at, removed, inserted }) => {
      const cursor = cursors.get(list) ?? ''
      const position = at % (cursor.length + 1)
      const changed = cursor.slice(0, position) + inserted + cursor.slice(position + removed)
      fc.pre(changed !== cursor && changed !== '')
      expect((await get(plain(list), { cursor: changed })).statusCode).toBe(400)
    }),
    runs(200),
  )
})
