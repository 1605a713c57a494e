import { channel } from 'node:diagnostics_channel'
import type pg from 'pg'

/** A statement whose result has come, or that has failed. */
export interface QueryTiming {
  /** What the query is called: one of a bounded number. */
  query: string
  /** Until the result came, behind those of statements sent before it on its connection. */
  duration_ms: number
  /** Why it failed. */
  error?: unknown
}

/** The `QueryTiming` of each statement of a request. To publish costs nothing while nobody subscribes. */
export const QUERY_CHANNEL = 'flowtrail:query'
const timings = channel(QUERY_CHANNEL)

/** Sends a statement, and publishes how long it took. @param query what it is called, unless its name says so */
export async function timedQuery(
  client: pg.ClientBase,
  statement: pg.QueryConfig<unknown[]> | string,
  query = nameOf(statement),
): Promise<pg.QueryResult> {
  if (!timings.hasSubscribers) return client.query(statement)
  const start_ms = performance.now()
  const publish = (outcome?: { error: unknown }) => {
    const timing: QueryTiming = { query, duration_ms: performance.now() - start_ms, ...outcome }
    timings.publish(timing)
  }
  try {
    const result = await client.query(statement)
    publish()
    return result
  } catch (error) {
    publish({ error })
    throw error
  }
}

/** Without the numbers that make the name of a prepared statement unique. */
const nameOf = (statement: pg.QueryConfig | string): string =>
  typeof statement === 'string' ? statement : (statement.name ?? 'unnamed').replace(/(_\d+)+$/, '')
