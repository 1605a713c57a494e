import { sql } from 'kysely'
import { expect, onTestFinished, test, vi } from 'vitest'
import { lookUpSized, type SizedRow, SMALL_PAGE_bytes, selectPage } from '../../src/database/large-rows.ts'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import type { NamedQuery } from '../../src/database/prepared.ts'
import type { PageQuery } from '../../src/domain/cursor.ts'
import type { ReadLease } from '../../src/domain/read-lease.ts'
import type { IsoTimestamp } from '../../src/domain/timestamp.ts'
import { findEntry, selectEntriesPage, selectEntryPageViewsPage } from '../../src/queries/entries.ts'
import { selectErasuresPage } from '../../src/queries/erasures.ts'
import { selectEventsPage, selectFeedPage } from '../../src/queries/events.ts'
import { findModule, findModuleVersion } from '../../src/queries/modules.ts'
import { importInto } from '../support/app.ts'
import { createTestDatabase } from '../support/database.ts'
import { UNLIMITED } from '../support/lease.ts'
import { lengthenKeys, longKey } from '../support/long-keys.ts'

// What happens between the two queries of a page with large rows, and which rows are large; tests/http/large.test.ts has
// the rest.

interface Row extends SizedRow {
  id: number
}
const MiB = 1024 * 1024
const row = (id: number, value_bytes: number | null = null): Row => ({ id, value_bytes })

/** A database of its own, until the test ends. */
async function emptyDatabase() {
  const { url, drop } = await createTestDatabase()
  const db = connect(url)
  onTestFinished(async () => {
    await db.destroy()
    await drop()
  })
  return { db, url }
}

/** A lease that is extended at once, and by how many bytes. */
function recordingLease() {
  const extended: number[] = []
  return { ...UNLIMITED, extended, extend: async (bytes: number) => void extended.push(bytes) }
}

/** A page of a list that becomes another one while the read waits for room. */
async function pageOf(before: Row[], after: Row[], limit: number) {
  let list = before
  const { extended, extend } = recordingLease()
  const lease = {
    ...UNLIMITED,
    extend: async (bytes: number) => {
      await extend(bytes)
      list = after
    },
  }
  const selected: unknown[] = []
  const { rows, more } = await selectPage(limit, lease, {
    select: async (count, isWhole) => {
      selected.push([count, isWhole])
      return list.slice(0, count)
    },
    selectAgain: async (large) => {
      const ids = large.map(({ id }) => id)
      selected.push(ids)
      list = after
      return after.filter(({ id }) => ids.includes(id)).map(({ id }) => row(id))
    },
    keyOf: ({ id }) => id,
  })
  return { ids: rows.map(({ id }) => id), more, extended, selected, left: rows.filter((one) => one.value_bytes) }
}

test('a page without large rows is selected once', async () => {
  const rows = [row(1), row(2), row(3)]
  expect(await pageOf(rows, [], 2)).toMatchObject({ ids: [1, 2], more: true, extended: [], selected: [[3, false]] })
  expect(await pageOf(rows, [], 3)).toMatchObject({ ids: [1, 2, 3], more: false, extended: [], selected: [[4, false]] })
})

test('large rows alone are selected again while the page has no more than it was admitted with', async () => {
  const text = 'x'.repeat(1_000)
  const rows = [row(1), row(2, 3 * 4_096 - 2_000), { ...row(3), text, list: [text] }, row(4)]
  expect(await pageOf(rows, rows, 3)).toEqual({
    ids: [1, 2, 3],
    more: true,
    extended: [],
    selected: [[4, false], [2]],
    left: [],
  })
  rows[1] = row(2, 3 * 4_096 - 1_999)
  const extended = [3 * 4_096 - 1_999 + 3 * 4_096]
  const selected = [
    [4, false],
    [3, true],
  ]
  expect(await pageOf(rows, rows, 3)).toMatchObject({ ids: [1, 2, 3], more: true, extended, selected })
})

test.each([
  [512 * 1024, [[1_001, false], [1]]],
  [
    512 * 1024 + 1,
    [
      [1_001, false],
      [1, true],
    ],
  ],
])('a page of %i bytes is selected by %j', async (bytes, selected) => {
  expect(await pageOf([row(1, bytes)], [row(1)], 1_000)).toMatchObject({ ids: [1], more: false, selected })
})

test('a page with a large row that is gone in between is selected once more', async () => {
  const rows = [row(4), row(3, 5_000), row(2, 5_000), row(1)]
  const after = [row(4), row(3), row(1)]
  expect(await pageOf(rows, after, 10)).toMatchObject({
    ids: [4, 3, 1],
    more: false,
    extended: [10_000 + 4 * 4_096],
    selected: [
      [11, false],
      [3, 2],
      [4, true],
    ],
  })
})

