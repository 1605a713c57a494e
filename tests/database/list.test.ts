import { expect, test } from 'vitest'
import { atOrAfter, before, defineList } from '../../src/database/list.ts'
import type { Database } from '../../src/database/pool.ts'
import type { NamedQuery } from '../../src/database/prepared.ts'
import { isInstantAndId, isInt32, isPosition } from '../../src/domain/cursor.ts'
import { UNLIMITED } from '../support/lease.ts'

const VERSIONS = {
  operation: 'listModuleVersions',
  table: 'module_versions',
  scope: { projectId: 'project_id', moduleId: 'module_id' },
  filters: {},
  sortKey: ['version_number'],
  isSortKey: isInt32,
} as const
const ENTRIES = {
  operation: 'listEntryPageViews',
  table: 'entries',
  scope: { projectId: 'project_id' },
  filters: { updated_after: atOrAfter('updated_at'), updated_before: before('updated_at', 'updated_after') },
  sortKey: ['updated_at', 'entry_id'],
  isSortKey: isInstantAndId,
} as const

const versions = (db: Database) => db.selectFrom('module_versions').select('version_number')
const entries = (db: Database) => db.selectFrom('entries').select(['updated_at', 'entry_id'])

// No query is built here: `make check` fails if tsc lets one of the wrong descriptors pass.
test('a descriptor that does not fit its operation, table or query does not compile', () => {
  defineList(VERSIONS, (db, page) => versions(db).$call(page))
  defineList(ENTRIES, (db, page) => entries(db).$call(page))

  // @ts-expect-error a filter of the document is missing
  defineList({ ...ENTRIES, filters: { updated_after: atOrAfter('updated_at') } }, (db, page) => entries(db).$call(page))
  // @ts-expect-error the document has no such filter
  defineList({ ...VERSIONS, filters: { saved_after: atOrAfter('saved_at') } }, (db, page) => versions(db).$call(page))
  // @ts-expect-error a parameter of the path is missing
  defineList({ ...VERSIONS, scope: { projectId: 'project_id' } }, (db, page) => versions(db).$call(page))
  // @ts-expect-error the operation has no pages
  defineList({ ...VERSIONS, operation: 'getModule' }, (db, page) => versions(db).$call(page))
  // @ts-expect-error the table has no such column to sort by
  defineList({ ...VERSIONS, sortKey: ['number'] }, (db, page) => versions(db).$call(page))
  // @ts-expect-error the key of a cursor has two parts
  defineList({ ...ENTRIES, sortKey: ['updated_at'] }, (db, page) => entries(db).$call(page))
  // @ts-expect-error the rows lack a column of the sort key
  defineList(ENTRIES, (db, page) => db.selectFrom('entries').select('entry_id').$call(page))

  const { filters } = ENTRIES
  // @ts-expect-error the table has no such column to filter by
  defineList({ ...ENTRIES, filters: { ...filters, updated_after: atOrAfter('saved_at') } }, (db, page) =>
    entries(db).$call(page),
  )
  // @ts-expect-error a window needs a filter that there is
  defineList({ ...ENTRIES, filters: { ...filters, updated_before: before('updated_at', 'since') } }, (db, page) =>
    entries(db).$call(page),
  )
})

test('a list whose query leaves the page out is refused when it is built', async () => {
  const select = defineList(VERSIONS, (db) => versions(db))
  const request = {
    path: { projectId: 'demo', moduleId: 'skin-quiz' },
    query: { limit: 10, direction: 'ASC' as const },
    lease: UNLIMITED,
  }
  await expect(select({} as Database, request)).rejects.toThrow('parameter 1 of 3 is not in the query')
})

/** A database that responds to each query with the next of these rows, and the names of the queries. */
function responding(...results: object[][]) {
  const names: string[] = []
  const executeQuery = async ({ name }: NamedQuery) => {
    names.push(name.replace(/_\d+$/, ''))
    return { rows: results.shift() ?? [] }
  }
  return { db: { executeQuery } as unknown as Database, names }
}

const ROWS = ['e1', 'e2'].map((entry_id) => ({ updated_at: '2026-01-01T00:00:00.000Z', entry_id, value_bytes: null }))
const FIRST = { path: { projectId: 'demo' }, query: { limit: 1, direction: 'ASC' as const }, lease: UNLIMITED }

test('a cursor is refused by another list of the same scope, filters and sort key', async () => {
  const pageViews = defineList(ENTRIES, (db, page) => entries(db).$call(page))
  const others = defineList({ ...ENTRIES, operation: 'listEntries' }, (db, page) => entries(db).$call(page))
  const { cursor } = (await pageViews(responding(ROWS).db, FIRST)).continuationAfter(1)
  const next = { ...FIRST, query: { ...FIRST.query, cursor } }
  expect((await pageViews(responding(ROWS).db, next)).after).toEqual(['2026-01-01T00:00:00.000Z', 'e1'])
  await expect(others(responding(ROWS).db, next)).rejects.toThrow('/query/cursor is not a cursor of this list')
})

test('a list that grows at its end has a cursor on an empty page, too', async () => {
  const erasures = {
    operation: 'listErasures',
    table: 'erasures',
    scope: { projectId: 'project_id' },
    filters: {},
    sortKey: ['position'],
    isSortKey: isPosition,
  } as const
  const select = (db: Database) => db.selectFrom('erasures').select('position')
  const growing = defineList({ ...erasures, origin: [0] }, (db, page) => select(db).$call(page))
  const complete = defineList(erasures, (db, page) => select(db).$call(page))
  expect((await growing(responding([]).db, FIRST)).continuationAfter(0)).toMatchObject({ cursor: expect.any(String) })
  expect((await complete(responding([]).db, FIRST)).continuationAfter(0).cursor).toBeUndefined()
})

test('every query of a list has the name of its operation in the metrics', async () => {
  const list = defineList(ENTRIES, (db, page) => entries(db).$call(page))
  const large = ROWS.map((row) => ({ ...row, value_bytes: 100 }))
  const { db, names } = responding(large, ROWS.slice(0, 1))
  await list(db, FIRST)
  expect(names).toEqual(['listEntryPageViews', 'listEntryPageViews'])
})
