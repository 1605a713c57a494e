import { type Kysely, sql } from 'kysely'

/**
 * Finds the entries of a module, without which each module that is deleted with its project would read all entries of it, or
 * of all projects. There already if the operator has built it without stopping recordings; what an interrupted attempt has
 * left is no index.
 */
const statements = [
  `DO $$ BEGIN
    IF EXISTS (
      SELECT FROM pg_index WHERE indexrelid = to_regclass('entries_module_id_idx') AND NOT indisvalid
    ) THEN
      DROP INDEX entries_module_id_idx;
    END IF;
  END $$`,
  'CREATE INDEX IF NOT EXISTS entries_module_id_idx ON entries (project_id, module_id)',
]

export async function up(db: Kysely<never>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
