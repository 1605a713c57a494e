import { inputTable, text } from '../database/input-table.ts'
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
