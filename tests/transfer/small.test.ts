import type pg from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { openImportPool } from '../../src/database/open.ts'
import { createPool } from '../../src/database/pool.ts'
import { TARGET_TABLES } from '../../src/transfer/stage.ts'
import { renewPlans } from '../../src/transfer/tables.ts'
import {
  contact,
  entry,
  group,
  load,
  module,
  openDatabase,
  project,
  version,
  view,
  watchConnection,
  watchQueries,
} from './fixture.ts'

/** A small import reads few of the stored rows, however many there are and whenever its statements were planned. */

const TABLES = Object.values(TARGET_TABLES)
const STORED_ENTRIES = 6_000

let database: Awaited<ReturnType<typeof openDatabase>>
let pool: pg.Pool
beforeAll(async () => {
  database = await openDatabase()
  pool = openImportPool(database.url, { max: 1 })
  await load(pool, MODULE)
})
afterAll(async () => {
  await pool.end()
  await database[Symbol.asyncDispose]()
})

const MODULE = [project(), group(), module(), version(1, '2026-01-02T00:00:00.000Z')]

const visit = (id: string, views: number) => [
  contact(`c-${id}`, [{ key: 'email', value: JSON.stringify(`${id}@example.com`) }]),
  entry({ entry_id: id, contact_id: `c-${id}` }),
  ...Array.from({ length: views }, (_, i) => view(`${id}-${i}`, i, i, { entry_id: id })),
]

/** How many rows and index entries of the target tables have been read so far. */
async function rowsRead(pool: pg.Pool): Promise<number> {
  // Statistics are shared only from time to time, unless the session that reads is told to.
  await pool.query('SELECT pg_stat_force_next_flush()')
  // A Citus server would hide the shards.
  await pool.query("SELECT set_config('citus.override_table_visibility', 'off', false)")
  const { rows } = await pool.query(`SELECT (
      (SELECT sum(seq_tup_read + COALESCE(idx_tup_fetch, 0)) FROM pg_stat_user_tables WHERE schemaname = 'public')
      + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = 'public')
    )::integer AS read`)
  return rows[0].read
}

/** It would make statistics now and then, and be in the way of others who do. */
async function endAutovacuum(pool: pg.Pool): Promise<void> {
  for (const table of TABLES) await pool.query(`ALTER TABLE ${table} SET (autovacuum_enabled = off)`)
}

/** Adds projects so that their table has as many pages: four rows fill one. */
async function fillPages(pool: pg.Pool, pages: number): Promise<void> {
  await pool.query(`INSERT INTO projects SELECT i::text, repeat('x', 1900)
    FROM generate_series((SELECT count(*) FROM projects), ${pages * 4 - 1}) i`)
}

test.each([0, 10])('a small import looks rows up, with plans made when there were %s entries', async (count) => {
  const database = await openDatabase()
  onTestFinished(() => database[Symbol.asyncDispose]())
  const pool = openImportPool(database.url, { max: 1 })
  onTestFinished(() => pool.end())
  await endAutovacuum(database.pool)
  const visits = (name: string, count: number) =>
    Array.from({ length: count }, (_, i) => visit(`${name}-${i}`, 5)).flat()
  await load(database.pool, [...MODULE, ...visits('early', count)])
  // Prepares the statements.
  await load(pool, visit('first', 3))
  // Without the statistics that a large import leaves: only autovacuum makes them.
  await load(database.pool, visits('stored', STORED_ENTRIES), { sizes: { analyze_from_lines: Infinity } })

  const before = await rowsRead(pool)
  await load(pool, visit('last', 10))
  const read = (await rowsRead(pool)) - before
  expect(read).toBeGreaterThan(10)
  expect(read).toBeLessThan(400)
})

test('a small import makes no temporary tables, whether it is refused or not', async () => {
  await load(pool, visit('without-tables', 3))
  await expect(load(pool, [view('orphan', 1, 1, { entry_id: 'nowhere' })])).rejects.toThrow('no entry with this id')
  const { rows } = await pool.query('SELECT relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()')
  expect(rows).toEqual([])
})

