import { AFFECTED_PROJECTS, MERGE_RULES } from './merge-rules.ts'
import { FIELDS, type Field, type RecordType } from './records.ts'
import {
  asJson,
  COLUMNS,
  STAGED_KINDS,
  STAGING_COLUMNS,
  type StagedKind,
  type StagedRows,
  stagedTable,
} from './stage.ts'
import { IN_PLACE } from './stored.ts'
import { filledBy } from './tables.ts'

/** PostgreSQL's types of the columns of records. All text is compared bytewise, as ids are stored. */
const TYPES: Record<string, string> = { text: 'text COLLATE "C"', integer: 'integer', timestamp: 'timestamptz(3)' }

function typeOf(kind: StagedKind, column: string): string {
  if (column === 'digest') return 'bytea'
  const fields: Record<string, Field> = kind === 'identifier' ? {} : FIELDS[kind satisfies RecordType]
  return STAGING_COLUMNS[kind]?.[column] ?? (TYPES[fields[column]?.column ?? 'text'] as string)
}

/** Stands in a query for its parameter. */
const PARAMETER = '$rows'

const rowsOf = (kind: StagedKind) =>
  `SELECT * FROM json_to_recordset(${PARAMETER}) r(line bigint, ${COLUMNS[kind].map((column) => `"${column}" ${typeOf(kind, column)}`)})`

/** What is a temporary table otherwise, each as a query that reads only those before it. */
const EXPRESSIONS = new Map([
  ...STAGED_KINDS.map((kind) => [stagedTable(kind), rowsOf(kind)] as const),
  ...filledBy(IN_PLACE),
  [AFFECTED_PROJECTS, `SELECT unnest(${PARAMETER}::text[]) AS project_id`] as const,
])

const NAMES = new RegExp(`\\b(?:${[...EXPRESSIONS.keys()].join('|')})\\b`, 'g')

/** Adds the names of the expressions that SQL reads, directly or not. */
function addNames(names: Set<string>, sql: string): void {
  for (const [name] of sql.matchAll(NAMES)) {
    if (names.has(name)) continue
    names.add(name)
    addNames(names, EXPRESSIONS.get(name) as string)
  }
}

interface Statement {
  text: string
  /** The names of the expressions that its last parameters are for. */
  parameters: string[]
}

const statements = new Map<string, Statement>()

/** @param parameters how many the SQL has of its own */
function statementOf(sql: string, parameters: number): Statement {
  const names = new Set<string>()
  addNames(names, sql)
  const read = [...EXPRESSIONS].filter(([name]) => names.has(name))
  const withParameter = read.filter(([, query]) => query.includes(PARAMETER)).map(([name]) => name)
  const expressions = read.map(([name, query]) => {
    const number = parameters + withParameter.indexOf(name) + 1
    return `${name} AS MATERIALIZED (${query.replace(PARAMETER, () => `$${number}`)})`
  })
  const own = sql.trim().replace(/^WITH /, ', ')
  return { text: expressions.length > 0 ? `WITH ${expressions.join(', ')} ${own}` : sql, parameters: withParameter }
}

/**
 * The rows of a small import as common table expressions of its statements, which have the names and columns of the temporary tables
 * that a large one fills: so both are merged by the same SQL, and a small one writes, empties and drops no tables (ADR 0012).
 */
export class RowExpressions {
  readonly #rows: StagedRows
  readonly #values = new Map<string, unknown>()

  constructor(rows: StagedRows) {
    this.#rows = rows
    const project_ids = STAGED_KINDS.flatMap((kind) => this.#columns(kind, ['project_id'])).flat()
    this.#values.set(AFFECTED_PROJECTS, [...new Set(project_ids)])
    for (const kind of STAGED_KINDS) if (rows[kind].length > 0) this.#values.set(stagedTable(kind), asJson(rows[kind]))
  }

  /** How many distinct records of a kind there are. */
  count(kind: StagedKind): number {
    return new Set(this.#columns(kind, MERGE_RULES[kind].key).map((key) => JSON.stringify(key))).size
  }

  /** A statement that can be prepared, of SQL that names the temporary tables. @param values its own parameters */
  statement(sql: string, values: unknown[]): { text: string; values: unknown[] } {
    const statement = statements.get(sql) ?? statementOf(sql, values.length)
    statements.set(sql, statement)
    const own = statement.parameters.map((name) => this.#values.get(name) ?? '[]')
    return { text: statement.text, values: [...values, ...own] }
  }

  #columns(kind: StagedKind, columns: string[]): unknown[][] {
    return this.#rows[kind].map(({ row }) => columns.map((column) => (row as Record<string, unknown>)[column]))
  }
}
