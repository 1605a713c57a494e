import type pg from 'pg'
import { timedQuery } from '../database/timed-query.ts'

/** PostgreSQL's timeouts of a transaction, in milliseconds, by its names for them; 0 is without limit. */
export interface Timeouts {
  statement_timeout: number
  idle_in_transaction_session_timeout: number
  lock_timeout: number
}

export const NO_TIMEOUTS: Timeouts = { statement_timeout: 0, idle_in_transaction_session_timeout: 0, lock_timeout: 0 }

/**
 * Begins a transaction with enough memory to sort, and with quick ANALYZEs: planning a merge takes table sizes and rough
 * selectivities, not PostgreSQL's default sample sizes.
 * @param isolation as in BEGIN ISOLATION LEVEL
 * @param settings of the transaction, besides those
 */
export async function beginLongTransaction(
  client: pg.ClientBase,
  isolation: string,
  timeouts = NO_TIMEOUTS,
  settings: Record<string, string> = {},
): Promise<void> {
  const begin = () => timedQuery(client, `BEGIN ISOLATION LEVEL ${isolation}`, 'BEGIN')
  const all = { ...timeouts, jit: 'off', work_mem: '64MB', default_statistics_target: 10, ...settings }
  const calls = Object.entries(all).map(([name, value]) => `set_config('${name}', '${value}', true)`)
  const set = () => timedQuery(client, `SELECT ${calls}`, 'set_config')
  if (isPipelined(client)) await Promise.all([begin(), set()])
  else for (const run of [begin, set]) await run()
}

/** Whether statements can be sent without waiting for the results of those before; COPY is then not possible. */
export const isPipelined = (client: pg.ClientBase): boolean => (client as unknown as { pipeline: boolean }).pipeline

/**
 * Runs work on a connection of the pool. After a failure the connection is closed, whatever state it is in, which also
 * ends its transaction.
 */
export async function withClient<T>(pool: pg.Pool, work: (client: pg.PoolClient) => Promise<T>): Promise<T> {
  const client = await pool.connect()
  try {
    const result = await work(client)
    client.release()
    return result
  } catch (error) {
    client.release(error as Error)
    throw error
  }
}

/** A transaction that takes a connection and begins when it is first needed. */
export class LazyTransaction {
  readonly #connect: () => Promise<pg.PoolClient>
  readonly #begin: (client: pg.PoolClient) => Promise<void>
  #begun: Promise<pg.PoolClient> | undefined
  #isKept = true

  /**
   * @param connect takes a connection of a pool
   * @param begin begins the transaction on it
   */
  constructor(connect: () => Promise<pg.PoolClient>, begin: (client: pg.PoolClient) => Promise<void>) {
    this.#connect = connect
    this.#begin = begin
  }

  /** The connection, in the transaction. @throws database errors */
  client(): Promise<pg.PoolClient> {
    this.#begun ??= this.#open()
    return this.#begun
  }

  /** Has the connection closed when the transaction has ended. */
  closeAtEnd(): void {
    this.#isKept = false
  }

  async #open(): Promise<pg.PoolClient> {
    const client = await this.#connect()
    try {
      await this.#begin(client)
      return client
    } catch (error) {
      client.release(error as Error)
      throw error
    }
  }

  /** @throws database errors */
  commit(): Promise<void> {
    return this.#end('COMMIT')
  }

  /** Ends the transaction without a trace. @param cleanUp the statements to run afterwards @throws database errors */
  undo(cleanUp: readonly string[] = []): Promise<void> {
    return this.#end('ROLLBACK', cleanUp)
  }

  async #end(command: 'COMMIT' | 'ROLLBACK', cleanUp: readonly string[] = []): Promise<void> {
    const client = await this.#begun
    this.#begun = undefined
    try {
      if (client) await timedQuery(client, command)
      for (const statement of cleanUp) await client?.query(statement)
      client?.release(!this.#isKept)
    } catch (error) {
      client?.release(error as Error)
      throw error
    }
  }

  /** Closes the connection, whatever state it is in, which undoes what is not committed. */
  async close(error: Error): Promise<void> {
    const client = await this.#begun?.catch(() => undefined)
    client?.release(error)
  }
}
