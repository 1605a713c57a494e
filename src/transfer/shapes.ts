import { type Staged, TABLES } from './stage.ts'

/** The kinds that are merged alike. Events are not: they are many, never change, and have columns to derive. */
export type Kind = Exclude<Staged, 'event'>

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
  parents: { kind: Kind; columns: string[] }[]
}

const PLAIN = { fixed: [], conflict: '', fillable: [], kept: [], free: [], defaults: {}, parents: [] }

/** How each kind is merged. */
export const SHAPES: Record<Kind, Shape> = {
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
}

export const SHAPED = Object.keys(SHAPES) as Kind[]

/** The temporary table that holds one row a record: the line it first stands on, and what its lines say together. */
export const mergedTable = (kind: Kind) => `merged_${TABLES[kind]}`

/** The temporary table of the events that several lines are about, with the first of the lines. */
export const REPEATED_EVENTS = 'repeated_events'

/** The condition that columns of two tables are equal, pair by pair. */
export const on = (left: string, right: string, columns: string[], others: string[] = columns) =>
  columns.map((column, i) => `${left}.${column} = ${right}.${others[i]}`).join(' AND ')
