import {
  type CompiledQuery,
  type DatabaseConnection,
  type Dialect,
  type Driver,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  type QueryResult,
} from 'kysely'
import type pg from 'pg'
import { destroySocket } from './client.ts'
import { isLockTimeout, isStalePlan, isUnavailable } from './failures.ts'
import { useGenericPlans } from './generic-plans.ts'
import { isPooler } from './pooler-client.ts'
import type { NamedQuery } from './prepared.ts'
import { timedQuery } from './timed-query.ts'

// Pipelining (ADR 0005): all reads share few connections, and each is sent at once, without waiting for the results of
// those before it. The trade: PostgreSQL replies in order, so that a slow query delays those behind it on its connection,
// there are no transactions, and a connection that breaks fails all that was under way on it.

/** How long after a query has waited for a lock in vain another one of its name is expected to wait, too. */
const LOCKED_ms = 2_000

export interface SharingOptions {
  /**
   * How long a connection may be silent while a result is awaited, in milliseconds, before it is destroyed: a server that is
   * frozen or unreachable does not keep its own timeouts.
   */
  readTimeout_ms?: number | undefined
  /**
   * How long a query is sent again and again, in milliseconds, after it has not got a lock within the sessions' lock timeout.
   * Meanwhile those that wait for no lock go on. Without it, each lock timeout is an error.
   */
  patience_ms?: number | undefined
  /** Makes what Kysely sends its queries to, of what sends them to the shared connections. */
  decorate?: (connections: DatabaseConnection) => DatabaseConnection
}

/**
 * A dialect for single statements on shared, pipelined connections. If there are several, the first is for look-ups
 * only, which then never queue behind a list. If there are more than two, large values are read on the last alone, and lists
 * avoid it meanwhile.
 */
export class PipelinedDialect implements Dialect {
  readonly #pool: pg.Pool
  readonly #options: SharingOptions

  /** @param pool of clients with `pipeline: true`; as many connections are shared as it may hold */
  constructor(pool: pg.Pool, options: SharingOptions = {}) {
    this.#pool = pool
    this.#options = options
  }

  createDriver = () => new PipelinedDriver(this.#pool, this.#options)
  createQueryCompiler = () => new PostgresQueryCompiler()
  createAdapter = () => new PostgresAdapter()
  createIntrospector = (db: Parameters<Dialect['createIntrospector']>[0]) => new PostgresIntrospector(db)
}

class PipelinedDriver implements Driver {
  readonly #pool: pg.Pool
  readonly #connections: SharedConnections
  readonly #decorated: DatabaseConnection

  constructor(pool: pg.Pool, options: SharingOptions) {
    const { decorate = (connections) => connections } = options
    this.#pool = pool
    this.#connections = new SharedConnections(pool, options)
    this.#decorated = decorate(this.#connections)
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<DatabaseConnection> {
    return this.#decorated
  }

  async releaseConnection(): Promise<void> {}

  async destroy(): Promise<void> {
    await this.#connections.close()
    await this.#pool.end()
  }

  beginTransaction = refuseTransaction
  commitTransaction = refuseTransaction
  rollbackTransaction = refuseTransaction
}

async function refuseTransaction(): Promise<never> {
  throw new Error('a transaction needs a connection of its own')
}

/** Whether a time on the clock of performance.now() is yet to come. */
const isAhead = (time_ms = Number.NEGATIVE_INFINITY) => time_ms > performance.now()

/** All the shared connections, which to Kysely are one. */
class SharedConnections implements DatabaseConnection {
  readonly #lookUpConnection: SharedConnection
  readonly #others: SharedConnection[]
  readonly #patience_ms: number
  #largeUnderWay = 0
  /** By the name of a query, until when those under it are expected to wait for a lock. */
  readonly #locked = new Map<string, number>()

  constructor(pool: pg.Pool, { readTimeout_ms, patience_ms = 0 }: SharingOptions) {
    // A list's plan depends on how much of it is read. Behind a pooler no setting may be left in the session.
    const genericPlans = pool.options.max > 1 && !isPooler(pool)
    this.#lookUpConnection = new SharedConnection(pool, readTimeout_ms, genericPlans)
    this.#others = Array.from({ length: pool.options.max - 1 }, () => new SharedConnection(pool, readTimeout_ms))
    this.#patience_ms = patience_ms
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const { name } = query as Partial<NamedQuery>
    const end_ms = performance.now() + this.#patience_ms
    for (;;) {
      try {
        return await this.#execute(query)
      } catch (error) {
        const lockTimeout = error instanceof LeftBehind ? error.cause : error
        if (!isLockTimeout(lockTimeout)) throw error
        // Only what is prepared is known to read.
        if (name === undefined || !isAhead(end_ms)) throw lockTimeout
        if (lockTimeout === error) this.#locked.set(name, performance.now() + LOCKED_ms)
      }
    }
  }

