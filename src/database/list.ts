import { type Expression, type RawBuilder, type SelectQueryBuilder, type SqlBool, sql } from 'kysely'
import type { operations } from '../../generated/api.ts'
import type { DB } from '../../generated/database.ts'
import { type Direction, type Keyset, type Page, type PageQuery, paginate, type SortKey } from '../domain/cursor.ts'
import { invalidRequest } from '../domain/errors.ts'
import type { ReadLease } from '../domain/read-lease.ts'
import { type SizedRow, selectPage } from './large-rows.ts'
import type { Database } from './pool.ts'
import { memoizeByOptions, type Parameter, prepareMany, type QueryKind, type SelectQuery } from './prepared.ts'

/** What a query may have; `object` if it must be empty. */
type QueryOf<Op extends keyof operations> = [NonNullable<operations[Op]['parameters']['query']>] extends [never]
  ? object
  : NonNullable<operations[Op]['parameters']['query']>
/** The operations that return rows, in pages or, without parameters, all of them. */
type ListOperation = {
  [Op in keyof operations]: operations[Op] extends {
    responses: { 200: { content: { 'application/json': unknown[] } } }
  }
    ? Op
    : never
}[keyof operations]

type PathOf<Op extends ListOperation> = operations[Op]['parameters']['path']
/** Parameters of a list that say where and when its page begins. */
type NoFilter = keyof PageQuery | 'after' | 'wait'
type FiltersOf<Op extends ListOperation> = Required<Omit<QueryOf<Op>, NoFilter>>
type ColumnOf<Table extends keyof DB> = keyof DB[Table] & string
type ColumnOfType<Table extends keyof DB, Value> = {
  [Column in ColumnOf<Table>]: DB[Table][Column] extends Value | null ? Column : never
}[ColumnOf<Table>]
/** The values of columns, in the same order. */
type KeyOf<Table extends keyof DB, Columns extends readonly ColumnOf<Table>[]> = {
  readonly [I in keyof Columns]: DB[Table][Columns[I]]
}

/** A query parameter of a list that keeps some of its rows. */
interface Filter<Column extends string, Name> {
  column: Column
  operator: '>=' | '<'
  /** Another filter of the list: together they are a window, which must not be empty. */
  laterThan?: Name
}

/** Keeps rows from an instant on. */
export const atOrAfter = <Column extends string>(column: Column) =>
  ({ column, operator: '>=' }) satisfies Filter<Column, never>

/** Keeps rows before an instant, which must be later than the filter `laterThan`. */
export const before = <Column extends string, const Name extends string>(column: Column, laterThan: Name) =>
  ({ column, operator: '<', laterThan }) satisfies Filter<Column, Name>

/**
 * A list operation with pages. Its SQL clauses, its cursor's fingerprint and the check of its filters all come from here,
 * and it must name every path parameter and every filter that the document gives the operation.
 */
interface ListDescriptor<
  Op extends ListOperation,
  Table extends keyof DB & string,
  SortColumns extends readonly ColumnOf<Table>[],
> {
  operation: Op
  /** The table that the columns below are of. */
  table: Table
  /** The rows in scope are those that have the path's parameters in these columns. */
  scope: { [Name in keyof PathOf<Op>]: ColumnOf<Table> }
  filters: [keyof FiltersOf<Op>] extends [never]
    ? Record<string, never>
    : { [Name in keyof FiltersOf<Op>]: Filter<ColumnOfType<Table, FiltersOf<Op>[Name]>, keyof FiltersOf<Op>> }
  /** The columns by which the list is sorted, all in the request's direction. The last one is unique in the scope. */
  sortKey: SortColumns
  /** Whether a value from a cursor is such a key: a forged cursor may hold anything. */
  isSortKey: (value: unknown) => value is KeyOf<Table, SortColumns>
  /** A key before all others, if rows are only ever added at the end. */
  origin?: KeyOf<Table, SortColumns>
}

/** Adds clauses to a query from the list's table. */
export type Clauses = <Tables, Table extends keyof Tables, Row>(
  query: SelectQueryBuilder<Tables, Table, Row>,
) => SelectQueryBuilder<Tables, Table, Row>

/** What decides the text of a list's query. */
interface ListOptions {
  direction: Direction
  isFirstPage: boolean
  /** Whether it reads large rows, too. */
  isWhole: boolean
  kind: QueryKind
  /** The names of the filters that the request has. */
  filters: string[]
}

export interface ListRequest<Op extends ListOperation> {
  path: PathOf<Op>
  query: QueryOf<Op> & PageQuery
}

/**
 * The query of a list. Its page begins after the request's cursor, else after the key `start`.
 * @throws ApiError invalid_request for a cursor of another list and for an empty window
 */
export interface List<Request, Key, Row> {
  (db: Database, request: Request & { lease: ReadLease }, start?: Key): Promise<Page<Row>>
  /** A page without rows that begins where the request's page does. */
  empty: (request: Request, start?: Key) => Promise<Page<Row>>
}

type AnyFilters = [name: string, filter: Filter<string, string>][]

/**
 * Makes the query of a list: it fetches the page that a request asks for.
 *
 * @param build makes the query of the page; `page` selects and sorts its rows and must be applied, `inOrder` only sorts,
 * for a query around that one; unless it `isWhole`, the query leaves out the values of large rows (see `sizedColumns`);
 * other tables must be compared with the `project` itself (ADR 0033)
 */
export function defineList<
  Op extends ListOperation,
  Table extends keyof DB & string,
  const SortColumns extends readonly ColumnOf<Table>[],
  Row extends Record<SortColumns[number], string | number> & SizedRow,
