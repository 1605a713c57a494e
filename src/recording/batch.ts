import { createHash } from 'node:crypto'
import type pg from 'pg'
import { v7 as uuidv7 } from 'uuid'
import type { components } from '../../generated/api.ts'
import { flushTogether } from '../database/cork.ts'
import { columnsOf, type Prepared } from '../database/prepared.ts'
import { ApiError, idempotencyKeyReused, moduleDoesNotExist } from '../domain/errors.ts'
import { CUSTOM_EVENT } from '../domain/event.ts'
import { contactIdOf } from '../domain/identifier.ts'
import { insertContacts, insertIdentifiers, selectContacts, selectIdentifierOwners } from '../queries/contacts.ts'
import { insertEntries, selectEntriesInEffect } from '../queries/entries.ts'
import { insertEvents } from '../queries/events.ts'
import { insertIdempotencyKeys, selectIdempotencyKeys } from '../queries/idempotency.ts'
import { selectModulesInEffect } from '../queries/modules.ts'
import { lockFreeProjects, lockProjects, setLockTimeout } from '../queries/projects.ts'
import { Contacts, inProject } from './identify.ts'
import type { ParsedEvent } from './parse.ts'

export type CustomEventResult = components['schemas']['CustomEventResult']

/** The answer to a post; `replayed` when it is a stored one, given again. */
export interface Recorded {
  body: CustomEventResult
  replayed: boolean
}

/** A custom event that is to be recorded. */
export interface Post extends ParsedEvent {
  project_id: string
  idempotency_key: string | undefined
}

/** What became of a post: its answer, the error that its caller gets, or nothing when others were writing in its project. */
export type Outcome = Recorded | ApiError | undefined

/**
 * Records posts in one transaction, with the outcome of one after another in the order given.
 *
 * @param client in pipeline mode: all that is sent to it before an answer is awaited is one round trip
 * @param patience_ms how long to wait for others who write in the posts' project; without it the posts of such projects
 * are left out. Only for posts of one project, so that no two batches wait for each other
 * @throws what the database answers to the transaction; then nothing is recorded, but for a connection that broke at the
 * commit
 */
export async function recordBatch(
  client: pg.ClientBase,
  posts: readonly Post[],
  patience_ms: number | undefined,
): Promise<Outcome[]> {
  const known = await begin(client, posts, patience_ms)
  const now = new Date().toISOString()
  const decisions = posts.map((post, i) => decide(post, known, known.modules.get(i + 1), now))
  const events = decisions.filter((decision) => decision instanceof NewEvent)
  const newEntries = await chooseEntries(client, events, known.contacts, now)
  await commit(client, events, newEntries, known.contacts)
  return decisions.map((decision) => {
    if (decision instanceof NewEvent) return { body: decision.answer(), replayed: false }
    return decision instanceof Twin ? { body: decision.first.answer(), replayed: true } : decision
  })
}

/** A module as it is for one post. */
interface ModuleInEffect {
  group_id: string
  version_number: number
}

/** What an Idempotency-Key was used for: in an earlier batch, or by an event of this one. */
interface UsedKey {
  request_digest: Buffer
  answer: string | NewEvent
}

/** What is known before the batch, and what its events add. */
interface Known {
  /** Projects that others write in. */
  heldByOthers: ReadonlySet<string>
  /** By the post's number, from 1. */
  modules: ReadonlyMap<number, ModuleInEffect>
  contacts: Contacts
  keys: Map<string, UsedKey>
}

