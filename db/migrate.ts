import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { type Kysely, sql } from 'kysely'
import {
  DEFAULT_MIGRATION_TABLE,
  type Migration,
  type MigrationInfo,
  type MigrationProvider,
  Migrator,
} from 'kysely/migration'

const MIGRATIONS = new URL('./migrations/', import.meta.url)
/** JavaScript in the package, which has its types beside it. */
const MIGRATION = /^[\w-]+\.[jt]s$/

const provider: MigrationProvider = {
  async getMigrations() {
    const files = (await readdir(MIGRATIONS)).filter((file) => MIGRATION.test(file)).sort()
    const modules = await Promise.all(files.map((file) => import(new URL(file, MIGRATIONS).href) as Promise<Migration>))
    return Object.fromEntries(files.map((file, i) => [path.parse(file).name, modules[i] as Migration]))
  },
}

const migratorOf = <DB>(db: Kysely<DB>) => new Migrator({ db, provider })

/**
 * Brings the schema to the newest version. Safe to run again and from several processes at once: Kysely's
 * migrator holds a lock in the database while it works.
 *
 * @returns the names of the migrations that this call applied
 * @throws PostgreSQL's error for the failing statement; nothing of that run is kept
 */
export async function migrate<DB>(db: Kysely<DB>): Promise<string[]> {
  const { error, results } = await migratorOf(db).migrateToLatest()
  if (error) throw error
  return (results ?? []).map((result) => result.migrationName)
}

/** Every known migration, oldest first, with the moment it was applied (or none). Changes nothing. */
export async function migrationStatus<DB>(db: Kysely<DB>): Promise<readonly MigrationInfo[]> {
  return migratorOf(db).getMigrations()
}

/** Migrations that were applied to the database and that this release does not know. Changes nothing. */
export async function newerMigrations<DB>(db: Kysely<DB>): Promise<string[]> {
  const table = DEFAULT_MIGRATION_TABLE
  const { rows: found } = await sql<{ found: boolean }>`SELECT to_regclass(${table}) IS NOT NULL AS found`.execute(db)
  if (!found[0]?.found) return []
  const { rows } = await sql<{ name: string }>`SELECT name FROM ${sql.table(table)} ORDER BY name`.execute(db)
  const known = Object.keys(await provider.getMigrations())
  return rows.map(({ name }) => name).filter((name) => !known.includes(name))
}
