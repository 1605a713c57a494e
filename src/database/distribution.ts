import { sql } from 'kysely'
import type pg from 'pg'
import type { Database } from './pool.ts'

// On a Citus cluster the tables are distributed by project over its nodes. A statement must compare every table with projects
// of one shard, or it asks all nodes, if it can be run at all (ADR 0033).

/** Runs a statement on the database. */
type Query = (text: string) => Promise<{ rows: unknown[] }>

/** Whether the tables are distributed. @throws database errors */
export async function findDistribution(query: Query): Promise<boolean> {
  const { rows: citus } = await query(`SELECT WHERE to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL`)
  if (citus.length === 0) return false
  const projects = await query(
    `SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass('public.projects')`,
  )
  return projects.rows.length > 0
}

const distributed = new WeakSet<Database | pg.ClientBase>()

/** Has all that uses this Kysely, or this connection for imports, take the tables for distributed. */
export const markDistributed = (db: Database | pg.ClientBase): unknown => distributed.add(db)

export const isDistributed = (db: Database | pg.ClientBase): boolean => distributed.has(db)

/** Marks the database if its tables are distributed. @throws database errors */
export async function detectDistribution(db: Database): Promise<boolean> {
  const found = await findDistribution((text) => sql.raw(text).execute(db))
  if (found) markDistributed(db)
  return found
}

/**
 * For what cannot be done on a cluster.
 * @param reason why, and what to do instead, in sentences
 * @throws Error with the reason when the tables are distributed; database errors
 */
export async function refuseDistribution(query: Query, reason: string): Promise<void> {
  if (await findDistribution(query)) throw new Error(`The database is distributed by Citus. ${reason}`)
}

/** Settings of a transaction for all nodes: Citus sends on only what is SET. @param settings by PostgreSQL's names */
export const setOnNodes = (settings: Record<string, string | number>): string[] => [
  "SET LOCAL citus.propagate_set_commands = 'local'",
  ...Object.entries(settings).map(([name, value]) => `SET LOCAL ${name} = '${value}'`),
]
