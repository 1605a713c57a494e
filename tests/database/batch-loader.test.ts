import { setImmediate } from 'node:timers/promises'
import fc from 'fast-check'
import { sql } from 'kysely'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { batchLoader } from '../../src/database/batch-loader.ts'
import { markDistributed } from '../../src/database/distribution.ts'
import { inputTable, integer, text } from '../../src/database/input-table.ts'
import { connectShared } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import type { Parameter } from '../../src/database/prepared.ts'
import { insertProject } from '../../src/queries/projects.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { runs } from '../support/properties.ts'
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

const findProject = batchLoader((db, projectIds: Parameter<string[]>) =>
  db
    .selectFrom(inputTable({ project_id: text(projectIds) }))
    .innerJoin('projects as p', 'p.project_id', 'input.project_id')
    .select(['input.ordinal', 'p.project_id', 'p.name']),
)
const divide = batchLoader((db, numbers: Parameter<number[]>) =>
  db
    .selectFrom(inputTable({ divisor: integer(numbers) }))
    .select((eb) => ['input.ordinal', eb(eb.val(6), '/', eb.ref('input.divisor')).as('quotient')]),
)

/** The values of the statements that are sent from now on. */
function watchStatements() {
  const query = vi.spyOn(pg.Client.prototype, 'query')
  const sent = () => query.mock.calls.map(([statement]) => statement as unknown as { values?: unknown[] })
  // The statements that set a session up are text without values.
  return () => sent().flatMap(({ values }) => (values ? [values] : []))
}

test('a query without the ordinals of its input does not compile', () => {
  // @ts-expect-error ordinal is not selected
  batchLoader((db, projectIds: Parameter<string[]>) =>
    db.selectFrom(inputTable({ project_id: text(projectIds) })).select('input.project_id'),
  )
  // @ts-expect-error the column is of numbers
  batchLoader((db, ids: Parameter<string[]>) => db.selectFrom(inputTable({ id: integer(ids) })).select('input.ordinal'))
})

test('the keys of one turn are one statement, and each caller gets its own row', async () => {
  const sent = watchStatements()
  const ids = ['c', 'a', 'absent', 'b']
  // Whatever is asked for in the turn, also once something else is there.
  const later = async (id: string, i: number) => {
    for (let n = 0; n < 10 * i; n += 1) await undefined
    return findProject(db, id)
  }
  const found = await Promise.all(ids.map(later))
  expect(found).toEqual([
    { project_id: 'c', name: 'Project c' },
    { project_id: 'a', name: 'Project a' },
    undefined,
    { project_id: 'b', name: 'Project b' },
  ])
  expect(sent()).toEqual([['{"c","a","absent","b"}']])
})

test('callers with equal keys share one object', async () => {
  const sent = watchStatements()
  const [first, second, third] = await Promise.all([findProject(db, 'a'), findProject(db, 'b'), findProject(db, 'a')])
  expect(third).toBe(first)
  expect(second).not.toBe(first)
  expect(sent()).toEqual([['{"a","b"}']])
})

test('keys whose parts are equal once they are joined are loaded each by itself', async () => {
  const echo = batchLoader((db, lefts: Parameter<string[]>, rights: Parameter<string[]>) =>
    db
      .selectFrom(inputTable({ left: text(lefts), right: text(rights) }))
      .select(['input.ordinal', 'input.left', 'input.right']),
  )
  const separators = ['', '/', ':', ',', '|', '-', '"', '","', '\\', '\u0001', ' ']
  const part = fc.string({ unit: fc.constantFrom('a', 'b', ...separators), maxLength: 4 })
  const ambiguous = separators.flatMap((one): [string, string][] => [
    ['a', `b${one}a`],
    [`a${one}b`, 'a'],
  ])
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(part, part), { maxLength: 20 }), async (keys) => {
      const found = await Promise.all(keys.map(([left, right]) => echo(db, left, right)))
      expect(found).toEqual(keys.map(([left, right]) => ({ left, right })))
    }),
    { ...runs(50), examples: [[ambiguous]] },
  )
})