/** The names of the statements that a connection has prepared. */
const preparedOn = async (client: pg.PoolClient): Promise<string[]> =>
  (await client.query('SELECT name FROM pg_prepared_statements')).rows.map(({ name }) => name)

test.each([
  ['at once on a connection in pipeline mode', true],
  ['one after the other on any other', false],
])('the statements of a small import are prepared once, and sent %s', async (_, isPipelined) => {
  const own = (isPipelined ? openImportPool : createPool)(database.url, { max: 1 })
  onTestFinished(() => own.end())
  const { client, watched } = await watchConnection(own)
  const prepared: string[][] = []
  for (const id of ['prepared-1', 'prepared-2', 'prepared-3']) {
    await load(own, visit(`${id}-${isPipelined}`, 3))
    expect(watched.underWay).toBe(0)
    expect(watched.mostAtOnce > 1).toBe(isPipelined)
    prepared.push(await preparedOn(client))
  }
  const [first = []] = prepared
  const merging = first.filter((name) => name.startsWith('merge'))
  expect(merging.length).toBeGreaterThan(10)
  for (const name of merging) expect(name).toMatch(/^merge_[a-z_]+_\d+$/)
  expect(prepared).toEqual([first, first, first])
  expect(watched.sql.filter((sql) => sql.startsWith('ANALYZE'))).toEqual([])
})

test('a connection goes on after a column is added, as by a migration', async () => {
  await load(pool, visit('before', 1))
  await database.pool.query(`DO $$
    DECLARE name text;
    BEGIN
      FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
        EXECUTE format('ALTER TABLE %I ADD COLUMN added_later text', name);
      END LOOP;
    END $$`)
  await load(pool, visit('after', 2))
  const { rows } = await database.pool.query("SELECT FROM events WHERE entry_id = 'after'")
  expect(rows).toHaveLength(2)
})

test('a connection plans anew once tables have grown, and analyzes a large one that has no statistics', async () => {
  await using database = await openDatabase()
  await endAutovacuum(database.pool)
  onTestFinished(() => void vi.restoreAllMocks())
  using connections = new DisposableStack()
  const connect = async () => {
    const client = await database.pool.connect()
    connections.defer(() => client.release(true))
    const watched = watchQueries(client)
    /** What is done, one after the other, after the sizes of the tables are read. */
    const renew = async () => {
      await renewPlans(client)
      expect(watched).toMatchObject({ underWay: 0, mostAtOnce: 1 })
      return watched.sql.splice(0).slice(1)
    }
    return { renew }
  }
  const one = await connect()
  expect(await one.renew()).toEqual(['DISCARD PLANS'])
  expect(await one.renew()).toEqual([])
  await fillPages(database.pool, 16)
  expect(await one.renew()).toEqual(['DISCARD PLANS'])
  await fillPages(database.pool, 31)
  expect(await one.renew()).toEqual([])
  await fillPages(database.pool, 32)
  const whichAreAnalyzed = expect.stringContaining('FROM pg_stats')
  expect(await one.renew()).toEqual([whichAreAnalyzed, 'ANALYZE (SKIP_LOCKED) projects', 'DISCARD PLANS'])
  const other = await connect()
  expect(await other.renew()).toEqual([whichAreAnalyzed, 'DISCARD PLANS'])
})

test('a connection goes on when a large table cannot be analyzed in time', async () => {
  await using database = await openDatabase()
  await endAutovacuum(database.pool)
  await fillPages(database.pool, 32)
  const client = await database.pool.connect()
  using connections = new DisposableStack()
  connections.defer(() => client.release(true))
  const query = client.query.bind(client) as (sql: string) => Promise<pg.QueryResult>
  const sent: string[] = []
  vi.spyOn(client, 'query').mockImplementation(((sql: string) => {
    sent.push(sql)
    return query(sql.startsWith('ANALYZE') ? "DO $$ BEGIN RAISE SQLSTATE '57014'; END $$" : sql)
  }) as never)
  onTestFinished(() => void vi.restoreAllMocks())
  await renewPlans(client)
  expect(sent.slice(2)).toEqual(['ANALYZE (SKIP_LOCKED) projects', 'DISCARD PLANS'])
})
