import type pg from 'pg'

/**
 * What PostgreSQL plans by. A plan for all values: it plans statements over arrays of keys anew at each execution otherwise. Each key
 * by an index: a plan made while a table is small would else read all of it, and keep doing so while it grows.
 */
const SETTINGS = {
  plan_cache_mode: 'force_generic_plan',
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
}

const calls = Object.entries(SETTINGS).map(([name, value]) => `set_config('${name}', '${value}', false)`)
/** On a Citus cluster the values name the node. */
const USE_GENERIC_PLANS = `SELECT ${calls} WHERE to_regclass('pg_catalog.pg_dist_partition') IS NULL`

/**
 * Lets PostgreSQL plan each prepared statement of a connection once, for all values, and find each row by an index (ADR 0034). Only
 * for statements that find rows by key. Without effect on a Citus cluster.
 *
 * @throws the database's error
 */
export async function useGenericPlans(client: pg.ClientBase): Promise<void> {
  await client.query(USE_GENERIC_PLANS)
}
