import type pg from 'pg'

const USE_GENERIC_PLANS = `
  SELECT set_config(
    'plan_cache_mode',
    CASE WHEN to_regclass('pg_catalog.pg_dist_partition') IS NULL THEN 'force_generic_plan' ELSE 'auto' END,
    false
  )`

/**
 * Lets PostgreSQL plan each prepared statement of a connection once, for all values (ADR 0034). Only for statements that find rows
 * by key, for which one plan is good whatever the values. Without effect on a Citus cluster, which chooses the node by them.
 *
 * @throws the database's error
 */
export async function useGenericPlans(client: pg.ClientBase): Promise<void> {
  await client.query(USE_GENERIC_PLANS)
}
