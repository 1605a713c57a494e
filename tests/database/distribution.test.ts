import { PassThrough } from 'node:stream'
import { sql } from 'kysely'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { backUp } from '../../src/backup/backup.ts'
import { detectDistribution, isDistributed, withoutWarnings } from '../../src/database/distribution.ts'
import { isUnavailable } from '../../src/database/failures.ts'
import { connect } from '../../src/database/open.ts'
import { createPool, type Database } from '../../src/database/pool.ts'
import { rewriteTables } from '../../src/queries/erasures.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { runFlowtrail } from '../support/service.ts'

let database: TestDatabase
let db: Database
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 })
})
afterAll(async () => {
  await db.destroy()
  await database.drop()
})

/** Makes the database look like that of a Citus cluster. */
async function pretendCitus(): Promise<void> {
  await db.connection().execute(async (session) => {
    await sql`SET allow_system_table_mods = on`.execute(session)
    await sql`CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass)`.execute(session)
    await sql`GRANT SELECT ON pg_catalog.pg_dist_partition TO public`.execute(session)
    await sql`SET allow_system_table_mods = off`.execute(session)
  })
}

test('a database is distributed if Citus has distributed its tables, and then some things are refused', async () => {
  expect(await detectDistribution(db)).toBe(false)
  await pretendCitus()
  // The extension alone is not enough.
  expect(await detectDistribution(db)).toBe(false)
  expect(isDistributed(db)).toBe(false)
  await sql`INSERT INTO pg_catalog.pg_dist_partition VALUES ('projects'::regclass)`.execute(db)
  expect(await detectDistribution(db)).toBe(true)
  expect(isDistributed(db)).toBe(true)

  const refused = 'The database is distributed by Citus. '
  const pool = createPool(database.url, { max: 1 })
  await expect(backUp(pool, new PassThrough())).rejects.toThrow(`${refused}Its nodes have no common snapshot`)
  await pool.end()
  await expect(rewriteTables(db)).rejects.toThrow(`${refused}It cannot wait for transactions`)
  const { exit, stderr } = runFlowtrail(['serve'], {
    ...{ DATABASE_URL: database.url, PORT: '0' },
    DATABASE_REPLICA_URLS: 'postgres://replica.invalid/flowtrail',
  })
  expect(await exit).toBe(1)
  expect(stderr()).toMatch(/^flowtrail: DATABASE_REPLICA_URLS names replicas of one server, but .+ Leave it out\n$/)
})

test('a transaction of a command whose commit has a warning fails as one whose outcome is unknown', async () => {
  await sql
    .raw(`CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'node lost'; RETURN NULL; END $$;
      CREATE TABLE warned (id integer);
      CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON warned DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION warn()`)
    .execute(db)
  const insert = db.transaction().execute((trx) => sql`INSERT INTO warned VALUES (1)`.execute(trx))
  const error = await insert.catch((reason: unknown) => reason)
  expect(String(error)).toContain('node lost')
  expect(isUnavailable(error)).toBe(true)
  expect((await sql`SELECT FROM warned`.execute(db)).rows).toHaveLength(1)
})

test('a commit with a warning fails as one whose outcome is unknown; a notice is none', async () => {
  const pool = createPool(database.url, { max: 1 })
  const client = await pool.connect()
  const raise = (level: string) => () => client.query(`DO $$ BEGIN RAISE ${level} 'node lost'; END $$`)
  await withoutWarnings(client, raise('NOTICE'))
  const error = await withoutWarnings(client, raise('WARNING')).catch((error: unknown) => error)
  expect(error).toMatchObject({ message: 'Connection terminated to a node of the database: node lost' })
  expect(isUnavailable(error)).toBe(true)
  await withoutWarnings(client, () => client.query('SELECT'))
  client.release()
  await pool.end()
})
