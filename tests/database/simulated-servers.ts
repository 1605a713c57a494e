import { createTestDatabase, withSettings } from '../support/database.ts'
import { onServer } from '../support/global-setup.ts'

/** What a server says of itself; the rest is that of the test's own. */
interface Saying {
  /** When it was started, which tells it from others. */
  started?: string
  is_standby?: boolean
  /** Up to where it has written or replayed, as PostgreSQL writes it. */
  position?: string
  /** The SQLSTATE of the error that it gives instead. */
  error?: string | null
}

export interface SimulatedServers {
  /** The connection string of the server of this name, which its sessions have as the setting `simulated.server`. */
  url: (server: string) => string
  say: (server: string, saying: Saying) => Promise<void>
  /** Runs a statement. */
  run: (statement: string) => Promise<void>
  /** Has all of them say what they said first. */
  reset: () => Promise<void>
  drop: () => Promise<void>
}

/** The functions by which PostgreSQL tells its state, each with its type and the column of `said` that stands for it. */
const FUNCTIONS = [
  ['pg_postmaster_start_time', 'timestamptz', 'started'],
  ['pg_is_in_recovery', 'boolean', 'is_standby'],
  ['pg_last_wal_replay_lsn', 'pg_lsn', 'position'],
  ['pg_current_wal_flush_lsn', 'pg_lsn', 'position'],
] as const

/**
 * A primary server and standby servers that say of themselves what a test has them say, without the time that real ones take to
 * be set up, to be restarted or to fail. They are one database, whose sessions differ by the server that their connection string names.
 */
export async function simulateServers(...names: string[]): Promise<SimulatedServers> {
  const { url, drop } = await createTestDatabase('template0')
  const run = (statement: string) => onServer(url, statement)
  await run(`CREATE TABLE said (server text, started timestamptz DEFAULT 'epoch', is_standby boolean DEFAULT true,
    position pg_lsn DEFAULT '0/100', error text)`)
  const values = names.map((name) => `('${name}')`)
  const reset = () => run(`TRUNCATE said; INSERT INTO said (server) VALUES ${values}`)
  await reset()
  for (const [name, type, column] of FUNCTIONS) {
    await run(`CREATE FUNCTION said_${name}() RETURNS ${type} LANGUAGE plpgsql AS $$
      DECLARE saying said;
      BEGIN
        SELECT * INTO saying FROM said WHERE server = current_setting('simulated.server');
        IF saying.error IS NOT NULL THEN
          RAISE 'simulated' USING ERRCODE = saying.error;
        END IF;
        RETURN saying.${column};
      END $$`)
    // PostgreSQL calls its own functions whatever their definition is, unless they are inlined.
    await run(`CREATE OR REPLACE FUNCTION pg_catalog.${name}() RETURNS ${type} LANGUAGE sql AS
      'SELECT public.said_${name}()'`)
  }
  return {
    url: (server) => withSettings(url, { 'simulated.server': server }),
    say: (server, saying) => {
      const set = Object.entries(saying).map(
        ([column, value]) => `${column} = ${value === null ? 'NULL' : `'${value}'`}`,
      )
      return run(`UPDATE said SET ${set} WHERE server = '${server}'`)
    },
    run,
    reset,
    drop,
  }
}

/** Whether a server was reported to have a problem only because its response came too late, as it may on a busy machine. */
export const isLate = (problem = ''): boolean => /timeout|terminated unexpectedly/.test(problem)
