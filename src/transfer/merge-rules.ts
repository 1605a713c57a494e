import { CONTACT_ID_KEY } from '../domain/identifier.ts'
import { FIELDS } from './records.ts'
import { type StagedKind, stagedTable, TARGET_TABLES } from './stage.ts'

interface MergeRules {
  key: string[]
  /** Columns whose value cannot change; a line with another value is rejected with the message `conflict`. */
  immutable: string[]
  conflict: string
  /** Those of the immutable columns that may be null at first and be filled in later. */
  fillable: string[]
  /** Columns that keep their first value; other values are ignored. */
  firstWins: string[]
  /** Columns that take the last value given. */
  lastWins: string[]
  /** SQL expressions for columns of a new record that no line gives; `$1` is the current time. */
  defaults: Record<string, string>
  /** SQL expressions for columns that no line may give. */
  assigned: Record<string, string>
  /** What must be stored or on an earlier line; the columns of its key have the same names here. */
  parents: StagedKind[]
}

const NO_RULES = {
  immutable: [],
  conflict: '',
  fillable: [],
  firstWins: [],
  lastWins: [],
  defaults: {},
  assigned: {},
  parents: [],
}

const EVENT_KEY = ['project_id', 'event_id']

/** How each kind of record is merged from its lines and with what is stored (docs/semantics.md#import). */
export const MERGE_RULES: Record<StagedKind, MergeRules> = {
  project: { ...NO_RULES, key: ['project_id'], lastWins: ['name'], defaults: { name: 'project_id' } },
  group: {
    ...NO_RULES,
    key: ['project_id', 'group_id'],
    lastWins: ['name'],
    defaults: { name: 'group_id' },
    parents: ['project'],
  },
  module: {
    ...NO_RULES,
    key: ['project_id', 'module_id'],
    lastWins: ['group_id', 'title', 'created_at'],
    defaults: { created_at: '$1' },
    parents: ['project', 'group'],
  },
  module_version: {
    ...NO_RULES,
    key: ['project_id', 'module_id', 'version_number'],
    immutable: ['saved_at', 'published_at', 'json_string'],
    conflict: 'a saved version cannot change',
    fillable: ['published_at'],
    parents: ['module'],
  },
  contact: {
    ...NO_RULES,
    key: ['project_id', 'contact_id'],
    lastWins: ['created_at'],
    defaults: { created_at: '$1' },
    parents: ['project'],
  },
  identifier: {
    ...NO_RULES,
    key: ['project_id', 'digest'],
    immutable: ['contact_id'],
    conflict: 'the identifier belongs to another contact',
    firstWins: ['key', 'value'],
  },
  entry: {
    ...NO_RULES,
    key: ['project_id', 'entry_id'],
    immutable: ['module_id', 'contact_id'],
    conflict: "an entry's module and contact cannot change",
    lastWins: ['created_at', 'updated_at', 'entry_data'],
    defaults: { created_at: '$1', entry_data: "'{}'" },
    parents: ['module', 'contact'],
  },
  // Events have derived columns and positions, and are compared by checks of their own.
  event: {
    ...NO_RULES,
    key: EVENT_KEY,
    firstWins: Object.keys(FIELDS.event).filter((column) => !EVENT_KEY.includes(column)),
    assigned: { position: 'm.position', recorded_at: '$1' },
    parents: ['entry'],
  },
}

/** The columns that lines give a value of: all of the target table that are not assigned. */
export function givenColumns(kind: StagedKind): string[] {
  const { key, immutable, firstWins, lastWins } = MERGE_RULES[kind]
  return [...key, ...immutable, ...firstWins, ...lastWins]
}

// The names that follow are those of temporary tables, or of what takes their place in a small import (row-expressions.ts).

/** The table with one row per record: its first line, and its values merged from all of its lines. */
export const mergedTable = (kind: StagedKind) => `merged_${TARGET_TABLES[kind]}`

/** The table of the ids of the projects that the lines belong to. */
export const AFFECTED_PROJECTS = 'affected_projects'

/**
 * The table of what events refer to: each pair of an entry and a version, with the first line that has it,
 * whether any of its lines leaves out what is derived, and whether any is a page view. It is much shorter than the lines.
 */
export const REFERENCED_ENTRIES = 'referenced_entries'

/** The table in which to look for the first line of a kind that refers to a parent. */
export const referencesTable = (kind: StagedKind) => (kind === 'event' ? REFERENCED_ENTRIES : stagedTable(kind))

/** The table of the events that are on several lines, with the first of the lines. */
export const DUPLICATE_EVENTS = 'duplicate_events'

/** The table of the lines of events that left something out, completed with the derived values. */
export const DERIVED_EVENTS = 'derived_events'

/** The table of the lines of all events, completed, with their positions and in their order. */
export const NUMBERED_EVENTS = 'numbered_events'

/** SQL for the digest of the identifier that the id of a contact is. */
export const digestOfContactId = (contact_id: string) =>
  `sha256('\\x${Buffer.from(`${CONTACT_ID_KEY}\0s`).toString('hex')}' || convert_to(${contact_id}, 'UTF8'))`

/** The condition that columns of two tables are equal. */
export const columnsEqual = (left: string, right: string, columns: string[]) =>
  columns.map((column) => `${left}.${column} = ${right}.${column}`).join(' AND ')
