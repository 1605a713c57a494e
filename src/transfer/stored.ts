import type pg from 'pg'
import { findDistribution, isDistributed } from '../database/distribution.ts'
import { PAGE_VIEWED } from '../domain/event.ts'
import {
  AFFECTED_PROJECTS,
  columnsEqual,
  digestOfContactId,
  givenColumns,
  MERGE_RULES,
  mergedTable,
  REFERENCED_ENTRIES,
} from './merge-rules.ts'
import { STAGED_KINDS, type StagedKind, stagedTable, TARGET_TABLES } from './stage.ts'

/** Where the statements of a merge find what is stored. */
export interface Stored {
  /** Whether it is first copied into temporary tables ({@link COPIES}). */
  isCopied: boolean
  /** The table of the stored rows of each kind, as they were before the merge wrote any. */
  tables: Record<StagedKind, string>
  /** The same with what the merge has written, to select from. */
  written: Record<'module_version' | 'entry', string>
  /** The table of the stored page views of the entries whose events leave something out. */
  pageViews: string
  /** A query of the last position of each project that the lines belong to. */
  lastPositions: string
  /** The end of a subquery that finds the rows of one entry, where an index does. */
  singly: string
}

/** On plain PostgreSQL everything is looked up where it is stored. */
export const IN_PLACE: Stored = {
  isCopied: false,
  tables: TARGET_TABLES,
  written: { module_version: TARGET_TABLES.module_version, entry: TARGET_TABLES.entry },
  pageViews: TARGET_TABLES.event,
  lastPositions: `
    SELECT a.project_id, greatest(
      (SELECT e.position FROM events e WHERE e.project_id = a.project_id ORDER BY e.position DESC LIMIT 1),
      (SELECT r.position FROM erasures r WHERE r.project_id = a.project_id ORDER BY r.position DESC LIMIT 1)
    ) AS position
    FROM ${AFFECTED_PROJECTS} a
  `,
  singly: 'OFFSET 0',
}

const copyTable = (kind: StagedKind) => `stored_${TARGET_TABLES[kind]}`
const STORED_PAGE_VIEWS = 'stored_page_views'
const STORED_POSITIONS = 'stored_positions'

/** What is stored after the merge has written a kind whose columns are immutable, or filled in once. */
function writtenRows(kind: StagedKind): string {
  const { key, immutable } = MERGE_RULES[kind]
  return `(SELECT ${[...key, ...immutable.map((column) => `COALESCE(t.${column}, m.${column}) AS ${column}`)]}
    FROM ${copyTable(kind)} t FULL JOIN ${mergedTable(kind)} m USING (${key}))`
}

/** On a Citus cluster, which joins no temporary table with one that is distributed, everything is looked up in copies. */
export const COPIED: Stored = {
  isCopied: true,
  tables: Object.fromEntries(STAGED_KINDS.map((kind) => [kind, copyTable(kind)])) as Stored['tables'],
  written: { module_version: writtenRows('module_version'), entry: writtenRows('entry') },
  pageViews: STORED_PAGE_VIEWS,
  lastPositions: `SELECT project_id, position FROM ${STORED_POSITIONS}`,
  singly: '',
}

/** Copies what the lines refer to of one project, `$1`, into a temporary table. */
export interface Copy {
  table: string
  /** A query of its columns. */
  columns: string
  /** The kinds of lines that refer to it: without any, nothing is copied. */
  kinds: StagedKind[]
  sql: string
}

/** The keys in a column of temporary rows of the kind. */
interface Keys {
  kind: StagedKind
  sql: string
}

const keysIn = (kind: StagedKind, table: string, columns: string, condition = 'true'): Keys => ({
  kind,
  sql: `SELECT ${columns} FROM ${table} m WHERE m.project_id = $1 AND ${condition}`,
})
const staged = (kind: StagedKind, columns: string) => keysIn(kind, stagedTable(kind), columns)
const merged = (kind: StagedKind, columns: string) => keysIn(kind, mergedTable(kind), columns)

interface CopyOptions {
  table?: string
  /** The condition that a row, `t`, is copied. */
  condition?: string
  /** A column that is left out where no line is of the same record. */
  large?: string
}

/**
 * Copies the rows of a kind that have one of the keys, each once.
 *
 * Citus sends the result of a common table expression to the shard of the project that the statement names. There OFFSET 0 makes
 * the planner look up each key, whether or not it has statistics of the shard.
 *
 * @param by the column of the keys
 */
