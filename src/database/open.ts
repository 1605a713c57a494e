import { Kysely, PostgresDialect } from 'kysely'
import type pg from 'pg'
import { useEmbeddedServer } from '../../db/embedded/server.ts'
import { type MigrateOptions, migrate, migrationStatus, newerMigrations, pendingMigrations } from '../../db/migrate.ts'
import type { DB } from '../../generated/database.ts'
import { FLOWTRAIL } from '../release.ts'
import { PipelinedDialect } from './pipelined-dialect.ts'
import { connectionBreaker, createPool, type Database, IDLE_TRANSACTION_TIMEOUT_ms, type PoolOptions } from './pool.ts'
import { asPooler, usesPooler } from './pooler-client.ts'
import { keepsSessions } from './sessions.ts'

const EMBEDDED = {
  name: 'flowtrail',
  advice: {
    alternative: 'set DATABASE_URL to a PostgreSQL of your own',
    upgrade: 'Back up with the release of Flowtrail that created it and restore with this one, in another DATA_DIR.',
  },
}

/** How long a database may take to say who it is, in milliseconds: a pooler that is paused lets clients log in, and is silent. */
const FIRST_RESPONSE_TIMEOUT_ms = 10_000

/** What is said of a pooler in transaction mode. @param setting that has the connection string */
export const transactionPooler = (setting: string) => ({
  problem: 'pooler in transaction mode, which loses session settings and prepared statements between transactions',
  fix: `Add pgbouncer=true to ${setting}, connect to PostgreSQL directly, or set the pooler to session mode`,
})

/** Where the database is: the operator's or, without a URL, an embedded one in the data directory. */
export interface DatabaseLocation {
  databaseUrl: string | undefined
  dataDir: string
  /** Called once an embedded one has been created. */
  onCreate?: () => void
}

/** A running database server; `release()` stops an embedded one that no other process uses. */
export interface DatabaseServer {
  url: string
  release: () => Promise<void>
}

export interface ServerOptions {
  /** Start an embedded server again when it dies. */
  supervise?: boolean
  /** Called with each line of the embedded server's log. */
  onLog?: (message: string) => void
  /** Gives up the start of an embedded server, or the first look at the operator's, when it aborts. */
  signal?: AbortSignal | undefined
}

/**
 * The operator's PostgreSQL or, without a URL, the embedded one, started if it is not running.
 * @throws Error with one line that says how to fix it; when the signal aborts first, its reason for an embedded server, else the
 * error of the connection that it breaks
 */
export async function openServer(
  { databaseUrl, dataDir, onCreate }: DatabaseLocation,
  options: ServerOptions = {},
): Promise<DatabaseServer> {
  if (databaseUrl !== undefined) {
    const { signal } = options
    await refuseTransactionPooler(databaseUrl, 'DATABASE_URL', { signal, queryTimeout_ms: FIRST_RESPONSE_TIMEOUT_ms })
    return { url: databaseUrl, release: async () => {} }
  }
  const server = await useEmbeddedServer({ dataDir, onCreate, ...EMBEDDED, ...options })
  return { url: server.url, release: () => server.release() }
}

/**
 * Makes sure that the database responds, and that sessions are kept, unless the connection string says that they are not.
 * @param setting that has the connection string
 * @throws Error when they are not, which says how to fix it
 */
export async function refuseTransactionPooler(url: string, setting: string, options?: PoolOptions): Promise<void> {
  // Sessions that others may use, too, must not get our settings.
  const pool = createPool(asPooler(url), options)
  try {
    if (usesPooler(url)) await pool.query('SELECT')
    if (usesPooler(url) || (await keepsSessions(pool))) return
  } finally {
    await pool.end()
  }
  const { problem, fix } = transactionPooler(setting)
  throw new Error(`${setting} leads through a ${problem}. ${fix}`)
}

/**
 * Makes sure that this release runs on the schema: the embedded database is migrated, the operator's is only checked.
 *
 * @returns the migrations that were applied, and those of the next release, which were found
 * @throws Error when the operator's database has pending migrations, naming the command that applies them, or when this
 * release is too old for the schema
 */
export async function ensureMigrated(
  { databaseUrl }: DatabaseLocation,
  db: Database,
  options: MigrateOptions = {},
): Promise<{ applied: string[]; newer: string[] }> {
  const applied = databaseUrl === undefined ? await migrate(db, options) : []
  const status = await migrationStatus(db)
  const newer = newerMigrations(status)
  const pending = pendingMigrations(status)
  if (pending.length > 0) {
    throw new Error(`Pending migrations: ${pending.join(', ')}. Run: ${FLOWTRAIL} migrate`)
  }
  return { applied, newer }
}

/** Opens Kysely on a pool of its own, with a connection for each query under way; `destroy()` closes both. */
export const connect = (url: string, options: PoolOptions = {}): Database => connectBy(createPool(url, options))

const connectBy = (pool: pg.Pool): Database => new Kysely<DB>({ dialect: new PostgresDialect({ pool }) })

/**
 * Opens Kysely on `max` connections that all queries share without waiting for each other's results: for single
 * statements, not for transactions. With a lock timeout, a prepared query that has not got a lock within it is sent again until
 * the statement timeout, and does not keep others waiting meanwhile.
 */
