import pg from 'pg'
import { expect, vi } from 'vitest'
import { isOnCitus } from './citus.ts'

/** Those of all nodes of a cluster, in which it is the sessions between nodes that wait. */
const SESSIONS = isOnCitus ? 'citus_stat_activity' : 'pg_stat_activity'

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
  // Within a transaction the view of the sessions is a snapshot, so another session reads it.
  const observer = new pg.Client(databaseUrl)
  observer.on('error', () => {})
  await Promise.all([client.connect(), observer.connect()])
  await client.query('BEGIN')
  await client.query(lock)
  const waiting = async () => {
    const { rows } = await observer.query<{ pid: number }>(
      `SELECT pid FROM ${SESSIONS} WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    )
    return rows.map(({ pid }) => pid)
  }
  return {
    query: (sql) => client.query(sql),
    waiting: async (count) => {
      const found = async () => {
        const pids = await waiting()
        expect(pids).toHaveLength(count)
        return pids
      }
      return vi.waitFor(found, { timeout: 30_000, interval: 10 })
    },
    release: async () => {
      await Promise.all([client.end(), observer.end()])
    },
  }
}

/** Blocks all recording in the project. */
export const holdProject = (databaseUrl: string, projectId = 'demo') =>
  holdLock(databaseUrl, `SELECT FROM projects WHERE project_id = '${projectId}' FOR UPDATE`)
