import { hash } from 'node:crypto'
import { CUSTOM_EVENT, customEventPropsIssue, PAGE_VIEWED } from '../domain/event.ts'
import { canonicalValue, type Identifier, identifierKeyIssue } from '../domain/identifier.ts'
import { isJson } from '../domain/json-syntax.ts'
import { hasManyValues } from '../domain/json-values.ts'
import { exceedsCodePoints, hasCodePoints, hasControlCharacter, idIssue, isStorable } from '../domain/text.ts'
import { MAX_AHEAD_ms, parseTimestamp } from '../domain/timestamp.ts'
import type { RecordIssue } from './issues.ts'

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
  /** Absent: not published. */
  published_at?: string
  json_string: string
}

/** An identifier with the canonical form of its value. */
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
  /** By default a hash of the fields that the line gives. */
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
  /** The furthest page and the number of pages so far. Absent: derived from the page views; null: unknown. */
  max_page_id?: string | null
  max_page_key?: string | null
  max_page_index?: number | null
  total_pages?: number | null
}

/** One line of an import: the object as given, with its timestamps in UTC and an event's defaults filled in. */
export type ImportRecord =
  | ProjectRecord
  | GroupRecord
  | ModuleRecord
  | ModuleVersionRecord
  | ContactRecord
  | EntryRecord
  | EventRecord

export type RecordType = ImportRecord['type']

export type ParsedLine = { ok: true; record: ImportRecord } | { ok: false; issue: RecordIssue }

const MAX_INTEGER = 2_147_483_647
const MAX_NAME_code_points = 200
const MAX_PAGE_code_points = 1_024
/** How much of an unknown name a message shows. */
const MAX_SHOWN_characters = 100

/** Thrown by the functions that read fields; {@link parseLine} returns it as an issue. */
class InvalidField extends Error {
  readonly field: string

  constructor(field: string, message: string) {
    super(message)
    this.field = field
  }
}

/** What an import accepts. Times are ISO timestamps, which sort as text. */
export interface Limits {
  now: string
  latestEvent: string
  /** The project that all records are of, which need not say so; without it, they may be of any and say which. */
  project_id?: string | undefined
  /** The most fields and items of a line. */
  maxValues?: number | undefined
}

/** What an import at this time accepts: nothing published later, no event more than 24 hours later. */
export const limitsAt = (now: Date): Limits => ({
  now: now.toISOString(),
  latestEvent: new Date(now.getTime() + MAX_AHEAD_ms).toISOString(),
})

/** Validates a field's value and returns it normalized. @throws InvalidField */
type Reader<T> = (value: unknown, pointer: string, limits: Limits) => T

/** How a field is read, and how its column is written. */
export interface Field<T = unknown> {
  read: Reader<T>
  column: 'text' | 'integer' | 'timestamp' | 'identifiers'
  presence: 'required' | 'optional'
  /** Whether null is a value, which means "unknown". */
  nullable: boolean
}

const text: Reader<string> = (value, pointer) => {
  if (typeof value !== 'string') throw new InvalidField(pointer, 'must be a string')
  if (!isStorable(value)) throw new InvalidField(pointer, 'must not hold NUL or a lone surrogate')
  return value
}

const id: Reader<string> = (value, pointer) => {
  if (typeof value !== 'string') throw new InvalidField(pointer, 'must be a string')
  const issue = idIssue(value)
  if (issue) throw new InvalidField(pointer, issue)
  return value
}

const label: Reader<string> = (value, pointer, limits) => {
  const read = text(value, pointer, limits)
  if (hasControlCharacter(read)) throw new InvalidField(pointer, 'must not hold control characters')
  if (!hasCodePoints(read, MAX_NAME_code_points)) {
    throw new InvalidField(pointer, `must be 1 to ${MAX_NAME_code_points} characters long`)
  }
  return read
}