export function connectShared(url: string, { queryTimeout_ms, ...options }: PoolOptions = {}): Database {
  const pool = createPool(url, { ...options, pipeline: true })
  const sharing = { readTimeout_ms: queryTimeout_ms, patience_ms: options.statementTimeout_ms }
  return new Kysely<DB>({ dialect: new PipelinedDialect(pool, sharing) })
}

/** Opens a pool for transactions in pipeline mode, as recording needs it. */
export const openWritePool = (url: string, options: PoolOptions = {}): pg.Pool =>
  createPool(url, { genericPlans: true, ...options, pipeline: true })

/** How much longer than a statement may run to wait for its result, in milliseconds. After that the server is frozen or unreachable. */
export const RESPONSE_GRACE_ms = 5_000

/** How long a statement of an import over HTTP may run, in milliseconds. One on 16 MiB takes a second. */
export const IMPORT_STATEMENT_TIMEOUT_ms = 10_000

/** Longer than a flow runtime rests, since each connection for imports prepares its statements, and on a Citus cluster creates tables. */
const IMPORT_IDLE_TIMEOUT_ms = 300_000

/**
 * A session's temporary tables hold back the reuse of transaction ids; when these run out, PostgreSQL refuses all writes.
 */
const IMPORT_MAX_LIFETIME_s = 3_600

/** Opens a pool for imports over HTTP, whose connections keep prepared statements, and on a Citus cluster temporary tables. */
export const openImportPool = (url: string, options: PoolOptions = {}): pg.Pool =>
  openWritePool(url, {
    idleTimeout_ms: IMPORT_IDLE_TIMEOUT_ms,
    maxLifetime_s: IMPORT_MAX_LIFETIME_s,
    // Its temporary tables have a few rows or a million.
    genericPlans: false,
    ...options,
    queryTimeout_ms: Math.max(options.statementTimeout_ms ?? 0, IMPORT_STATEMENT_TIMEOUT_ms) + RESPONSE_GRACE_ms,
  })

/** Runs work on the database server, whatever its schema, and releases it. @param signal gives up its start */
export async function withServer<T>(
  location: DatabaseLocation,
  work: (server: DatabaseServer) => Promise<T>,
  signal?: AbortSignal,
): Promise<T> {
  const server = await openServer(location, { signal })
  return releasing(
    () => work(server),
    () => server.release(),
  )
}

/** Runs work, and then what releases what it has used. @throws what that does, unless the work has failed: its error says more */
async function releasing<T>(work: () => Promise<T>, release: () => Promise<void>): Promise<T> {
  let result: T
  try {
    result = await work()
  } catch (error) {
    await release().catch(() => {})
    throw error
  }
  await release()
  return result
}

/** The database with its schema made sure of; `close()` abandons what is under way, and releases its server, too. */
export interface OpenDatabase {
  db: Database
  url: string
  close: () => Promise<void>
  /** Breaks the connections that are in use, so that PostgreSQL undoes the transactions on them; a single statement may go on. */
  abandon: () => void
}

/**
 * Opens the database.
 * @param options.signal gives that up, and then breaks the connections that are in use, as `abandon()` does
 */
export async function openDatabase(location: DatabaseLocation, options: PoolOptions = {}): Promise<OpenDatabase> {
  await using cleanup = new AsyncDisposableStack()
  const { signal } = options
  const server = await openServer(location, { signal })
  cleanup.defer(() => server.release())
  // A migration, which only the embedded database gets here, may take longer than the queries for which the options are.
  const queryTimeout_ms = location.databaseUrl === undefined ? undefined : options.queryTimeout_ms
  const migrating = connect(server.url, {
    idleTransactionTimeout_ms: IDLE_TRANSACTION_TIMEOUT_ms,
    queryTimeout_ms,
    signal,
  })
  await releasing(
    () => ensureMigrated(location, migrating),
    () => migrating.destroy(),
  )
  const pool = createPool(server.url, { idleTransactionTimeout_ms: IDLE_TRANSACTION_TIMEOUT_ms, ...options })
  const abandon = connectionBreaker(pool)
  const db = connectBy(pool)
  cleanup.defer(() => db.destroy())
  // Work that was interrupted would otherwise go on, and commit its transactions.
  cleanup.defer(abandon)
  const opened = cleanup.move()
  return { db, url: server.url, close: () => opened.disposeAsync(), abandon }
}

/**
 * Runs work on the database, its schema made sure of, and releases both the database and its server.
 * @param options those of `openDatabase`
 */
export async function withDatabase<T>(
  location: DatabaseLocation,
  work: (db: Database, url: string) => Promise<T>,
  options?: PoolOptions,
): Promise<T> {
  const { db, url, close } = await openDatabase(location, options)
  return releasing(() => work(db, url), close)
}

/** Runs work on one connection to the database, for what needs pg itself, and closes it. */
export async function withPool<T>(
  url: string,
  work: (pool: pg.Pool) => Promise<T>,
  options: PoolOptions = {},
): Promise<T> {
  const pool = createPool(url, { ...options, max: 1 })
  return releasing(
    () => work(pool),
    () => pool.end(),
  )
}