test.each([
  [[row(1, 5 * MiB), row(2, 3 * MiB), row(3)], 10, [1, 2, 3], false],
  [[row(1, 5 * MiB), row(2, 3 * MiB + 1), row(3)], 10, [1], true],
  [[row(1, 9 * MiB), row(2)], 10, [1], true],
  [[row(1, 9 * MiB)], 1, [1], false],
  [[row(1, 9 * MiB), row(2)], 1, [1], true],
])('of %j, %i a page, those that fit are %j, and more follow: %s', async (rows, limit, ids, more) => {
  expect(await pageOf(rows, rows, limit)).toMatchObject({ ids, more })
})

test('a row that is inserted in between leaves the last one to the next page', async () => {
  const rows = [row(3), row(2, 50_000), row(1)]
  expect(await pageOf(rows, [row(4), ...rows], 10)).toMatchObject({ ids: [4, 3, 2], more: true })
})

test('a row that is gone in between is missing', async () => {
  const rows = [row(3), row(2, 50_000), row(1)]
  expect(await pageOf(rows, rows.slice(1), 10)).toMatchObject({ ids: [2, 1], more: false })
})

test('rows and values from one byte above the limit on are read only when there is room for them', async () => {
  const { db, url } = await emptyDatabase()
  const project = { project_id: 'p' }
  const at = '2026-01-01T00:00:00.000Z'
  const ids = { module_id: 'm', contact_id: 'c' }
  // The last is larger than what is read between lists.
  const definitions = { m: 65_537, m512: 512 * 1024, m513: 512 * 1024 + 1 }
  const saved = { version_number: 1, saved_at: at, published_at: at }
  const entries = [0, 1].map((more) => ({
    entry: { entry_id: `e${more}`, entry_data: JSON.stringify('x'.repeat(65_534 + more)) },
    event: { custom_event_name: 'n', custom_event_props: JSON.stringify({ key: 'x'.repeat(4_086 + more) }) },
  }))
  await importInto(url, [
    { type: 'project', ...project },
    { type: 'group', ...project, group_id: 'g' },
    ...Object.entries(definitions).flatMap(([module_id, bytes]) => [
      { type: 'module', ...project, module_id, group_id: 'g', title: '' },
      { type: 'module_version', ...project, module_id, ...saved, json_string: JSON.stringify('x'.repeat(bytes - 2)) },
    ]),
    { type: 'contact', ...project, contact_id: 'c', identifiers: [] },
    ...entries.flatMap(({ entry, event }) => [
      { type: 'entry', ...project, ...ids, ...entry, created_at: at, updated_at: at },
      {
        type: 'event',
        ...project,
        entry_id: entry.entry_id,
        event_id: entry.entry_id,
        timestamp: at,
        event_type: 'custom_event:triggered',
        ...event,
      },
    ]),
  ])

  const lease = recordingLease()
  const query = { limit: 1, direction: 'ASC' as const }
  for (const { entry, event } of entries) {
    const { entry_id: entryId } = entry
    expect(await findEntry(db, lease, 'p', entryId)).toMatchObject(entry)
    const { rows } = await selectEventsPage(db, { path: { projectId: 'p', entryId }, query, lease })
    expect(rows).toMatchObject([event])
    expect(lease.extended).toEqual(entryId === 'e0' ? [] : [64 * 1024 + 1, 4_097 + 4_096])
  }

  const full: ReadLease = { ...UNLIMITED, extend: () => Promise.reject(new Error('full')) }
  await expect(findEntry(db, full, 'p', 'e1')).rejects.toThrow('full')
  const page = selectEventsPage(db, { path: { projectId: 'p', entryId: 'e1' }, query, lease: full })
  await expect(page).rejects.toThrow('full')
  // The connection for look-ups waits neither for large values nor for lists, and lists do not wait for large values.
  const execute = vi.spyOn(db, 'executeQuery')
  const kinds = async (read: () => Promise<unknown>) => {
    execute.mockClear()
    await read()
    return execute.mock.calls.map(([sent]) => (sent as NamedQuery).kind)
  }
  expect(await kinds(() => findEntry(db, lease, 'p', 'e1'))).toEqual(['look-up', 'list'])
  for (const id of ['m', 'm512', 'm513']) {
    const kind = id === 'm513' ? 'large' : 'list'
    expect(await kinds(() => findModule(db, lease, 'p', id))).toEqual(['look-up', kind])
    expect(await kinds(() => findModuleVersion(db, lease, 'p', id, 1))).toEqual(['look-up', kind])
  }
  const path = { projectId: 'p', entryId: 'e1' }
  expect(await kinds(() => selectEventsPage(db, { path, query, lease }))).toEqual(['list', 'list'])
  await sql`UPDATE events SET custom_event_props = ${JSON.stringify('x'.repeat(512 * 1024))}`.execute(db)
  expect(await kinds(() => selectEventsPage(db, { path, query, lease }))).toEqual(['list', 'large'])
})

