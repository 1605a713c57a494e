import { type CompiledQuery, type DatabaseConnection, Kysely, type QueryResult } from 'kysely'
import type pg from 'pg'
import type { DB } from '../../generated/database.ts'
import { nameOfDatabase } from '../config.ts'
import { destroySocket } from './client.ts'
import { isCancelled, isLockTimeout, isOutage } from './failures.ts'
import { refuseTransactionPooler } from './open.ts'
import { PipelinedDialect } from './pipelined-dialect.ts'
import { createPool, type Database, type PoolOptions } from './pool.ts'
import { readServerState, type ServerState, type WalPosition } from './wal-position.ts'

/** How long a server may take to say how far it is, and to accept a connection. */
export const STATE_TIMEOUT_ms = 600
/** How long a read waits for a lock that the replay holds, as of a migration, before it is run on the primary server. */
const LOCK_TIMEOUT_ms = 500
/** How long a server is not asked after what does not pass by itself. By then the connection for its state, being idle, has closed. */
const REST_ms = 15_000
/** The same after a read that waited for such a lock; those behind it on its connection would wait as long. */
const LOCKED_REST_ms = 1_000
/** How often a query that failed is reported. */
const REPORT_INTERVAL_ms = 60_000

const ONE_SERVER = 'each URL of DATABASE_REPLICA_URLS must lead to one'
const ANOTHER_SERVER = `it is another server than before, as behind a balancer: ${ONE_SERVER}`
export const SEVERAL_SERVERS = `it is several servers, as behind a balancer: ${ONE_SERVER}`

/** The most that a replica may be behind, by time: what it lacks of the writes of other processes. */
export const MAX_LAG_ms = 1_000

const STATE_OPTIONS = { connectionTimeout_ms: STATE_TIMEOUT_ms, queryTimeout_ms: STATE_TIMEOUT_ms }

/** Opens the connection on which a server is asked for its state. */
export const openStatePool = (url: string): pg.Pool => createPool(url, { max: 1, ...STATE_OPTIONS })

export interface ReplicaOptions extends PoolOptions {
  /** Called with the error of a query that was run on the primary server instead; at most once a minute. */
  onFallback?: ((name: string, error: unknown) => void) | undefined
}

/** A standby server that reads may be sent to (ADR 0032), and what is known of it. Times are those of performance.now(). */
export class Replica {
  readonly name: string
  readonly db: Database
  readonly #pool: pg.Pool
  readonly #statePool: pg.Pool
  readonly #clients = new Set<pg.ClientBase>()
  readonly #onFallback: ReplicaOptions['onFallback']
  readonly #url: string
  /** Whether sessions are known to be kept between transactions, or said not to be. */
  #isChecked = false
  /** The one that it was last. */
  #instance: ServerState['instance'] | undefined
  /** Until then it is not asked. */
  #resting_ms = Number.NEGATIVE_INFINITY
  /** From then on, the next query that fails is reported. */
  #nextReport_ms = Number.NEGATIVE_INFINITY
  /** How many reads were sent to it. */
  reads = 0
  /** How many queries are under way. */
  queriesUnderWay = 0
  /** How many of its queries were run on the primary server, since they failed. */
  fallbacks = 0
  /** What it said last; undefined once it has failed. */
  state: ServerState | undefined
  /** Why it has failed. */
  failure: unknown
  /** It has all that was committed before this time. */
  confirmed_ms = Number.NEGATIVE_INFINITY
  /**
   * Whether it has replayed what its primary server has not written. It then has another history, as after a failover, however far
   * the primary server comes. Undefined until it has been compared.
   */
  isAhead: boolean | undefined

