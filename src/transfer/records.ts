import { hash } from 'node:crypto'
import { CUSTOM_EVENT, customEventPropsIssue, PAGE_VIEWED } from '../domain/event.ts'
import { canonicalValue, type Identifier, identifierKeyIssue } from '../domain/identifier.ts'
import { hasCodePoints, hasControlCharacter, idIssue, isStorable, quoted } from '../domain/text.ts'
import { MAX_AHEAD_ms, parseTimestamp } from '../domain/timestamp.ts'

export interface ProjectRecord {
  type: 'project'
  project_id: string
  name?: string
}

export interface GroupRecord {
  type: 'group'
  project_id: string
  group_id: string
  name?: string
}

export interface ModuleRecord {
  type: 'module'
  project_id: string
  module_id: string
  group_id: string
  title: string
  created_at?: string
}

export interface ModuleVersionRecord {
  type: 'module_version'
  project_id: string
  module_id: string
  version_number: number
  saved_at: string
  /** Absent: saved only. */
  published_at?: string
  json_string: string
}

/** An identifier as read, with the canonical form of its value. */
export interface CanonicalIdentifier extends Identifier {
  canonical: string
}

export interface ContactRecord {
  type: 'contact'
  project_id: string
  contact_id: string
  created_at?: string
  identifiers: CanonicalIdentifier[]
}

export interface EntryRecord {
  type: 'entry'
  project_id: string
  entry_id: string
  module_id: string
  contact_id: string
  created_at?: string
  updated_at: string
  entry_data?: string
}

export interface EventRecord {
  type: 'event'
  project_id: string
  entry_id: string
  /** Where the line gives none, a hash of the fields that it gives. */
  event_id: string
  timestamp: string
  event_type: string
  view_type?: string
  page_id?: string
  page_key?: string
  page_index?: number
  custom_event_name?: string
  custom_event_props?: string
  /** Absent: the version in effect. */
  module_version_number?: number
  /** The furthest page and the number of pages. Absent: derived from the page views; null: unknown. */
  max_page_id?: string | null
  max_page_key?: string | null
  max_page_index?: number | null
  total_pages?: number | null
}

/** One line of an import: the object as given, with its timestamps in UTC and an event's id filled in. */
export type ImportRecord =
  | ProjectRecord
  | GroupRecord
  | ModuleRecord
  | ModuleVersionRecord
  | ContactRecord
  | EntryRecord
  | EventRecord

export type RecordType = ImportRecord['type']

/** A line as read, or what is wrong with it: a JSON pointer into the record (empty for the whole line) and a reason. */
export type ParsedLine = { ok: true; record: ImportRecord } | { ok: false; field: string; reason: string }

const MAX_INTEGER = 2_147_483_647
const MAX_NAME_code_points = 200

/** What the reading functions throw and {@link parseLine} gives back. */
class Problem extends Error {
  readonly field: string
  readonly reason: string

  constructor(field: string, reason: string) {
    super(reason)
    this.field = field
    this.reason = reason
  }
}

/** The latest times that an import accepts, in the wire's form. Such times of four-digit years sort as text. */
export interface Limits {
  now: string
  event: string
}

/** What an import at this moment accepts: nothing published after it, no event more than 24 h ahead of it. */
export const limitsAt = (now: Date): Limits => ({
  now: now.toISOString(),
  event: new Date(now.getTime() + MAX_AHEAD_ms).toISOString(),
})

type Read<T> = (value: unknown, pointer: string, limits: Limits) => T

/** How a field is read, and how its column is written. */
export interface Field<T = unknown> {
  read: Read<T>
  column: 'text' | 'integer' | 'timestamp' | 'identifiers'
  presence: 'required' | 'optional'
  /** Whether null is a value of its own: "unknown". */
  nullable: boolean
}

const text: Read<string> = (value, pointer) => {
  if (typeof value !== 'string') throw new Problem(pointer, 'must be a string')
  if (!isStorable(value)) throw new Problem(pointer, 'must not hold NUL or a lone surrogate')
  return value
}

const id: Read<string> = (value, pointer) => {
  if (typeof value !== 'string') throw new Problem(pointer, 'must be a string')
  const problem = idIssue(value)
  if (problem) throw new Problem(pointer, problem)
  return value
}

const label: Read<string> = (value, pointer, limits) => {
  const read = text(value, pointer, limits)
  if (hasControlCharacter(read)) throw new Problem(pointer, 'must not hold control characters')
  if (!hasCodePoints(read, MAX_NAME_code_points)) {
    throw new Problem(pointer, `must be 1 to ${MAX_NAME_code_points} characters long`)
  }
  return read
}

function parseJson(value: string, pointer: string): unknown {
  try {
    return JSON.parse(value)
  } catch {
    throw new Problem(pointer, `must be JSON text; as a JSON string this value is ${quoted(value)}`)
  }
}

const json: Read<string> = (value, pointer, limits) => {
  const read = text(value, pointer, limits)
  parseJson(read, pointer)
  return read
}

