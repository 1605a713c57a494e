import { asked, lookUp } from '../database/batch-loader.ts'
import type { Database } from '../database/pool.ts'

/** What a request is checked against. */
export const findKey = lookUp((db, projectIds: string[], keyIds: string[]) =>
  db
    .selectFrom(asked({ project_id: 'text', key_id: 'text' }, projectIds, keyIds))
    .innerJoin('api_keys as k', (join) =>
      join.onRef('k.project_id', '=', 'asked.project_id').onRef('k.key_id', '=', 'asked.key_id'),
    )
    .select(['asked.number', 'k.secret_hash', 'k.scopes', 'k.expires_at', 'k.revoked_at']),
)

/** A key by its public id alone, as the operator names it. */
export function findKeyById(db: Database, keyId: string) {
  return db
    .selectFrom('api_keys')
    .select(['project_id', 'key_id', 'name', 'scopes', 'created_at', 'expires_at', 'last_used_at', 'revoked_at'])
    .where('key_id', '=', keyId)
    .executeTakeFirst()
}

export function selectKeys(db: Database, projectId: string | undefined) {
  return db
    .selectFrom('api_keys')
    .select(['project_id', 'key_id', 'name', 'scopes', 'created_at', 'expires_at', 'last_used_at', 'revoked_at'])
    .$if(projectId !== undefined, (query) => query.where('project_id', '=', projectId ?? ''))
    .orderBy('project_id')
    .orderBy('created_at')
    .orderBy('key_id')
    .execute()
}

/** A key as it is stored: never the secret, only its hash. */
export interface NewKey {
  key_id: string
  secret_hash: Buffer
  name: string
  scopes: string[]
  created_at: string
  expires_at: string | null
}

export async function insertKey(db: Database, projectId: string, key: NewKey): Promise<void> {
  await db
    .insertInto('api_keys')
    .values({ project_id: projectId, ...key })
    .execute()
}

export async function updateKeyRevoked(db: Database, projectId: string, keyId: string, now: string): Promise<void> {
  await db
    .updateTable('api_keys')
    .set({ revoked_at: now })
    .where('project_id', '=', projectId)
    .where('key_id', '=', keyId)
    .where('revoked_at', 'is', null)
    .execute()
}

export async function updateKeyExpiry(
  db: Database,
  projectId: string,
  keyId: string,
  expiresAt: string,
): Promise<void> {
  await db
    .updateTable('api_keys')
    .set({ expires_at: expiresAt })
    .where('project_id', '=', projectId)
    .where('key_id', '=', keyId)
    .execute()
}

/**
 * Notes that the key was used in this minute; a note that is older than the stored one changes nothing. While somebody
 * else changes the key it waits for nothing and leaves the note out: reads are behind it on the connection.
 */
export async function updateKeyUsed(db: Database, projectId: string, keyId: string, minute: string): Promise<void> {
  const free = db
    .selectFrom('api_keys')
    .select('key_id')
    .where('project_id', '=', projectId)
    .where('key_id', '=', keyId)
    .where((eb) => eb.or([eb('last_used_at', 'is', null), eb('last_used_at', '<', minute)]))
    .forNoKeyUpdate()
    .skipLocked()
  await db
    .updateTable('api_keys')
    .set({ last_used_at: minute })
    .where('project_id', '=', projectId)
    .where('key_id', 'in', free)
    .execute()
}
