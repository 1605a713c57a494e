import { v7 as uuidv7 } from 'uuid'
import { type ApiError, identifierConflict } from '../domain/errors.ts'
import type { IdentifierNames, TypeMismatch } from '../domain/identifier.ts'
import type { IsoTimestamp } from '../domain/timestamp.ts'
import type { ParsedIdentifier } from './custom-event.ts'

interface NewContact {
  project_id: string
  contact_id: string
  created_at: IsoTimestamp
}

interface NewIdentifier {
  project_id: string
  contact_id: string
  digest: Buffer
  key: string
  value: string
}

export type ResolvedContact = { ok: true; contact_id: string } | { ok: false; error: ApiError }

/**
 * Resolves the identifiers of one event after another to contacts (docs/semantics.md#contact), in memory: contacts and
 * identifiers that an event adds are known to those after it, and are in `added` to be stored.
 */
export class ContactResolver {
  readonly added: { contacts: NewContact[]; identifiers: NewIdentifier[] } = { contacts: [], identifiers: [] }
  readonly typeMismatches: TypeMismatch[] = []
  /** Contact ids by their identifier's digest in the project. */
  readonly #owners = new Map<string, string>()
  readonly #existing = new Set<string>()
  readonly #new = new Set<string>()

  /**
   * @param owners of the events' identifiers, and of those under another type, as far as these are stored
   * @param contacts the stored ones of those that the events name by their own id
   */
  constructor(
    owners: readonly { project_id: string; digest: Buffer; contact_id: string }[],
    contacts: readonly { project_id: string; contact_id: string }[],
  ) {
    for (const { project_id, digest, contact_id } of owners)
      this.#owners.set(keyInProject(project_id, digest), contact_id)
    for (const { project_id, contact_id } of contacts) this.#existing.add(keyInProject(project_id, contact_id))
  }

  /**
   * The contact that owns the known identifiers, to which the others are added, or a new one with all of them;
   * identifier_conflict when they belong to different contacts, and then nothing is added.
   *
   * @param now as an ISO timestamp
   */
  resolve(project_id: string, identifiers: readonly ParsedIdentifier[], now: IsoTimestamp): ResolvedContact {
    const owners = identifiers.map((identifier) => this.#ownerOf(project_id, identifier))
    const [owner, ...others] = new Set(owners.filter((contactId) => contactId !== undefined))
    if (others.length > 0) return { ok: false, error: conflictOf(owners) }

    const contact_id = owner ?? this.#addContact(project_id, now)
    identifiers.forEach(({ digest, key, value, otherType }, i) => {
      if (owners[i] !== undefined) return
      const other = otherType && this.#ownerOf(project_id, otherType)
      if (other !== undefined && other !== contact_id) this.typeMismatches.push({ project_id, key, count: 1 })
      this.#owners.set(keyInProject(project_id, digest), contact_id)
      this.added.identifiers.push({ project_id, contact_id, digest, key, value })
    })
    return { ok: true, contact_id }
  }

  /** Whether the contact is one of `added`. */
  isNew(projectId: string, contactId: string): boolean {
    return this.#new.has(keyInProject(projectId, contactId))
  }

  /** A contact's own id takes precedence over an identifier of the key `contact_id` with the same value. */
  #ownerOf(projectId: string, { digest, contact_id }: IdentifierNames): string | undefined {
    if (contact_id !== undefined && this.#existing.has(keyInProject(projectId, contact_id))) return contact_id
    return this.#owners.get(keyInProject(projectId, digest))
  }

  #addContact(project_id: string, created_at: IsoTimestamp): string {
    const contact_id = uuidv7()
    this.#existing.add(keyInProject(project_id, contact_id))
    this.#new.add(keyInProject(project_id, contact_id))
    this.added.contacts.push({ project_id, contact_id, created_at })
    return contact_id
  }
}

/** A map key for something that is unique in its project. A project id holds no NUL, so different pairs have different keys. */
export const keyInProject = (projectId: string, localKey: string | Buffer): string =>
  `${projectId}\0${typeof localKey === 'string' ? localKey : localKey.toString('latin1')}`

function conflictOf(owners: readonly (string | undefined)[]): ApiError {
  const first = owners.find((owner) => owner !== undefined)
  const issues = owners.flatMap((owner, i) => {
    if (owner === undefined) return []
    const message = owner === first ? 'belongs to one contact' : 'belongs to another contact'
    return [{ pointer: `/body/identifiers/${i}`, message }]
  })
  return identifierConflict(issues)
}
