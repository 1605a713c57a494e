import { Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import type { DB } from '../../generated/database.ts'
import { PipelinedDialect } from './pipelined-dialect.ts'

export type Database = Kysely<DB>

/**
 * Turns PostgreSQL's text of a timestamptz(3) in UTC (`2026-03-01 09:30:00.5+00`) into the wire's form, UTC with
 * exactly milliseconds (`2026-03-01T09:30:00.500Z`), without a Date in between.
 */
export function wireTimestamp(text: string): string {
  if (text.length === 'YYYY-MM-DD HH:MM:SS.SSS+00'.length) return `${text.slice(0, 10)}T${text.slice(11, 23)}Z`
  const [seconds, fraction = ''] = text.slice(0, -'+00'.length).split('.') as [string, string?]
  return `${seconds.replace(' ', 'T')}.${fraction.padEnd(3, '0')}Z`
}

const types: pg.CustomTypesConfig = {
  getTypeParser(oid, format) {
    if (oid === pg.types.builtins.TIMESTAMPTZ) return wireTimestamp
    if (oid === pg.types.builtins.INT8) return Number
    return pg.types.getTypeParser(oid, format)
  },
}

/** What every session relies on, said by the session itself so that no server or role setting can undo it. */
const SESSION = {
  timezone: 'UTC',
  datestyle: 'ISO',
  client_encoding: 'UTF8',
  search_path: 'public',
  standard_conforming_strings: 'on',
  synchronous_commit: 'on',
  // A transaction that waited for its project's row must see what the one before it committed.
  default_transaction_isolation: 'read committed',
}

export interface ConnectionOptions {
  /** Most connections held at once. */
  max?: number
  /** How long a query waits for a connection before it fails, in milliseconds. */
  connectionTimeout_ms?: number
  /** How long PostgreSQL lets one statement run, in milliseconds; 0 is without limit. */
  statementTimeout_ms?: number
  /**
   * How long an answer may take, in milliseconds; then its connection is cut. A server that is frozen or out of reach does
   * not keep its own timeouts. On a shared connection it is counted from the answer before.
   */
  queryTimeout_ms?: number
  /** Whether statements are sent without waiting for the answers to those before. */
  pipeline?: boolean
}

/**
 * Opens a pool. Nothing is connected until the first query.
 * @param url a PostgreSQL connection string
 */
export function createPool(url: string, options: ConnectionOptions = {}): pg.Pool {
  const pool = new pg.Pool({
    connectionString: url,
    max: options.max ?? 10,
    connectionTimeoutMillis: options.connectionTimeout_ms ?? 5_000,
    application_name: 'flowtrail',
    types,
    keepAlive: true,
    pipeline: options.pipeline,
    query_timeout: options.queryTimeout_ms,
    onConnect: async (client) => {
      const settings = { ...SESSION, statement_timeout: String(options.statementTimeout_ms ?? 0) }
      const calls = Object.keys(settings).map((name, i) => `set_config('${name}', $${i + 1}, false)`)
      await client.query(`SELECT ${calls.join(', ')}`, Object.values(settings))
    },
  })
  // A connection that dies says so as an event too, and an event `error` that nobody hears would end the process. While
  // it is in use, the query on it fails; while it is idle, the pool forgets it.
  const ignore = () => {}
  pool.on('connect', (client) => client.on('error', ignore))
  pool.on('error', ignore)
  return pool
}

/** A Kysely over a pool of its own; `destroy()` closes both. */
export function connect(url: string, options: ConnectionOptions = {}): Database {
  return new Kysely<DB>({ dialect: new PostgresDialect({ pool: createPool(url, options) }) })
}

/**
 * A Kysely whose queries share `max` connections and do not wait for each other's answers: for single statements, not
 * for transactions.
 */
export function connectShared(url: string, options: ConnectionOptions = {}): Database {
  const { queryTimeout_ms, ...others } = options
  return new Kysely<DB>({
    dialect: new PipelinedDialect(createPool(url, { ...others, pipeline: true }), queryTimeout_ms),
  })
}