/** Begins the transaction, holds the projects and reads what the posts' modules, contacts and keys are. */
async function begin(client: pg.ClientBase, posts: readonly Post[], patience_ms: number | undefined): Promise<Known> {
  const identifiers = posts.flatMap(({ project_id, identifiers }) => identifiers.map((one) => ({ project_id, ...one })))
  const named = identifiers.flatMap((one) => {
    const contact_id = contactIdOf(one)
    return contact_id ? [{ project_id: one.project_id, contact_id }] : []
  })
  const keyed = posts.filter((post) => post.idempotency_key !== undefined) as (Post & { idempotency_key: string })[]
  const projectIds = [...new Set(posts.map(({ project_id }) => project_id))]

  const lock = patience_ms === undefined ? lockFreeProjects : lockProjects
  const [, , projects, modules, owners, contacts, keys] = await flushTogether(client, () =>
    Promise.all([
      client.query('BEGIN'),
      patience_ms !== undefined && ask(client, setLockTimeout, [`${patience_ms}ms`]),
      ask(client, lock, [projectIds]),
      ask(client, selectModulesInEffect, columnsOf(posts, 'project_id', 'module_id', 'timestamp')),
      ask(client, selectIdentifierOwners, columnsOf(identifiers, 'project_id', 'digest')),
      named.length > 0 ? ask(client, selectContacts, columnsOf(named, 'project_id', 'contact_id')) : [],
      keyed.length > 0 ? ask(client, selectIdempotencyKeys, columnsOf(keyed, 'project_id', 'idempotency_key')) : [],
    ]),
  )
  // Having waited, a project that is not there is gone; its modules are too.
  const held = new Set(projects.map(({ project_id }) => project_id))
  return {
    heldByOthers: new Set(patience_ms === undefined ? projectIds.filter((id) => !held.has(id)) : []),
    modules: new Map(modules.map((module) => [module.ordinal, module])),
    contacts: new Contacts(owners, contacts),
    keys: new Map(
      keys.map(({ project_id, idempotency_key, request_digest, response }) => [
        inProject(project_id, idempotency_key),
        { request_digest, answer: response },
      ]),
    ),
  }
}

async function ask<Args extends readonly unknown[], Row>(
  client: pg.ClientBase,
  query: Prepared<Args, Row>,
  args: Args,
): Promise<Row[]> {
  return (await client.query(query.statement(...args))).rows as Row[]
}

/** An event that this batch stores; `place` is known once its entry is. */
class NewEvent {
  readonly event_id = uuidv7()
  readonly post: Post
  readonly module: ModuleInEffect
  readonly contact_id: string
  /** Of an event with an Idempotency-Key. */
  readonly digest: Buffer | undefined
  place: PlaceInEntry = {
    entry_id: '',
    max_page_id: null,
    max_page_key: null,
    max_page_index: null,
    total_pages: null,
  }

  constructor(post: Post, module: ModuleInEffect, contact_id: string, digest: Buffer | undefined) {
    this.post = post
    this.module = module
    this.contact_id = contact_id
    this.digest = digest
  }

  row() {
    const { project_id, timestamp, custom_event_name, custom_event_props } = this.post
    return {
      project_id,
      event_id: this.event_id,
      ...this.place,
      timestamp,
      module_version_number: this.module.version_number,
      event_type: CUSTOM_EVENT,
      custom_event_name,
      custom_event_props,
    }
  }

  answer(): CustomEventResult {
    const { project_id, module_id, timestamp, custom_event_name, custom_event_props } = this.post
    return {
      group_id: this.module.group_id,
      project_id,
      module_id,
      module_version_number: this.module.version_number,
      contact_id: this.contact_id,
      entry_id: this.place.entry_id,
      timestamp,
      event_type: CUSTOM_EVENT,
      custom_event_name,
      custom_event_props,
    }
  }
}

/** The entry of an event, and how far it had come by then. */
interface PlaceInEntry {
  entry_id: string
  max_page_id: string | null
  max_page_key: string | null
  max_page_index: number | null
  total_pages: number | null
}

/** A post with the Idempotency-Key of an event before it in the batch. */
class Twin {
  readonly first: NewEvent

  constructor(first: NewEvent) {
    this.first = first
  }
}

