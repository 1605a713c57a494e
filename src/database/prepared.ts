import {
  AndNode,
  BinaryOperationNode,
  ColumnNode,
  type Compilable,
  type CompiledQuery,
  DummyDriver,
  type Expression,
  type Insertable,
  Kysely,
  type OperationNode,
  OperationNodeTransformer,
  OperatorNode,
  ParensNode,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
  ReferenceNode,
  SelectQueryNode,
  sql,
  ValueNode,
} from 'kysely'
import type pg from 'pg'
import type { DB } from '../../generated/database.ts'
import { arrayLiteral } from './array-literal.ts'
import type { Database } from './pool.ts'

// Prepared statements: a query is compiled by Kysely once, and PostgreSQL parses it once on each connection; a call only
// binds values. The trade: a builder runs before any value is known, so it may only place its parameters. Whatever else
// decides the text of a query is an option of `memoizeByOptions`.

type Scalar = string | number | boolean | Buffer

/** What can be bound to a parameter. An array is one value. Nothing is optional, so that no query can depend on it. */
export type Bindable = Scalar | readonly Scalar[]

/**
 * Marks the place of a value in a prepared query. It can be an operand of any Kysely method and part of `sql`, and
 * nothing else. It is typed as a symbol, too, since tsc refuses symbols in template literals, concatenations and
 * comparisons; what tsc lets pass (`=== undefined`, truthiness) is an error when the query is built.
 */
export type Parameter<T extends Bindable> = symbol & Expression<T>

/** A query that selects rows. Unlike {@link Compilable} alone, it is not assignable to one of other rows. */
export type SelectQuery<Row> = Compilable<Row> & Expression<Row>

/** The values that a query's parameters are bound to. */
type ValuesOf<Parameters extends readonly unknown[]> = {
  [I in keyof Parameters]: Parameters[I] extends Expression<infer T> ? T : never
}

/**
 * What a query reads: few small rows by their keys, rows of a list, or large values. With three connections or more, look-ups
 * do not wait for lists, nor lists for large values.
 */
export type QueryKind = 'look-up' | 'list' | 'large'

/** A query that is compiled when it is first used, and that PostgreSQL prepares once on each connection. */
export interface Runnable<Args extends readonly unknown[], Row> {
  /** Runs the query and resolves to its rows. */
  (db: Database, ...args: Args): Promise<Row[]>
  /** The statement with its values, for a client of pg. */
  statement: (...args: Args) => pg.QueryConfig<unknown[]>
}

/** A query that is compiled when it is first used, in one form or the other. */
export interface Prepared<Args extends readonly unknown[], Row> extends Runnable<Args, Row> {
  /**
   * The query in a form for input rows whose projects, its first argument, are on one shard of a Citus cluster: it compares
   * every table with an array of these projects, too, which tells Citus the one node that has them (ADR 0033). Plain
   * PostgreSQL finds the same rows, more slowly.
   */
  ofOneShard: Runnable<Args, Row>
}

/** A compiled query with the name under which it is prepared. */
export interface NamedQuery<Row = unknown> extends CompiledQuery<Row> {
  readonly name: string
  readonly kind: QueryKind
}

export interface PrepareOptions {
  /** What the query is called in the metrics and in PostgreSQL's pg_prepared_statements. */
  name?: string
  /** A list without it. */
  kind?: QueryKind
}

/** What a {@link Parameter} is at run time. */
class Placeholder implements Expression<Bindable> {
  readonly index: number
  readonly toString = refuseConversion
  readonly toJSON = refuseConversion
  readonly [Symbol.toPrimitive] = refuseConversion

  constructor(index: number) {
    this.index = index
  }

  valueIn(args: readonly Bindable[]): Bindable {
    return args[this.index] as Bindable
  }

  get expressionType(): undefined {
    return undefined
  }

  toOperationNode(): OperationNode {
    return ValueNode.create(this)
  }
}

function refuseConversion(): never {
  throw new Error('a parameter of a prepared query has no value yet: put it into the query as it is')
}

/** Marks the place of the distinct projects of the input rows. */
class ProjectsPlaceholder extends Placeholder {
  override valueIn(args: readonly Bindable[]): Bindable {
    return [...new Set(super.valueIn(args) as readonly string[])]
  }
}

/** Compares whatever equals the project of an input row, on its right, with the projects of all input rows, too. */
class ProjectsBinder extends OperationNodeTransformer {
  readonly #projects: unknown

  constructor(projects: unknown) {
    super()
    this.#projects = projects
  }

  protected override transformBinaryOperation(node: BinaryOperationNode): BinaryOperationNode {
    const comparison = super.transformBinaryOperation(node)
    const isEqual = OperatorNode.is(node.operator) && node.operator.operator === '='
    if (!isEqual || !isProjectOfInput(node.rightOperand)) return comparison
    const isAny = sql`any(${this.#projects}::text[])`.toOperationNode()
    const bound = BinaryOperationNode.create(comparison.leftOperand, OperatorNode.create('='), isAny)
    return ParensNode.create(AndNode.create(comparison, bound)) as OperationNode as BinaryOperationNode
  }
}

const isProjectOfInput = (node: OperationNode) =>
  ReferenceNode.is(node) &&
  node.table?.table.identifier.name === 'input' &&
  ColumnNode.is(node.column) &&
  node.column.column.name === 'project_id'

const compiler = new Kysely<DB>({
  dialect: {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (db) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  },
})

/**
 * Makes a prepared query of a builder, which names the parameters and places each in the query.
 *
 * The query throws an Error on first use if a parameter is missing from it, or if its text depends on one.
 */
