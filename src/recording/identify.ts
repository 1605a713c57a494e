import { v7 as uuidv7 } from 'uuid'
import { type ApiError, identifierConflict } from '../domain/errors.ts'
import { contactIdOf } from '../domain/identifier.ts'
import type { ParsedIdentifier } from './parse.ts'

/** A contact or an identifier to be stored. */
export interface NewContact {
  project_id: string
  contact_id: string
  created_at: string
}
export interface NewIdentifier {
  project_id: string
  contact_id: string
  digest: Buffer
  key: string
  value: string
}

/** What is known of who owns what, and what one event after another adds to it. */
export class Contacts {
  readonly #owners = new Map<string, string>()
  readonly #contacts = new Set<string>()
  readonly #new = new Set<string>()
  /** What is to be stored of the events identified so far. */
  readonly added: { contacts: NewContact[]; identifiers: NewIdentifier[] } = { contacts: [], identifiers: [] }

  /**
   * @param owners of the identifiers that the events bring, as far as they are known
   * @param contacts that exist, of those that the events name by their own id
   */
  constructor(
    owners: readonly { project_id: string; digest: Buffer; contact_id: string }[],
    contacts: readonly { project_id: string; contact_id: string }[],
  ) {
    for (const { project_id, digest, contact_id } of owners) this.#owners.set(inProject(project_id, digest), contact_id)
    for (const { project_id, contact_id } of contacts) this.#contacts.add(inProject(project_id, contact_id))
  }

  /**
   * The contact that the identifiers name (decisions, "Contact"): the one that owns those known, to which the rest are
   * added, or a new one with all of them.
   *
   * @param now in the wire's form
   * @returns the contact's id, or identifier_conflict when they belong to different contacts; nothing is added then
   */
  identify(project_id: string, identifiers: readonly ParsedIdentifier[], now: string): string | ApiError {
    const owners = identifiers.map((identifier) => this.#ownerOf(project_id, identifier))
    const [known, ...others] = new Set(owners.filter((owner) => owner !== undefined))
    if (others.length > 0) return conflict(owners)

    const contact_id = known ?? uuidv7()
    if (known === undefined) {
      this.#contacts.add(inProject(project_id, contact_id))
      this.#new.add(inProject(project_id, contact_id))
      this.added.contacts.push({ project_id, contact_id, created_at: now })
    }
    identifiers.forEach(({ digest, key, value }, i) => {
      if (owners[i] !== undefined) return
      this.#owners.set(inProject(project_id, digest), contact_id)
      this.added.identifiers.push({ project_id, contact_id, digest, key, value })
    })
    return contact_id
  }

  isNew(projectId: string, contactId: string): boolean {
    return this.#new.has(inProject(projectId, contactId))
  }

  /** A contact's own id names it before anything else. */
  #ownerOf(projectId: string, identifier: ParsedIdentifier): string | undefined {
    const contactId = contactIdOf(identifier)
    if (contactId !== undefined && this.#contacts.has(inProject(projectId, contactId))) return contactId
    return this.#owners.get(inProject(projectId, identifier.digest))
  }
}

/** A project's thing as a key of maps. No id holds NUL. */
export const inProject = (projectId: string, thing: string | Buffer): string =>
  `${projectId}\0${typeof thing === 'string' ? thing : thing.toString('latin1')}`

function conflict(owners: readonly (string | undefined)[]) {
  const first = owners.find((owner) => owner !== undefined)
  const details = owners.flatMap((owner, i) =>
    owner === undefined
      ? []
      : [
          {
            pointer: `/body/identifiers/${i}`,
            message: owner === first ? 'belongs to one contact' : 'belongs to another contact',
          },
        ],
  )
  return identifierConflict(details)
}
