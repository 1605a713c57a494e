import { sql } from 'kysely'
import type { Database } from './pool.ts'

// On a Citus cluster all tables are distributed by project over its nodes. A statement must compare every table with the id of
// one project, or it asks all nodes, if it can be run at all (ADR 0033).

const distributed = new WeakSet<Database>()

/** Has all that uses this Kysely take the tables for distributed. */
export const markDistributed = (db: Database): unknown => distributed.add(db)

export const isDistributed = (db: Database): boolean => distributed.has(db)

/**
 * Finds out whether the tables are distributed, and marks the database if they are.
 * @throws database errors
 */
export async function detectDistribution(db: Database): Promise<boolean> {
  const { rows } = await sql<{ is_citus: boolean }>`
    SELECT to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL AS is_citus`.execute(db)
  if (!rows[0]?.is_citus) return false
  const { rows: tables } = await sql`
    SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass('public.projects')`.execute(db)
  if (tables.length > 0) markDistributed(db)
  return tables.length > 0
}
