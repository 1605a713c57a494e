import { expect, test } from 'vitest'
import { atOrAfter, before, defineList } from '../../src/database/list.ts'
import type { Database } from '../../src/database/pool.ts'
import { isInstantAndId, isInt32 } from '../../src/domain/cursor.ts'
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
