import type { Database } from '../../db/connection.ts'

export function findIdempotencyKey(db: Database, projectId: string, idempotencyKey: string) {
  return db
    .selectFrom('idempotency_keys')
    .select(['request_digest', 'response'])
    .where('project_id', '=', projectId)
    .where('idempotency_key', '=', idempotencyKey)
    .executeTakeFirst()
}

/** What is remembered of a recorded event under its Idempotency-Key. */
export interface NewIdempotencyKey {
  idempotency_key: string
  event_id: string
  request_digest: Buffer
  response: string
}

export async function insertIdempotencyKey(db: Database, projectId: string, row: NewIdempotencyKey): Promise<void> {
  await db
    .insertInto('idempotency_keys')
    .values({ project_id: projectId, ...row })
    .execute()
}
