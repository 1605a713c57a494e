import { readdir } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Kysely, sql } from 'kysely'
import { DEFAULT_MIGRATION_TABLE, type Migration, type MigrationProvider, Migrator } from 'kysely/migration'

/** Where the schema keeps which migrations it has had. */
export const MIGRATION_TABLE = DEFAULT_MIGRATION_TABLE

const MIGRATIONS = new URL('./migrations/', import.meta.url)
/** JavaScript in the package, which has its types beside it. */
const MIGRATION = /^[\w-]+\.[jt]s$/

/**
 * How long a statement of a migration may wait for a lock, and all that comes behind it for the statement. Longer than
 * PostgreSQL's deadlock_timeout of a second, after which an autovacuum in the way is cancelled.
 */
const LOCK_TIMEOUT_ms = 1_500
const MAX_PAUSE_ms = 30_000
/** SQLSTATEs of a migration that others were in the way of: lock not available in time, deadlock. */
const IN_THE_WAY = ['55P03', '40P01']

/** The migrations of this release. */
const RELEASED: MigrationProvider = {
  async getMigrations() {
    const files = (await readdir(MIGRATIONS)).filter((file) => MIGRATION.test(file)).sort()
    const modules = await Promise.all(files.map((file) => import(new URL(file, MIGRATIONS).href) as Promise<Migration>))
    return Object.fromEntries(files.map((file, i) => [path.parse(file).name, modules[i] as Migration]))
  },
}

/** The names of the migrations of this release, oldest first. */
export const knownMigrations = async (): Promise<string[]> => Object.keys(await RELEASED.getMigrations())

/** The migrations of this release up to one of them, to migrate to an older schema. */
export const migrationsUpTo = (last: string): MigrationProvider => ({
  async getMigrations() {
    return Object.fromEntries(Object.entries(await RELEASED.getMigrations()).filter(([name]) => name <= last))
  },
})

export interface MigrateOptions {
  /** Those of this release without it. */
  migrations?: MigrationProvider
  /** Called with a line that says what is in the way of a migration, and when it is tried again. */
  onBlocked?: (message: string) => void
  /** Ends the wait between two tries. */
  signal?: AbortSignal
}

/**
 * Brings the schema to the newest version, each migration in a transaction of its own. Safe to run again and from several
 * processes at once: Kysely's migrator holds a lock in the database while it works. A migration that does not get a lock on
 * a table at once lets the others pass and tries again, for as long as it takes.
 *
 * @returns the names of the migrations that this call applied; none on a schema of the next release
 * @throws PostgreSQL's error for the failing statement, of whose migration nothing is kept, that of `newerMigrations`, or an
 * AbortError
 */
export async function migrate<DB>(
  db: Kysely<DB>,
  { migrations = RELEASED, onBlocked = () => {}, signal }: MigrateOptions = {},
): Promise<string[]> {
  const migrator = new Migrator({ db, provider: withLockTimeout(migrations) })
  const applied: string[] = []
  for (let failures = 0; ; ) {
    const status = await migrationStatus(db, migrations)
    newerMigrations(status)
    const [next] = pendingMigrations(status)
    if (next === undefined) {
      await shareMigrations(db)
      return applied
    }
    const { error, results = [] } = await migrator.migrateUp()
    if (error) {
      if (!IN_THE_WAY.includes((error as { code?: string }).code ?? '')) throw error
      const pause_ms = Math.min(1_000 * 2 ** failures, MAX_PAUSE_ms)
      onBlocked(`${next} waits for a table in use${await oldestTransaction(db)}; next try in ${pause_ms / 1_000} s`)
      await sleep(pause_ms, undefined, { signal })
      failures += 1
    } else {
      applied.push(...results.map(({ migrationName }) => migrationName))
      failures = 0
    }
  }
}