const props: Read<string> = (value, pointer, limits) => {
  const read = text(value, pointer, limits)
  const problem = customEventPropsIssue(read)
  if (problem) throw new Problem(pointer, problem)
  return read
}

const integerFrom =
  (least: number): Read<number> =>
  (value, pointer) => {
    if (typeof value !== 'number' || !Number.isInteger(value) || value < least || value > MAX_INTEGER) {
      throw new Problem(pointer, `must be an integer from ${least} to ${MAX_INTEGER}`)
    }
    return value
  }

const timestamp: Read<string> = (value, pointer) => {
  if (typeof value !== 'string') throw new Problem(pointer, 'must be a string')
  const parsed = parseTimestamp(value)
  if (!parsed.ok) throw new Problem(pointer, parsed.issue)
  return parsed.iso
}

const pastTimestamp: Read<string> = (value, pointer, limits) => {
  const read = timestamp(value, pointer, limits)
  if (read > limits.now) throw new Problem(pointer, `must not be in the future; it is now ${limits.now}`)
  return read
}

const eventTimestamp: Read<string> = (value, pointer, limits) => {
  const read = timestamp(value, pointer, limits)
  if (read > limits.event) {
    throw new Problem(pointer, `must be at most 24 hours ahead of the server's clock, which is at ${limits.now}`)
  }
  return read
}

const identifiers: Read<CanonicalIdentifier[]> = (value, pointer) => {
  if (!Array.isArray(value)) throw new Problem(pointer, 'must be an array')
  return value.map((item: unknown, index) => readIdentifier(item, `${pointer}/${index}`))
}

function readIdentifier(item: unknown, pointer: string): CanonicalIdentifier {
  if (!isObject(item)) throw new Problem(pointer, 'must be an object with the fields key and value')
  const { key, value, ...others } = item
  refuseUnknown(Object.keys(others), ['key', 'value'], pointer)
  if (typeof key !== 'string') throw new Problem(`${pointer}/key`, 'must be a string')
  if (typeof value !== 'string') throw new Problem(`${pointer}/value`, 'must be a string')
  const problem = identifierKeyIssue(key)
  if (problem) throw new Problem(`${pointer}/key`, problem)
  const parsed = canonicalValue(value)
  if (!parsed.ok) throw new Problem(`${pointer}/value`, parsed.issue)
  return { key, value, canonical: parsed.canonical }
}

type Column = Field['column']
const required = <T>(column: Column, read: Read<T>) => ({
  column,
  read,
  presence: 'required' as const,
  nullable: false,
})
const optional = <T>(column: Column, read: Read<T>) => ({
  column,
  read,
  presence: 'optional' as const,
  nullable: false,
})
const orNull = <T>(column: Column, read: Read<T>) => ({
  column,
  read: ((value, pointer, limits) => (value === null ? null : read(value, pointer, limits))) satisfies Read<T | null>,
  presence: 'optional' as const,
  nullable: true,
})

type Spec<R> = {
  [K in Exclude<keyof R, 'type'>]-?: Field<Exclude<R[K], undefined>> & {
    presence: object extends Pick<R, K> ? 'optional' : 'required'
  }
}

/** Of an event the id too may be left out. */
type EventLine = Omit<EventRecord, 'event_id'> & { event_id?: string }

/** Every field of every type of record: the order of the types and of their fields is the order of an export. */
export const FIELDS = {
  project: {
    project_id: required('text', id),
    name: optional('text', text),
  } satisfies Spec<ProjectRecord>,
  group: {
    project_id: required('text', id),
    group_id: required('text', id),
    name: optional('text', text),
  } satisfies Spec<GroupRecord>,
  module: {
    project_id: required('text', id),
    module_id: required('text', id),
    group_id: required('text', id),
    title: required('text', text),
    created_at: optional('timestamp', timestamp),
  } satisfies Spec<ModuleRecord>,
  module_version: {
    project_id: required('text', id),
    module_id: required('text', id),
    version_number: required('integer', integerFrom(1)),
    saved_at: required('timestamp', timestamp),
    published_at: optional('timestamp', pastTimestamp),
    json_string: required('text', json),
  } satisfies Spec<ModuleVersionRecord>,
  contact: {
    project_id: required('text', id),
    contact_id: required('text', id),
    created_at: optional('timestamp', timestamp),
    identifiers: required('identifiers', identifiers),
  } satisfies Spec<ContactRecord>,
  entry: {
    project_id: required('text', id),
    entry_id: required('text', id),
    module_id: required('text', id),
    contact_id: required('text', id),
    created_at: optional('timestamp', timestamp),
    updated_at: required('timestamp', timestamp),
    entry_data: optional('text', json),
  } satisfies Spec<EntryRecord>,
  event: {
    project_id: required('text', id),
    entry_id: required('text', id),
    event_id: optional('text', id),
    timestamp: required('timestamp', eventTimestamp),
    event_type: required('text', label),
    view_type: optional('text', label),
    page_id: optional('text', text),
    page_key: optional('text', text),
    page_index: optional('integer', integerFrom(0)),
    custom_event_name: optional('text', label),
    custom_event_props: optional('text', props),
    module_version_number: optional('integer', integerFrom(1)),
    max_page_id: orNull('text', text),
    max_page_key: orNull('text', text),
    max_page_index: orNull('integer', integerFrom(0)),
    total_pages: orNull('integer', integerFrom(0)),
  } satisfies Spec<EventLine>,
}

