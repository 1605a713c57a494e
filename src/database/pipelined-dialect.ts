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
import { cut, gather } from './pipeline.ts'
import type { NamedQuery } from './prepared.ts'

/**
 * A dialect for single statements, without transactions: all queries share few connections, on which each is sent at
 * once, without waiting for the answers to those before it. PostgreSQL answers in order, so the first connection is for
 * look-ups alone, if there are more: no list keeps them waiting.
 */
export class PipelinedDialect implements Dialect {
  readonly #pool: pg.Pool
  readonly #silence_ms: number | undefined

  /**
   * @param pool of clients with `pipeline: true`; as many connections are shared as it may hold
   * @param silence_ms how long a connection may give no answer while one is awaited, in milliseconds; then it is cut. A
   * server that is frozen or out of reach does not keep its own timeouts
   */
  constructor(pool: pg.Pool, silence_ms?: number) {
    this.#pool = pool
    this.#silence_ms = silence_ms
  }

  createDriver = () => new PipelinedDriver(this.#pool, this.#silence_ms)
  createQueryCompiler = () => new PostgresQueryCompiler()
  createAdapter = () => new PostgresAdapter()
  createIntrospector = (db: Parameters<Dialect['createIntrospector']>[0]) => new PostgresIntrospector(db)
}

class PipelinedDriver implements Driver {
  readonly #pool: pg.Pool
  readonly #lanes: Lanes

  constructor(pool: pg.Pool, silence_ms: number | undefined) {
    this.#pool = pool
    this.#lanes = new Lanes(pool, silence_ms)
  }

  async init(): Promise<void> {}

  async acquireConnection(): Promise<DatabaseConnection> {
    return this.#lanes
  }

  async releaseConnection(): Promise<void> {}

  async destroy(): Promise<void> {
    await this.#lanes.close()
    await this.#pool.end()
  }

  beginTransaction = refuseTransaction
  commitTransaction = refuseTransaction
  rollbackTransaction = refuseTransaction
}

async function refuseTransaction(): Promise<never> {
  throw new Error('a transaction needs a connection of its own')
}

/** All the connections as one. */
class Lanes implements DatabaseConnection {
  readonly #express: Lane
  readonly #others: Lane[]

  constructor(pool: pg.Pool, silence_ms: number | undefined) {
    this.#express = new Lane(pool, silence_ms)
    this.#others = Array.from({ length: pool.options.max - 1 }, () => new Lane(pool, silence_ms))
  }

  executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    const { isLookUp = false } = query as Partial<NamedQuery>
    return (isLookUp ? this.#express : this.#leastBusy()).executeQuery(query)
  }

  /** The one on which the fewest queries are under way. */
  #leastBusy(): Lane {
    const [first = this.#express, ...others] = this.#others
    return others.reduce((least, lane) => (lane.underWay < least.underWay ? lane : least), first)
  }

  // biome-ignore lint/correctness/useYield: it has nothing to yield
  async *streamQuery(): AsyncIterableIterator<never> {
    throw new Error('a stream needs a connection of its own')
  }

  async close(): Promise<void> {
    for (const lane of [this.#express, ...this.#others]) await lane.close()
  }
}

/** One connection that everybody shares: made when it is first needed, and anew when it has broken. */
class Lane {
  readonly #pool: pg.Pool
  readonly #silence_ms: number | undefined
  #client: Promise<pg.PoolClient> | undefined
  #current: pg.PoolClient | undefined
  /** Runs while an answer is awaited, from the one before it. */
  #silence: NodeJS.Timeout | undefined
  underWay = 0

  constructor(pool: pg.Pool, silence_ms: number | undefined) {
    this.#pool = pool
    this.#silence_ms = silence_ms
  }

  async executeQuery<R>(query: CompiledQuery): Promise<QueryResult<R>> {
    this.underWay += 1
    try {
      this.#client ??= this.#connect()
      return await this.#send(await this.#client, query)
    } finally {
      this.underWay -= 1
      this.#watch()
    }
  }

  async #send<R>(client: pg.PoolClient, query: CompiledQuery): Promise<QueryResult<R>> {
    gather(client)
    if (this.#silence === undefined) this.#watch()
    const { name } = query as Partial<NamedQuery>
    const { rows } = await client.query({ name, text: query.sql, values: query.parameters as unknown[] })
    return { rows }
  }

  /** Begins to wait for the next answer, if there is one to come. */
  #watch(): void {
    if (this.#silence_ms === undefined) return
    if (this.underWay === 0) {
      clearTimeout(this.#silence)
      this.#silence = undefined
    } else if (this.#silence) this.#silence.refresh()
    else this.#silence = setTimeout(() => this.#cut(), this.#silence_ms)
  }

  /** Makes all that is under way fail. */
  #cut(): void {
    this.#silence = undefined
    if (this.#current) cut(this.#current)
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
      for (const event of ['error', 'end']) client.once(event, () => this.#forget(client))
      return client
    } catch (error) {
      this.#client = undefined
      throw error
    }
  }

  /** Lets go of a client that broke: its queries fail, and the next one makes another. */
  #forget(client: pg.PoolClient): void {
    if (this.#current !== client) return
    this.#current = undefined
    this.#client = undefined
    client.release(true)
  }
}
