import { sql } from 'kysely'
import { v7 as uuidv7 } from 'uuid'
import { inputTable, text } from '../database/input-table.ts'
import type { Database } from '../database/pool.ts'
import { type Parameter, prepare, prepareInsert } from '../database/prepared.ts'

/** Of Idempotency-Keys, each by its project, the used ones, each with its request's digest and its response (ADR 0004). */
export const selectIdempotencyKeys = prepare(
  (db, projectIds: Parameter<string[]>, keys: Parameter<string[]>) =>
    db
      .selectFrom(inputTable({ project_id: text(projectIds), idempotency_key: text(keys) }))
      .innerJoin('idempotency_keys as k', (join) =>
        join.onRef('k.project_id', '=', 'input.project_id').onRef('k.idempotency_key', '=', 'input.idempotency_key'),
      )
      .select(['k.project_id', 'k.idempotency_key', 'k.request_digest', 'k.response']),
  { name: 'selectIdempotencyKeys' },
)

export const insertIdempotencyKeys = prepareInsert('idempotency_keys', {
  project_id: 'text',
  idempotency_key: 'text',
  event_id: 'text',
  request_digest: 'bytea',
  response: 'text',
})

/** The least id that an event can have that was recorded at this time or later: ids are UUIDv7. */
export const leastEventId = (time_ms: number): string => uuidv7({ msecs: time_ms, seq: 0, random: new Uint8Array(16) })

/**
 * Deletes Idempotency-Keys of a project's events, from the least event id on, and no more than the limit. Leaves out those
 * that another transaction has locked.
 *
 * @param range of the ids of the events, without its bounds
 * @returns the ids of the events, in any order
 */
export async function deleteIdempotencyKeys(
  db: Database,
  projectId: string,
  { after, before }: { after: string; before: string },
  limit: number,
): Promise<string[]> {
  const ctid = sql<string>`ctid`
  const oldest = db
    .selectFrom('idempotency_keys')
    .select(ctid.as('ctid'))
    .where('project_id', '=', projectId)
    .where('event_id', '>', after)
    .where('event_id', '<', before)
    .orderBy('event_id')
    .limit(limit)
    .forUpdate()
    .skipLocked()
  const deleted = await db
    .deleteFrom('idempotency_keys')
    .where('project_id', '=', projectId)
    // As an array they are selected once, whatever the plan; else the limit might hold for each of several times.
    .where(ctid, '=', sql<string>`ANY(ARRAY(${oldest}))`)
    .returning('event_id')
    .execute()
  return deleted.map(({ event_id }) => event_id)
}
