import type pg from 'pg'
import { PAGE_VIEWED } from '../domain/event.ts'
import { deriveEvents, IS_COMPLETE, numberEvents } from './derive-events.ts'
import {
  AFFECTED_PROJECTS,
  DERIVED_EVENTS,
  DUPLICATE_EVENTS,
  MERGE_RULES,
  mergedTable,
  NUMBERED_EVENTS,
  REFERENCED_ENTRIES,
  referencesTable,
} from './merge-rules.ts'
import { COLUMNS, STAGED_KINDS, STAGING_COLUMNS, type StagedKind, stagedTable, TARGET_TABLES } from './stage.ts'
import { COPIED, COPIES, COPY_OF_PROJECTS, IN_PLACE, type Stored } from './stored.ts'

/** The columns whose values may have any length. */
const LONG_COLUMNS = ['entry_data', 'json_string']

/** Merges the lines of each record. */
function mergedRows(kind: StagedKind): string {
  const { key, immutable, firstWins, lastWins } = MERGE_RULES[kind]
  const sorted = (column: string, order: string) =>
    `(array_agg(${column} ORDER BY ${order}) FILTER (WHERE ${column} IS NOT NULL))[1] AS ${column}`
  // With one value in memory instead of those of all lines, which may be more than PostgreSQL can allocate.
  const extreme = (column: string, of: 'min' | 'max') =>
    `(${of}(ARRAY[to_char(line, '${'0'.repeat(19)}'), ${column}]) FILTER (WHERE ${column} IS NOT NULL))[2] AS ${column}`
  const first = (column: string) =>
    LONG_COLUMNS.includes(column)
      ? extreme(column, 'min')
      : sorted(column, kind === 'identifier' ? 'line, ordinal' : 'line')
  const last = (column: string) =>
    LONG_COLUMNS.includes(column) ? extreme(column, 'max') : sorted(column, 'line DESC')
  return `SELECT ${[...key, 'min(line) AS line', ...[...immutable, ...firstWins].map(first), ...lastWins.map(last)]}
   FROM ${stagedTable(kind)} GROUP BY ${key} ORDER BY ${key}`
}

/** The temporary tables that a merge fills, each with its query, which reads only those before it. */
const filledTables = (stored: Stored) =>
  new Map([
    ...STAGED_KINDS.filter((kind) => kind !== 'event').map((kind) => [mergedTable(kind), mergedRows(kind)] as const),
    [
      REFERENCED_ENTRIES,
      `SELECT project_id, entry_id, module_version_number, min(line) AS line,
       bool_or(NOT (${IS_COMPLETE})) AS incomplete, bool_or(event_type = '${PAGE_VIEWED}') AS has_views
     FROM ${stagedTable('event')} GROUP BY project_id, entry_id, module_version_number`,
    ],
    [
      DUPLICATE_EVENTS,
      `SELECT project_id, event_id, min(line) AS line, count(*) AS lines FROM ${stagedTable('event')}
     GROUP BY project_id, event_id HAVING count(*) > 1`,
    ],
    [AFFECTED_PROJECTS, STAGED_KINDS.map((kind) => `SELECT project_id FROM ${referencesTable(kind)}`).join(' UNION ')],
    [DERIVED_EVENTS, deriveEvents(stored)],
    [NUMBERED_EVENTS, numberEvents(stored)],
  ])

/** The temporary tables that a merge fills, each with its query. @param stored where it finds what is stored */
export const filledBy = (stored: Stored): Map<string, string> =>
  stored.isCopied ? FILLED_FROM_COPIES : FILLED_IN_PLACE
const FILLED_IN_PLACE = filledTables(IN_PLACE)
const FILLED_FROM_COPIES = filledTables(COPIED)

function stagedRows(kind: StagedKind): string {
  const extra = STAGING_COLUMNS[kind] ?? {}
  const columns = COLUMNS[kind].map((name) => (extra[name] ? `NULL::${extra[name]} AS ${name}` : name))
  return `SELECT 0::bigint AS line, ${columns} FROM ${TARGET_TABLES[kind]}`
}

/** @param atCommit what becomes of the tables at the end of a transaction */
const createTables = (stored: Stored, atCommit: 'DELETE ROWS' | 'DROP') =>
  [
    ...STAGED_KINDS.map((kind) => [stagedTable(kind), stagedRows(kind)] as const),
    ...(stored.isCopied ? [COPY_OF_PROJECTS, ...COPIES].map(({ table, columns }) => [table, columns] as const) : []),
    ...filledBy(stored),
  ]
    .map(([table, query]) => `CREATE TEMPORARY TABLE ${table} ON COMMIT ${atCommit} AS ${query} WITH NO DATA`)
    .join('; ')
/** Creates the temporary tables for one transaction, where a connection has no session of its own to keep them in. */
export const createTablesOfTransaction = (stored: Stored) => createTables(stored, 'DROP')

/**
 * A statement that empties the tables: any that touches one does, at its COMMIT. A ROLLBACK leaves the space of its rows, which
 * scans would read again and again.
 */
export const EMPTY_TABLES = `SELECT FROM ${AFFECTED_PROJECTS}`

const TABLES = Object.values(TARGET_TABLES)

const SIZES = `SELECT relname AS table, pg_relation_size(oid) / current_setting('block_size')::bigint AS pages
  FROM pg_class WHERE oid = ANY('{${TABLES}}'::regclass[]) ORDER BY relname`

/** Some thousand rows. With statistics of a few, PostgreSQL would plan a large import as a small one. */
const MIN_ANALYZED_pages = 32

const ANALYZED = "SELECT tablename AS table FROM pg_stats WHERE schemaname = 'public'"

/** The sizes of the target tables when the plans of a connection were made. */
const plannedSizes = new WeakMap<pg.ClientBase, string>()

/**
 * Has prepared statements planned anew when a target table has doubled or halved, and a large one that never was analyzed is
 * analyzed, if the role may. Autovacuum does both, but only after a minute; until then, plans made for a few rows read all rows of a
 * project for each line. No transaction may be open.
 */
export async function renewPlans(client: pg.ClientBase): Promise<void> {
  const { rows } = await client.query<{ table: string; pages: number }>(SIZES)
  // Another number of binary digits. A table has fewer pages than 32 digits can count.
  const sizes = String(rows.map(({ pages }) => Math.clz32(pages)))
  if (plannedSizes.get(client) === sizes) return
  plannedSizes.set(client, sizes)
  const large = rows.filter(({ pages }) => pages >= MIN_ANALYZED_pages).map(({ table }) => table)
  const analyzed = large.length > 0 ? (await client.query<{ table: string }>(ANALYZED)).rows : []
  const unknown = large.filter((name) => !analyzed.some(({ table }) => table === name))
  // The import itself must not fail because that takes too long.
  if (unknown.length > 0) await client.query(`ANALYZE (SKIP_LOCKED) ${unknown}`).catch(() => {})
  await client.query('DISCARD PLANS')
}

const connections = new WeakMap<pg.ClientBase, Promise<unknown>>()

/**
 * Creates the temporary tables of imports, which a connection keeps: creating them takes longer than a small import into a Citus
 * cluster. No transaction may be open. A COMMIT empties them.
 */
export async function ensureTables(client: pg.ClientBase, stored: Stored): Promise<void> {
  const created = connections.get(client) ?? client.query(createTables(stored, 'DELETE ROWS'))
  connections.set(client, created)
  await created
}
