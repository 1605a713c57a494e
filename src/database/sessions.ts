import type pg from 'pg'

/** How often sessions are compared. A pooler whose sessions others use too may seem to keep them for a while. */
const COMPARISONS = 10

/**
 * Whether every connection keeps a PostgreSQL session of its own. Behind a pooler in transaction mode it does not: each
 * transaction gets any session, without the settings and prepared statements of the connection.
 */
export async function keepsSessions(pool: Pick<pg.Pool, 'connect'>): Promise<boolean> {
  const first = await pool.connect()
  try {
    const pid = await sessionOf(first)
    // Only a pooler announces another process than the session's. In session mode it does so too.
    if (pid === (first as unknown as { processID: number }).processID) return true
    const second = await pool.connect()
    try {
      for (let i = 0; i < COMPARISONS; i += 1) {
        // The first twice in a row, so that the two cannot be in step with a pooler that takes turns between sessions.
        for (const client of [first, second, first]) {
          if (((await sessionOf(client)) === pid) !== (client === first)) return false
        }
      }
      return true
    } finally {
      second.release()
    }
  } finally {
    first.release()
  }
}

/** The process id of the session that runs the connection's next transaction. */
async function sessionOf(client: pg.ClientBase): Promise<number | undefined> {
  const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')
  return rows[0]?.pid
}