/** Of a page. An entry's furthest page is stored with each of its events. */
const pageText: Reader<string> = (value, pointer, limits) => {
  const read = text(value, pointer, limits)
  if (exceedsCodePoints(read, MAX_PAGE_code_points)) {
    throw new InvalidField(pointer, `must be at most ${MAX_PAGE_code_points} characters long`)
  }
  return read
}

const json: Reader<string> = (value, pointer, limits) => {
  const read = text(value, pointer, limits)
  if (!isJson(read)) throw new InvalidField(pointer, 'must be JSON text')
  return read
}

const props: Reader<string> = (value, pointer, limits) => {
  const read = text(value, pointer, limits)
  const issue = customEventPropsIssue(read)
  if (issue) throw new InvalidField(pointer, issue)
  return read
}

const integerFrom =
  (least: number): Reader<number> =>
  (value, pointer) => {
    if (typeof value !== 'number' || !Number.isInteger(value) || value < least || value > MAX_INTEGER) {
      throw new InvalidField(pointer, `must be an integer from ${least} to ${MAX_INTEGER}`)
    }
    return value
  }

const timestamp: Reader<string> = (value, pointer) => {
  if (typeof value !== 'string') throw new InvalidField(pointer, 'must be a string')
  const parsed = parseTimestamp(value)
  if (!parsed.ok) throw new InvalidField(pointer, parsed.issue)
  return parsed.iso
}

const pastTimestamp: Reader<string> = (value, pointer, limits) => {
  const read = timestamp(value, pointer, limits)
  if (read > limits.now) throw new InvalidField(pointer, `must not be in the future; it is now ${limits.now}`)
  return read
}

const eventTimestamp: Reader<string> = (value, pointer, limits) => {
  const read = timestamp(value, pointer, limits)
  if (read > limits.latestEvent) {
    throw new InvalidField(pointer, `must be at most 24 hours ahead of the server's clock, which is at ${limits.now}`)
  }
  return read
}

const identifiers: Reader<CanonicalIdentifier[]> = (value, pointer) => {
  if (!Array.isArray(value)) throw new InvalidField(pointer, 'must be an array')
  return value.map((item: unknown, index) => readIdentifier(item, `${pointer}/${index}`))
}

function readIdentifier(item: unknown, pointer: string): CanonicalIdentifier {
  if (!isObject(item)) throw new InvalidField(pointer, 'must be an object with the fields key and value')
  rejectUnknown(item, ['key', 'value'], pointer)
  const { key, value } = item
  if (typeof key !== 'string') throw new InvalidField(`${pointer}/key`, 'must be a string')
  if (typeof value !== 'string') throw new InvalidField(`${pointer}/value`, 'must be a string')
  const issue = identifierKeyIssue(key)
  if (issue) throw new InvalidField(`${pointer}/key`, issue)
  const parsed = canonicalValue(value)
  if (!parsed.ok) throw new InvalidField(`${pointer}/value`, parsed.issue)
  return { key, value, canonical: parsed.canonical }
}

type Column = Field['column']
const required = <T>(column: Column, read: Reader<T>) => ({
  column,
  read,
  presence: 'required' as const,
  nullable: false,
})
const optional = <T>(column: Column, read: Reader<T>) => ({
  column,
  read,
  presence: 'optional' as const,
  nullable: false,
})
const optionalOrNull = <T>(column: Column, read: Reader<T>) => ({
  column,
  read: ((value, pointer, limits) => (value === null ? null : read(value, pointer, limits))) satisfies Reader<T | null>,
  presence: 'optional' as const,
  nullable: true,
})

/** A field for each property of a record type, required or optional as the property is. */
type FieldsOf<R> = {
  [K in Exclude<keyof R, 'type'>]-?: Field<Exclude<R[K], undefined>> & {
    presence: object extends Pick<R, K> ? 'optional' : 'required'
  }
}

/** A line may leave out the id of its event. */
type EventLine = Omit<EventRecord, 'event_id'> & { event_id?: string }