export function prepare<const Parameters extends readonly Parameter<Bindable>[], Row>(
  build: (db: Database, ...parameters: Parameters) => Compilable<Row>,
  options?: PrepareOptions,
): Prepared<ValuesOf<Parameters>, Row> {
  return prepareMany(
    build.length - 1,
    (db, parameters) => build(db, ...(parameters as unknown as Parameters)),
    options,
  ) as Prepared<ValuesOf<Parameters>, Row>
}

/** As {@link prepare}, with as many parameters as the caller says. */
export function prepareMany<Row>(
  count: number,
  build: (db: Database, parameters: readonly Parameter<Bindable>[]) => Compilable<Row>,
  { name = 'query', kind = 'list' }: PrepareOptions = {},
): Prepared<readonly Bindable[], Row> {
  const form = (isOfOneShard: boolean): Runnable<readonly Bindable[], Row> => {
    let compiled: NamedQuery<Row> | undefined
    const bind = (args: readonly Bindable[]): NamedQuery<Row> => {
      compiled ??= { ...compile(count, build, isOfOneShard), name: uniqueName(name), kind }
      if (args.length !== count) throw new Error(`a query of ${count} parameters was given ${args.length} values`)
      const parameters = compiled.parameters.map((value) => {
        const bound = value instanceof Placeholder ? value.valueIn(args) : value
        return Array.isArray(bound) ? arrayLiteral(bound) : bound
      })
      return { ...compiled, parameters }
    }
    const run = async (db: Database, ...args: readonly Bindable[]) => (await db.executeQuery<Row>(bind(args))).rows
    return Object.assign(run, {
      statement: (...args: readonly Bindable[]) => {
        const { name, sql, parameters } = bind(args)
        return { name, text: sql, values: parameters as unknown[] }
      },
    })
  }
  return Object.assign(form(false), { ofOneShard: form(true) })
}

let statements = 0
function uniqueName(name: string): string {
  statements += 1
  return `${name}_${statements}`
}

/**
 * Compiles a query, with its placeholders among its parameters. It is built a second time with nothing in their place,
 * which shows whether its text depends on one.
 */
function compile<Row>(
  count: number,
  build: (db: Database, parameters: readonly Parameter<Bindable>[]) => Compilable<Row>,
  isOfOneShard: boolean,
): CompiledQuery<Row> {
  const compileWith = (parameters: unknown[], projects: unknown) => {
    const compiled = build(compiler, parameters as Parameter<Bindable>[]).compile()
    if (!isOfOneShard) return compiled
    const bound = new ProjectsBinder(projects).transformNode(compiled.query)
    return compiler.getExecutor().compileQuery<Row>(bound, compiled.queryId)
  }
  const placeholders = Array.from({ length: count }, (_, i) => new Placeholder(i))
  const query = compileWith(placeholders, new ProjectsPlaceholder(0))
  const unused = placeholders.findIndex((placeholder) => !query.parameters.includes(placeholder))
  if (unused !== -1) throw new Error(`parameter ${unused + 1} of ${count} is not in the query: ${query.sql}`)

  // Kysely leaves out a column that is set to undefined.
  const nothing = SelectQueryNode.is(query.query) ? undefined : null
  const expected = query.parameters.map((value) => (value instanceof Placeholder ? nothing : value))
  const other = compileWith(Array(count).fill(nothing), nothing)
  if (other.sql !== query.sql || other.parameters.some((value, i) => value !== expected[i])) {
    throw new Error(`the text of a prepared query depends on a parameter: ${query.sql}`)
  }
  return query
}

/** Builds a query once for each combination of options. @param options plain data, of which there are few */
export function memoizeByOptions<Options, Query>(build: (options: Options) => Query): (options: Options) => Query {
  const built = new Map<string, Query>()
  return (options) => {
    const key = JSON.stringify(options)
    let query = built.get(key)
    if (query === undefined) {
      query = build(options)
      built.set(key, query)
    }
    return query
  }
}

/** PostgreSQL's types of the columns that arrays are bound for. */
export type ColumnType = 'text' | 'integer' | 'bigint' | 'bytea' | 'timestamptz'

/**
 * Makes a statement that inserts any number of rows, each column bound as one array: its text is the same for one row
 * and for hundreds, so that it is prepared once.
 */
export function prepareInsert<Table extends keyof DB & string, Column extends keyof Insertable<DB[Table]> & string>(
  table: Table,
  columns: Record<Column, ColumnType>,
): (rows: readonly Pick<Insertable<DB[Table]>, Column>[]) => pg.QueryConfig<unknown[]> {
  const names = Object.keys(columns) as Column[]
  const insert = prepareMany(
    names.length,
    (db, parameters) => {
      const arrays = names.map((name, i) => sql`${parameters[i]}::${sql.raw(columns[name])}[]`)
      return (db as unknown as Kysely<Record<string, Record<string, unknown>>>)
        .insertInto(table)
        .columns(names)
        .expression(sql`select * from unnest(${sql.join(arrays)})`)
    },
    { name: `insert_${table}` },
  )
  return (rows) => insert.statement(...(columnsOf(rows, ...names) as unknown as Bindable[]))
}

/** The named columns of rows, as arrays with one item for each row. */
export const columnsOf = <Row, const Names extends readonly (keyof Row)[]>(rows: readonly Row[], ...names: Names) =>
  names.map((name) => rows.map((row) => row[name])) as { -readonly [I in keyof Names]: Row[Names[I]][] }
