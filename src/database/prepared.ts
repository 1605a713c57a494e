import {
  type Compilable,
  type CompiledQuery,
  DummyDriver,
  type Insertable,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
} from 'kysely'
import type pg from 'pg'
import type { DB } from '../../generated/database.ts'
import type { Database } from './pool.ts'

/** A query that is compiled the first time it is used, and that PostgreSQL prepares once on each connection. */
export interface Prepared<Args extends readonly unknown[], Row> {
  /** Runs the query and resolves to its rows. */
  (db: Database, ...args: Args): Promise<Row[]>
  /** The statement for a driver's connection of one's own. */
  statement: (...args: Args) => pg.QueryConfig<unknown[]>
}

/** A compiled query with the name under which it is prepared. */
export interface NamedQuery<Row = unknown> extends CompiledQuery<Row> {
  readonly name: string
  /** Whether it is of few rows by their keys. */
  readonly isLookUp: boolean
}

/** Stands for an argument while the query is compiled. */
class Argument {
  readonly index: number

  constructor(index: number) {
    this.index = index
  }
}

const compiler = new Kysely<DB>({
  dialect: {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (db) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  },
})

let prepared = 0

/**
 * Makes a query of a builder. The builder runs once, with stand-ins for its arguments, so that it must put each of them
 * into the query as it is and look at none; what decides the query's text is for `byShape`.
 */
export function prepare<Args extends readonly unknown[], Row>(
  build: (db: Database, ...args: Args) => Compilable<Row>,
  { isLookUp = false } = {},
): Prepared<Args, Row> {
  let compiled: NamedQuery<Row> | undefined
  const compile = (): NamedQuery<Row> => {
    const standIns = Array.from({ length: build.length - 1 }, (_, i) => new Argument(i)) as unknown as Args
    prepared += 1
    return { ...build(compiler, ...standIns).compile(), name: `flowtrail_${prepared}`, isLookUp }
  }
  const bind = (args: Args): NamedQuery<Row> => {
    compiled ??= compile()
    const parameters = compiled.parameters.map((value) => (value instanceof Argument ? args[value.index] : value))
    return { ...compiled, parameters }
  }
  const run = async (db: Database, ...args: Args) => (await db.executeQuery<Row>(bind(args))).rows
  return Object.assign(run, {
    statement: (...args: Args) => {
      const { name, sql, parameters } = bind(args)
      return { name, text: sql, values: parameters as unknown[] }
    },
  })
}

/** Makes a query for each shape when it is first asked for. @param shape plain data, of which there are few */
export function byShape<Shape, Query>(build: (shape: Shape) => Query): (shape: Shape) => Query {
  const made = new Map<string, Query>()
  return (shape) => {
    const key = JSON.stringify(shape)
    let query = made.get(key)
    if (query === undefined) {
      query = build(shape)
      made.set(key, query)
    }
    return query
  }
}

/** The columns of these names, of rows: arrays of which each has one item a row. */
export const columnsOf = <Row, const Names extends readonly (keyof Row)[]>(rows: readonly Row[], ...names: Names) =>
  names.map((name) => rows.map((row) => row[name])) as { -readonly [I in keyof Names]: Row[Names[I]][] }

/**
 * Makes a statement that inserts any number of rows at once, a column being one array.
 * @param columns with their types in PostgreSQL
 */
export function prepareInsert<Table extends keyof DB & string, Column extends keyof Insertable<DB[Table]> & string>(
  table: Table,
  columns: Record<Column, string>,
): (rows: readonly Pick<Insertable<DB[Table]>, Column>[]) => pg.QueryConfig<unknown[]> {
  const names = Object.keys(columns) as Column[]
  const arrays = names.map((name, i) => `$${i + 1}::${columns[name]}[]`)
  const text = `INSERT INTO ${table} (${names.map((name) => `"${name}"`)}) SELECT * FROM unnest(${arrays})`
  return (rows) => ({ name: `flowtrail_insert_${table}`, text, values: columnsOf(rows, ...names) })
}
