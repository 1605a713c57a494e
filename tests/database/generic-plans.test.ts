import { sql } from 'kysely'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { connectShared, openImportPool, openWritePool } from '../../src/database/open.ts'
import { asPooler } from '../../src/database/pooler-client.ts'
import { prepare } from '../../src/database/prepared.ts'
import { findKey } from '../../src/queries/api-keys.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database.drop())

function open(max: number, url = database.url) {
  const db = connectShared(url, { max })
  onTestFinished(() => db.destroy())
  return db
}

const mode = sql<string>`current_setting('plan_cache_mode')`.as('mode')
const ofLookUps = prepare((db) => db.selectNoFrom(mode), { kind: 'look-up' })
const ofLists = prepare((db) => db.selectNoFrom(mode), { kind: 'list' })
const ofLarge = prepare((db) => db.selectNoFrom(mode), { kind: 'large' })

/** The statements that the connection of look-ups has prepared, and how often they were planned for their values. */
const preparedLookUps = prepare(
  (db) =>
    db.selectNoFrom(
      sql<{ name: string; custom: number }[]>`(
        SELECT jsonb_agg(jsonb_build_object('name', name, 'custom', custom_plans)) FROM pg_prepared_statements
      )`.as('statements'),
    ),
  { kind: 'look-up' },
)

test('look-ups are planned for all values, and lists and large values for theirs', async () => {
  const db = open(3)
  expect(await ofLookUps(db)).toEqual([{ mode: 'force_generic_plan' }])
  expect(await ofLists(db)).toEqual([{ mode: 'auto' }])
  expect(await ofLarge(db)).toEqual([{ mode: 'auto' }])
})

test('look-ups find each row by an index', async () => {
  const settings = ['enable_seqscan', 'enable_hashjoin', 'enable_mergejoin']
  for (const name of settings) {
    const setting = prepare((db) => db.selectNoFrom(sql`current_setting(${sql.lit(name)})`.as('value')), {
      kind: 'look-up',
    })
    expect(await setting(open(2)), name).toEqual([{ value: 'off' }])
  }
})

test('a look-up is planned once on a connection', async () => {
  const db = open(2)
  for (let i = 0; i < 8; i += 1) await findKey(db, 'p', `key ${i}`)
  const [row] = await preparedLookUps(db)
  expect(row?.statements).toContainEqual({ name: expect.stringMatching(/^findKey_/), custom: 0 })
})

test('where lists share the connection of look-ups, all are planned for their values', async () => {
  const db = open(1)
  expect(await ofLookUps(db)).toEqual([{ mode: 'auto' }])
})

test('a connection for look-ups that took the place of one that broke plans for all values, too', async () => {
  const db = open(2)
  await ofLookUps(db)
  const end = prepare((on) => on.selectNoFrom(sql`pg_terminate_backend(pg_backend_pid())`.as('ended')), {
    kind: 'look-up',
  })
  await expect(end(db)).rejects.toThrow()
  // Its end may be noticed only by the query after it.
  await expect.poll(() => ofLookUps(db).catch(() => 'broken')).toEqual([{ mode: 'force_generic_plan' }])
})

test('recording is planned for all values, and imports for theirs', async () => {
  const modes = await Promise.all(
    [openWritePool(database.url), openImportPool(database.url)].map(async (pool) => {
      const { rows } = await pool.query('SHOW plan_cache_mode')
      await pool.end()
      return rows[0].plan_cache_mode
    }),
  )
  expect(modes).toEqual(['force_generic_plan', 'auto'])
})

test('nothing is left in the sessions of a pooler', async () => {
  const url = asPooler(database.url)
  expect(await ofLookUps(open(2, url))).toEqual([{ mode: 'auto' }])
  const pool = openWritePool(url)
  const { rows } = await pool.query('SHOW plan_cache_mode')
  await pool.end()
  expect(rows).toEqual([{ plan_cache_mode: 'auto' }])
})