export const RECORD_TYPES = Object.keys(FIELDS) as RecordType[]

/** The fields of a type with their JSON pointers, laid out for a loop over every line. */
const READERS = new Map<string, { name: string; pointer: string; field: Field }[]>(
  RECORD_TYPES.map((type) => [
    type,
    Object.entries<Field>(FIELDS[type]).map(([name, field]) => ({ name, pointer: `/${name}`, field })),
  ]),
)

/**
 * Reads one line of an import (decisions, "Operator's command line"). Pure: what stands on other lines or in the
 * database is not looked at. A repeated JSON name counts as its last value.
 *
 * @param line the text without its line break
 * @param limits see {@link limitsAt}
 */
export function parseLine(line: string, limits: Limits): ParsedLine {
  try {
    return { ok: true, record: readRecord(line, limits) }
  } catch (error) {
    if (error instanceof Problem) return { ok: false, field: error.field, reason: error.reason }
    throw error
  }
}

function readRecord(line: string, limits: Limits): ImportRecord {
  if (line.trim() === '') throw new Problem('', 'must hold a record; empty lines are not allowed')
  if (line.startsWith('\uFEFF'))
    throw new Problem('', 'begins with a byte order mark; save the file as UTF-8 without one')
  let object: unknown
  try {
    object = JSON.parse(line)
  } catch (error) {
    // To the parser each line is the first.
    const fault = (error as Error).message.replace(/ \(line 1 column \d+\)$/, '')
    throw new Problem('', `must be one JSON object: ${printable(fault)}`)
  }
  if (!isObject(object)) throw new Problem('', 'must be one JSON object')
  const readers = typeof object.type === 'string' ? READERS.get(object.type) : undefined
  if (!readers) throw new Problem('/type', `must be one of ${RECORD_TYPES.join(', ')}`)

  let known = 1
  for (const { name, pointer, field } of readers) {
    const value = object[name]
    if (value === undefined) {
      if (field.presence === 'required') throw new Problem(pointer, 'is required')
      continue
    }
    known += 1
    object[name] = field.read(value, pointer, limits)
  }
  const given = Object.keys(object)
  if (given.length > known) {
    const names = ['type', ...readers.map(({ name }) => name)]
    refuseUnknown(
      given.filter((name) => !names.includes(name)),
      names,
      '',
    )
  }
  // The table of fields above makes the object what its type says.
  const record = object as unknown as ImportRecord
  if (record.type === 'event') completeEvent(record)
  return record
}

const VIEW_FIELDS = ['view_type', 'page_id', 'page_key', 'page_index'] as const

/** What an event of a known type must and must not have. */
const EVENT_RULES = new Map<string, Record<'needs' | 'refuses', readonly (keyof EventRecord)[]>>([
  [PAGE_VIEWED, { needs: VIEW_FIELDS, refuses: ['custom_event_name', 'custom_event_props'] }],
  [CUSTOM_EVENT, { needs: ['custom_event_name'], refuses: VIEW_FIELDS }],
])

/** An event as its id is made of it: a list of names makes JSON.stringify write these fields, in this order. */
const HASHED_FIELDS = ['type', ...Object.keys(FIELDS.event)]

/** Checks the rules that join several fields of an event, and fills in the id of an event that was given none. */
function completeEvent(event: EventRecord): void {
  const { needs = [], refuses = [] } = EVENT_RULES.get(event.event_type) ?? {}
  for (const name of needs) {
    if (event[name] === undefined) throw new Problem(`/${name}`, `is required on an event of type ${event.event_type}`)
  }
  for (const name of refuses) {
    if (event[name] !== undefined) throw new Problem(`/${name}`, `does not apply to events of type ${event.event_type}`)
  }
  const furthest = typeOf(event.max_page_id)
  if (typeOf(event.max_page_key) !== furthest || typeOf(event.max_page_index) !== furthest) {
    throw new Problem('/max_page_id', 'must be given with max_page_key and max_page_index: all three, all null or none')
  }
  event.event_id ??= hash('sha256', JSON.stringify(event, HASHED_FIELDS), 'base64url')
  if (event.event_type === CUSTOM_EVENT) event.custom_event_props ??= '{}'
}

const typeOf = (value: unknown) => (value === undefined ? 'absent' : value === null ? 'null' : 'given')

function refuseUnknown(unknown: string[], known: string[], pointer: string): void {
  const name = unknown[0]
  if (name === undefined) return
  const escaped = printable(name).replaceAll('~', '~0').replaceAll('/', '~1')
  throw new Problem(`${pointer}/${escaped}`, `is not a field here; the fields are ${known.join(', ')}`)
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Text fit for a message of one line, however it came in. */
const printable = (value: string) => JSON.stringify(value).slice(1, -1)
