import { type SelectQueryBuilder, sql } from 'kysely'
import type { Direction, Keyset, SortKey } from '../domain/cursor.ts'

/** What of a keyset decides the text of a query. */
export interface KeysetShape {
  direction: Direction
  /** Whether the page is the first, which begins after no key. */
  isFirst: boolean
}

export const shapeOf = ({ direction, after }: Keyset<SortKey>): KeysetShape => ({
  direction,
  isFirst: after === undefined,
})

/** Keeps the rows that come after the key, comparing all columns as one row value so that an index serves it. */
export function afterKey<DB, TB extends keyof DB, O>(shape: KeysetShape, columns: readonly string[], key: SortKey) {
  return (query: SelectQueryBuilder<DB, TB, O>): SelectQueryBuilder<DB, TB, O> => {
    if (shape.isFirst) return query
    const row = sql.join(columns.map((column) => sql.ref(column)))
    const comparison = shape.direction === 'ASC' ? sql`>` : sql`<`
    return query.where(sql<boolean>`(${row}) ${comparison} (${sql.join(key.map((value) => sql.val(value)))})`)
  }
}

/** Sorts by the columns, all in the keyset's direction. */
export function sortOrder<DB, TB extends keyof DB, O>({ direction }: KeysetShape, columns: readonly string[]) {
  return (query: SelectQueryBuilder<DB, TB, O>): SelectQueryBuilder<DB, TB, O> =>
    columns.reduce((sorted, column) => sorted.orderBy(sql.ref(column), direction === 'ASC' ? 'asc' : 'desc'), query)
}
