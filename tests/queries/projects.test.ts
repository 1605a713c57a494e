import { sql } from 'kysely'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import {
  insertProject,
  lockFreeProjects,
  lockProjects,
  ping,
  projectExists,
  selectLastEvents,
  selectProjectStats,
  selectProjects,
} from '../../src/queries/projects.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { holdProject } from '../support/waiting.ts'
import { storeFullProject, tablesOfProjects } from './full-project.ts'

const PROJECTS = ['b', 'a', 'c'].map((project_id) => ({ project_id, name: `Project ${project_id}` }))
const [B, A, C] = PROJECTS

let database: TestDatabase
let db: Database
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url)
  for (const { project_id, name } of PROJECTS) expect(await insertProject(db, project_id, name)).toBe(true)
})
afterAll(async () => {
  await db.destroy()
  await database.drop()
})

test('ping resolves when the database is available, and else rejects', async () => {
  const gone = await createTestDatabase()
  await gone.drop()
  const unavailable = connect(gone.url)
  await expect(ping(unavailable)).rejects.toThrow('does not exist')
  await unavailable.destroy()
  const execute = vi.spyOn(db, 'executeQuery')
  await ping(db)
  // It does not wait for lists.
  expect(execute).toHaveBeenCalledExactlyOnceWith(expect.objectContaining({ kind: 'look-up' }))
  execute.mockRestore()
})

test('projects are listed by id, and added once', async () => {
  expect(await insertProject(db, 'a', 'Another')).toBe(false)
  expect(await selectProjects(db)).toEqual([A, B, C])
})

test('a project exists or not', async () => {
  expect(await projectExists(db, 'a')).toBe(true)
  expect(await projectExists(db, 'd')).toBe(false)
})

test('projects are locked, or those that no other session has locked', async () => {
  const lock = await holdProject(database.url, 'b')
  const free = await db.transaction().execute((trx) => lockFreeProjects(trx, ['a', 'b']))
  expect(free).toEqual([{ project_id: 'a' }])
  const locked = db.transaction().execute((trx) => lockProjects(trx, ['a', 'b']))
  await lock.waiting(1)
  await lock.release()
  const rows = await locked
  expect(rows.map(({ project_id }) => project_id).sort()).toEqual(['a', 'b'])
})

/** A database with two projects that have rows in every table, and one that has none. */
async function filled(): Promise<Database> {
  const own = await createTestDatabase()
  onTestFinished(() => own.drop())
  const opened = connect(own.url)
  onTestFinished(() => opened.destroy())
  await insertProject(opened, 'empty', 'Project empty')
  for (const projectId of ['full', 'another']) await storeFullProject(own.url, opened, projectId)
  return opened
}

/** Records the event of e2 last, at this time; those before and behind it in the table, earlier and later by the clock. */
async function recordLast(on: Database, projectId: string, recorded_at: string): Promise<void> {
  await sql`UPDATE events SET position = CASE entry_id WHEN 'e2' THEN 3 WHEN 'e1' THEN 1 ELSE 2 END,
    recorded_at = CASE entry_id WHEN 'e2' THEN ${recorded_at} WHEN 'e1' THEN '2026-01-01' ELSE '2026-12-01' END::timestamptz
    WHERE project_id = ${projectId}`.execute(on)
}

test('the last event of each project is the one that was committed last', async () => {
  const on = await filled()
  await recordLast(on, 'another', '2026-02-02T00:00:00.000Z')
  await recordLast(on, 'full', '2026-02-01T00:00:00.000Z')
  expect(await selectLastEvents(on)).toEqual([
    { project_id: 'another', name: 'Project another', last_event_at: '2026-02-02T00:00:00.000Z' },
    { project_id: 'empty', name: 'Project empty', last_event_at: null },
    { project_id: 'full', name: 'Project full', last_event_at: '2026-02-01T00:00:00.000Z' },
  ])
})

test('the statistics of a project have its rows and their bytes', async () => {
  const on = await filled()
  await recordLast(on, 'full', '2026-02-01T00:00:00.000Z')
  // The row of the project itself is not counted.
  const tables = (await tablesOfProjects(on)).filter((table) => table !== 'projects')
  const bytesOf = async (projectId: string) => {
    const sizes = tables.map((table) =>
      sql<{ bytes: number }>`SELECT coalesce(sum(pg_column_size(t.*)), 0)::bigint AS bytes
        FROM ${sql.table(table)} t WHERE project_id = ${projectId}`.execute(on),
    )
    return (await Promise.all(sizes)).reduce((sum, { rows }) => sum + (rows[0]?.bytes ?? 0), 0)
  }
  const counts = { modules: 1, module_versions: 2, contacts: 2, entries: 3, events: 3 }
  const none = { modules: 0, module_versions: 0, contacts: 0, entries: 0, events: 0 }
  const [full, another, empty] = [
    { project_id: 'full', ...counts, bytes: await bytesOf('full'), last_event_at: '2026-02-01T00:00:00.000Z' },
    { project_id: 'another', ...counts, bytes: await bytesOf('another'), last_event_at: expect.any(String) },
    { project_id: 'empty', ...none, bytes: 0, last_event_at: null },
  ]
  expect(await selectProjectStats(on, 'full')).toEqual([full])
  expect(await selectProjectStats(on)).toEqual([another, empty, full])
})