>(
  descriptor: ListDescriptor<Op, Table, SortColumns>,
  build: (
    db: Database,
    page: Clauses,
    inOrder: Clauses,
    isWhole: boolean,
    project: Expression<string>,
  ) => SelectQuery<Row>,
): List<ListRequest<Op>, KeyOf<Table, SortColumns>, Row> {
  const { operation, table } = descriptor
  const scope = Object.entries<string>(descriptor.scope)
  const filters = Object.entries(descriptor.filters) as AnyFilters
  const sortKey: readonly SortColumns[number][] = descriptor.sortKey
  const isSortKey = descriptor.isSortKey as unknown as (value: unknown) => value is SortKey
  const ref = (column: string) => sql.ref(`${table}.${column}`)
  const inScope = scope.map(([, column]) => ({ column, operator: '=' }))
  /** One condition for each of the first parameters. */
  const conditionsOf = (compared: readonly { column: string; operator: string }[], parameters: readonly unknown[]) =>
    compared.map(({ column, operator }, i) => sql<SqlBool>`${ref(column)} ${sql.raw(operator)} ${parameters[i]}`)

  const queryFor = memoizeByOptions(({ direction, isFirstPage, isWhole, kind, filters: names }: ListOptions) => {
    const inOrder: Clauses = (query) =>
      sortKey.reduce((sorted, column) => sorted.orderBy(ref(column), direction === 'ASC' ? 'asc' : 'desc'), query)
    // The order of the parameters: scope, filters, key, limit.
    const compared = [...inScope, ...filters.filter(([name]) => names.includes(name)).map(([, filter]) => filter)]
    const keyLength = isFirstPage ? 0 : sortKey.length
    return prepareMany(
      compared.length + keyLength + 1,
      (db, parameters) => {
        const conditions = conditionsOf(compared, parameters)
        if (!isFirstPage) {
          const key = parameters.slice(compared.length, -1)
          // One comparison of all columns as a row, so that an index serves it.
          conditions.push(sql`(${sql.join(sortKey.map(ref))}) ${sql.raw(AFTER[direction])} (${sql.join(key)})`)
        }
        const limit = parameters.at(-1) as Parameter<number>
        const page: Clauses = (query) => where(conditions)(inOrder(query)).limit(limit)
        return build(db, page, inOrder, isWhole, projectOf(parameters))
      },
      { name: operation, kind },
    )
  })

  const id = sortKey.at(-1) as SortColumns[number]
  /** The rows with these ids in a scope, whole and in any order. */
  const selectByIds = prepareMany(
    scope.length + 1,
    (db, parameters) => {
      const conditions = conditionsOf(inScope, parameters)
      conditions.push(sql`${ref(id)} = ANY (${parameters.at(-1)})`)
      return build(db, where(conditions), (query) => query, true, projectOf(parameters))
    },
    { name: operation },
  )

  const origin = descriptor.origin as SortKey | undefined
  const idsOf = (rows: Row[]): (string | number)[] => rows.map((row) => row[id])
  const keyOf = (row: Row) => sortKey.map((column) => row[column]) as unknown as SortKey

  /** What the path and the filters of a request say. */
  const readScope = ({ path, query }: ListRequest<Op>) => {
    const scopeValues = scope.map(([name]) => path[name as keyof typeof path] as string)
    const filterValues = readFilters(filters, query)
    const list = { scope: [operation, ...scopeValues, ...filterValues], isKey: isSortKey, keyOf, origin }
    return { list, scopeValues, filterValues }
  }

  const selectRows: List<ListRequest<Op>, KeyOf<Table, SortColumns>, Row> = async (db, request, start) => {
    const { list, scopeValues, filterValues } = readScope(request)
    const given = filters.flatMap(([name], i) => (filterValues[i] === undefined ? [] : [name]))
    const values = filterValues.filter((value) => value !== undefined)
    const select = ({ direction, after, limit }: Keyset<SortKey>) => {
      const options = { direction, isFirstPage: after === undefined, filters: given }
      return selectPage(limit, request.lease, {
        select: (count, isWhole, kind) =>
          queryFor({ ...options, isWhole, kind })(db, ...scopeValues, ...values, ...(after ?? []), count),
        selectAgain: (rows) => selectByIds(db, ...scopeValues, idsOf(rows)),
        keyOf,
      })
    }
    return paginate({ ...list, select }, request.query, start as SortKey | undefined)
  }
  selectRows.empty = async (request, start) => {
    const select = async () => ({ rows: [], more: false })
    return paginate({ ...readScope(request).list, select }, request.query, start as SortKey | undefined)
  }
  return selectRows
}

/** The scope of each list begins with the project. */
const projectOf = ([project]: readonly unknown[]) => project as Expression<string>

/** Keeps the rows that meet all conditions. */
const where =
  (conditions: readonly RawBuilder<SqlBool>[]): Clauses =>
  (query) =>
    conditions.reduce((filtered, condition) => filtered.where(condition), query)

const AFTER = { ASC: '>', DESC: '<' }

/**
 * The values of a request's filters, undefined for each that it leaves out.
 * @throws ApiError invalid_request for an empty window
 */
function readFilters(filters: AnyFilters, query: object): (string | undefined)[] {
  const filterValue = (name: string) => query[name as keyof typeof query] as string | undefined
  for (const [name, { laterThan = '' }] of filters) {
    const [end, start] = [filterValue(name), filterValue(laterThan)]
    // ISO timestamps sort as the instants do.
    if (start !== undefined && end !== undefined && end <= start) {
      throw invalidRequest([{ pointer: `/query/${name}`, message: `must be later than ${laterThan}` }])
    }
  }
  return filters.map(([name]) => filterValue(name))
}