/** Where the other tables are distributed, lets the workers of the Citus cluster see which migrations there are. */
async function shareMigrations<DB>(db: Kysely<DB>): Promise<void> {
  await sql
    .raw(`DO $$ BEGIN
      IF to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
        IF EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = 'events'::regclass)
          AND NOT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = '${MIGRATION_TABLE}'::regclass)
        THEN
          PERFORM create_reference_table('${MIGRATION_TABLE}');
        END IF;
      END IF;
    END $$`)
    .execute(db)
}

/** Sets the timeout in the transaction of each migration, since Kysely has one of its own for the migrators' lock. */
const withLockTimeout = (provider: MigrationProvider): MigrationProvider => ({
  async getMigrations() {
    const migrations = Object.entries(await provider.getMigrations())
    const up = (migration: Migration) => async (db: Kysely<unknown>) => {
      await sql`SET LOCAL lock_timeout = ${sql.lit(LOCK_TIMEOUT_ms)}`.execute(db)
      await migration.up(db)
    }
    return Object.fromEntries(migrations.map(([name, migration]) => [name, { up: up(migration) }]))
  },
})

/** Describes what is most likely in the way. Of the transactions of other users, PostgreSQL does not tell. */
async function oldestTransaction<DB>(db: Kysely<DB>): Promise<string> {
  const { rows } = await sql<{ pid: number; application: string; age_s: number }>`
    SELECT pid, coalesce(nullif(application_name, ''), 'unnamed') AS application,
      extract(epoch FROM clock_timestamp() - xact_start)::integer AS age_s
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
      -- That of another migrator waits itself.
      AND wait_event IS DISTINCT FROM 'advisory'
    ORDER BY xact_start LIMIT 1`.execute(db)
  return rows.map(({ pid, application, age_s }) => ` (pid ${pid}, ${application}, began ${age_s} s ago)`).join('')
}

/** A migration that this release knows or that was applied. */
export interface MigrationStatus {
  name: string
  appliedAt: Date | undefined
  isKnown: boolean
}

/** Every migration that is known or applied, oldest first. Changes nothing. */
export async function migrationStatus<DB>(db: Kysely<DB>, migrations = RELEASED): Promise<MigrationStatus[]> {
  const applied = await appliedMigrations(db)
  const known = Object.keys(await migrations.getMigrations())
  const names = [...new Set([...known, ...applied.keys()])].sort()
  return names.map((name) => ({ name, appliedAt: applied.get(name), isKnown: known.includes(name) }))
}

async function appliedMigrations<DB>(db: Kysely<DB>): Promise<Map<string, Date>> {
  const table = MIGRATION_TABLE
  const { rows: found } = await sql<{ found: boolean }>`SELECT to_regclass(${table}) IS NOT NULL AS found`.execute(db)
  if (!found[0]?.found) return new Map()
  const { rows } = await sql<{ name: string; timestamp: string }>`
    SELECT name, timestamp FROM ${sql.table(table)}`.execute(db)
  return new Map(rows.map(({ name, timestamp }) => [name, new Date(timestamp)]))
}

/** The names of the migrations that are still to be applied. */
export const pendingMigrations = (status: readonly MigrationStatus[]): string[] =>
  status.filter(({ appliedAt }) => !appliedAt).map(({ name }) => name)

/**
 * The names of the applied migrations that this release does not know, on whose schema it runs: those of the number after
 * its own (ADR 0025).
 *
 * @throws Error with one line if there are others
 */
export function newerMigrations(status: readonly MigrationStatus[]): string[] {
  const namesOf = (isKnown: boolean) => status.filter((one) => one.isKnown === isKnown).map(({ name }) => name)
  const own = Math.max(...namesOf(true).map(numberOf))
  const newer = namesOf(false)
  const refused = newer.filter((name) => numberOf(name) !== own + 1)
  if (refused.length > 0) {
    const [last, next] = [own, own + 1].map((number) => String(number).padStart(4, '0'))
    throw new Error(
      `This release runs on the schema of ${last} and of ${next}, but the database has ${refused.join(', ')}. ` +
        'Install the release that migrated it, or the one before',
    )
  }
  return newer
}

/** The number that a migration's name begins with. */
const numberOf = (name: string) => Number(name.split('-')[0])
