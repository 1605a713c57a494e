import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import { buildApp, createAdminApp } from './app.ts'
import type { Config, TracingOptions } from './config.ts'
import { connect, connectShared, ensureMigrated, openServer, openWritePool } from './database/open.ts'
import type { Database } from './database/pool.ts'
import { createLogger, loggerOptions } from './logger.ts'
import { describeRelease } from './release.ts'
import { STOP_SIGNALS } from './stop-signals.ts'
import type { Tracing } from './tracing/tracing.ts'

/** How much longer than a statement may run to wait for its result. After that the server is frozen or unreachable. */
const RESPONSE_GRACE_ms = 5_000
/** Longer than a flow runtime rests, since each connection for imports creates its temporary tables. */
const IMPORT_IDLE_TIMEOUT_ms = 300_000
/** How long closing the connections and stopping the embedded PostgreSQL may take before the process exits anyway. */
const CLEANUP_TIMEOUT_ms = 35_000

export interface ServeOptions {
  /** Runs once the database is migrated, before the server listens. */
  prepare?: (db: Database, url: string) => Promise<void>
  /** Called with what happens to the embedded PostgreSQL, which is otherwise logged. */
  onProgress?: (message: string) => void
  /** Called with the URL of the API once the server listens. */
  onListening?: (url: string) => void
  /** Where the docs page says to find the demo project's key. */
  demoKeyFile?: string
}

type Address = Pick<Config['server'], 'host' | 'port'>

interface Apps {
  app: FastifyInstance
  admin: { app: FastifyInstance; address: Address } | undefined
}

/**
 * Runs the server: opens the database and listens until a stop signal. Then says for a while that it is stopping, so
 * that proxies send requests elsewhere, and drains: it stops accepting requests, finishes those in progress and closes
 * the database. Resolves after all that.
 *
 * @throws Error with a one-line message when it cannot start, after cleaning up
 */
export async function serve(config: Config, options: ServeOptions = {}): Promise<void> {
  const stop = stopSignal()
  const logger = loggerOptions(config.logLevel)
  const log = createLogger(logger)
  const cleanup = new AsyncDisposableStack()
  try {
    log.info({ ...describeRelease(), node: process.version }, 'starting')
    const tracing = config.tracing && (await startTracing(config.tracing, log))
    if (tracing) cleanup.defer(() => tracing.stop())
    const apps = await start(config, options, { logger, log, cleanup, stop, tracing })
    if (!apps) return
    const { app, admin } = apps
    const address = await listen(app, config.server)
    if (admin) await listen(admin.app, admin.address, 'ADMIN_')
    options.onListening?.(config.http.publicUrl ?? address + config.http.basePath)
    if (!stop.aborted) await once(stop, 'abort')
    const { drainDelay_ms } = config.server
    if (drainDelay_ms > 0) {
      log.info(`stopping: serving for another ${drainDelay_ms / 1_000} seconds`)
      await sleep(drainDelay_ms)
    }
    log.info('stopping: draining requests in progress')
  } finally {
    // It is never cleared: connections to a frozen PostgreSQL stay open, and keep the process alive, after their pool ended.
    setTimeout(() => process.exit(1), config.server.drainTimeout_ms + CLEANUP_TIMEOUT_ms).unref()
    await cleanup.disposeAsync()
    log.info('stopped')
  }
}

/** What the server's steps share. */
interface Running {
  logger: ReturnType<typeof loggerOptions>
  log: ReturnType<typeof createLogger>
  cleanup: AsyncDisposableStack
  stop: AbortSignal
  tracing: Tracing | undefined
}

/**
 * Opens the database and builds the apps. Each step registers in `cleanup` how to undo it; they run in reverse order.
 * @returns undefined when the stop signal came first
 */
