import { bytea, inputTable, text } from '../database/input-table.ts'
import { type Parameter, prepare, prepareInsert } from '../database/prepared.ts'

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
