import pg from 'pg'
import { expect, vi } from 'vitest'

/** A lock that blocks every other session that requests it, until it is released. */
export interface HeldLock {
  /** Runs a statement in the session that holds the lock. */
  query: (sql: string) => Promise<pg.QueryResult>
  /** Waits until this many sessions wait for a lock in this database. Resolves to their pids. */
  waiting: (count: number) => Promise<number[]>
  release: () => Promise<void>
}

/** @param lock a statement that takes a lock, such as SELECT … FOR UPDATE or LOCK TABLE */
export async function holdLock(databaseUrl: string, lock: string): Promise<HeldLock> {
  const client = new pg.Client(databaseUrl)
  // A server that is killed also emits it; queries then fail.
  client.on('error', () => {})
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
      // Within a transaction, the view is a snapshot until it is cleared.
      const read = async () => {
        await client.query('SELECT pg_stat_clear_snapshot()')
        return waiting()
      }
      const found = async () => {
        const pids = await read()
        expect(pids).toHaveLength(count)
        return pids
      }
      return vi.waitFor(found, { timeout: 30_000, interval: 10 })
    },
    release: () => client.end(),
  }
}

/** Blocks all recording in the project. */
export const holdProject = (databaseUrl: string, projectId = 'demo') =>
  holdLock(databaseUrl, `SELECT FROM projects WHERE project_id = '${projectId}' FOR UPDATE`)
