import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

let database: TestDatabase
let client: pg.Client
beforeAll(async () => {
  database = await createTestDatabase()
  client = new pg.Client(database.url)
  await client.connect()
})
afterAll(async () => {
  await client.end()
  await database.drop()
})

/** The rows of a query for what breaks a rule, each as text. */
const offenders = async (query: string): Promise<unknown[]> => {
  const { rows } = await client.query({ text: query, rowMode: 'array' })
  return rows.map((row) => row.join(' '))
}

const OURS = "relnamespace = 'public'::regnamespace AND relname NOT LIKE 'kysely%'"

test('there are twelve tables', async () => {
  expect(await offenders(`SELECT relname FROM pg_class WHERE relkind = 'r' AND ${OURS}`)).toHaveLength(12)
})

test('every table has a primary key, and every key, unique constraint and foreign key leads with project_id', async () => {
  const keyless = `SELECT relname FROM pg_class c WHERE relkind = 'r' AND ${OURS}
    AND NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = c.oid AND contype = 'p')`
  const leads = (columns: string, relation: string) =>
    `(SELECT attname FROM pg_attribute WHERE attrelid = ${relation} AND attnum = ${columns}[1]) = 'project_id'`
  const wrong = `SELECT conname FROM pg_constraint JOIN pg_class c ON c.oid = conrelid
    WHERE ${OURS} AND contype IN ('p', 'u', 'f') AND NOT (${leads('conkey', 'conrelid')}
      AND (contype <> 'f' OR ${leads('confkey', 'confrelid')}))`
  expect(await offenders(keyless)).toEqual([])
  expect(await offenders(wrong)).toEqual([])
})

test('an index finds the rows that refer to a deleted one', async () => {
  const unfound = `SELECT conname FROM pg_constraint JOIN pg_class c ON c.oid = conrelid WHERE ${OURS} AND contype = 'f'
    AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = conrelid AND indpred IS NULL
      AND (indkey::int2[])[0:cardinality(conkey) - 1] @> conkey)`
  expect(await offenders(unfound)).toEqual([])
})

test('every id and key column compares bytewise', async () => {
  const wrong = `SELECT relname, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
    WHERE ${OURS} AND relkind = 'r' AND attnum > 0 AND atttypid = 'text'::regtype AND attcollation <> '"C"'::regcollation
      AND (attname IN ('project_id', 'group_id', 'module_id', 'contact_id', 'entry_id', 'event_id', 'key_id', 'idempotency_key'))`
  expect(await offenders(wrong)).toEqual([])
})

test('every instant has milliseconds and a zone', async () => {
  const wrong = `SELECT relname, attname, format_type(atttypid, atttypmod) FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
    WHERE ${OURS} AND relkind = 'r' AND attnum > 0 AND (attname LIKE '%\\_at' OR attname = 'timestamp')
      AND format_type(atttypid, atttypmod) <> 'timestamp(3) with time zone'`
  expect(await offenders(wrong)).toEqual([])
})

test('indexes are named after their table', async () => {
  const wrong = `SELECT i.relname FROM pg_index JOIN pg_class i ON i.oid = indexrelid JOIN pg_class c ON c.oid = indrelid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relname NOT LIKE 'kysely%' AND NOT indisprimary
      AND i.relname NOT LIKE c.relname || '\\_%\\_idx'`
  expect(await offenders(wrong)).toEqual([])
})

test('there are no identity columns, sequences, triggers, SET NULL actions or statistics targets', async () => {
  expect(await offenders(`SELECT relname FROM pg_class WHERE relkind = 'S' AND ${OURS}`)).toEqual([])
  expect(await offenders("SELECT attname FROM pg_attribute WHERE attidentity <> ''")).toEqual([])
  expect(await offenders('SELECT tgname FROM pg_trigger WHERE NOT tgisinternal')).toEqual([])
  expect(
    await offenders("SELECT conname FROM pg_constraint WHERE contype = 'f' AND confdeltype IN ('n', 'd')"),
  ).toEqual([])
})
