import { type Kysely, sql } from 'kysely'

/**
 * Finds the idempotency keys of an event, without which each deleted event would read all keys of its project. There already
 * if the operator has built it without stopping recordings; what an interrupted attempt has left is no index.
 */
const statements = [
  `DO $$ BEGIN
    IF EXISTS (
      SELECT FROM pg_index WHERE indexrelid = to_regclass('idempotency_keys_event_id_idx') AND NOT indisvalid
    ) THEN
      DROP INDEX idempotency_keys_event_id_idx;
    END IF;
  END $$`,
  'CREATE INDEX IF NOT EXISTS idempotency_keys_event_id_idx ON idempotency_keys (project_id, event_id)',
]

export async function up(db: Kysely<never>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
