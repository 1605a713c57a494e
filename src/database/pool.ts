import { TLSSocket } from 'node:tls'
import type { Kysely } from 'kysely'
import pg from 'pg'
import type { DB } from '../../generated/database.ts'
import { Client, destroySocket, socketOf } from './client.ts'
import { isInvalidSetting } from './failures.ts'
import { useGenericPlans } from './generic-plans.ts'
import { poolerClient, usesPooler } from './pooler-client.ts'
import { typeParsers } from './type-parsers.ts'

export type Database = Kysely<DB>

/**
 * What the queries rely on. Each session sets it itself, or behind a pooler each transaction, so that no setting of the server
 * or the role can change it.
 */
const SESSION_SETTINGS = {
  timezone: 'UTC',
  datestyle: 'ISO',
  search_path: 'public',
  standard_conforming_strings: 'on',
  synchronous_commit: 'on',
  // The client looks for warnings.
  client_min_messages: 'notice',
  // A transaction that waited for its project's row must see what the one before it committed.
  default_transaction_isolation: 'read committed',
}

/**
 * How long a command may hold what it has locked without a word, in milliseconds: its machine may sleep, or its network be
 * cut, and the project records nothing meanwhile.
 */
export const IDLE_TRANSACTION_TIMEOUT_ms = 60_000

/**
 * Lets PostgreSQL look each second, where its platform can, whether the client of a statement is still there: one without a time
 * limit would go on when its command was killed, and keep locked what it has locked.
 */
const watchClient = (client: pg.ClientBase) =>
  client.query("SET client_connection_check_interval = '1s'").catch((error) => {
    if (!isInvalidSetting(error)) throw error
  })

/** After how long without a packet TCP sends one, in milliseconds. The networks of clouds forget connections that rest for some minutes. */
const KEEP_ALIVE_DELAY_ms = 60_000

export interface PoolOptions {
  /** The most connections at once; 10 without it. */
  max?: number
  /** How long a query waits for a connection before it fails, in milliseconds. */
  connectionTimeout_ms?: number
  /** How long PostgreSQL lets a statement run, in milliseconds; any time if that is 0 or not given. */
  statementTimeout_ms?: number
  /** How long PostgreSQL lets a transaction wait for its next statement, in milliseconds; as long as a statement if not given. */
  idleTransactionTimeout_ms?: number
  /** How long a statement waits for a lock, in milliseconds; without it, what the server or the role says. */
  lockTimeout_ms?: number
  /**
   * How long a result may take, in milliseconds: a server that is frozen or unreachable does not keep its own timeouts. In
   * pipeline mode the connection is destroyed then, and on a shared one the time is counted from the result before. Else the
   * statement goes on, and the next one on the connection waits behind it.
   */
  queryTimeout_ms?: number
  /** How long an idle connection is kept, in milliseconds; 10,000 without it. */
  idleTimeout_ms?: number
  /** How long a connection is kept, in seconds, unless it is in use; for ever without it. */
  maxLifetime_s?: number
  /** Whether statements are sent without waiting for the results of those before. */
  pipeline?: boolean
  /** Whether PostgreSQL plans each prepared statement once: for statements that find rows by key. Not behind a pooler. */
  genericPlans?: boolean
  /** Called with each new connection before it is used; the connection fails if that does. */
  onConnect?: (client: pg.ClientBase) => Promise<void>
  /** Breaks all connections in use when it aborts, and from then on each as soon as it is used. */
  signal?: AbortSignal | undefined
}

/**
 * Makes a pool. It connects when it is first used.
 * @param url a PostgreSQL connection string
 */
export function createPool(url: string, options: PoolOptions = {}): pg.Pool {
  const { connectionTimeout_ms = 5_000 } = options
  const timeout = String(options.statementTimeout_ms ?? 0)
  const settings = {
    ...SESSION_SETTINGS,
    statement_timeout: timeout,
    ...(options.lockTimeout_ms !== undefined && { lock_timeout: String(options.lockTimeout_ms) }),
    // When the network between is cut, the locks of a transaction do not last until TCP notices, after hours.
    idle_in_transaction_session_timeout: String(options.idleTransactionTimeout_ms ?? timeout),
    idle_session_timeout: '0',
  }
  /** Destroys the connection if that takes too long: pg's own timeout ends with the login. */
  const inTime = (prepare: (client: pg.ClientBase) => Promise<void>) => async (client: pg.ClientBase) => {
    const timer = setTimeout(destroySocket, connectionTimeout_ms, client)
    try {
      await prepare(client)
    } catch (error) {
      // The pool waits until it has ended.
      destroySocket(client)
      throw error
    } finally {
      clearTimeout(timer)
    }
  }
  const pool = new pg.Pool({
    connectionString: url,
    max: options.max,
    connectionTimeoutMillis: connectionTimeout_ms,
    application_name: 'flowtrail',
    types: typeParsers,
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_DELAY_ms,
    idleTimeoutMillis: options.idleTimeout_ms,
    maxLifetimeSeconds: options.maxLifetime_s,
    pipeline: options.pipeline,
    query_timeout: options.queryTimeout_ms,
    ...(usesPooler(url)
      ? { Client: poolerClient(settings), onConnect: inTime(async (client) => options.onConnect?.(client)) }
      : {
          Client,
          onConnect: inTime(async (client) => {
            const calls = Object.keys(settings).map((name, i) => `set_config('${name}', $${i + 1}, false)`)
            await client.query(`SELECT ${calls.join(', ')}`, Object.values(settings))
            if (timeout === '0') await watchClient(client)
            if (options.genericPlans) await useGenericPlans(client)
            await options.onConnect?.(client)
          }),
        }),
  })
  // A connection that breaks also emits `error`, which ends the process if nothing listens. While the connection is in
  // use, its query fails; while it is idle, the pool removes it.
  const ignore = () => {}
  pool.on('connect', (client) => client.on('error', ignore))
  pool.on('error', ignore)
  if (options.signal) breakOnAbort(pool, options.signal)
  return pool
}

function breakOnAbort(pool: pg.Pool, signal: AbortSignal): void {
  const breakConnections = connectionBreaker(pool)
  signal.addEventListener('abort', breakConnections)
  pool.on('acquire', (client) => {
    if (signal.aborted) destroySocket(client)
  })
}

/** @returns what breaks the connections of a pool that are in use then, so that PostgreSQL undoes their transactions */
export function connectionBreaker(pool: pg.Pool): () => void {
  const inUse = new Set<pg.PoolClient>()
  pool.on('acquire', (client) => inUse.add(client)).on('release', (_, client) => inUse.delete(client))
  return () => {
    for (const client of inUse) destroySocket(client)
  }
}

/** How a connection is secured: by a socket of this machine or a loopback address, by TLS, or not at all. */
export function securityOf(client: pg.ClientBase): 'local' | 'verified' | 'unverified' | 'none' {
  const socket = socketOf(client)
  if (socket instanceof TLSSocket) return socket.authorized ? 'verified' : 'unverified'
  const { remoteAddress } = socket
  return remoteAddress === undefined || /^(::ffff:)?127\.|^::1$/.test(remoteAddress) ? 'local' : 'none'
}
