import { Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import type { DB } from '../generated/database.ts'

export type Database = Kysely<DB>

/**
 * Turns PostgreSQL's text of a timestamptz(3) in UTC (`2026-03-01 09:30:00.5+00`) into the wire's form, UTC with
 * exactly milliseconds (`2026-03-01T09:30:00.500Z`), without a Date in between.
 */
export function wireTimestamp(text: string): string {
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
const SESSION = `SET timezone = 'UTC'; SET datestyle = 'ISO'; SET synchronous_commit = on;
  SET standard_conforming_strings = on; SET client_encoding = 'UTF8'; SET search_path = public`

export interface ConnectionOptions {
  /** Most connections held at once. */
  max?: number
  /** How long a query waits for a connection before it fails, in milliseconds. */
  connectionTimeout_ms?: number
  /** How long PostgreSQL lets one statement run, in milliseconds; 0 is without limit. */
  statementTimeout_ms?: number
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
    onConnect: async (client) => {
      await client.query(`${SESSION}; SET statement_timeout = ${options.statementTimeout_ms ?? 0}`)
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
