import { sql } from 'kysely'
import { bytea, inputTable, text } from '../database/input-table.ts'
import type { Database } from '../database/pool.ts'
import { type Parameter, prepare, prepareInsert } from '../database/prepared.ts'
import type { IsoTimestamp } from '../domain/timestamp.ts'

/** Of identifiers, each by its project and digest (ADR 0003), the known ones, each with its owner. */
export const selectIdentifierOwners = prepare(
  (db, projectIds: Parameter<string[]>, digests: Parameter<Buffer[]>) =>
    db
      .selectFrom(inputTable({ project_id: text(projectIds), digest: bytea(digests) }))
      .innerJoin('contact_identifiers as i', (join) =>
        join.onRef('i.project_id', '=', 'input.project_id').onRef('i.digest', '=', 'input.digest'),
      )
      .select(['i.project_id', 'i.digest', 'i.contact_id']),
  { name: 'selectIdentifierOwners' },
)

/** Of contacts, each by its project and id, the ones that exist. */
export const selectContacts = prepare(
  (db, projectIds: Parameter<string[]>, contactIds: Parameter<string[]>) =>
    db
      .selectFrom(inputTable({ project_id: text(projectIds), contact_id: text(contactIds) }))
      .innerJoin('contacts as c', (join) =>
        join.onRef('c.project_id', '=', 'input.project_id').onRef('c.contact_id', '=', 'input.contact_id'),
      )
      .select(['c.project_id', 'c.contact_id']),
  { name: 'selectContacts' },
)

export const insertContacts = prepareInsert('contacts', {
  project_id: 'text',
  contact_id: 'text',
  created_at: 'timestamptz',
})

/** An identifier keeps the text that it first came with. */
export const insertIdentifiers = prepareInsert('contact_identifiers', {
  project_id: 'text',
  contact_id: 'text',
  digest: 'bytea',
  key: 'text',
  value: 'text',
})

/** A contact, with how much is stored of it. */
export type ContactSummary = {
  contact_id: string
  created_at: IsoTimestamp
} & Record<'identifiers' | 'entries' | 'events', number>

/** @returns undefined if the contact does not exist */
export async function findContact(
  db: Database,
  projectId: string,
  contactId: string,
): Promise<ContactSummary | undefined> {
  const { rows } = await sql<ContactSummary>`
    SELECT c.contact_id, c.created_at,
      (SELECT count(*) FROM contact_identifiers i
        WHERE i.project_id = c.project_id AND i.contact_id = c.contact_id) AS identifiers,
      (SELECT count(*) FROM entries e WHERE e.project_id = c.project_id AND e.contact_id = c.contact_id) AS entries,
      (SELECT count(*) FROM entries e JOIN events v ON v.project_id = e.project_id AND v.entry_id = e.entry_id
        WHERE e.project_id = c.project_id AND e.contact_id = c.contact_id) AS events
    FROM contacts c WHERE c.project_id = ${projectId} AND c.contact_id = ${contactId}`.execute(db)
  return rows[0]
}
