import type pg from 'pg'

/**
 * Begins a transaction without timeouts, with enough memory to sort, and with quick ANALYZEs: planning a merge takes table
 * sizes and rough selectivities, not PostgreSQL's default sample sizes.
 * @param isolation as in BEGIN ISOLATION LEVEL
 * @param lockTimeout_ms how long to wait for a lock; 0 is without limit
 */
export async function beginLongTransaction(
  client: pg.ClientBase,
  isolation: string,
  lockTimeout_ms = 0,
): Promise<void> {
  await client.query(`BEGIN ISOLATION LEVEL ${isolation}`)
  await client.query(`SELECT set_config('statement_timeout', '0', true), set_config('jit', 'off', true),
    set_config('idle_in_transaction_session_timeout', '0', true), set_config('work_mem', '64MB', true),
    set_config('default_statistics_target', '10', true), set_config('lock_timeout', '${lockTimeout_ms}', true)`)
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
  readonly #pool: pg.Pool
  readonly #begin: (client: pg.PoolClient) => Promise<void>
  #begun: Promise<pg.PoolClient> | undefined

  /** @param begin begins the transaction on a connection of the pool */
  constructor(pool: pg.Pool, begin: (client: pg.PoolClient) => Promise<void>) {
    this.#pool = pool
    this.#begin = begin
  }

  /** The connection, in the transaction. @throws database errors */
  client(): Promise<pg.PoolClient> {
    this.#begun ??= this.#open()
    return this.#begun
  }

  async #open(): Promise<pg.PoolClient> {
    const client = await this.#pool.connect()
    try {
      await this.#begin(client)
      return client
    } catch (error) {
      client.release(error as Error)
      throw error
    }
  }

  /** Ends the transaction. @throws database errors */
  async end(command: 'COMMIT' | 'ROLLBACK'): Promise<void> {
    const client = await this.#begun
    this.#begun = undefined
    try {
      await client?.query(command)
      client?.release()
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
