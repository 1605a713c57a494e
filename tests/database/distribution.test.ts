import { PassThrough } from 'node:stream'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { backUp } from '../../src/backup/backup.ts'
import { detectDistribution, isDistributed } from '../../src/database/distribution.ts'
import { isUnavailable } from '../../src/database/failures.ts'
import { connect, connectShared, openWritePool } from '../../src/database/open.ts'
import { createPool, type Database } from '../../src/database/pool.ts'
import { asPooler } from '../../src/database/pooler-client.ts'
import { prepare } from '../../src/database/prepared.ts'
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

  // Citus needs the values to know the node.
  const writePool = openWritePool(database.url, { max: 1 })
  const { rows } = await writePool.query('SHOW plan_cache_mode')
  await writePool.end()
  expect(rows).toEqual([{ plan_cache_mode: 'auto' }])
  const shared = connectShared(database.url, { max: 2 })
  const mode = prepare((on) => on.selectNoFrom(sql`current_setting('plan_cache_mode')`.as('mode')), { kind: 'look-up' })
  expect(await mode(shared)).toEqual([{ mode: 'auto' }])
  await shared.destroy()
})

describe('a transaction', () => {
  let tables = 0

  /** A table whose rows raise something at COMMIT. */
  const tableOf = async (level: 'NOTICE' | 'WARNING') => {
    tables += 1
    const name = `raising_${tables}`
    await sql
      .raw(`CREATE TABLE ${name} (id integer);
        CREATE FUNCTION ${name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE ${level} 'node lost'; RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER ${name} AFTER INSERT ON ${name} DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW EXECUTE FUNCTION ${name}()`)
      .execute(db)
    return name
  }
  const insertInto = (name: string) =>
    db.transaction().execute((trx) => sql`INSERT INTO ${sql.table(name)} VALUES (1)`.execute(trx))

  test('whose COMMIT has a warning fails as one whose outcome is unknown', async () => {
    const name = await tableOf('WARNING')
    const error = await insertInto(name).catch((reason: unknown) => reason)
    expect(error).toMatchObject({ message: 'Connection terminated to a node of the database: node lost' })
    expect(isUnavailable(error)).toBe(true)
    expect((await sql`SELECT FROM ${sql.table(name)}`.execute(db)).rows).toHaveLength(1)
    // The connection is as good as before.
    await db.transaction().execute((trx) => sql`SELECT`.execute(trx))
  })

  test('whose COMMIT has a notice does not', async () => {
    await insertInto(await tableOf('NOTICE'))
  })

  test('fails in the same way behind a pooler', async () => {
    const name = await tableOf('WARNING')
    const pooled = createPool(asPooler(database.url), { max: 1 })
    const failed = 'Connection terminated to a node of the database: node lost'
    const client = await pooled.connect()
    await client.query('BEGIN')
    await client.query(`INSERT INTO ${name} VALUES (2)`)
    const listeners = client.listenerCount('notice')
    await expect(client.query('COMMIT')).rejects.toThrow(failed)
    expect(client.listenerCount('notice')).toBe(listeners)
    client.release()
    await pooled.end()
  })
})
