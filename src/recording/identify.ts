import { v7 as uuidv7 } from 'uuid'
import type { Database } from '../../db/connection.ts'
import { identifierConflict } from '../errors.ts'
import { CONTACT_ID_KEY } from '../identifier.ts'
import { contactExists, insertContact, insertIdentifiers, selectIdentifierOwners } from '../queries/contacts.ts'
import type { ParsedIdentifier } from './parse.ts'

/**
 * The contact that the identifiers name (decisions, "Contact"): the one that owns those known, to which the rest are
 * added, or a new one with all of them. The caller holds the project's row.
 *
 * @param now in the wire's form
 * @throws ApiError identifier_conflict when they belong to different contacts; nothing is written then
 */
export async function identifyContact(
  db: Database,
  projectId: string,
  identifiers: ParsedIdentifier[],
  now: string,
): Promise<string> {
  const owners = await findOwners(db, projectId, identifiers)
  const known = [...new Set(owners.filter((owner) => owner !== undefined))]
  if (known.length > 1) {
    const details = owners.flatMap((owner, i) =>
      owner === undefined
        ? []
        : [
            {
              pointer: `/body/identifiers/${i}`,
              message: owner === known[0] ? 'belongs to one contact' : 'belongs to another contact',
            },
          ],
    )
    throw identifierConflict(details)
  }

  const contactId = known[0] ?? uuidv7()
  if (known.length === 0) await insertContact(db, projectId, contactId, now)
  const added = identifiers.filter((_, i) => owners[i] === undefined)
  await insertIdentifiers(
    db,
    projectId,
    contactId,
    added.map(({ digest, key, value }) => ({ digest, key, value })),
  )
  return contactId
}

/** For each identifier the contact that owns it, in the same order. A contact's own id names it before anything else. */
async function findOwners(
  db: Database,
  projectId: string,
  identifiers: ParsedIdentifier[],
): Promise<(string | undefined)[]> {
  const rows = await selectIdentifierOwners(
    db,
    projectId,
    identifiers.map(({ digest }) => digest),
  )
  const ownerOf = new Map(rows.map((row) => [row.digest.toString('hex'), row.contact_id]))
  const owners = identifiers.map(({ digest }) => ownerOf.get(digest.toString('hex')))
  const own = identifiers.findIndex(({ key, canonical }) => key === CONTACT_ID_KEY && canonical.startsWith('s'))
  const contactId = identifiers[own]?.canonical.slice(1)
  if (contactId !== undefined && (await contactExists(db, projectId, contactId))) owners[own] = contactId
  return owners
}
