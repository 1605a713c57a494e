import { asked } from '../database/batch-loader.ts'
import { prepare, prepareInsert } from '../database/prepared.ts'

/** Of Idempotency-Keys, each by its project, the ones that were used, each with what is remembered of its event. */
export const selectIdempotencyKeys = prepare((db, projectIds: string[], keys: string[]) =>
  db
    .selectFrom(asked({ project_id: 'text', idempotency_key: 'text' }, projectIds, keys))
    .innerJoin('idempotency_keys as k', (join) =>
      join.onRef('k.project_id', '=', 'asked.project_id').onRef('k.idempotency_key', '=', 'asked.idempotency_key'),
    )
    .select(['k.project_id', 'k.idempotency_key', 'k.request_digest', 'k.response']),
)

export const insertIdempotencyKeys = prepareInsert('idempotency_keys', {
  project_id: 'text',
  idempotency_key: 'text',
  event_id: 'text',
  request_digest: 'bytea',
  response: 'text',
})
