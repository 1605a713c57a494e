import { type SelectQueryBuilder, sql } from 'kysely'
import type { Keyset, SortKey } from '../page.ts'

/** Keeps the rows that come after the keyset's key, comparing all columns as one row value so that an index serves it. */
export function afterKey<DB, TB extends keyof DB, O>(keyset: Keyset<SortKey>, columns: readonly string[]) {
  return (query: SelectQueryBuilder<DB, TB, O>): SelectQueryBuilder<DB, TB, O> => {
    if (keyset.after === undefined) return query
    const row = sql.join(columns.map((column) => sql.ref(column)))
    const comparison = keyset.direction === 'ASC' ? sql`>` : sql`<`
    return query.where(sql<boolean>`(${row}) ${comparison} (${sql.join(keyset.after.map((value) => sql.val(value)))})`)
  }
}

/** Sorts by the keyset's columns, all in its direction, and takes as many rows as it says. */
export function sortOrder<DB, TB extends keyof DB, O>(keyset: Keyset<SortKey>, columns: readonly string[]) {
  const direction = keyset.direction === 'ASC' ? 'asc' : 'desc'
  return (query: SelectQueryBuilder<DB, TB, O>): SelectQueryBuilder<DB, TB, O> =>
    columns.reduce((sorted, column) => sorted.orderBy(sql.ref(column), direction), query).limit(keyset.take)
}
