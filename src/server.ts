import { once } from 'node:events'
import type { FastifyInstance } from 'fastify'
import { buildApp } from './app.ts'
import type { Config } from './config.ts'
import { connect, connectShared, ensureMigrated, openServer, openWritePool } from './database/open.ts'
import type { Database } from './database/pool.ts'

const READ_CONNECTIONS = 3
const WRITE_CONNECTIONS = 4
const STATEMENT_TIMEOUT_ms = 10_000
/** Longer than a statement may take: past it the server is frozen or out of reach. */
const QUERY_TIMEOUT_ms = 15_000
/** How long a stopping server waits for requests under way before it cuts their connections. */
const DRAIN_DEADLINE_ms = 25_000
/** How long all of stopping may take before the process ends, come what may. */
const STOP_DEADLINE_ms = 60_000

export interface ServeOptions {
  /** Runs when the database is ready and before the first request is taken. */
  prepare?: (db: Database, url: string) => Promise<void>
  /** Told the address when requests are taken. */
  onListening?: (address: string) => void
  /** Where the docs say that the demo project's key is. */
  demoKeyFile?: string
}

/**
 * The server process: database, app, listen, and on SIGINT or SIGTERM drain: stop taking requests, finish those under
 * way, then let go of the database. Resolves when all that is done.
 *
 * @throws Error with one line when it cannot start; everything begun is undone first
 */
export async function serve(config: Config, options: ServeOptions = {}): Promise<void> {
  const stop = stopSignal()
  const begun = new AsyncDisposableStack()
  try {
    await start(config, options, begun, stop)
  } finally {
    const deadline = setTimeout(() => process.exit(1), STOP_DEADLINE_ms).unref()
    await begun.disposeAsync()
    clearTimeout(deadline)
  }
}

/** Starts everything, noting in `begun` how to undo it, and waits for the stop; one that comes early ends the start. */
async function start(
  config: Config,
  options: ServeOptions,
  begun: AsyncDisposableStack,
  stop: AbortSignal,
): Promise<void> {
  const server = await openServer(config, {
    supervise: true,
    onLog: (message) => process.stderr.write(`${message}\n`),
  })
  begun.defer(() => server.release())
  if (stop.aborted) return

  await prepare(config, server.url, options)
  if (stop.aborted) return

  const timeouts = { statementTimeout_ms: STATEMENT_TIMEOUT_ms, queryTimeout_ms: QUERY_TIMEOUT_ms }
  const db = connectShared(server.url, { max: READ_CONNECTIONS, ...timeouts })
  begun.defer(() => db.destroy())
  const writePool = openWritePool(server.url, { max: WRITE_CONNECTIONS, ...timeouts })
  begun.defer(() => writePool.end())

  const logger = { level: config.logLevel }
  const app = await buildApp({ config, db, writePool, logger, demoKeyFile: options.demoKeyFile })
  begun.defer(() => drain(app))
  const address = await listen(app, config)
  options.onListening?.(address + config.basePath)
  if (!stop.aborted) await once(stop, 'abort')
  app.log.info('stopping: finishing the requests under way')
}

/** What comes before the first request, on a connection of its own: a migration may take as long as it needs. */
async function prepare(config: Config, url: string, options: ServeOptions): Promise<void> {
  const db = connect(url, { max: 1 })
  try {
    await ensureMigrated(config, db)
    await options.prepare?.(db, url)
  } finally {
    await db.destroy()
  }
}

async function drain(app: FastifyInstance): Promise<void> {
  const deadline = setTimeout(() => app.server.closeAllConnections(), DRAIN_DEADLINE_ms)
  await app.close()
  clearTimeout(deadline)
}

async function listen(app: FastifyInstance, { host, port }: Config): Promise<string> {
  try {
    return await app.listen({ host, port })
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    if (code === 'EADDRINUSE')
      throw new Error(`Port ${port} on ${host} is taken. Set PORT to another, e.g. PORT=${port + 1}`)
    if (code === 'EACCES') throw new Error(`Port ${port} needs privileges. Set PORT to one above 1023`)
    if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') throw new Error(`HOST ${host} is no address of this machine`)
    throw error
  }
}

/**
 * Aborts at the first SIGINT or SIGTERM. The listeners stay, so that more of them change nothing: npm passes on what
 * the terminal has sent already.
 */
function stopSignal(): AbortSignal {
  const controller = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => controller.abort())
  return controller.signal
}