test('a later turn loads an equal key again, even while the first load is under way', async () => {
  const sent = watchStatements()
  const before = findProject(db, 'a')
  await vi.waitUntil(() => sent().length === 1, { timeout: 30_000, interval: 0 })
  const after = findProject(db, 'a')
  expect(await after).not.toBe(await before)
  expect(sent()).toHaveLength(2)
})

test('a look-up does not wait for a list, however slow', async () => {
  const two = connectShared(database.url, { max: 2 })
  const obstacle = await holdLock(database.url, 'SELECT pg_advisory_xact_lock(7)')
  const slow = Array.from({ length: 3 }, () => sql`SELECT pg_advisory_xact_lock(7)`.execute(two))
  await obstacle.waiting(1)
  expect(await findProject(two, 'a')).toMatchObject({ name: 'Project a' })
  await obstacle.release()
  await Promise.all(slow)
  await two.destroy()
})

test('each database has batches of its own', async () => {
  const sent = watchStatements()
  await Promise.all([findProject(db, 'a'), findProject(other, 'a')])
  expect(sent()).toHaveLength(2)
})

test('an error rejects all loads of its batch, and none after it', async () => {
  const outcomes = await Promise.allSettled([divide(db, 0), divide(db, 2)])
  expect(outcomes).toMatchObject([{ reason: { code: '22012' } }, { reason: { code: '22012' } }])
  expect(await divide(db, 2)).toEqual({ quotient: 3 })
})

describe('on a distributed database', () => {
  let distributed: Database
  beforeEach(() => {
    distributed = connectShared(database.url, { max: 1 })
    markDistributed(distributed)
  })
  afterEach(() => distributed.destroy())

  const findByName = batchLoader((db, projectIds: Parameter<string[]>, names: Parameter<string[]>) =>
    db
      .selectFrom(inputTable({ project_id: text(projectIds), name: text(names) }))
      .innerJoin('projects as p', (join) =>
        join.onRef('p.project_id', '=', 'input.project_id').onRef('p.name', '=', 'input.name'),
      )
      .select(['input.ordinal', 'p.name']),
  )
  const NAME = { name: 'Project a' }

  test('keys wait for those of their project that are being loaded, and are then loaded together', async () => {
    const obstacle = await holdLock(database.url, 'LOCK TABLE projects')
    const sent = watchStatements()
    const first = findByName(distributed, 'a', 'Project a')
    await obstacle.waiting(1)
    const later = [findByName(distributed, 'a', 'Project a')]
    const ofOther = findByName(distributed, 'b', 'Project b')
    await vi.waitUntil(() => sent().length === 2, { timeout: 30_000, interval: 0 })
    later.push(findByName(distributed, 'a', 'none'))
    await obstacle.release()
    expect(await first).toEqual(NAME)
    expect(await ofOther).toEqual({ name: 'Project b' })
    expect(await Promise.all(later)).toEqual([NAME, undefined])
    expect(sent()).toEqual([
      ['{"a"}', '{"Project a"}', '{"a"}'],
      ['{"b"}', '{"Project b"}', '{"b"}'],
      ['{"a","a"}', '{"Project a","none"}', '{"a"}'],
    ])
  })

  test('an error rejects none of those that wait', async () => {
    const obstacle = await holdLock(database.url, 'LOCK TABLE projects')
    const first = findByName(distributed, 'a', 'Project a')
    const [pid = 0] = await obstacle.waiting(1)
    const second = findByName(distributed, 'a', 'Project a')
    await setImmediate()
    // Before it fails, which may be before the session that cancels it hears so.
    const failure = expect(first).rejects.toMatchObject({ code: '57014' })
    await obstacle.query(`SELECT pg_cancel_backend(${pid})`)
    await failure
    await obstacle.release()
    expect(await second).toEqual(NAME)
  })
})
