import { useEmbeddedServer } from '../../db/embedded/server.ts'
import { migrate, migrationStatus, newerMigrations } from '../../db/migrate.ts'
import type { Config } from '../config.ts'
import { connect, type Database } from './pool.ts'

const EMBEDDED = {
  name: 'flowtrail',
  advice: {
    alternative: 'set DATABASE_URL to a PostgreSQL of your own',
    upgrade: 'Export with the release of Flowtrail that created it and import with this one, or set DATABASE_URL.',
  },
}

/** A database server at hand; `release()` lets go of it, which stops an embedded one that nobody else uses. */
export interface DatabaseServer {
  url: string
  release: () => Promise<void>
}

export interface OpenOptions {
  /** Keep an embedded server alive: start it again when it dies. */
  supervise?: boolean
  /** Told what the embedded server does, a line each. */
  onLog?: (message: string) => void
}

/**
 * The operator's PostgreSQL or, without DATABASE_URL, the embedded one, started when it is not running.
 * @throws Error with one line that says how to mend it
 */
export async function openServer(config: Config, options: OpenOptions = {}): Promise<DatabaseServer> {
  if (config.databaseUrl !== undefined) return { url: config.databaseUrl, release: async () => {} }
  const server = await useEmbeddedServer({ dataDir: config.dataDir, ...EMBEDDED, ...options })
  return { url: server.url, release: () => server.release() }
}

/**
 * Makes sure that the schema is the newest. The embedded database migrates itself; the operator's own is left to the
 * operator.
 *
 * @throws Error when the operator's database is not migrated, naming the command that does it, or when the schema is
 * newer than this release knows
 */
export async function ensureMigrated(config: Config, db: Database): Promise<void> {
  const newer = await newerMigrations(db)
  if (newer.length > 0) {
    throw new Error(`A newer release has migrated the database (${newer.join(', ')}). Run that release`)
  }
  if (config.databaseUrl === undefined) {
    await migrate(db)
    return
  }
  const missing = (await migrationStatus(db)).filter((migration) => !migration.executedAt).map(({ name }) => name)
  if (missing.length > 0) {
    throw new Error(`Pending migrations: ${missing.join(', ')}. Run: npm run -s flowtrail -- migrate`)
  }
}

/** Runs work on the configured database, its schema made sure of, and lets go of it afterwards, whatever happens. */
export async function withDatabase<T>(config: Config, work: (db: Database, url: string) => Promise<T>): Promise<T> {
  const server = await openServer(config)
  try {
    const db = connect(server.url)
    try {
      await ensureMigrated(config, db)
      return await work(db, server.url)
    } finally {
      await db.destroy()
    }
  } finally {
    await server.release()
  }
}
