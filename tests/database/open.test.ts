import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { sql } from 'kysely'
import pg from 'pg'
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { migrate } from '../../db/migrate.ts'
import { destroySocket } from '../../src/database/client.ts'
import {
  connect,
  type DatabaseLocation,
  ensureMigrated,
  openImportPool,
  openServer,
  openWritePool,
  refuseTransactionPooler,
  withDatabase,
  withPool,
  withServer,
} from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { asPooler } from '../../src/database/pooler-client.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { createDatabaseProxy } from '../support/database-proxy.ts'
import { MIGRATIONS, schemaNumber } from '../support/next-release.ts'

let database: TestDatabase
let db: Database
beforeEach(async () => {
  database = await createTestDatabase('template0')
  db = connect(database.url)
})
afterEach(async () => {
  await db.destroy()
  await database.drop()
})

const countProjects = (on: Database) => sql<{ count: number }>`SELECT count(*)::int AS count FROM projects`.execute(on)

/** Watches the pools that end until the test ends. */
function watchPools() {
  const { mock, mockRestore } = vi.spyOn(pg.Pool.prototype, 'end')
  onTestFinished(() => mockRestore())
  return { ended: () => mock.settledResults.filter(({ type }) => type === 'fulfilled').length }
}

describe('the schema', () => {
  test('is migrated in an embedded database', async () => {
    expect(await ensureMigrated({ databaseUrl: undefined, dataDir: '' }, db)).toEqual({
      applied: MIGRATIONS,
      newer: [],
    })
    expect((await countProjects(db)).rows).toEqual([{ count: 0 }])
  })

  test("that is missing in the operator's database is refused", async () => {
    await expect(ensureMigrated({ databaseUrl: database.url, dataDir: '' }, db)).rejects.toThrow(
      `Pending migrations: ${MIGRATIONS.join(', ')}. Run: npm run -s flowtrail -- migrate`,
    )
  })

  test('that lacks the last migration alone is refused', async () => {
    const last = MIGRATIONS.at(-1) as string
    await migrate(db)
    await sql`DELETE FROM kysely_migration WHERE name = ${last}`.execute(db)
    await expect(ensureMigrated({ databaseUrl: database.url, dataDir: '' }, db)).rejects.toThrow(
      `Pending migrations: ${last}. Run: npm run -s flowtrail -- migrate`,
    )
  })

  test('of the next release is accepted, and told', async () => {
    const location = { databaseUrl: database.url, dataDir: '' }
    await migrate(db)
    expect(await ensureMigrated(location, db)).toEqual({ applied: [], newer: [] })
    const next = `${schemaNumber(1)}-next`
    await sql`INSERT INTO kysely_migration VALUES (${next}, ${'2036-01-01'})`.execute(db)
    expect(await ensureMigrated(location, db)).toEqual({ applied: [], newer: [next] })
    expect(await ensureMigrated({ ...location, databaseUrl: undefined }, db)).toEqual({ applied: [], newer: [next] })
  })
})

