import { sql } from 'kysely'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { asked, lookUp } from '../../src/database/batch-loader.ts'
import { connectShared, type Database } from '../../src/database/pool.ts'
import { insertProject } from '../../src/queries/projects.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { holdLock } from '../support/waiting.ts'

let database: TestDatabase
let db: Database
let other: Database
beforeAll(async () => {
  database = await createTestDatabase()
  db = connectShared(database.url, { max: 1 })
  other = connectShared(database.url, { max: 1 })
  for (const id of ['a', 'b', 'c']) await insertProject(db, id, `Project ${id}`)
})
afterEach(() => vi.restoreAllMocks())
afterAll(async () => {
  await Promise.all([db.destroy(), other.destroy()])
  await database.drop()
})

const findProject = lookUp((db, projectIds: string[]) =>
  db
    .selectFrom(asked({ project_id: 'text' }, projectIds))
    .innerJoin('projects as p', 'p.project_id', 'asked.project_id')
    .select(['asked.number', 'p.project_id', 'p.name']),
)
const divide = lookUp((db, numbers: number[]) =>
  db
    .selectFrom(asked({ divisor: 'integer' }, numbers))
    .select((eb) => ['asked.number', eb(eb.val(6), '/', eb.ref('asked.divisor')).as('quotient')]),
)

/** The arguments of the statements that are sent from now on. */
function watchStatements() {
  const query = vi.spyOn(pg.Client.prototype, 'query')
  const sent = () => query.mock.calls.map(([statement]) => statement as unknown as { values?: unknown[] })
  // What prepares a connection is text alone.
  return () => sent().flatMap(({ values }) => (values ? [values] : []))
}

test('what is asked for at once is one statement, and each gets its own', async () => {
  const sent = watchStatements()
  const found = await Promise.all(['c', 'a', 'absent', 'b'].map((id) => findProject(db, id)))
  expect(found).toEqual([
    { project_id: 'c', name: 'Project c' },
    { project_id: 'a', name: 'Project a' },
    undefined,
    { project_id: 'b', name: 'Project b' },
  ])
  expect(sent()).toEqual([[['c', 'a', 'absent', 'b']]])
})

test('who asks for the same gets the same', async () => {
  const sent = watchStatements()
  const [first, second, third] = await Promise.all([findProject(db, 'a'), findProject(db, 'b'), findProject(db, 'a')])
  expect(third).toBe(first)
  expect(second).not.toBe(first)
  expect(sent()).toEqual([[['a', 'b']]])
})

test('who asks later asks anew, though the answer to the same is under way', async () => {
  const sent = watchStatements()
  const before = findProject(db, 'a')
  await vi.waitUntil(() => sent().length === 1, { interval: 0 })
  const after = findProject(db, 'a')
  expect(await after).not.toBe(await before)
  expect(sent()).toHaveLength(2)
})

test('a look-up waits for no list, however slow', async () => {
  const two = connectShared(database.url, { max: 2 })
  const obstacle = await holdLock(database.url, 'SELECT pg_advisory_xact_lock(7)')
  const slow = Array.from({ length: 3 }, () => sql`SELECT pg_advisory_xact_lock(7)`.execute(two))
  await obstacle.waiting(1)
  expect(await findProject(two, 'a')).toMatchObject({ name: 'Project a' })
  await obstacle.release()
  await Promise.all(slow)
  await two.destroy()
})

test('each database is asked for itself', async () => {
  const sent = watchStatements()
  await Promise.all([findProject(db, 'a'), findProject(other, 'a')])
  expect(sent()).toHaveLength(2)
})

test('an error is told to all who asked with it, and to nobody after', async () => {
  const outcomes = await Promise.allSettled([divide(db, 0), divide(db, 2)])
  expect(outcomes).toMatchObject([{ reason: { code: '22012' } }, { reason: { code: '22012' } }])
  expect(await divide(db, 2)).toEqual({ quotient: 3 })
})
