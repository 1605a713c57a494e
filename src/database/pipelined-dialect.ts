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
import { isStalePlan } from './failures.ts'
import type { NamedQuery } from './prepared.ts'
import { timedQuery } from './timed-query.ts'

// Pipelining (ADR 0005): all reads share few connections, and each is sent at once, without waiting for the results of
// those before it. The trade: PostgreSQL replies in order, so that a slow query delays those behind it on its connection,
// there are no transactions, and a connection that breaks fails all that was under way on it.

/**
 * A dialect for single statements on shared, pipelined connections. If there are several, the first is for look-ups
 * only, which then never queue behind a list. If there are more than two, large values are read on the last alone, and lists
 * avoid it meanwhile.
 */
export class PipelinedDialect implements Dialect {
  readonly #pool: pg.Pool
  readonly #readTimeout_ms: number | undefined
  readonly #decorate: Decorator

  /**
   * @param pool of clients with `pipeline: true`; as many connections are shared as it may hold
   * @param readTimeout_ms how long a connection may be silent while a result is awaited, in milliseconds, before it is
   * destroyed: a server that is frozen or unreachable does not keep its own timeouts
   * @param decorate makes what Kysely sends its queries to, of what sends them to the shared connections
   */
  constructor(pool: pg.Pool, readTimeout_ms?: number, decorate: Decorator = (connections) => connections) {
    this.#pool = pool
    this.#readTimeout_ms = readTimeout_ms
    this.#decorate = decorate
  }

  createDriver = () => new PipelinedDriver(this.#pool, this.#readTimeout_ms, this.#decorate)
  createQueryCompiler = () => new PostgresQueryCompiler()
  createAdapter = () => new PostgresAdapter()
  createIntrospector = (db: Parameters<Dialect['createIntrospector']>[0]) => new PostgresIntrospector(db)
}

type Decorator = (connections: DatabaseConnection) => DatabaseConnection

class PipelinedDriver implements Driver {
  readonly #pool: pg.Pool
  readonly #connections: SharedConnections
  readonly #decorated: DatabaseConnection

  constructor(pool: pg.Pool, readTimeout_ms: number | undefined, decorate: Decorator) {
    this.#pool = pool
    this.#connections = new SharedConnections(pool, readTimeout_ms)
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

/** All the shared connections, which to Kysely are one. */
class SharedConnections implements DatabaseConnection {
  readonly #lookUpConnection: SharedConnection
  readonly #others: SharedConnection[]
  #largeUnderWay = 0

  constructor(pool: pg.Pool, readTimeout_ms: number | undefined) {
    this.#lookUpConnection = new SharedConnection(pool, readTimeout_ms)
    this.#others = Array.from({ length: pool.options.max - 1 }, () => new SharedConnection(pool, readTimeout_ms))
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const { kind = 'list' } = query as Partial<NamedQuery>
    if (kind === 'look-up') return this.#lookUpConnection.executeQuery(query)
    if (kind === 'list') return this.#leastBusy().executeQuery(query)
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

/** One pipelined connection, opened by the first query and again by the first one after it broke. */
class SharedConnection {
  readonly #pool: pg.Pool
  readonly #readTimeout_ms: number | undefined
  #client: Promise<pg.PoolClient> | undefined
  #current: pg.PoolClient | undefined
  /** Runs while a result is awaited, and starts again with each one that comes. */
  #readTimeout: NodeJS.Timeout | undefined
  queriesUnderWay = 0
  /** Part of the names of prepared statements, so that all of them can be prepared anew. */
  #generation = 0

  constructor(pool: pg.Pool, readTimeout_ms: number | undefined) {
    this.#pool = pool
    this.#readTimeout_ms = readTimeout_ms
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    this.queriesUnderWay += 1
    try {
      this.#client ??= this.#connect()
      return await this.#send(await this.#client, query)
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
      for (const event of ['error', 'end']) client.once(event, () => this.#discard(client))
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
