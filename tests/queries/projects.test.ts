import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import {
  insertProject,
  lockFreeProjects,
  lockProjects,
  ping,
  projectExists,
  selectProjects,
} from '../../src/queries/projects.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { holdProject } from '../support/waiting.ts'

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