  /** @param primary runs the queries that fail here */
  constructor(url: string, primary: Database, { queryTimeout_ms, onFallback, ...options }: ReplicaOptions) {
    this.#url = url
    this.name = nameOfDatabase(url)
    this.#onFallback = onFallback
    this.#statePool = openStatePool(url)
    this.#pool = createPool(url, {
      lockTimeout_ms: LOCK_TIMEOUT_ms,
      ...options,
      connectionTimeout_ms: STATE_TIMEOUT_ms,
      pipeline: true,
      onConnect: (client) => this.#admit(client),
    })
    const decorate = (connections: DatabaseConnection) => this.#withFallback(connections, primary)
    this.db = new Kysely<DB>({
      dialect: new PipelinedDialect(this.#pool, { readTimeout_ms: queryTimeout_ms, decorate }),
    })
  }

  /** Whether it is known to keep up. */
  get isUsable(): boolean {
    return performance.now() - this.confirmed_ms < MAX_LAG_ms
  }

  /** Up to where it is known to have replayed. */
  get position(): WalPosition {
    return this.state?.wal_position ?? Number.NEGATIVE_INFINITY
  }

  /** Asks for the state. If there is none in time, the connections are broken, so that nothing waits for a frozen server. */
  async ask(): Promise<void> {
    if (performance.now() < this.#resting_ms) return
    try {
      if (!this.#isChecked) await refuseTransactionPooler(this.#url, 'DATABASE_REPLICA_URLS', STATE_OPTIONS)
      this.#isChecked = true
      const { failure } = this
      const state = await readServerState(this.#statePool)
      // Of the time before it failed.
      if (failure !== this.failure) return
      if (state.instance !== this.#instance) this.#begin(state.instance)
      // After a crash the same instance replays once more what it had.
      else if (Number(state.wal_position) < this.position) {
        this.confirmed_ms = Number.NEGATIVE_INFINITY
        this.#disconnect()
      }
      this.state = state
    } catch (error) {
      this.#fail(error)
      this.#disconnect()
    }
  }

  /** Knows nothing of another instance, and reads nothing from the last one. */
  #begin(instance: ServerState['instance']): void {
    this.#instance = instance
    this.forget()
    this.#disconnect()
  }

  /**
   * Compares an earlier state of it with a later one of the primary server.
   * @param position of the primary server, asked for when the state was known
   */
  compare({ instance, wal_position }: ServerState, position: WalPosition): void {
    if (instance !== this.#instance || wal_position === null) return
    this.isAhead ||= wal_position > position
  }

  /** Forgets what came of comparing it with a primary server whose place another one has taken. */
  forget(): void {
    this.isAhead = undefined
    this.confirmed_ms = Number.NEGATIVE_INFINITY
  }

  /** Refuses a connection that leads to another server than the one whose state is known. */
  async #admit(client: pg.ClientBase): Promise<void> {
    const { position } = this
    this.#clients.add(client)
    client.once('end', () => this.#clients.delete(client))
    const { instance, wal_position } = await readServerState(client)
    // After a crash it is the same instance, and replays once more what it had.
    if (instance === this.#instance && Number(wal_position) >= position) return
    const error = new Error(ANOTHER_SERVER)
    // Of a server that has just restarted, the state is not known.
    if (this.state !== undefined) {
      this.#fail(error)
      this.#disconnect()
    }
    throw error
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
    const rest_ms = isLockTimeout(error) ? LOCKED_REST_ms : isOutage(error) ? 0 : REST_ms
    this.#resting_ms = performance.now() + rest_ms
  }

  /** What is under way there is run on the primary server. */
  #disconnect(): void {
    for (const client of this.#clients) destroySocket(client)
  }

  #report(error: unknown): void {
    const now_ms = performance.now()
    if (now_ms < this.#nextReport_ms) return
    this.#nextReport_ms = now_ms + REPORT_INTERVAL_ms
    this.#onFallback?.(this.name, error)
  }

  /**
   * Runs queries that fail on the primary server, whatever the reason, so that it costs a request no more than time. One that
   * took too long is the exception: it would take the primary server as long.
   */
  #withFallback(connections: DatabaseConnection, primary: Database): DatabaseConnection {
    return {
      executeQuery: async <R>(query: CompiledQuery): Promise<QueryResult<R>> => {
        // A read of several queries may have begun before.
        if (!this.isUsable) return primary.executeQuery<R>(query)
        this.queriesUnderWay += 1
        try {
          return await connections.executeQuery<R>(query)
        } catch (error) {
          if (isCancelled(error)) throw error
          this.#report(error)
          const isLocked = isLockTimeout(error)
          // The first error says why; those after it, that the connection is gone.
          if (this.state && (isLocked || isOutage(error))) this.#fail(error)
          if (isLocked) this.#disconnect()
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
