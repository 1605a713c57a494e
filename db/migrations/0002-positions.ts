import { type Kysely, sql } from 'kysely'

/**
 * The order in which a project's events are committed (ADR 0020). Events that are stored already get positions in the
 * order of their timestamps, and the responses stored under Idempotency-Keys the id of their event. It rewrites the events
 * under a lock: stop the servers of older releases before.
 */
const statements = [
  'ALTER TABLE events ADD COLUMN position bigint, ADD COLUMN recorded_at timestamptz(3)',
  `UPDATE events e SET recorded_at = now(), position = o.ordinal + extract(epoch FROM now()) * 1000000
    FROM (
      SELECT project_id, event_id,
        row_number() OVER (PARTITION BY project_id ORDER BY "timestamp", event_id) AS ordinal
      FROM events
    ) o
    WHERE e.project_id = o.project_id AND e.event_id = o.event_id`,
  'ALTER TABLE events ALTER COLUMN position SET NOT NULL, ALTER COLUMN recorded_at SET NOT NULL',
  'CREATE UNIQUE INDEX events_position_idx ON events (project_id, position)',
  // With `replace`, since a Citus cluster refuses to_json in an UPDATE.
  String.raw`UPDATE idempotency_keys
    SET response = '{"event_id":"' || replace(replace(event_id, '\', '\\'), '"', '\"') || '",' || substr(response, 2)`,
]

export async function up(db: Kysely<never>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
