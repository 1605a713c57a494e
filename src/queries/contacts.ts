import { asked } from '../database/batch-loader.ts'
import { prepare, prepareInsert } from '../database/prepared.ts'

/** Of identifiers, each by its project and digest, the ones that are known, each with its owner. */
export const selectIdentifierOwners = prepare((db, projectIds: string[], digests: Buffer[]) =>
  db
    .selectFrom(asked({ project_id: 'text', digest: 'bytea' }, projectIds, digests))
    .innerJoin('contact_identifiers as i', (join) =>
      join.onRef('i.project_id', '=', 'asked.project_id').onRef('i.digest', '=', 'asked.digest'),
    )
    .select(['i.project_id', 'i.digest', 'i.contact_id']),
)

/** Of contacts, each by its project and id, the ones that exist. */
export const selectContacts = prepare((db, projectIds: string[], contactIds: string[]) =>
  db
    .selectFrom(asked({ project_id: 'text', contact_id: 'text' }, projectIds, contactIds))
    .innerJoin('contacts as c', (join) =>
      join.onRef('c.project_id', '=', 'asked.project_id').onRef('c.contact_id', '=', 'asked.contact_id'),
    )
    .select(['c.project_id', 'c.contact_id']),
)

export const insertContacts = prepareInsert('contacts', {
  project_id: 'text',
  contact_id: 'text',
  created_at: 'timestamptz',
})

/** An identifier is stored with the text first given for it. */
export const insertIdentifiers = prepareInsert('contact_identifiers', {
  project_id: 'text',
  contact_id: 'text',
  digest: 'bytea',
  key: 'text',
  value: 'text',
})
