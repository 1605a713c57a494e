import type { Config } from '../config.ts'
import { connect, ensureMigrated, openServer } from '../database/open.ts'
import type { Database } from '../database/pool.ts'
import type { Running } from './process.ts'

export interface DatabaseOptions {
  /** Runs once the database is migrated, before the server listens. The signal breaks the connection of `db`. */
  prepare?: (db: Database, url: string, signal: AbortSignal) => Promise<void>
  /** Called with what happens to the embedded PostgreSQL, which is otherwise logged. */
  onProgress?: (message: string) => void
}

/**
 * Opens the database, migrates the embedded one, and fills it.
 * @returns its URL, or undefined when the stop signal came first
 */
export async function prepareDatabase(
  config: Config,
  options: DatabaseOptions,
  { log, cleanup, stop }: Running,
): Promise<string | undefined> {
  try {
    const postgres = await openServer(config, {
      supervise: true,
      onLog: options.onProgress ?? ((message) => log.info(message)),
      signal: stop,
    })
    cleanup.defer(() => postgres.release())
    if (!stop.aborted) await migrateAndFill(config, postgres.url, options, { log, stop })
    return stop.aborted ? undefined : postgres.url
  } catch (error) {
    if (!stop.aborted) throw error
    return undefined
  }
}

/**
 * Migrates and fills the database on a connection without timeouts, since a migration may take as long as it needs. The
 * stop signal breaks it, which undoes the migration: an embedded PostgreSQL is to be stopped before the process must end.
 */
async function migrateAndFill(
  config: Config,
  url: string,
  options: DatabaseOptions,
  { log, stop }: Pick<Running, 'log' | 'stop'>,
): Promise<void> {
  const db = connect(url, { max: 1, signal: stop })
  try {
    const { applied, newer } = await ensureMigrated(config, db, {
      onBlocked: (message) => log.warn(message),
      signal: stop,
    })
    if (applied.length > 0) log.info({ migrations: applied }, 'migrated the schema')
    if (newer.length > 0)
      log.warn({ migrations: newer }, 'the schema is that of the next release; this one runs on it too')
    await options.prepare?.(db, url, stop)
  } finally {
    await db.destroy()
  }
}
