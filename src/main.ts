import { once } from 'node:events'
import type { FastifyInstance } from 'fastify'
import { connect, type Database } from '../db/connection.ts'
import { buildApp } from './app.ts'
import type { Config } from './config.ts'
import { type DatabaseServer, ensureMigrated, openServer } from './database.ts'

const READ_CONNECTIONS = 10
const WRITE_CONNECTIONS = 4
const STATEMENT_TIMEOUT_ms = 10_000
/** How long a stopping server waits for requests under way. */
const DRAIN_DEADLINE_ms = 25_000

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
  const undo: (() => Promise<unknown>)[] = []
  try {
    const server = await openServer(config, {
      supervise: true,
      onLog: (message) => process.stderr.write(`${message}\n`),
    })
    undo.push(() => server.release())
    const app = await start(config, server, options, undo)
    await stop
    app.log.info('stopping: finishing the requests under way')
  } finally {
    const deadline = setTimeout(() => process.exit(1), DRAIN_DEADLINE_ms).unref()
    for (const step of undo.reverse()) await step()
    clearTimeout(deadline)
  }
}

async function start(
  config: Config,
  server: DatabaseServer,
  options: ServeOptions,
  undo: (() => Promise<unknown>)[],
): Promise<FastifyInstance> {
  const open = (max: number) => {
    const db = connect(server.url, { max, statementTimeout_ms: STATEMENT_TIMEOUT_ms })
    undo.push(() => db.destroy())
    return db
  }
  const db = open(READ_CONNECTIONS)
  const writeDb = open(WRITE_CONNECTIONS)
  await ensureMigrated(config, db)
  await options.prepare?.(db, server.url)
  const app = await buildApp({
    config,
    db,
    writeDb,
    logger: { level: config.logLevel },
    demoKeyFile: options.demoKeyFile,
  })
  undo.push(() => app.close())
  const address = await listen(app, config)
  options.onListening?.(address + config.basePath)
  return app
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

/** Resolves at the first SIGINT or SIGTERM. More of them change nothing: npm passes on what the terminal sent already. */
async function stopSignal(): Promise<void> {
  await Promise.race(['SIGINT', 'SIGTERM'].map((signal) => once(process, signal)))
}
