import pg from 'pg'
import { MIGRATION_TABLE } from '../../db/migrate.ts'
import type { TableHeader } from './format.ts'

/**
 * Every table of the schema but those of the migrations, by its catalog: so no table that a migration adds is forgotten, and
 * any release can back up the schema of any other.
 */
const TABLES = `
  SELECT c.relname AS table,
    (SELECT array_agg(a.attname::text ORDER BY a.attnum) FROM pg_attribute a
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '') AS columns,
    ARRAY(SELECT p.relname::text FROM pg_constraint f JOIN pg_class p ON p.oid = f.confrelid
      WHERE f.conrelid = c.oid AND f.contype = 'f' AND f.confrelid <> c.oid) AS parents
  FROM pg_class c
  WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND c.relname NOT LIKE 'kysely\\_migration%'
    AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
  ORDER BY c.relname`

/** The tables, each after those that it refers to. */
export async function readTables(client: pg.ClientBase): Promise<TableHeader[]> {
  const { rows } = await client.query<TableHeader & { parents: string[] }>(TABLES)
  const sorted: TableHeader[] = []
  const add = (name: string) => {
    const found = rows.find(({ table }) => table === name)
    if (!found || sorted.some(({ table }) => table === name)) return
    for (const parent of found.parents) add(parent)
    sorted.push({ table: found.table, columns: found.columns })
  }
  for (const { table } of rows) add(table)
  return sorted
}

/** Names for an SQL statement. */
export const identifiers = (names: readonly string[]): string => names.map(pg.escapeIdentifier).join(', ')

/** The names of the migrations that the schema has had, those of other releases too; none without a schema. */
export async function readMigrations(client: pg.ClientBase): Promise<string[]> {
  const found = await client.query('SELECT to_regclass($1) AS found', [MIGRATION_TABLE])
  if (found.rows[0]?.found === null) return []
  // As sorted anywhere else: databases differ in their collations.
  const { rows } = await client.query<{ name: string }>(`SELECT name FROM ${MIGRATION_TABLE} ORDER BY name COLLATE "C"`)
  return rows.map(({ name }) => name)
}
