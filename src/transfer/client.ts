import type pg from 'pg'

/**
 * Begins a transaction without timeouts, with enough memory to sort, and with quick ANALYZEs: planning a merge takes table
 * sizes and rough selectivities, not PostgreSQL's default sample sizes.
 * @param isolation as in BEGIN ISOLATION LEVEL
 */
export async function beginLongTransaction(client: pg.PoolClient, isolation: string): Promise<void> {
  await client.query(`BEGIN ISOLATION LEVEL ${isolation}`)
  await client.query(`SELECT set_config('statement_timeout', '0', true), set_config('jit', 'off', true),
    set_config('idle_in_transaction_session_timeout', '0', true), set_config('work_mem', '64MB', true),
    set_config('default_statistics_target', '10', true)`)
}

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
