import { sql } from 'kysely'
import type { Database } from '../../db/connection.ts'

/** Of these identifiers, the ones that are known, each with its owner. */
export function selectIdentifierOwners(db: Database, projectId: string, digests: Buffer[]) {
  return db
    .selectFrom('contact_identifiers')
    .select(['digest', 'contact_id'])
    .where('project_id', '=', projectId)
    .where('digest', '=', sql<Buffer>`any(${digests})`)
    .execute()
}

export async function contactExists(db: Database, projectId: string, contactId: string): Promise<boolean> {
  const row = await db
    .selectFrom('contacts')
    .select('contact_id')
    .where('project_id', '=', projectId)
    .where('contact_id', '=', contactId)
    .executeTakeFirst()
  return row !== undefined
}

export async function insertContact(db: Database, projectId: string, contactId: string, now: string): Promise<void> {
  await db.insertInto('contacts').values({ project_id: projectId, contact_id: contactId, created_at: now }).execute()
}

/** An identifier as it is stored: the text first given for it, and its digest. */
export interface StoredIdentifier {
  digest: Buffer
  key: string
  value: string
}

export async function insertIdentifiers(
  db: Database,
  projectId: string,
  contactId: string,
  identifiers: StoredIdentifier[],
): Promise<void> {
  if (identifiers.length === 0) return
  await db
    .insertInto('contact_identifiers')
    .values(
      identifiers.map(({ digest, key, value }) => ({
        project_id: projectId,
        contact_id: contactId,
        digest,
        key,
        value,
      })),
    )
    .execute()
}