async function start(
  config: Config,
  options: ServeOptions,
  { logger, log, cleanup, stop, tracing }: Running,
): Promise<Apps | undefined> {
  const postgres = await openServer(config, {
    supervise: true,
    onLog: options.onProgress ?? ((message) => log.info(message)),
  })
  cleanup.defer(() => postgres.release())
  if (stop.aborted) return

  try {
    await prepare(config, postgres.url, options, { log, stop })
  } catch (error) {
    if (!stop.aborted) throw error
  }
  if (stop.aborted) return

  const { read, write, import: imports, statementTimeout_ms } = config.connections
  const timeouts = { statementTimeout_ms, queryTimeout_ms: statementTimeout_ms + RESPONSE_GRACE_ms }
  const db = connectShared(postgres.url, { max: read, ...timeouts })
  cleanup.defer(() => db.destroy())
  const writePool = openWritePool(postgres.url, { max: write, ...timeouts })
  cleanup.defer(() => writePool.end())
  const importPool = openWritePool(postgres.url, { max: imports, ...timeouts, idleTimeout_ms: IMPORT_IDLE_TIMEOUT_ms })
  cleanup.defer(() => importPool.end())

  const retention_days = config.idempotencyRetention_days
  const pruning =
    retention_days === undefined ? undefined : { db: connect(postgres.url, { max: 1, ...timeouts }), retention_days }
  if (pruning) cleanup.defer(() => pruning.db.destroy())

  const admin = config.server.admin && {
    app: createAdminApp({ logger, stopping: stop }, config.http),
    address: config.server.admin,
  }
  cleanup.defer(() => admin?.app.close())
  const app = await buildApp({
    config: config.http,
    db,
    writePool,
    importPool,
    recorder: config.recorder,
    pruning,
    logger,
    admin: admin?.app,
    tracing,
    demoKeyFile: options.demoKeyFile,
    stopping: stop,
  })
  cleanup.defer(() => drain(app, config.server.drainTimeout_ms))
  return { app, admin }
}

/** Loads OpenTelemetry only here: to a server without traces it costs nothing. */
async function startTracing(options: TracingOptions, log: Running['log']): Promise<Tracing> {
  const tracing = await import('./tracing/tracing.ts')
  return tracing.startTracing(options, describeRelease(), log)
}

/** Migrates and fills the database on a connection without timeouts, since a migration may take as long as it needs. */
async function prepare(
  config: Config,
  url: string,
  options: ServeOptions,
  { log, stop }: Pick<Running, 'log' | 'stop'>,
): Promise<void> {
  const db = connect(url, { max: 1 })
  try {
    const { applied, newer } = await ensureMigrated(config, db, {
      onBlocked: (message) => log.warn(message),
      signal: stop,
    })
    if (applied.length > 0) log.info({ migrations: applied }, 'migrated the schema')
    if (newer.length > 0)
      log.warn({ migrations: newer }, 'the schema is that of the next release; this one runs on it too')
    await options.prepare?.(db, url)
  } finally {
    await db.destroy()
  }
}

/** Listens; errors name the settings with this prefix. */
async function listen(app: FastifyInstance, { host, port }: Address, prefix = ''): Promise<string> {
  try {
    return await app.listen({ host, port })
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    if (code === 'EADDRINUSE')
      throw new Error(
        `Port ${port} on ${host} is already in use. Set ${prefix}PORT to another, e.g. ${prefix}PORT=${port + 1}`,
      )
    if (code === 'EACCES') throw new Error(`Port ${port} requires privileges. Set ${prefix}PORT to one above 1023`)
    if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
      throw new Error(`${prefix}HOST ${host} is not an address of this machine`)
    throw error
  }
}

async function drain(app: FastifyInstance, timeout_ms: number): Promise<void> {
  const deadline = setTimeout(() => app.server.closeAllConnections(), timeout_ms)
  await app.close()
  clearTimeout(deadline)
}

/**
 * Aborts on the first stop signal. The listeners stay registered to ignore further signals: npm forwards to us the
 * Ctrl-C that the terminal has already sent.
 */
function stopSignal(): AbortSignal {
  const controller = new AbortController()
  for (const signal of STOP_SIGNALS) process.on(signal, () => controller.abort())
  return controller.signal
}