  /** Sends a query that waits for a lock where large values are read, since those behind it wait as well. */
  async #execute<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const { kind = 'list', name = '' } = query as Partial<NamedQuery>
    const isLocked = isAhead(this.#locked.get(name))
    if (kind === 'look-up' && !isLocked) return this.#lookUpConnection.executeQuery(query)
    if (!isLocked && (kind === 'list' || this.#locked.values().some(isAhead)))
      return this.#leastBusy().executeQuery(query)
    this.#largeUnderWay += 1
    try {
      return await this.#largeConnection.executeQuery(query)
    } finally {
      this.#largeUnderWay -= 1
    }
  }

  get #largeConnection(): SharedConnection {
    return this.#others.at(-1) ?? this.#lookUpConnection
  }

  /** The one with the fewest queries under way, of those without a large one. */
  #leastBusy(): SharedConnection {
    const avoided = this.#largeUnderWay > 0 ? 1 : 0
    const [first = this.#largeConnection, ...others] = this.#others.slice(0, this.#others.length - avoided)
    return others.reduce((least, other) => (other.queriesUnderWay < least.queriesUnderWay ? other : least), first)
  }

  // biome-ignore lint/correctness/useYield: it has nothing to yield
  async *streamQuery(): AsyncIterableIterator<never> {
    throw new Error('a stream needs a connection of its own')
  }

  async close(): Promise<void> {
    for (const connection of [this.#lookUpConnection, ...this.#others]) await connection.close()
  }
}

/** A query has failed with its connection, which was left since one ahead did not get a lock: the cause. */
class LeftBehind extends Error {}

/** One pipelined connection, opened by the first query and again by the first one after it broke. */
class SharedConnection {
  readonly #pool: pg.Pool
  readonly #readTimeout_ms: number | undefined
  readonly #genericPlans: boolean
  #client: Promise<pg.PoolClient> | undefined
  #current: pg.PoolClient | undefined
  /** Runs while a result is awaited, and starts again with each one that comes. */
  #readTimeout: NodeJS.Timeout | undefined
  queriesUnderWay = 0
  /** Clients that were left, with the lock timeout that was the reason. */
  readonly #left = new WeakMap<pg.PoolClient, unknown>()
  /** Part of the names of prepared statements, so that all of them can be prepared anew. */
  #generation = 0

  /** @param genericPlans whether PostgreSQL plans each query on it once */
  constructor(pool: pg.Pool, readTimeout_ms: number | undefined, genericPlans = false) {
    this.#pool = pool
    this.#readTimeout_ms = readTimeout_ms
    this.#genericPlans = genericPlans
  }

  /** @throws LeftBehind when one ahead of it did not get a lock; the database's errors */
  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    this.queriesUnderWay += 1
    this.#client ??= this.#connect()
    const connecting = this.#client
    try {
      return await this.#send(await connecting, query)
    } catch (error) {
      // If the connection could not be opened, this throws the same error.
      const client = await connecting
      if (isLockTimeout(error)) {
        this.#leave(client, error)
        throw error
      }
      const lockTimeout = this.#left.get(client)
      // A query that relies on what the one ahead was to prepare fails with an error of its own.
      if (lockTimeout === undefined || !isUnavailable(error)) throw error
      throw new LeftBehind('a query ahead did not get a lock', { cause: lockTimeout })
    } finally {
      this.queriesUnderWay -= 1
      this.#restartReadTimeout()
    }
  }

  /** Sends a query, and again under a new name if the columns that it was prepared for have changed. */
  async #send<R>(client: pg.PoolClient, query: CompiledQuery): Promise<QueryResult<R>> {
    const generation = this.#generation
    try {
      return await this.#sendAs(generation, client, query)
    } catch (error) {
      if (!isStalePlan(error)) throw error
      this.#generation = Math.max(this.#generation, generation + 1)
      return this.#sendAs(this.#generation, client, query)
    }
  }

  async #sendAs<R>(generation: number, client: pg.PoolClient, query: CompiledQuery): Promise<QueryResult<R>> {
    if (this.#readTimeout === undefined) this.#restartReadTimeout()
    const { name } = query as Partial<NamedQuery>
    const { rows } = await timedQuery(client, {
      name: name && `${name}_${generation}`,
      text: query.sql,
      values: query.parameters as unknown[],
    })
    return { rows }
  }

  #restartReadTimeout(): void {
    if (this.#readTimeout_ms === undefined) return
    if (this.queriesUnderWay === 0) {
      clearTimeout(this.#readTimeout)
      this.#readTimeout = undefined
    } else if (this.#readTimeout) this.#readTimeout.refresh()
    else this.#readTimeout = setTimeout(() => this.#destroy(), this.#readTimeout_ms)
  }

  /** Fails what is under way behind a query that did not get a lock: it would wait as long once more if it needs the same one. */
  #leave(client: pg.PoolClient, lockTimeout: unknown): void {
    if (this.#current !== client || this.queriesUnderWay === 1) return
    this.#left.set(client, lockTimeout)
    destroySocket(client)
    this.#discard(client)
  }

  /** Fails everything under way. */
  #destroy(): void {
    if (this.#current) destroySocket(this.#current)
  }

  async close(): Promise<void> {
    const client = await this.#client?.catch(() => undefined)
    this.#current = undefined
    client?.release()
  }

  async #connect(): Promise<pg.PoolClient> {
    try {
      const client = await this.#pool.connect()
      this.#current = client
      // One that broke just before it was handed out has told its error to the pool; only its end is yet to come.
      for (const event of ['error', 'end']) client.once(event, () => this.#discard(client))
      // If the connection breaks, the query that follows says so. After another error, such as a lock timeout, look-ups are slower.
      if (this.#genericPlans) useGenericPlans(client).catch(() => {})
      return client
    } catch (error) {
      this.#client = undefined
      throw error
    }
  }

  /** Discards a client that broke: its queries fail, and the next query opens another. */
  #discard(client: pg.PoolClient): void {
    if (this.#current !== client) return
    this.#current = undefined
    this.#client = undefined
    client.release(true)
  }
}
