import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openWritePool } from '../../src/database/open.ts'
import { contact, entry, group, load, module, openDatabase, project, version, view } from './fixture.ts'

/** A small import reads few of the stored rows, however many there are: its plans rely on no statistics. */

const STORED_ENTRIES = 2_000

let database: Awaited<ReturnType<typeof openDatabase>>
let pool: pg.Pool
beforeAll(async () => {
  database = await openDatabase()
  pool = openWritePool(database.url, { max: 1 })
})
afterAll(async () => {
  await pool.end()
  await database[Symbol.asyncDispose]()
})

const visit = (id: string, views: number) => [
  contact(`c-${id}`, [{ key: 'email', value: JSON.stringify(`${id}@example.com`) }]),
  entry({ entry_id: id, contact_id: `c-${id}` }),
  ...Array.from({ length: views }, (_, i) => view(`${id}-${i}`, i, i, { entry_id: id })),
]

/** How many rows and index entries of the target tables have been read so far. */
async function rowsRead(): Promise<number> {
  // Statistics are shared only from time to time, unless the session that reads is told to.
  await pool.query('SELECT pg_stat_force_next_flush()')
  const { rows } = await database.pool.query(`SELECT (
      (SELECT sum(seq_tup_read + COALESCE(idx_tup_fetch, 0)) FROM pg_stat_user_tables WHERE schemaname = 'public')
      + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE schemaname = 'public')
    )::integer AS read`)
  return rows[0].read
}

test('a small import looks rows up, with plans made when the tables were empty', async () => {
  await load(pool, [project(), group(), module(), version(1, '2026-01-02T00:00:00.000Z')])
  // Prepares the statements.
  await load(pool, visit('first', 3))
  const all = Array.from({ length: STORED_ENTRIES }, (_, i) => visit(`stored-${i}`, 5)).flat()
  await load(database.pool, all)

  const before = await rowsRead()
  await load(pool, visit('last', 10))
  const read = (await rowsRead()) - before
  expect(read).toBeGreaterThan(10)
  expect(read).toBeLessThan(400)
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
