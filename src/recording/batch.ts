import { hash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import type pg from 'pg'
import { v7 as uuidv7 } from 'uuid'
import type { components } from '../../generated/api.ts'
import { setOnNodes } from '../database/distribution.ts'
import { columnsOf, type Prepared, type Runnable } from '../database/prepared.ts'
import { timedQuery } from '../database/timed-query.ts'
import { SELECT_WAL_POSITION, type WalPosition } from '../database/wal-position.ts'
import { type ApiError, idempotencyKeyReused, moduleDoesNotExist } from '../domain/errors.ts'
import { CUSTOM_EVENT } from '../domain/event.ts'
import { type IsoTimestamp, toIsoTimestamp } from '../domain/timestamp.ts'
import { insertContacts, insertIdentifiers, selectContacts, selectIdentifierOwners } from '../queries/contacts.ts'
import { insertEntries, selectEntriesInEffect } from '../queries/entries.ts'
import { insertEvents, selectNextPositions } from '../queries/events.ts'
import { insertIdempotencyKeys, selectIdempotencyKeys } from '../queries/idempotency.ts'
import { selectModulesInEffect } from '../queries/modules.ts'
import {
  lockFreeProjects,
  lockFreeProjectsOfShard,
  lockProjects,
  lockProjectsOfShard,
  lockRecording,
  setLockTimeout,
} from '../queries/projects.ts'
import { ContactResolver, keyInProject } from './contacts.ts'
import type { ParsedEvent, ParsedIdentifier } from './custom-event.ts'
import type { RecorderObserver } from './observer.ts'

type CustomEventResult = components['schemas']['CustomEventResult']

/** The response to a recorded event; `replayed` when the event was recorded before, under the same Idempotency-Key. */
export interface Recorded {
  body: CustomEventResult
  replayed: boolean
  /** Of the database with the event, if it is wanted and known. */
  position: WalPosition | undefined
}

export interface EventToRecord extends ParsedEvent {
  project_id: string
  idempotency_key: string | undefined
}

/** What a batch did with one of its events. */
export type Outcome =
  | { status: 'recorded'; response: Recorded }
  | { status: 'refused'; error: ApiError }
  /** Not recorded, since another writer holds the lock of its project. */
  | { status: 'locked' }

/**
 * Records events in one transaction, with the outcomes of recording them one after another in their order. It takes two
 * round trips, whatever the number of events, and a third one where an event's first identifier does not tell its contact.
 *
 * @param client in pipeline mode, so that statements sent together are one round trip
 * @param options.lockTimeout_ms how long to wait for the lock of the events' project; without it, events of locked projects
 * are left out. Only for events of one project, so that no two batches wait for each other
 * @param options.hasBegun whether `beginWithRecordingLock` has begun the transaction
 * @param options.shards where the database is distributed by project: the shard of each project, as far as it is known, to
 * which the batch adds. Then only for events of one project, or of projects that are on one shard by this map
 * @param options.readsPosition whether the outcomes have a position, for which the round trip of the commit has another statement
 * @param options.onCommit called with what the batch has added
 * @throws the database's error; then nothing was recorded, unless the connection broke during the commit
 */
export async function recordBatch(
  client: pg.ClientBase,
  events: readonly EventToRecord[],
  { readsPosition, onCommit = () => {}, ...options }: BatchOptions = {},
): Promise<Outcome[]> {
  const select = selectOn(client, options)
  const state = await lockAndRead(client, select, events, options)
  const now = toIsoTimestamp(new Date())
  const decisions = events.map((event, i) => decide(event, i + 1, state, now))
  const newEvents = decisions.flatMap((decision) => (decision.kind === 'new' ? [decision.event] : []))
  assignPositions(newEvents, state.nextPositions)
  const newEntries = await assignEntries(select, newEvents, state.contacts, now)
  const additions = { now, events: newEvents, entries: newEntries, contacts: state.contacts }
  const position = await insertAndCommit(client, additions, readsPosition)
  const { added, typeMismatches } = state.contacts
  const { length: contacts } = added.contacts
  onCommit({ events: newEvents.length, contacts, entries: newEntries.length, typeMismatches })
  return decisions.map((decision) => outcomeOf(decision, position))
}

/** The parameters of selectEntriesInEffect. */
const ENTRY_KEY = ['project_id', 'contact_id', 'digest', 'module_id', 'timestamp'] as const

/** No identifier has it. */
const NO_DIGEST = Buffer.alloc(0)

interface BatchOptions {
  lockTimeout_ms?: number | undefined
  hasBegun?: boolean
  shards?: Map<string, string> | undefined
  readsPosition?: boolean
  onCommit?: RecorderObserver['onCommit']
}

/**
 * Begins a transaction that holds a shard's recording lock, as one of all processes does at a time, so that multi-project
 * batches that take it never find a project locked by each other (ADR 0031). Nothing but speed depends on it.
 *
 * @returns whether another session had it
 * @throws a lock timeout after this time, or the database's other errors
 */
export async function beginWithRecordingLock(
  client: pg.ClientBase,
  shard: string,
  timeout_ms: number,
): Promise<{ waited: boolean }> {
  const [, [locked]] = await Promise.all([
    timedQuery(client, 'BEGIN'),
    run(client, lockRecording, [`${timeout_ms}ms`, crc32(shard) | 0]),
  ])
  return { waited: locked?.is_free === false }
}

/** What is stored that the events' outcomes depend on, and what the events decided so far add to it. */
interface BatchState {
  lockedProjects: ReadonlySet<string>
  /** For each project that is held, the least position that its next event may have. */
  nextPositions: Map<string, number>
  /** By the ordinal of the event, from 1; modules that do not exist are absent. */
  modules: ReadonlyMap<number, ModuleInEffect>
  /** Likewise the contact that the event's first identifier names, and its entry; absent where nobody owns that identifier. */
  entries: ReadonlyMap<number, EntryInEffect>
  contacts: ContactResolver
  /** By Idempotency-Key in the project. */
  usedKeys: Map<string, UsedKey>
}

/** A module's group, and its version in effect at the time of an event. */
interface ModuleInEffect {
  group_id: string
  version_number: number
}

/** A contact, which need not exist if it is named by its own id, and its entry that an event would belong to. */
interface EntryInEffect {
  contact_id: string
  progress: EntryProgress | undefined
}

/** An Idempotency-Key that was used, and what the same event under it is. */
interface UsedKey {
  request_digest: Buffer
  repeated: Replay | DuplicateInBatch
}

/** Begins the transaction, unless it has begun, locks the projects' rows and reads what the events refer to. */
async function lockAndRead(
  client: pg.ClientBase,
  select: Select,
  events: readonly EventToRecord[],
  { lockTimeout_ms, hasBegun, shards }: BatchOptions,
): Promise<BatchState> {
  // The first identifier of each event is looked up together with the entry of its owner, since most events have no other.
  const firstNames = events.map(({ project_id, module_id, timestamp, identifiers }) => {
    const [{ digest, contact_id }] = identifiers as [ParsedIdentifier]
    const name = contact_id === undefined ? { contact_id: '', digest } : { contact_id, digest: NO_DIGEST }
    return { project_id, module_id, timestamp, ...name }
  })
  const names = events.flatMap(({ project_id, identifiers }) =>
    identifiers.flatMap(({ digest, contact_id, otherType }, i) => [
      ...(i === 0 && contact_id === undefined ? [] : [{ project_id, digest, contact_id }]),
      ...(otherType ? [{ project_id, ...otherType }] : []),
    ]),
  )
  const namedContacts = names.flatMap(({ project_id, contact_id }) => (contact_id ? [{ project_id, contact_id }] : []))
  const keys = events.flatMap(({ project_id, idempotency_key }) =>
    idempotency_key === undefined ? [] : [{ project_id, idempotency_key }],
  )
  const projectIds = [...new Set(events.map(({ project_id }) => project_id))]
  const waits = lockTimeout_ms !== undefined
  const [lock, lockFree] = shards
    ? ([lockProjectsOfShard, lockFreeProjectsOfShard] as const)
    : ([lockProjects, lockFreeProjects] as const)

  const [, , held, nextPositions, modules, entries, owners, contacts, usedKeys] = await Promise.all([
    !hasBegun && timedQuery(client, 'BEGIN'),
    shards
      ? setAll(client, setOnNodes({ synchronous_commit: 'on', ...(waits && { lock_timeout: `${lockTimeout_ms}ms` }) }))
      : waits && run(client, setLockTimeout, [`${lockTimeout_ms}ms`]),
    run<[string[]], { project_id: string; shard?: string }>(client, waits ? lock : lockFree, [projectIds]),
    select(selectNextPositions, [projectIds]),
    select(selectModulesInEffect, columnsOf(events, 'project_id', 'module_id', 'timestamp')),
    select(selectEntriesInEffect, columnsOf(firstNames, ...ENTRY_KEY)),
    names.length > 0 ? select(selectIdentifierOwners, columnsOf(names, 'project_id', 'digest')) : [],
    namedContacts.length > 0 ? select(selectContacts, columnsOf(namedContacts, 'project_id', 'contact_id')) : [],
    keys.length > 0 ? select(selectIdempotencyKeys, columnsOf(keys, 'project_id', 'idempotency_key')) : [],
  ])
  const firstOwners = entries.flatMap(({ ordinal, contact_id }) => {
    const { project_id, digest } = firstNames[ordinal - 1] as (typeof firstNames)[number]
    return digest === NO_DIGEST ? [] : [{ project_id, digest, contact_id }]
  })
  for (const { project_id, shard } of held) if (shard !== undefined) shards?.set(project_id, shard)
  const heldIds = new Set(held.map(({ project_id }) => project_id))
  return {
    // A project that is not held after waiting for its lock was deleted, and its modules with it.
    lockedProjects: new Set(waits ? [] : projectIds.filter((id) => !heldIds.has(id))),
    nextPositions: new Map(nextPositions.map(({ project_id, position }) => [project_id, position])),
    modules: new Map(modules.map((module) => [module.ordinal, module])),
    entries: new Map(entries.map((row) => [row.ordinal, entryInEffect(row)])),
    contacts: new ContactResolver([...firstOwners, ...owners], contacts),
    usedKeys: new Map(
      usedKeys.map(({ project_id, idempotency_key, request_digest, response }) => [
        keyInProject(project_id, idempotency_key),
        { request_digest, repeated: { kind: 'replay', response } },
      ]),
    ),
  }
}

/** Runs a query over input rows of the batch. */
type Select = <Args extends readonly unknown[], Row>(query: Prepared<Args, Row>, args: Args) => Promise<Row[]>

const selectOn =
  (client: pg.ClientBase, { shards }: BatchOptions): Select =>
  (query, args) =>
    run(client, shards ? query.ofOneShard : query, args)

async function run<Args extends readonly unknown[], Row>(
  client: pg.ClientBase,
  query: Runnable<Args, Row>,
  args: Args,
): Promise<Row[]> {
  return (await timedQuery(client, query.statement(...args))).rows as Row[]
}

const setAll = (client: pg.ClientBase, statements: string[]) =>
  Promise.all(statements.map((statement) => timedQuery(client, statement, 'set_on_nodes')))

type EntryRow = Awaited<ReturnType<typeof selectEntriesInEffect>>[number]

function entryInEffect({
  contact_id,
  entry_id,
  max_page_id,
  max_page_key,
  max_page_index,
  total_pages,
}: EntryRow): EntryInEffect {
  const furthest = { max_page_id, max_page_key, max_page_index, total_pages }
  return { contact_id, progress: entry_id === null ? undefined : { entry_id, ...furthest } }
}

/** What is to be done with an event. */
type Decision = { kind: 'new'; event: NewEvent } | Replay | DuplicateInBatch | Refusal | { kind: 'locked' }

/** Respond again as to the event that an earlier batch recorded under the same Idempotency-Key (ADR 0004). */
interface Replay {
  kind: 'replay'
  /** JSON text. */
  response: string
}

/** Respond as to the event before it in this batch that has the same Idempotency-Key. */
interface DuplicateInBatch {
  kind: 'duplicate'
  first: NewEvent
}

interface Refusal {
  kind: 'refused'
  error: ApiError
}

/** An event that is to be stored. */
interface NewEvent {
  event_id: string
  input: EventToRecord
  module: ModuleInEffect
  contact_id: string
  /** Of the contact that its first identifier names, until assignEntries sets that of its own contact. */
  inEffect: EntryInEffect | undefined
  /** Set by assignPositions. */
  position: number
  /** Set by assignEntries. */
  progress: EntryProgress
  idempotency: Idempotency | undefined
}

/** The Idempotency-Key of an event, and what the event must have in common with another one under it. */
interface Idempotency {
  idempotency_key: string
  keyInProject: string
  request_digest: Buffer
}

/** The entry of an event, and the furthest page that it had reached by then (docs/semantics.md#furthest-page). */
interface EntryProgress {
  entry_id: string
  max_page_id: string | null
  max_page_key: string | null
  max_page_index: number | null
  total_pages: number | null
}

const NO_ENTRY: EntryProgress = {
  entry_id: '',
  max_page_id: null,
  max_page_key: null,
  max_page_index: null,
  total_pages: null,
}

/** Makes the checks that follow validation, in their order (docs/semantics.md#errors). */
function decide(input: EventToRecord, ordinal: number, state: BatchState, now: IsoTimestamp): Decision {
  const { project_id, module_id } = input
  const module = state.modules.get(ordinal)
  if (state.lockedProjects.has(project_id)) return { kind: 'locked' }

  const idempotency = idempotencyOf(input)
  const used = idempotency && state.usedKeys.get(idempotency.keyInProject)
  if (used)
    return used.request_digest.equals(idempotency.request_digest) ? used.repeated : refuse(idempotencyKeyReused())

  if (!module) return refuse(moduleDoesNotExist(module_id))
  const contact = state.contacts.resolve(project_id, input.identifiers, now)
  if (!contact.ok) return refuse(contact.error)

  const { contact_id } = contact
  const event: NewEvent = {
    event_id: uuidv7(),
    input,
    module,
    contact_id,
    inEffect: state.entries.get(ordinal),
    position: 0,
    progress: NO_ENTRY,
    idempotency,
  }
  if (idempotency) {
    const { request_digest } = idempotency
    state.usedKeys.set(idempotency.keyInProject, { request_digest, repeated: { kind: 'duplicate', first: event } })
  }
  return { kind: 'new', event }
}

const refuse = (error: ApiError): Refusal => ({ kind: 'refused', error })

function idempotencyOf(input: EventToRecord): Idempotency | undefined {
  const { project_id, idempotency_key } = input
  if (idempotency_key === undefined) return undefined
  const request_digest = requestDigest(input)
  return { idempotency_key, keyInProject: keyInProject(project_id, idempotency_key), request_digest }
}

/** SHA-256 of what makes two requests the same event: the fields as parsed, identifiers in any order. */
function requestDigest(input: EventToRecord): Buffer {
  const { module_id, timestamp, custom_event_name, custom_event_props } = input
  const identifiers = input.identifiers.map(({ digest }) => digest.toString('hex')).sort()
  const fields = [module_id, timestamp, custom_event_name, custom_event_props, identifiers]
  return hash('sha256', JSON.stringify(fields), 'buffer')
}

/** Gives the events the next positions of their projects, in their order (ADR 0020). */
function assignPositions(events: readonly NewEvent[], nextPositions: Map<string, number>): void {
  for (const event of events) {
    const { project_id } = event.input
    event.position = nextPositions.get(project_id) as number
    nextPositions.set(project_id, event.position + 1)
  }
}

interface NewEntry {
  project_id: string
  entry_id: string
  module_id: string
  contact_id: string
  created_at: IsoTimestamp
  updated_at: IsoTimestamp
  entry_data: string
}

/**
 * Sets each event's progress: in the entry of its contact that is in effect (docs/semantics.md#entry), else in a new one.
 *
 * @returns the new entries
 */
async function assignEntries(
  select: Select,
  events: readonly NewEvent[],
  contacts: ContactResolver,
  now: IsoTimestamp,
): Promise<NewEntry[]> {
  const ofKnownContacts = events.filter(({ input, contact_id }) => !contacts.isNew(input.project_id, contact_id))
  const others = ofKnownContacts.filter(({ inEffect, contact_id }) => inEffect?.contact_id !== contact_id)
  const keys = others.map(({ input, contact_id }) => ({ ...input, contact_id, digest: NO_DIGEST }))
  const found = others.length > 0 ? await select(selectEntriesInEffect, columnsOf(keys, ...ENTRY_KEY)) : []
  for (const row of found) (others[row.ordinal - 1] as NewEvent).inEffect = entryInEffect(row)
  for (const event of ofKnownContacts) event.progress = event.inEffect?.progress ?? NO_ENTRY

  const newEntries = new Map<string, NewEntry>()
  for (const event of events.filter(({ progress }) => progress === NO_ENTRY)) {
    const { project_id, module_id, timestamp } = event.input
    const { contact_id } = event
    const key = keyInProject(project_id, `${contact_id}\0${module_id}`)
    const entry = newEntries.get(key) ?? {
      project_id,
      entry_id: uuidv7(),
      module_id,
      contact_id,
      created_at: earlier(timestamp, now),
      updated_at: now,
      entry_data: '{}',
    }
    newEntries.set(key, entry)
    event.progress = { ...NO_ENTRY, entry_id: entry.entry_id }
  }
  return [...newEntries.values()]
}

/** The earlier of two ISO timestamps in UTC, which sort as text. */
const earlier = (a: IsoTimestamp, b: IsoTimestamp): IsoTimestamp => (a < b ? a : b)

/** What a batch adds to the database. */
interface Additions {
  now: IsoTimestamp
  events: readonly NewEvent[]
  entries: readonly NewEntry[]
  contacts: ContactResolver
}

/**
 * Inserts all rows and commits, in one round trip: after a failed statement PostgreSQL refuses the rest, COMMIT included.
 * @returns the position of the database with them, if it is wanted and known
 */
async function insertAndCommit(
  client: pg.ClientBase,
  { now, events, entries, contacts: { added } }: Additions,
  readsPosition: boolean | undefined,
): Promise<WalPosition | undefined> {
  const keys = events.flatMap((event) => {
    const { event_id, input, idempotency } = event
    if (!idempotency) return []
    const { idempotency_key, request_digest } = idempotency
    const response = JSON.stringify(resultOf(event))
    return [{ project_id: input.project_id, idempotency_key, event_id, request_digest, response }]
  })
  const statements = [
    added.contacts.length > 0 && insertContacts(added.contacts),
    added.identifiers.length > 0 && insertIdentifiers(added.identifiers),
    entries.length > 0 && insertEntries(entries),
    events.length > 0 && insertEvents(events.map((event) => ({ ...rowOf(event), recorded_at: now }))),
    keys.length > 0 && insertIdempotencyKeys(keys),
    'COMMIT',
  ].filter((statement) => statement !== false)
  const results = statements.map((statement) => timedQuery(client, statement))
  // What was committed must not be repeated because its position is unknown.
  const position = readsPosition ? timedQuery(client, SELECT_WAL_POSITION).catch(() => undefined) : undefined
  await Promise.all(results)
  return (await position)?.rows[0].wal_position
}

function rowOf({ event_id, input, module, position, progress }: NewEvent) {
  const { project_id, timestamp, custom_event_name, custom_event_props } = input
  return {
    project_id,
    event_id,
    ...progress,
    timestamp,
    module_version_number: module.version_number,
    event_type: CUSTOM_EVENT,
    custom_event_name,
    custom_event_props,
    position,
  }
}

function resultOf({ event_id, input, module, contact_id, progress }: NewEvent): CustomEventResult {
  const { project_id, module_id, timestamp, custom_event_name, custom_event_props } = input
  return {
    event_id,
    group_id: module.group_id,
    project_id,
    module_id,
    module_version_number: module.version_number,
    contact_id,
    entry_id: progress.entry_id,
    timestamp,
    event_type: CUSTOM_EVENT,
    custom_event_name,
    custom_event_props,
  }
}

function outcomeOf(decision: Decision, position: WalPosition | undefined): Outcome {
  switch (decision.kind) {
    case 'new':
      return { status: 'recorded', response: { body: resultOf(decision.event), replayed: false, position } }
    case 'duplicate':
      return { status: 'recorded', response: { body: resultOf(decision.first), replayed: true, position } }
    case 'replay':
      return { status: 'recorded', response: { body: JSON.parse(decision.response), replayed: true, position } }
    case 'refused':
      return { status: 'refused', error: decision.error }
    case 'locked':
      return { status: 'locked' }
  }
}