describe('work on the database', () => {
  const activityOf = async (pid: number) => {
    const { rows } = await sql<{ state: string }>`SELECT state FROM pg_stat_activity WHERE pid = ${pid}`.execute(db)
    return rows.map(({ state }) => state)
  }

  test('has Kysely and the URL; its connections are closed afterwards, also when it fails', async () => {
    await migrate(db)
    const location = { databaseUrl: database.url, dataDir: '' }
    const { ended } = watchPools()
    const work = async (on: Database, url: string) => {
      await setImmediate()
      return [url, (await countProjects(on)).rows[0]?.count]
    }
    // The check for a pooler and that of the schema have connections of their own.
    expect(await withDatabase(location, work)).toEqual([database.url, 0])
    expect(ended()).toBe(3)
    await expect(withDatabase(location, () => Promise.reject(new Error('a bug')))).rejects.toThrow('a bug')
    // It has made no query.
    expect(ended()).toBe(5)
  })

  test('that fails leaves nothing of a transaction under way', async () => {
    await migrate(db)
    const isInserted = Promise.withResolvers<void>()
    const failing = withDatabase({ databaseUrl: database.url, dataDir: '' }, async (on) => {
      const transaction = on.transaction().execute(async (trx) => {
        await sql`INSERT INTO projects VALUES ('left', 'Left')`.execute(trx)
        isInserted.resolve()
        await sql`SELECT pg_sleep(60)`.execute(trx)
      })
      transaction.catch(() => {})
      await isInserted.promise
      throw new Error('a bug')
    })
    await expect(failing).rejects.toThrow('a bug')
    expect((await countProjects(db)).rows).toEqual([{ count: 0 }])
  })

  test('keeps no locks without a word for longer than a minute', async () => {
    await migrate(db)
    const shown = await withDatabase({ databaseUrl: database.url, dataDir: '' }, (on) =>
      sql`SHOW idle_in_transaction_session_timeout`.execute(on),
    )
    expect(shown.rows).toEqual([{ idle_in_transaction_session_timeout: '1min' }])
  })

  test('ends in PostgreSQL soon after its client has gone, within a long statement too', async () => {
    const pid = await withPool(database.url, async (pool) => {
      const client = await pool.connect()
      const { rows } = await client.query('SELECT pg_backend_pid() AS pid')
      const sleeping = client.query('SELECT pg_sleep(100)')
      await expect.poll(() => activityOf(rows[0].pid)).toEqual(['active'])
      destroySocket(client)
      await expect(sleeping).rejects.toThrow('Connection terminated')
      client.release(true)
      return rows[0].pid
    })
    await expect.poll(() => activityOf(pid)).toEqual([])
  })

  test('has one connection of pg; it is closed afterwards, also when it fails', async () => {
    const { ended } = watchPools()
    const work = async (pool: pg.Pool) => {
      await setImmediate()
      const { rows } = await pool.query('SELECT 1 AS one')
      return [pool.options.max, rows[0].one]
    }
    expect(await withPool(database.url, work)).toEqual([1, 1])
    const timeout = (pool: pg.Pool) => pool.query('SHOW statement_timeout')
    const { rows } = await withPool(database.url, timeout, { statementTimeout_ms: 1_234 })
    expect(rows).toEqual([{ statement_timeout: '1234ms' }])
    expect(ended()).toBe(2)
    await expect(withPool(database.url, () => Promise.reject(new Error('a bug')))).rejects.toThrow('a bug')
    expect(ended()).toBe(3)
  })
})

test.each([(url: string) => url, asPooler])(
  'a database that is silent after the login is not waited for',
  async (as) => {
    const proxy = await createDatabaseProxy(database.url)
    onTestFinished(() => proxy.close())
    proxy.freezeAt('SELECT')
    const opening = refuseTransactionPooler(as(proxy.reach(database.url)), 'DATABASE_URL', { queryTimeout_ms: 50 })
    await expect(opening).rejects.toThrow('Query read timeout')
  },
)

const NEVER_OPENED = () => Promise.reject(new Error('was opened'))
const openingServer = (location: DatabaseLocation, signal: AbortSignal) => withServer(location, NEVER_OPENED, signal)
const openingDatabase = (location: DatabaseLocation, signal: AbortSignal) =>
  withDatabase(location, NEVER_OPENED, { signal })
test.each([
  ['server that is silent after the login', openingServer, 'SELECT'],
  ['database that is silent after the login', openingDatabase, 'SELECT'],
  ['database that is silent about its schema', openingDatabase, 'to_regclass'],
])('a %s is not waited for once its start is given up', async (_, open, statement) => {
  const proxy = await createDatabaseProxy(database.url)
  onTestFinished(() => proxy.close())
  const isSilent = proxy.freezeAt(statement)
  const giveUp = new AbortController()
  const location = { databaseUrl: proxy.reach(database.url), dataDir: '' }
  const opening = open(location, giveUp.signal)
  await isSilent
  giveUp.abort(new Error('given up'))
  await expect(opening).rejects.toThrow(/^Connection terminated/)
})

