import { type AliasableExpression, sql } from 'kysely'
import type { Slice } from '../domain/cursor.ts'
import type { ReadLease } from '../domain/read-lease.ts'
import type { Database } from './pool.ts'
import type { QueryKind } from './prepared.ts'

// Large rows (ADR 0019): a query first leaves out the values of large rows and gives their size, which PostgreSQL knows
// without reading them. They are read only then: as many as fit into a page, and when there is room for them.

/** How large the values of a row may be for a query that leaves out those of large rows. */
export const SMALL_ROW_bytes = 4 * 1024

/** The same for a row that is looked up by its key. */
export const SMALL_VALUE_bytes = 64 * 1024

/** The most bytes of values in a page that is serialised at once, though some of its rows are large. */
export const SMALL_PAGE_bytes = 512 * 1024

/** How many rows of a list without pages are read at a time. */
export const ROWS_AT_A_TIME = SMALL_PAGE_bytes / SMALL_ROW_bytes

/** The most bytes of a page, in its body (docs/semantics.md#paging) and in the values that are read; one row may have more. */
export const MAX_PAGE_bytes = 8 * 1024 * 1024

/** A row with the size of its values of any length, in bytes; null if they are not left out. */
export interface SizedRow {
  value_bytes?: number | null
}

/** In SQL, how many bytes columns have together, without reading them. */
export function bytesOf(columns: readonly string[]): AliasableExpression<number> {
  const sizes = columns.map((column) => sql`coalesce(octet_length(${sql.ref(column)}), 0)`)
  return sql<number>`(${sql.join(sizes, sql` + `)})`
}

/**
 * In SQL, columns of any length, and the size of all of them if they are large and left out.
 *
 * @param isWhole whether large ones are read, too; else they are null
 * @param small_bytes the most that small ones have together
 * @param bytes in SQL, how many they have; PostgreSQL computes it anew for each of them
 */
export function sizedColumns<const Columns extends readonly string[]>(
  columns: Columns,
  isWhole: boolean,
  small_bytes = SMALL_ROW_bytes,
  bytes = bytesOf(columns),
) {
  return {
    // Null, since a number would have to be parsed for each row.
    value_bytes: isWhole
      ? sql<number | null>`NULL::integer`.as('value_bytes')
      : sql<number | null>`CASE WHEN ${bytes} > ${sql.lit(small_bytes)} THEN ${bytes} END`.as('value_bytes'),
    value: (column: Columns[number]) =>
      isWhole
        ? sql<string>`${sql.ref(column)}`
        : sql<string>`CASE WHEN ${bytes} <= ${sql.lit(small_bytes)} THEN ${sql.ref(column)} END`,
  }
}

/** The kind of a query that reads values with as many bytes, though they are large for a row. */
const kindOf = (bytes: number): Exclude<QueryKind, 'look-up'> => (bytes > SMALL_PAGE_bytes ? 'large' : 'list')

/**
 * Makes a look-up that reads a large value only when there is room for it.
 *
 * @param load makes the look-up of a row with {@link sizedColumns}, with large values or without
 */
export function lookUpSized<Key extends unknown[], Row extends SizedRow>(
  load: (isWhole: boolean, kind: QueryKind) => (db: Database, ...key: Key) => Promise<Row | undefined>,
) {
  const find = load(false, 'look-up')
  const findWhole = { list: load(true, 'list'), large: load(true, 'large') }
  return async (db: Database, lease: ReadLease, ...key: Key): Promise<Omit<Row, 'value_bytes'> | undefined> => {
    const row = await find(db, ...key)
    if (!row?.value_bytes) return row
    await lease.extend(row.value_bytes)
    return findWhole[kindOf(row.value_bytes)](db, ...key)
  }
}

/** How a page is selected. */
export interface PageQueries<Row> {
  /** Selects rows from the beginning of the page on: how many at most, and whether with the values of large ones. */
  select: (count: number, isWhole: boolean, kind: QueryKind) => Promise<Row[]>
  /** Selects rows once more, with their values, in any order. */
  selectAgain: (rows: Row[]) => Promise<Row[]>
  /** The sort key of a row. */
  keyOf: (row: Row) => unknown
}

/** Selects the rows of a page, of large ones only as many as fit. @param limit the most rows of the page */
export async function selectPage<Row extends SizedRow>(
  limit: number,
  lease: ReadLease,
  queries: PageQueries<Row>,
): Promise<Slice<Row>> {
  const selected = await selectSmall(limit, queries)
  if ('rows' in selected) return selected
  const { count, bytes, lastKey, more } = selected
  await lease.extend(bytes)
  const rows = await queries.select(count, true, kindOf(bytes))
  const last = rows[count - 1]
  // A row that was inserted in between takes the place of the last one.
  return { rows, more: more || (last !== undefined && JSON.stringify(queries.keyOf(last)) !== lastKey) }
}

/**
 * The page if its values are no more than the read was admitted with, else how much of it fits. Nothing else may keep the rows
 * while the read waits.
 */
async function selectSmall<Row extends SizedRow>(
  limit: number,
  { select, selectAgain, keyOf }: PageQueries<Row>,
): Promise<Slice<Row> | { count: number; bytes: number; lastKey: string; more: boolean }> {
  // One row more than the page holds shows whether there is another page.
  const rows = await select(limit + 1, false, 'list')
  const page = rows.slice(0, limit)
  const more = rows.length > limit
  const large = page.filter(({ value_bytes }) => value_bytes)
  if (large.length === 0) return { rows: page, more }
  const keyTextOf = (row: Row) => JSON.stringify(keyOf(row))
  if (sizeOf(page) <= Math.min(limit * SMALL_ROW_bytes, SMALL_PAGE_bytes)) {
    const found = new Map((await selectAgain(large)).map((row) => [keyTextOf(row), row]))
    const whole = page.map((row) => (row.value_bytes ? found.get(keyTextOf(row)) : row))
    // Otherwise one has been erased or has moved in between.
    if (whole.every((row) => row !== undefined)) return { rows: whole, more }
  }
  const { count, bytes } = fitting(page)
  return { count, bytes, lastKey: keyTextOf(page[count - 1] as Row), more: rows.length > count }
}

/** How large rows are with the values that are left out: about their bytes, since a character counts as one. */
function sizeOf(rows: SizedRow[]): number {
  let size = 0
  const add = (value: unknown) => {
    if (typeof value === 'string') size += value.length
    else if (Array.isArray(value)) value.forEach(add)
  }
  for (const row of rows) {
    size += row.value_bytes ?? 0
    Object.values(row).forEach(add)
  }
  return size
}

/** How many rows fit into a page, at least one, and how large they are at most. */
function fitting(rows: SizedRow[]): { count: number; bytes: number } {
  let large_bytes = 0
  let count = 0
  for (const { value_bytes } of rows) {
    const added = value_bytes ?? 0
    if (count > 0 && large_bytes + added > MAX_PAGE_bytes) break
    large_bytes += added
    count += 1
  }
  return { count, bytes: large_bytes + count * SMALL_ROW_bytes }
}
