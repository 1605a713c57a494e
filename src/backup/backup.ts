import { createHash } from 'node:crypto'
import type { Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { createGzip } from 'node:zlib'
import type pg from 'pg'
import { to as copyTo } from 'pg-copy-streams'
import { refuseDistribution } from '../database/distribution.ts'
import { describeRelease } from '../release.ts'
import { withClient } from '../transfer/client.ts'
import { type BackupHeader, END_OF_ROWS, type End, FORMAT, type TableHeader } from './format.ts'
import { identifiers, readMigrations, readTables } from './tables.ts'

export interface BackupOptions {
  /** Called often while rows are written or read. */
  onProgress?: (progress: BackupProgress) => void
}

export interface BackupProgress {
  table: string
  /** How many bytes there were so far, before compression. */
  bytes: number
}

/**
 * Writes everything that is stored, from one snapshot, whatever release has migrated the schema. Nothing waits for it but
 * a migration, which waits until it has ended.
 *
 * @param output written with backpressure, and not ended
 * @returns how many rows of each table were written
 * @throws NoSchemaError; Error on a Citus cluster; what the output throws; database errors
 */
export async function backUp(
  pool: pg.Pool,
  output: Writable,
  { onProgress = () => {} }: BackupOptions = {},
): Promise<End['rows']> {
  return withClient(pool, async (client) => {
    const tables = await readTables(client)
    if (tables.length === 0) throw new NoSchemaError('the database has no tables')
    await refuseDistribution(
      (text) => client.query(text),
      "Its nodes have no common snapshot; copy single projects with flowtrail export, or use Citus's own backups",
    )
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
    // Before the snapshot, in which a table that was rewritten meanwhile would be empty.
    await client.query(`LOCK TABLE ${identifiers(tables.map(({ table }) => table))} IN ACCESS SHARE MODE`)
    const rows: End['rows'] = {}
    await pipeline(contents(client, rows, onProgress), createGzip(), output, { end: false })
    await client.query('COMMIT')
    return rows
  })
}

/** There is nothing to back up: most likely another database was meant. */
export class NoSchemaError extends Error {}

/** The backup before it is compressed. @param rows gets the numbers of rows */
async function* contents(
  client: pg.PoolClient,
  rows: End['rows'],
  onProgress: (progress: BackupProgress) => void,
): AsyncGenerator<Buffer> {
  const hash = createHash('sha256')
  const hashed = (chunk: Buffer) => {
    hash.update(chunk)
    return chunk
  }
  yield hashed(line(await header(client)))
  let bytes = 0
  for (const { table, columns } of await readTables(client)) {
    yield hashed(line({ table, columns } satisfies TableHeader))
    const copy = client.query(copyTo(`COPY ${identifiers([table])} (${identifiers(columns)}) TO STDOUT`))
    for await (const chunk of copy as AsyncIterable<Buffer>) {
      yield hashed(chunk)
      bytes += chunk.length
      onProgress({ table, bytes })
    }
    yield hashed(Buffer.from(END_OF_ROWS))
    // The row count of a COPY arrives after its last chunk, before the result of the next statement.
    await client.query('SELECT')
    rows[table] = copy.rowCount
  }
  yield line({ rows, sha256: hash.digest('hex') } satisfies End)
}

async function header(client: pg.PoolClient): Promise<BackupHeader> {
  // The transaction may have waited for its locks since it began.
  const { rows } = await client.query(
    "SELECT clock_timestamp() AS taken_at, current_setting('server_version') AS postgresql",
  )
  const { version } = describeRelease()
  return { flowtrail_backup: FORMAT, version, ...rows[0], migrations: await readMigrations(client) }
}

const line = (value: object) => Buffer.from(`${JSON.stringify(value)}\n`)
