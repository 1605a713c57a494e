import pg from 'pg'
import { expect } from 'vitest'

/** Holds up whoever wants the same lock, until it is released. */
export interface Obstacle {
  /** Runs a statement of its own, outside of what the lock holds up. */
  query: (sql: string) => Promise<pg.QueryResult>
  /** Resolves, when so many sessions wait for a lock in this database, to their pids. */
  waiting: (count: number) => Promise<number[]>
  release: () => Promise<void>
}

/** @param lock a statement that takes a lock, such as SELECT … FOR UPDATE or LOCK TABLE */
export async function holdLock(databaseUrl: string, lock: string): Promise<Obstacle> {
  const client = new pg.Client(databaseUrl)
  await client.connect()
  await client.query('BEGIN')
  await client.query(lock)
  const waiting = async () => {
    const { rows } = await client.query<{ pid: number }>(
      "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    )
    return rows.map(({ pid }) => pid)
  }
  return {
    query: (sql) => client.query(sql),
    waiting: async (count) => {
      // Within a transaction the view is read once, unless it is told to forget.
      const look = async () => {
        await client.query('SELECT pg_stat_clear_snapshot()')
        return waiting()
      }
      await expect.poll(look, { timeout: 10_000, interval: 10 }).toHaveLength(count)
      return look()
    },
    release: () => client.end(),
  }
}

/** Holds up everybody who records in the project. */
export const holdProject = (databaseUrl: string, projectId = 'demo') =>
  holdLock(databaseUrl, `SELECT FROM projects WHERE project_id = '${projectId}' FOR UPDATE`)