function copy(
  kind: StagedKind,
  by: string,
  keys: Keys[],
  { table = copyTable(kind), condition = 'true', large }: CopyOptions = {},
): Copy {
  const columns = givenColumns(kind)
  const [, ...key] = MERGE_RULES[kind].key
  const values = columns.map((column) =>
    column === large ? `CASE WHEN m.${key[0]} IS NOT NULL THEN t.${column} END` : `t.${column}`,
  )
  return {
    table,
    columns: `SELECT ${columns} FROM ${TARGET_TABLES[kind]}`,
    kinds: keys.map((one) => one.kind),
    sql: `INSERT INTO ${table} (${columns})
      WITH k AS MATERIALIZED (SELECT DISTINCT * FROM (${keys.map(({ sql }) => sql).join(' UNION ALL ')}) k)
      ${large ? `, m AS MATERIALIZED (${merged(kind, String(key)).sql})` : ''}
      SELECT ${values} FROM k
      CROSS JOIN LATERAL (
        SELECT ${columns} FROM ${TARGET_TABLES[kind]} t WHERE t.project_id = $1 AND t.${by} = k.${by} AND ${condition} OFFSET 0
      ) t
      ${large ? `LEFT JOIN m ON ${columnsEqual('m', 't', key)}` : ''}`,
  }
}

/** The copy of the projects themselves. */
export const COPY_OF_PROJECTS: Copy = {
  table: copyTable('project'),
  columns: `SELECT ${givenColumns('project')} FROM projects`,
  kinds: STAGED_KINDS,
  sql: `INSERT INTO ${copyTable('project')} (${givenColumns('project')})
    SELECT ${givenColumns('project')} FROM projects WHERE project_id = $1`,
}

/** The other copies, made in this order while the projects are locked. */
export const COPIES: Copy[] = [
  copy('group', 'group_id', [merged('group', 'group_id'), staged('module', 'group_id')]),
  copy('module', 'module_id', [
    merged('module', 'module_id'),
    staged('module_version', 'module_id'),
    staged('entry', 'module_id'),
  ]),
  copy('contact', 'contact_id', [
    merged('contact', 'contact_id'),
    staged('entry', 'contact_id'),
    staged('identifier', 'claimed_contact_id'),
    staged('identifier', 'other_type_contact_id'),
  ]),
  copy('identifier', 'digest', [
    merged('identifier', 'digest'),
    staged('identifier', 'other_type_digest'),
    merged('contact', digestOfContactId('m.contact_id')),
  ]),
  copy('entry', 'entry_id', [merged('entry', 'entry_id'), keysIn('event', REFERENCED_ENTRIES, 'entry_id')], {
    large: 'entry_data',
  }),
  // All versions of a module: of those of events, whose entries are stored or on lines, one is in effect.
  copy(
    'module_version',
    'module_id',
    [
      merged('module', 'module_id'),
      merged('module_version', 'module_id'),
      keysIn('event', copyTable('entry'), 'module_id'),
      keysIn('event', mergedTable('entry'), 'module_id'),
    ],
    { large: 'json_string' },
  ),
  copy('event', 'event_id', [staged('event', 'event_id')]),
  copy('event', 'entry_id', [keysIn('event', REFERENCED_ENTRIES, 'entry_id', 'incomplete')], {
    table: STORED_PAGE_VIEWS,
    condition: `t.event_type = '${PAGE_VIEWED}'`,
  }),
  {
    table: STORED_POSITIONS,
    columns: 'SELECT project_id, position FROM events',
    kinds: ['event'],
    sql: `INSERT INTO ${STORED_POSITIONS} (project_id, position) SELECT $1, greatest(
      (SELECT e.position FROM events e WHERE e.project_id = $1 ORDER BY e.position DESC LIMIT 1),
      (SELECT r.position FROM erasures r WHERE r.project_id = $1 ORDER BY r.position DESC LIMIT 1))`,
  },
]

const found = new WeakMap<pg.ClientBase, Stored>()

/** Where imports on a connection find what is stored (ADR 0033), which is found out once. @throws database errors */
export async function storedOn(client: pg.ClientBase): Promise<Stored> {
  const find = async () => isDistributed(client) || findDistribution((text) => client.query(text))
  const stored = found.get(client) ?? ((await find()) ? COPIED : IN_PLACE)
  found.set(client, stored)
  return stored
}