test("an operator's database that is silent about its schema is waited for no longer than for a query", async () => {
  const proxy = await createDatabaseProxy(database.url)
  onTestFinished(() => proxy.close())
  proxy.freezeAt('to_regclass')
  const location = { databaseUrl: proxy.reach(database.url), dataDir: '' }
  await expect(withDatabase(location, NEVER_OPENED, { queryTimeout_ms: 500 })).rejects.toThrow('Query read timeout')
})

test('the connections for writing are in pipeline mode, with the options given', async () => {
  const pool = openWritePool(database.url, { max: 3 })
  expect(pool.options).toMatchObject({ max: 3, pipeline: true })
  await pool.end()
})

test('a connection for imports is kept for five minutes after its last, and for an hour in all however often it is used', async () => {
  const usual = openImportPool(database.url, { statementTimeout_ms: 1_000 })
  expect(usual.options).toMatchObject({ pipeline: true, idleTimeoutMillis: 300_000, maxLifetimeSeconds: 3_600 })
  // Its transactions set a statement timeout of their own, of ten seconds.
  expect(usual.options.query_timeout).toBe(15_000)
  const patient = openImportPool(database.url, { statementTimeout_ms: 60_000, queryTimeout_ms: 1 })
  expect(patient.options.query_timeout).toBe(65_000)
  await usual.end()
  const pool = openImportPool(database.url, { max: 1, maxLifetime_s: 0.05 })
  let isClosed = false
  pool.once('remove', () => {
    isClosed = true
  })
  while (!isClosed) await pool.query('SELECT 1')
  await pool.end()
})

/** An empty data directory for one test. */
async function createDataDir(): Promise<string> {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'flowtrail-open-'))
  onTestFinished(() => rm(dataDir, { recursive: true }))
  return dataDir
}

test('a platform without the embedded PostgreSQL is refused, with advice', async () => {
  const dataDir = await createDataDir()
  const { arch } = process
  onTestFinished(() => void Object.defineProperty(process, 'arch', { value: arch }))
  Object.defineProperty(process, 'arch', { value: 'pdp11' })
  await expect(openServer({ databaseUrl: undefined, dataDir })).rejects.toThrow(
    / is not installed\. .* or set DATABASE_URL to a PostgreSQL of your own\.$/,
  )
})

test('the data of another PostgreSQL is refused, with advice', async () => {
  const dataDir = await createDataDir()
  await mkdir(path.join(dataDir, 'postgres'))
  await writeFile(path.join(dataDir, 'postgres', 'PG_VERSION'), '14\n')
  await expect(openServer({ databaseUrl: undefined, dataDir })).rejects.toThrow(
    /was created by PostgreSQL 14, .* Back up with the release of Flowtrail that created it and restore with this one, in /,
  )
})

test('what fails after the work is not said in place of its own failure', async () => {
  const end = vi.spyOn(pg.Pool.prototype, 'end')
  onTestFinished(() => end.mockRestore())
  const location = { databaseUrl: database.url, dataDir: '' }
  await migrate(db)
  const work = (outcome: () => Promise<void>) =>
    withDatabase(location, async (on) => {
      await countProjects(on)
      end.mockImplementationOnce(async function (this: pg.Pool) {
        await this.end()
        throw new Error('cannot be closed')
      })
      await outcome()
    })
  await expect(work(() => Promise.reject(new Error('a bug')))).rejects.toThrow('a bug')
  await expect(work(async () => {})).rejects.toThrow('cannot be closed')
})

test('the embedded database has the name under which its data is found again, and stops after the work', async () => {
  const location = { databaseUrl: undefined, dataDir: await createDataDir() }
  const query = (url: string) => withPool(url, (pool) => pool.query('SELECT current_database(), current_user'))
  const { url, rows } = await withServer(location, async ({ url }) => ({ url, ...(await query(url)) }))
  expect(rows).toEqual([{ current_database: 'flowtrail', current_user: 'flowtrail' }])
  await expect(query(url)).rejects.toThrow('ENOENT')
})
