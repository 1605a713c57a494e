import { pipeline } from 'node:stream/promises'
import { isDeepStrictEqual } from 'node:util'
import type pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { knownMigrations, migrate, migrationsUpTo } from '../../db/migrate.ts'
import type { Database } from '../database/pool.ts'
import { FLOWTRAIL } from '../release.ts'
import { beginLongTransaction, withClient } from '../transfer/client.ts'
import type { BackupOptions } from './backup.ts'
import { BackupError, type BackupHeader, type BackupReader, type End, type TableHeader } from './format.ts'
import { identifiers, readMigrations, readTables } from './tables.ts'

/** PostgreSQL remembers each row of a statement until it has checked its foreign keys, so a COPY is given so much at most. */
const COPY_bytes = 16 * 1024 * 1024

/** The database cannot take this backup. */
export class TargetError extends Error {}

/**
 * Reads a backup to its end, without a database.
 * @returns how many rows each table has
 * @throws BackupError; what the input throws
 */
export async function checkBackup(
  reader: BackupReader,
  { onProgress = () => {} }: BackupOptions = {},
): Promise<End['rows']> {
  for (;;) {
    const next = await reader.next()
    if ('sha256' in next) return next.rows
    for await (const _ of reader.rows()) onProgress({ table: next.table, bytes: reader.bytes })
  }
}

export interface RestoreOptions extends BackupOptions {
  /** Called when everything is committed; what follows can be done again. */
  onRestored?: () => void
}

/**
 * Restores a backup into an empty database, all of it or nothing, and migrates it to the newest schema. Servers may use the
 * database meanwhile: they find it empty until it is restored.
 *
 * @param header the reader's, which is at the first table
 * @param pool for one connection to the database of `db`
 * @returns how many rows of each table were restored
 * @throws BackupError; TargetError; what the input throws; database errors
 */
export async function restoreBackup(
  db: Database,
  pool: pg.Pool,
  header: BackupHeader,
  reader: BackupReader,
  { onRestored = () => {}, ...options }: RestoreOptions = {},
): Promise<End['rows']> {
  await withClient(pool, (client) => requireEmpty(client))
  await migrateLike(db, pool, header)
  const rows = await withClient(pool, async (client) => {
    await beginLongTransaction(client, 'READ COMMITTED')
    const tables = await readTables(client)
    await client.query(`LOCK TABLE ${identifiers(tables.map(({ table }) => table))} IN SHARE ROW EXCLUSIVE MODE`)
    await requireEmpty(client)
    if (!isDeepStrictEqual(await readMigrations(client), header.migrations)) throw otherSchema()
    const restored = await copyTables(client, tables, reader, options)
    await client.query('COMMIT')
    onRestored()
    return restored
  })
  await migrate(db).catch((cause) => {
    throw new Error(`Everything is restored, but ${cause.message}. Run: ${FLOWTRAIL} migrate`, { cause })
  })
  // The rows are there, so a failure is harmless.
  await pool.query(`ANALYZE ${identifiers(Object.keys(rows))}`).catch(() => {})
  return rows
}

async function requireEmpty(client: pg.ClientBase): Promise<void> {
  for (const { table } of await readTables(client)) {
    const { rowCount } = await client.query(`SELECT FROM ${identifiers([table])} LIMIT 1`)
    if (rowCount === 0) continue
    throw new TargetError(`the database is not empty: table ${table} has rows. Restore into an empty one`)
  }
}

/** Brings the schema to the version of the backup. */
async function migrateLike(db: Database, pool: pg.Pool, { migrations }: BackupHeader): Promise<void> {
  const known = await knownMigrations()
  const newer = migrations.filter((name) => !known.includes(name))
  if (newer.length > 0)
    throw new BackupError(`has the schema of a newer release (${newer.join(', ')}). Restore it with that release`)
  const applied = await withClient(pool, readMigrations)
  if (!applied.every((name) => migrations.includes(name))) throw otherSchema()
  const last = migrations.at(-1)
  if (last !== undefined && !applied.includes(last)) await migrate(db, { migrations: migrationsUpTo(last) })
}

const otherSchema = () =>
  new TargetError('the schema of the database is newer than that of the backup. Restore into a database without tables')

async function copyTables(
  client: pg.PoolClient,
  tables: TableHeader[],
  reader: BackupReader,
  { onProgress = () => {} }: BackupOptions,
): Promise<End['rows']> {
  const restored: End['rows'] = {}
  for (;;) {
    const next = await reader.next()
    if ('sha256' in next) {
      // A trigger or a rule may have swallowed some.
      if (!isDeepStrictEqual(next.rows, restored)) throw new Error('PostgreSQL has not stored every row')
      return restored
    }
    const { table, columns } = next
    const target = tables.find((one) => one.table === table)
    if (!columns.every((column) => target?.columns.includes(column))) {
      throw new TargetError(`the backup has a table ${table} (${columns}). Create it in the database first`)
    }
    restored[table] = 0
    while (reader.hasMoreRows) {
      const copy = client.query(copyFrom(`COPY ${identifiers([table])} (${identifiers(columns)}) FROM STDIN`))
      await pipeline(reader.rows(COPY_bytes), copy).catch((error) => {
        throw isDataError(error) ? new BackupError(`is damaged, or not of this schema: ${error.message}`) : error
      })
      restored[table] += copy.rowCount
      onProgress({ table, bytes: reader.bytes })
    }
  }
}

/** Whether PostgreSQL refuses the rows themselves. @param error PostgreSQL's */
const isDataError = ({ code }: { code?: unknown }) => /^2[23]/.test(String(code))