const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString() as IsoTimestamp
const SMALL_AND_LARGE = ['small', 'a'.repeat(5_000), 'small', 'b'.repeat(6_000), 'small']

/** A project with such texts in its entries, in their page views and in the events of the first of them. */
function mixedProject(project_id: string, prefix = ''): object[] {
  const project = { project_id }
  const ids = { module_id: 'm', contact_id: 'c' }
  const version = { version_number: 1, saved_at: at(0), published_at: at(0), json_string: '{}' }
  const visits = SMALL_AND_LARGE.map((text, i) => {
    const value = prefix + text
    const entry = { entry_id: `e${i}`, created_at: at(i), updated_at: at(i), entry_data: JSON.stringify(value) }
    const page_key = text === 'small' ? value : longKey(`${prefix}${text[0]}`, text.length)
    const view = { view_type: 'flowpage', page_id: 'p', page_key, page_index: 0, total_pages: 1 }
    const custom = { custom_event_name: 'n', custom_event_props: JSON.stringify({ value }) }
    return [
      { type: 'entry', ...ids, ...entry },
      { type: 'event', entry_id: `e${i}`, event_id: `v${i}`, timestamp: at(i), event_type: 'flowpage.viewed', ...view },
      {
        type: 'event',
        entry_id: 'e0',
        event_id: `t${i}`,
        timestamp: at(i),
        event_type: 'custom_event:triggered',
        ...custom,
      },
    ]
  })
  return [
    { type: 'project' },
    { type: 'group', group_id: 'g' },
    { type: 'module', module_id: 'm', group_id: 'g', title: '' },
    { type: 'module_version', module_id: 'm', ...version },
    { type: 'contact', contact_id: 'c', identifiers: [] },
    ...visits.flat(),
  ].map((record) => ({ ...record, ...project }))
}

test('a page with large rows is the same as its rows one by one, in each list', async () => {
  const { db, url } = await emptyDatabase()
  await importInto(url, [...mixedProject('p'), ...mixedProject('other', 'other ')])
  await lengthenKeys(url)
  for (const project_id of ['p', 'other']) {
    const erasures = SMALL_AND_LARGE.map((text, i) => ({
      ...{ project_id, erasure_id: `r${i}`, position: i + 1, contact_id: 'c', erased_at: at(0) },
      entry_ids: [project_id, ...text],
    }))
    await db.insertInto('erasures').values(erasures).execute()
  }

  const path = { projectId: 'p', entryId: 'e0' }
  const lists = [selectEntriesPage, selectEntryPageViewsPage, selectEventsPage, selectFeedPage, selectErasuresPage]
  for (const select of lists) {
    for (const direction of ['ASC', 'DESC'] as const) {
      const read = async (query: Omit<PageQuery, 'direction'>, lease: ReadLease) => {
        const { rows, continuationAfter } = await select(db, { path, query: { ...query, direction }, lease })
        return { rows: rows.map(({ value_bytes: _, ...row }) => row), ...continuationAfter(rows.length) }
      }
      const oneByOne: object[] = []
      let page = await read({ limit: 1 }, UNLIMITED)
      oneByOne.push(...page.rows)
      while (page.more) {
        page = await read({ limit: 1, cursor: page.cursor as string }, UNLIMITED)
        oneByOne.push(...page.rows)
      }
      const lease = recordingLease()
      expect((await read({ limit: 50 }, lease)).rows).toEqual(oneByOne)
      expect(lease.extended).toEqual([])
      expect(JSON.stringify(oneByOne).length).toBeGreaterThan(11_000)
    }
  }
})

test.each([
  [SMALL_PAGE_bytes, 'list'],
  [SMALL_PAGE_bytes + 1, 'large'],
])('a value of %i bytes is looked up again as a whole, with the queries of kind %s', async (value_bytes, kind) => {
  const lease = recordingLease()
  const find = lookUpSized((isWhole, kind) => async (_: Database, id: number) => ({
    ...{ id, isWhole, kind },
    value_bytes: isWhole ? null : value_bytes,
  }))
  expect(await find({} as Database, lease, 7)).toMatchObject({ id: 7, isWhole: true, kind })
  expect(lease.extended).toEqual([value_bytes])
})
