import type pg from 'pg'

/**
 * Lends a connection of the pool. After a failure it is closed, whatever state it is in, which also ends its
 * transaction.
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
