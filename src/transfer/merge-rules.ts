import { FIELDS } from './records.ts'
import { type Staged, stagedTable, TABLES } from './stage.ts'

interface Shape {
  key: string[]
  /** Columns that keep their first value; a line that says otherwise is refused for `conflict`. */
  fixed: string[]
  conflict: string
  /** Those of the fixed columns that a later line may fill in. */
  fillable: string[]
  /** Columns that keep their first value, whatever later lines say. */
  kept: string[]
  /** Columns that take the last value given. */
  free: string[]
  /** In SQL, what stands in a column of a new record where no line gave it; `$1` is now. */
  defaults: Record<string, string>
  /** What must be stored or on an earlier line: the columns of this kind that hold the parent's key. */
  parents: { kind: Staged; columns: string[] }[]
}

const PLAIN = { fixed: [], conflict: '', fillable: [], kept: [], free: [], defaults: {}, parents: [] }

const EVENT_KEY = ['project_id', 'event_id']

/** How each kind is merged. */
export const SHAPES: Record<Staged, Shape> = {
  project: { ...PLAIN, key: ['project_id'], free: ['name'], defaults: { name: 'project_id' } },
  group: {
    ...PLAIN,
    key: ['project_id', 'group_id'],
    free: ['name'],
    defaults: { name: 'group_id' },
    parents: [{ kind: 'project', columns: ['project_id'] }],
  },
  module: {
    ...PLAIN,
    key: ['project_id', 'module_id'],
    free: ['group_id', 'title', 'created_at'],
    defaults: { created_at: '$1' },
    parents: [
      { kind: 'project', columns: ['project_id'] },
      { kind: 'group', columns: ['project_id', 'group_id'] },
    ],
  },
  module_version: {
    ...PLAIN,
    key: ['project_id', 'module_id', 'version_number'],
    fixed: ['saved_at', 'published_at', 'json_string'],
    conflict: 'a saved version cannot change',
    fillable: ['published_at'],
    parents: [{ kind: 'module', columns: ['project_id', 'module_id'] }],
  },
  contact: {
    ...PLAIN,
    key: ['project_id', 'contact_id'],
    free: ['created_at'],
    defaults: { created_at: '$1' },
    parents: [{ kind: 'project', columns: ['project_id'] }],
  },
  identifier: {
    ...PLAIN,
    key: ['project_id', 'digest'],
    fixed: ['contact_id'],
    conflict: 'the identifier belongs to another contact',
    kept: ['key', 'value'],
  },
  entry: {
    ...PLAIN,
    key: ['project_id', 'entry_id'],
    fixed: ['module_id', 'contact_id'],
    conflict: "an entry's module and contact cannot change",
    free: ['created_at', 'updated_at', 'entry_data'],
    defaults: { created_at: '$1', entry_data: "'{}'" },
    parents: [
      { kind: 'module', columns: ['project_id', 'module_id'] },
      { kind: 'contact', columns: ['project_id', 'contact_id'] },
    ],
  },
  // Events have columns to derive, and are too many to gather: they are merged from their lines, and compared otherwise.
  event: {
    ...PLAIN,
    key: EVENT_KEY,
    kept: Object.keys(FIELDS.event).filter((column) => !EVENT_KEY.includes(column)),
    parents: [{ kind: 'entry', columns: ['project_id', 'entry_id'] }],
  },
}

/** The temporary table that holds one row a record: the line it first stands on, and what its lines say together. */
export const mergedTable = (kind: Staged) => `merged_${TABLES[kind]}`

/** The temporary table of the ids of the projects that the lines are about. */
export const TOUCHED_PROJECTS = 'touched_projects'

/**
 * The temporary table of the entries that the lines of events name, each with every version that they name beside it:
 * the first of the lines, and whether any of them leaves out what is derived. It is much shorter than the lines.
 */
export const NAMED_ENTRIES = 'named_entries'

/** Where the first line of a kind that names a parent is found. */
export const namingTable = (kind: Staged) => (kind === 'event' ? NAMED_ENTRIES : stagedTable(kind))

/** The temporary table of the events that several lines are about, with the first of the lines. */
export const REPEATED_EVENTS = 'repeated_events'

/** The temporary table of the events of which something was left out and is now derived, a row a line. */
export const DERIVED_EVENTS = 'derived_events'

/** The condition that columns of two tables are equal, pair by pair. */
export const on = (left: string, right: string, columns: string[], others: string[] = columns) =>
  columns.map((column, i) => `${left}.${column} = ${right}.${others[i]}`).join(' AND ')
