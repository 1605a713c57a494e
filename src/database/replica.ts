import { type CompiledQuery, type DatabaseConnection, Kysely, type QueryResult } from 'kysely'
import pg from 'pg'
import type { DB } from '../../generated/database.ts'
import { destroySocket } from './client.ts'
import { isCancelled, isOutage } from './failures.ts'
import { PipelinedDialect } from './pipelined-dialect.ts'
import { createPool, type Database, type PoolOptions } from './pool.ts'
import { readServerState, type ServerState, type WalPosition } from './wal-position.ts'

/** How long a server may take to say how far it is, and to accept a connection. */
const STATE_TIMEOUT_ms = 600

/** Opens the connection on which a server is asked for its state. */
export const openStatePool = (url: string): pg.Pool =>
  createPool(url, { max: 1, connectionTimeout_ms: STATE_TIMEOUT_ms, queryTimeout_ms: STATE_TIMEOUT_ms })

/** Where a database is, without user and password. */
export function nameOfDatabase(url: string): string {
  const { host, port, database } = new pg.Client(url)
  return `${host}:${port}/${database}`
}

/** A standby server that reads may be sent to (ADR 0032), and what is known of it. Times are those of performance.now(). */
export class Replica {
  readonly name: string
  readonly db: Database
  readonly #pool: pg.Pool
  readonly #statePool: pg.Pool
  readonly #clients = new Set<pg.PoolClient>()
  /** How many reads were sent to it. */
  reads = 0
  /** How many queries are under way. */
  queriesUnderWay = 0
  /** How many of its queries were run on the primary server, since they failed. */
  fallbacks = 0
  /** What it said last, and when that came; undefined once it has failed. */
  state: (ServerState & { received_ms: number }) | undefined
  /** Why it has failed. */
  failure: unknown
  /** It has all that was committed before this time. */
  confirmed_ms = Number.NEGATIVE_INFINITY
  /** Whether it has replayed what its primary server has not written: since a failover, it may have another history. */
  isAhead = false

  /** @param primary runs the queries that fail here */
  constructor(url: string, primary: Database, { queryTimeout_ms, ...options }: PoolOptions) {
    this.name = nameOfDatabase(url)
    this.#statePool = openStatePool(url)
    this.#pool = createPool(url, { ...options, connectionTimeout_ms: STATE_TIMEOUT_ms, pipeline: true })
    this.#pool.on('connect', (client) => this.#clients.add(client))
    this.#pool.on('remove', (client) => this.#clients.delete(client))
    const decorate = (connections: DatabaseConnection) => this.#withFallback(connections, primary)
    this.db = new Kysely<DB>({ dialect: new PipelinedDialect(this.#pool, queryTimeout_ms, decorate) })
  }

  /** Up to where it is known to have replayed. */
  get position(): WalPosition {
    return this.state?.wal_position ?? Number.NEGATIVE_INFINITY
  }

  /** Asks for the state. If there is none in time, the connections are broken, so that nothing waits for a frozen server. */
  async ask(): Promise<void> {
    try {
      this.state = { ...(await readServerState(this.#statePool)), received_ms: performance.now() }
    } catch (error) {
      this.#fail(error)
      for (const client of this.#clients) destroySocket(client)
    }
  }

  async close(): Promise<void> {
    await this.db.destroy()
    await this.#statePool.end()
  }

  /** Nothing more is sent there until it says again how far it is. */
  #fail(error: unknown): void {
    this.state = undefined
    this.failure = error
    this.confirmed_ms = Number.NEGATIVE_INFINITY
  }

  /**
   * Runs queries that fail on the primary server, whatever the reason, so that it costs a request no more than time. One that
   * took too long is the exception: it would take the primary server as long.
   */
  #withFallback(connections: DatabaseConnection, primary: Database): DatabaseConnection {
    return {
      executeQuery: async <R>(query: CompiledQuery): Promise<QueryResult<R>> => {
        this.queriesUnderWay += 1
        try {
          return await connections.executeQuery<R>(query)
        } catch (error) {
          if (isCancelled(error)) throw error
          if (isOutage(error)) this.#fail(error)
        } finally {
          this.queriesUnderWay -= 1
        }
        this.fallbacks += 1
        return primary.executeQuery<R>(query)
      },
      streamQuery: (query, chunkSize) => connections.streamQuery(query, chunkSize),
    }
  }
}