/** Every field of every type of record, in the order of an export. */
export const FIELDS = {
  project: {
    project_id: required('text', id),
    name: optional('text', text),
  } satisfies FieldsOf<ProjectRecord>,
  group: {
    project_id: required('text', id),
    group_id: required('text', id),
    name: optional('text', text),
  } satisfies FieldsOf<GroupRecord>,
  module: {
    project_id: required('text', id),
    module_id: required('text', id),
    group_id: required('text', id),
    title: required('text', text),
    created_at: optional('timestamp', timestamp),
  } satisfies FieldsOf<ModuleRecord>,
  module_version: {
    project_id: required('text', id),
    module_id: required('text', id),
    version_number: required('integer', integerFrom(1)),
    saved_at: required('timestamp', timestamp),
    published_at: optional('timestamp', pastTimestamp),
    json_string: required('text', json),
  } satisfies FieldsOf<ModuleVersionRecord>,
  contact: {
    project_id: required('text', id),
    contact_id: required('text', id),
    created_at: optional('timestamp', timestamp),
    identifiers: required('identifiers', identifiers),
  } satisfies FieldsOf<ContactRecord>,
  entry: {
    project_id: required('text', id),
    entry_id: required('text', id),
    module_id: required('text', id),
    contact_id: required('text', id),
    created_at: optional('timestamp', timestamp),
    updated_at: required('timestamp', timestamp),
    entry_data: optional('text', json),
  } satisfies FieldsOf<EntryRecord>,
  event: {
    project_id: required('text', id),
    entry_id: required('text', id),
    event_id: optional('text', id),
    timestamp: required('timestamp', eventTimestamp),
    event_type: required('text', label),
    view_type: optional('text', label),
    page_id: optional('text', pageText),
    page_key: optional('text', pageText),
    page_index: optional('integer', integerFrom(0)),
    custom_event_name: optional('text', label),
    custom_event_props: optional('text', props),
    module_version_number: optional('integer', integerFrom(1)),
    max_page_id: optionalOrNull('text', pageText),
    max_page_key: optionalOrNull('text', pageText),
    max_page_index: optionalOrNull('integer', integerFrom(0)),
    total_pages: optionalOrNull('integer', integerFrom(0)),
  } satisfies FieldsOf<EventLine>,
}

export const RECORD_TYPES = Object.keys(FIELDS) as RecordType[]

/** Those that the records of a project can have: projects are the operator's. */
const TYPES_IN_PROJECT = RECORD_TYPES.filter((type) => type !== 'project')

/** What the records of a type may have, as arrays because every line loops over them. */
interface RecordShape {
  names: string[]
  fields: { name: string; pointer: string; field: Field }[]
}
const SHAPES = new Map<string, RecordShape>(
  RECORD_TYPES.map((type) => [
    type,
    {
      names: ['type', ...Object.keys(FIELDS[type])],
      fields: Object.entries<Field>(FIELDS[type]).map(([name, field]) => ({ name, pointer: `/${name}`, field })),
    },
  ]),
)

/**
 * Parses and validates one line of an import (docs/semantics.md#import), regardless of other lines and of what is
 * stored. Of a repeated JSON name the last value counts.
 *
 * @param line the text without its line break
 * @param limits see {@link limitsAt}
 */
export function parseLine(line: string, limits: Limits): ParsedLine {
  try {
    return { ok: true, record: readRecord(line, limits) }
  } catch (error) {
    if (!(error instanceof InvalidField)) throw error
    return { ok: false, issue: { field: error.field, message: error.message } }
  }
}

