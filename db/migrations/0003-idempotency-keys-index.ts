import { type Kysely, sql } from 'kysely'

/**
 * Finds the idempotency keys of an event, without which each deleted event would read all keys of its project. There already
 * if the operator has built it without stopping recordings.
 */
const INDEX = 'CREATE INDEX IF NOT EXISTS idempotency_keys_event_id_idx ON idempotency_keys (project_id, event_id)'

export async function up(db: Kysely<never>): Promise<void> {
  await sql.raw(INDEX).execute(db)
}