/** Whose event it is, or why it is none: what the order of checks comes to after validation (decisions, "Errors"). */
function decide(post: Post, known: Known, module: ModuleInEffect | undefined, now: string): Outcome | NewEvent | Twin {
  const { project_id, module_id, idempotency_key } = post
  if (known.heldByOthers.has(project_id)) return undefined
  const key = idempotency_key === undefined ? undefined : inProject(project_id, idempotency_key)
  const digest = key === undefined ? undefined : requestDigest(post)
  const used = key === undefined ? undefined : known.keys.get(key)
  if (used && digest) return answerAgain(used, digest)

  if (!module) return moduleDoesNotExist(module_id)
  const contact_id = known.contacts.identify(project_id, post.identifiers, now)
  if (contact_id instanceof ApiError) return contact_id
  const event = new NewEvent(post, module, contact_id, digest)
  if (key !== undefined && digest) known.keys.set(key, { request_digest: digest, answer: event })
  return event
}

function answerAgain({ request_digest, answer }: UsedKey, digest: Buffer): Recorded | Twin | ApiError {
  if (!request_digest.equals(digest)) return idempotencyKeyReused()
  return answer instanceof NewEvent
    ? new Twin(answer)
    : { body: JSON.parse(answer) as CustomEventResult, replayed: true }
}

/** Gives each event its entry: one that is there, else a new one. @returns the new ones */
async function chooseEntries(client: pg.ClientBase, events: readonly NewEvent[], contacts: Contacts, now: string) {
  // A contact of this batch has no entries yet.
  const asked = events
    .filter(({ post, contact_id }) => !contacts.isNew(post.project_id, contact_id))
    .map((event) => ({ ...event.post, event, contact_id: event.contact_id }))
  const columns = columnsOf(asked, 'project_id', 'contact_id', 'module_id', 'timestamp')
  const found = asked.length > 0 ? await ask(client, selectEntriesInEffect, columns) : []
  for (const { ordinal, ...place } of found) (asked[ordinal - 1] as (typeof asked)[number]).event.place = place

  const added = new Map<string, NewEntry>()
  for (const event of events.filter(({ place }) => place.entry_id === '')) {
    const { project_id, module_id, timestamp } = event.post
    const key = inProject(project_id, `${event.contact_id}\0${module_id}`)
    const entry = added.get(key) ?? {
      project_id,
      entry_id: uuidv7(),
      module_id,
      contact_id: event.contact_id,
      created_at: earlier(timestamp, now),
      updated_at: now,
      entry_data: '{}',
    }
    added.set(key, entry)
    event.place.entry_id = entry.entry_id
  }
  return [...added.values()]
}

interface NewEntry {
  project_id: string
  entry_id: string
  module_id: string
  contact_id: string
  created_at: string
  updated_at: string
  entry_data: string
}

/** The earlier of two instants in the wire's form, which sorts as they do. */
const earlier = (a: string, b: string): string => (a < b ? a : b)

/** Writes all rows and commits, in one round trip: what fails makes PostgreSQL refuse the rest, the commit included. */
async function commit(client: pg.ClientBase, events: NewEvent[], entries: NewEntry[], { added }: Contacts) {
  const keys = events.flatMap((event) => {
    const { project_id, idempotency_key } = event.post
    const { event_id, digest: request_digest } = event
    if (idempotency_key === undefined || request_digest === undefined) return []
    return [{ project_id, idempotency_key, event_id, request_digest, response: JSON.stringify(event.answer()) }]
  })
  const statements = [
    added.contacts.length > 0 && insertContacts(added.contacts),
    added.identifiers.length > 0 && insertIdentifiers(added.identifiers),
    entries.length > 0 && insertEntries(entries),
    events.length > 0 && insertEvents(events.map((event) => event.row())),
    keys.length > 0 && insertIdempotencyKeys(keys),
    'COMMIT',
  ].filter((statement) => statement !== false)
  await flushTogether(client, () => Promise.all(statements.map((statement) => client.query(statement))))
}

/** SHA-256 of what makes two posts the same: the fields as parsed, identifiers in any order. */
function requestDigest({ module_id, timestamp, custom_event_name, custom_event_props, identifiers }: Post): Buffer {
  const digests = identifiers.map(({ digest }) => digest.toString('hex')).sort()
  return createHash('sha256')
    .update(JSON.stringify([module_id, timestamp, custom_event_name, custom_event_props, digests]))
    .digest()
}