function readRecord(line: string, limits: Limits): ImportRecord {
  if (line.trim() === '') throw new InvalidField('', 'must be a record; empty lines are not allowed')
  if (line.startsWith('\uFEFF'))
    throw new InvalidField('', 'begins with a byte order mark; save the file as UTF-8 without one')
  const { maxValues } = limits
  if (maxValues !== undefined && hasManyValues(line, maxValues)) {
    throw new InvalidField('', `must have at most ${maxValues} fields and items`)
  }
  let object: unknown
  try {
    object = JSON.parse(line)
  } catch (error) {
    // The parser sees every line as line 1.
    const syntaxError = (error as Error).message.replace(/ \(line 1 column \d+\)/, '')
    throw new InvalidField('', `must be one JSON object: ${printable(syntaxError)}`)
  }
  if (!isObject(object)) throw new InvalidField('', 'must be one JSON object')
  const shape = typeof object.type === 'string' ? SHAPES.get(object.type) : undefined
  const types = limits.project_id === undefined ? RECORD_TYPES : TYPES_IN_PROJECT
  if (!shape || !types.includes(object.type as RecordType)) {
    throw new InvalidField('/type', `must be one of ${types.join(', ')}`)
  }
  if (limits.project_id !== undefined) {
    if (object.project_id === undefined) object.project_id = limits.project_id
    if (object.project_id !== limits.project_id) {
      throw new InvalidField('/project_id', 'must be the project in the path; correct it or leave it out')
    }
  }

  for (const { name, pointer, field } of shape.fields) {
    const value = object[name]
    if (value === undefined) {
      if (field.presence === 'required') throw new InvalidField(pointer, 'is required')
      continue
    }
    object[name] = field.read(value, pointer, limits)
  }
  rejectUnknown(object, shape.names, '')
  // Having passed the field readers, the object is of its declared type.
  const record = object as unknown as ImportRecord
  if (record.type === 'event') completeEvent(record)
  return record
}

const VIEW_FIELDS = ['view_type', 'page_id', 'page_key', 'page_index'] as const

/** The optional fields that events of a known type must have, and those that they must not have. */
const EVENT_RULES = new Map<string, Record<'mandatory' | 'forbidden', readonly (keyof EventRecord)[]>>([
  [PAGE_VIEWED, { mandatory: VIEW_FIELDS, forbidden: ['custom_event_name', 'custom_event_props'] }],
  [CUSTOM_EVENT, { mandatory: ['custom_event_name'], forbidden: VIEW_FIELDS }],
])

/** What the id of an event is a hash of: an array makes JSON.stringify write these properties in this order. */
const HASHED_FIELDS = ['type', ...Object.keys(FIELDS.event)]

/** Checks the rules about several fields of an event, and fills in its defaults. */
function completeEvent(event: EventRecord): void {
  const { mandatory = [], forbidden = [] } = EVENT_RULES.get(event.event_type) ?? {}
  for (const name of mandatory) {
    if (event[name] === undefined)
      throw new InvalidField(`/${name}`, `is required on an event of type ${event.event_type}`)
  }
  for (const name of forbidden) {
    if (event[name] !== undefined)
      throw new InvalidField(`/${name}`, `does not apply to events of type ${event.event_type}`)
  }
  const furthest = presenceOf(event.max_page_id)
  if (presenceOf(event.max_page_key) !== furthest || presenceOf(event.max_page_index) !== furthest) {
    throw new InvalidField(
      '/max_page_id',
      'must be given with max_page_key and max_page_index: all three, all null or none',
    )
  }
  event.event_id ??= hash('sha256', JSON.stringify(event, HASHED_FIELDS), 'base64url')
  if (event.event_type === CUSTOM_EVENT) event.custom_event_props ??= '{}'
}

const presenceOf = (value: unknown) => (value === undefined ? 'absent' : value === null ? 'null' : 'given')

function rejectUnknown(object: object, known: string[], pointer: string): void {
  const name = Object.keys(object).find((given) => !known.includes(given))
  if (name === undefined) return
  const shown = name.length > MAX_SHOWN_characters ? `${name.slice(0, MAX_SHOWN_characters)}…` : name
  const escaped = printable(shown).replaceAll('~', '~0').replaceAll('/', '~1')
  throw new InvalidField(`${pointer}/${escaped}`, `is not a known field; the fields are ${known.join(', ')}`)
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Text with control characters escaped, so that a message stays on one line. */
const printable = (value: string) =>
  JSON.stringify(value)
    .slice(1, -1)
    .replace(/\\(["\\])/g, '$1')
