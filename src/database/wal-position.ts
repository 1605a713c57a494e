import type pg from 'pg'

/**
 * How far PostgreSQL's write-ahead log reaches, in bytes. A standby that has replayed as far has all that was committed
 * before.
 */
export type WalPosition = number

/** Stands for the position of a commit that could not be read: no replica reaches it. */
export const UNKNOWN_POSITION: WalPosition = Number.MAX_SAFE_INTEGER

const CURRENT = 'pg_current_wal_flush_lsn()'

/** Reads the position on the primary server: after a commit, one that includes it. */
export const SELECT_WAL_POSITION = {
  name: 'selectWalPosition',
  text: `SELECT (${CURRENT} - '0/0')::bigint AS wal_position`,
}

/** What a server says of itself. */
export interface ServerState {
  /** The cluster and the database, which a standby has in common with its primary server. */
  database: string
  /** Which run of which server it is: another one after a restart, and behind a balancer. */
  instance: string
  is_standby: boolean
  /** Up to where it has written or, as a standby, replayed. Null for a standby of another kind of replication. */
  wal_position: WalPosition | null
  /**
   * The number of the history of the log that it writes or, as a standby, receives: a promoted server begins another. Null for a
   * standby that receives none at the moment, and for a role without `pg_read_all_stats`.
   */
  timeline: number | null
}

const SELECT_STATE = `
  SELECT system_identifier || '/' || current_database() AS database,
    extract(epoch FROM pg_postmaster_start_time())::text AS instance, pg_is_in_recovery() AS is_standby,
    (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE ${CURRENT} END - '0/0')::bigint AS wal_position,
    CASE WHEN pg_is_in_recovery() THEN (SELECT received_tli FROM pg_stat_wal_receiver)
      ELSE ('x' || left(pg_walfile_name(${CURRENT}), 8))::bit(32)::integer END AS timeline
  FROM pg_control_system()`

export const readServerState = async (connection: pg.Pool | pg.ClientBase): Promise<ServerState> =>
  (await connection.query(SELECT_STATE)).rows[0]
