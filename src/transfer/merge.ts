import type pg from 'pg'
import { timedQuery } from '../database/timed-query.ts'
import type { TypeMismatch } from '../domain/identifier.ts'
import { type Check, checks, earlierIssue, indirectProjectChecks, projectChecks } from './checks.ts'
import { isPipelined } from './client.ts'
import { ImportConflict, type ImportIssue } from './issues.ts'
import {
  AFFECTED_PROJECTS,
  columnsEqual,
  DERIVED_EVENTS,
  DUPLICATE_EVENTS,
  givenColumns,
  MERGE_RULES,
  mergedTable,
  NUMBERED_EVENTS,
  REFERENCED_ENTRIES,
} from './merge-rules.ts'
import { storePageViews } from './page-views.ts'
import { RowExpressions } from './row-expressions.ts'
import { STAGED_KINDS, type StagedKind, type StagedRows, stagedTable, TARGET_TABLES } from './stage.ts'
import { COPIED, COPIES, COPY_OF_PROJECTS, type Copy, IN_PLACE, type Stored } from './stored.ts'
import { filledBy } from './tables.ts'

/**
 * The settings of a transaction that make the planner look stored rows up by their keys. It has no statistics of rows that are held,
 * and its plans are kept while tables grow, which it would scan otherwise (tests/transfer/small.test.ts).
 */
export const LOOK_UPS = { enable_seqscan: 'off', enable_hashjoin: 'off', enable_mergejoin: 'off' }

/** The counts of one kind of record. */
interface MergeCounts {
  /** How many distinct records are on the lines. */
  records: number
  added: number
  updated: number
}

export interface MergeSizes {
  /**
   * How many table pages of 8 KiB one statement of the merge reads its rows from. It bounds the memory that PostgreSQL
   * takes for the foreign key checks of the statement, and the time between two progress reports.
   */
  chunk_pages: number
  /** Up to how many rows are merged by prepared statements. */
  small_rows: number
}

const IDENTIFIER_WITH_COUNTERPART = [
  ...['project_id', 'digest', 'contact_id', 'key'],
  ...['other_type_digest', 'other_type_contact_id'],
]

/** The identifiers with a counterpart of another type, each on its first line. */
const WITH_COUNTERPARTS = `
  SELECT ${IDENTIFIER_WITH_COUNTERPART}, min(line) AS line FROM ${stagedTable('identifier')}
  WHERE other_type_digest IS NOT NULL GROUP BY ${IDENTIFIER_WITH_COUNTERPART}`

/** New identifiers whose text belongs to another contact under another type: stored, or on an earlier line. */
const typeMismatches = ({ tables }: Stored) => `
  WITH i AS MATERIALIZED (${WITH_COUNTERPARTS})
  SELECT project_id, key, count(*)::integer AS count FROM (
    SELECT i.* FROM i JOIN ${tables.identifier} o ON o.project_id = i.project_id AND o.digest = i.other_type_digest
    WHERE o.contact_id <> i.contact_id
    UNION
    SELECT i.* FROM i JOIN ${mergedTable('identifier')} o ON o.project_id = i.project_id AND o.digest = i.other_type_digest
    WHERE o.contact_id <> i.contact_id AND o.line < i.line
    UNION
    SELECT i.* FROM i JOIN ${tables.contact} o ON o.project_id = i.project_id AND o.contact_id = i.other_type_contact_id
    WHERE o.contact_id <> i.contact_id
    UNION
    SELECT i.* FROM i JOIN ${mergedTable('contact')} o ON o.project_id = i.project_id AND o.contact_id = i.other_type_contact_id
    WHERE o.contact_id <> i.contact_id AND o.line < i.line
  ) i
  WHERE NOT EXISTS (SELECT FROM ${tables.identifier} t WHERE ${columnsEqual('t', 'i', MERGE_RULES.identifier.key)})
  GROUP BY project_id, key ORDER BY project_id, key`

const queriesOf = (stored: Stored) => ({
  projectChecks: projectChecks(stored),
  missingProjectChecks: [...projectChecks(stored), ...indirectProjectChecks(stored)],
  checks: checks(stored),
  typeMismatches: typeMismatches(stored),
})
const QUERIES_IN_PLACE = queriesOf(IN_PLACE)
const QUERIES_OF_COPIES = queriesOf(COPIED)

/** What a merge reads: all rows of the stage, either held or in its tables. */
export interface Staged {
  /** How many rows of each kind there are. */
  counts: Record<StagedKind, number>
  held: StagedRows | undefined
}

interface Statement {
  sql: string
  values?: unknown[]
  /** What it is called; without it, as its step. */
  query?: string
  onResult?: (result: pg.QueryResult) => void
}

/** The table of the rows of a kind that are to be written. */
const rowsToWrite = (kind: StagedKind) => (kind === 'event' ? NUMBERED_EVENTS : mergedTable(kind))

/** The names under which the statements of small merges are prepared, of which there are few. */
const names = new Map<string, string>()

function nameOf(query: string, sql: string): string {
  const name = names.get(sql) ?? `${query}_${names.size}`
  names.set(sql, name)
  return name
}

/**
 * Takes the lock that recording events takes, too (docs/semantics.md#concurrency). New projects are inserted before, so
 * that of two imports of one new project the second waits there and sees everything of the first from then on. Both
 * steps go in the order of the ids, so that imports cannot deadlock, unless one repeats them since a project was deleted.
 */
const LOCK_PROJECTS = `SELECT count(*) = (SELECT count(*) FROM ${AFFECTED_PROJECTS}) AS all_locked FROM (
    SELECT project_id FROM projects WHERE project_id IN (SELECT project_id FROM ${AFFECTED_PROJECTS})
    ORDER BY project_id FOR NO KEY UPDATE
  ) locked`

/** The same for one project, of whose row a Citus cluster asks one shard. */
const LOCK_PROJECT = 'SELECT FROM projects WHERE project_id = $1 FOR NO KEY UPDATE'

/**
 * Merges the rows of a {@link Stage} into the target tables, in the client's open transaction.
 *
 * Many rows are merged in chunks, planned with statistics of the staged rows. For a few, planning would take longer than the
 * work: the same statements are prepared once on each connection, and rows that the stage holds are their parameters.
 */
export class Merge {
  readonly #client: pg.ClientBase
  readonly #stored: Stored
  readonly #queries: ReturnType<typeof queriesOf>
  readonly #rows: Record<StagedKind, number>
  readonly #expressions: RowExpressions | undefined
  /** The kinds that have rows. */
  readonly #kinds: StagedKind[]
  /** Whether there are few rows, of which the planner needs no statistics. */
  readonly isSmall: boolean
  readonly #now: Date
  readonly #chunk_pages: number
  readonly #onStep: (step: string, mergedLines: number) => void
  /** Until duplicates are found, every row counts as a record. */
  readonly #counts: Record<StagedKind, MergeCounts>
  #mergedLines = 0
  /** Those that the lines belong to, in the order of their ids; known if rows are copied. */
  #projects: string[] = []
  /** How many rows each table of copies has. */
  readonly #copied: Record<string, number> = {}
  /** What the statements of the step are called. */
  #query = ''
  /** Known once the merge has run. */
  typeMismatches: TypeMismatch[] = []

  /**
   * @param stored where the client's database has what is stored
   * @param onStep called at each step with its name and how many lines are merged so far
   */
  constructor(
    client: pg.ClientBase,
    stored: Stored,
    { counts, held }: Staged,
    now: Date,
    { chunk_pages, small_rows }: MergeSizes,
    onStep: (step: string, mergedLines: number) => void,
  ) {
    this.#client = client
    this.#stored = stored
    this.#queries = stored.isCopied ? QUERIES_OF_COPIES : QUERIES_IN_PLACE
    this.#rows = counts
    this.#expressions = held && new RowExpressions(held)
    this.#kinds = STAGED_KINDS.filter((kind) => counts[kind] > 0)
    const rows = STAGED_KINDS.reduce((sum, kind) => sum + counts[kind], 0)
    this.isSmall = stored.isCopied ? rows <= small_rows : held !== undefined
    this.#counts = Object.fromEntries(
      STAGED_KINDS.map((kind) => [
        kind,
        { records: this.#expressions?.count(kind) ?? counts[kind], added: 0, updated: 0 },
      ]),
    ) as Record<StagedKind, MergeCounts>
    this.#now = now
    this.#chunk_pages = chunk_pages
    this.#onStep = onStep
  }

  /** @throws ImportConflict for the first line that contradicts an earlier line or what is stored */
  async run(): Promise<Record<StagedKind, MergeCounts>> {
    // In the order of the checks: the first one counts for a line.
    const issues: ImportIssue[] = []
    let checked = 0
    const findIssues = (checks: Check[]) => {
      const first = checked
      checked += checks.length
      return this.#firstIssues(checks, (issue, check) => {
        issues[first + check] = issue
      })
    }

    if (!this.#expressions) await this.#deduplicate()
    this.#step('locking projects')
    let areLocked = false
    while (!areLocked && issues.length === 0) {
      if (this.#rows.project > 0) {
        await this.#run([...this.#copyProjects(), ...findIssues(this.#queries.projectChecks)])
        await this.#run(await this.#insertProjects())
      }
      areLocked = await this.#lockProjects()
      // A project that could not be locked never existed or was deleted meanwhile: unless a line creates it, that is an issue.
      if (!areLocked) await this.#run([...this.#copyProjects(), ...findIssues(this.#queries.missingProjectChecks)])
    }
    this.#step('checking')
    await this.#run([
      ...this.#copyProjects(),
      ...this.#copyStored(),
      ...findIssues(this.#queries.checks),
      ...this.#findTypeMismatches(),
    ])
    const issue = issues.reduce<ImportIssue | undefined>(earlierIssue, undefined)
    if (issue) throw new ImportConflict(issue)
    const writes: Statement[] = []
    for (const kind of this.#kinds) {
      writes.push(...(await this.#writesOf(kind)))
      // Those that wait for no result of an earlier one take one round trip.
      if (!this.#expressions) await this.#run(writes.splice(0))
    }
    await this.#run(writes)
    return this.#counts
  }

  #step(step: string): void {
    this.#query = `merge_${step.replace(' ', '_')}`
    this.#onStep(step, Math.round(this.#mergedLines))
  }

  /** Runs statements in their order: those of a small merge in one round trip if the connection can. */
  async #run(statements: Statement[]): Promise<void> {
    const step = this.#query
    const run = async ({ sql, values = [], query = step, onResult = () => {} }: Statement) => {
      const statement = this.#expressions?.statement(sql, values) ?? { text: sql, values }
      onResult(
        await timedQuery(this.#client, { ...statement, ...(this.isSmall && { name: nameOf(query, sql) }) }, query),
      )
    }
    if (this.isSmall && isPipelined(this.#client)) await Promise.all(statements.map(run))
    else for (const statement of statements) await run(statement)
  }

  /** Statistics for the planner. */
  #analyze(table: string): Statement[] {
    return this.isSmall ? [] : [{ sql: `ANALYZE ${table}` }]
  }

  #findProjects(): Statement {
    const sql = `SELECT project_id FROM ${AFFECTED_PROJECTS} ORDER BY project_id`
    const onResult = ({ rows }: pg.QueryResult<{ project_id: string }>) => {
      this.#projects = rows.map(({ project_id }) => project_id)
    }
    return { sql, onResult }
  }

  /** The statement for each project, `$1`. */
  #forEachProject(sql: string, onResult: (result: pg.QueryResult) => void = () => {}): Statement[] {
    return this.#projects.map((project_id) => ({ sql, values: [project_id], onResult }))
  }

  /** Copies the projects as they are now. */
  #copyProjects(): Statement[] {
    const { table } = COPY_OF_PROJECTS
    return this.#stored.isCopied ? [{ sql: `DELETE FROM ${table}` }, ...this.#copy(COPY_OF_PROJECTS)] : []
  }

  #copyStored(): Statement[] {
    return this.#stored.isCopied ? COPIES.flatMap((copy) => this.#copy(copy)) : []
  }

  #copy({ table, kinds, sql }: Copy): Statement[] {
    if (!kinds.some((kind) => this.#kinds.includes(kind))) return []
    this.#copied[table] = 0
    const onCopied = ({ rowCount }: pg.QueryResult) => {
      this.#copied[table] = (this.#copied[table] ?? 0) + Number(rowCount)
    }
    return [...this.#forEachProject(sql, onCopied), ...this.#analyze(table)]
  }

  async #insertProjects(): Promise<Statement[]> {
    if (!this.#stored.isCopied) {
      return (await this.#chunksOf(mergedTable('project'))).map((chunk) => this.#insert('project', chunk, true))
    }
    // With RETURNING, since a cluster counts rows in conflict otherwise.
    return this.#forEachProject(
      `${this.#insertFrom('project', `${mergedTable('project')} m WHERE m.project_id = $1`)}
       ON CONFLICT (project_id) DO NOTHING RETURNING project_id`,
      ({ rowCount }) => {
        this.#counts.project.added += Number(rowCount)
      },
    )
  }

  /** @returns whether all are there */
  async #lockProjects(): Promise<boolean> {
    let areLocked = true
    const onLocked = ({ rows: [row] }: pg.QueryResult) => {
      areLocked = row.all_locked
    }
    const onLockedOne = ({ rowCount }: pg.QueryResult) => {
      areLocked &&= rowCount === 1
    }
    await this.#run(
      this.#stored.isCopied
        ? this.#forEachProject(LOCK_PROJECT, onLockedOne)
        : [{ sql: LOCK_PROJECTS, onResult: onLocked }],
    )
    return areLocked
  }

  /** Fills a temporary table by its query. @param onCount called with how many rows it has */
  #fill(table: string, onCount: (rows: number) => void = () => {}): Statement[] {
    const sql = `INSERT INTO ${table} ${filledBy(this.#stored).get(table)}`
    return [{ sql, onResult: ({ rowCount }) => onCount(Number(rowCount)) }, ...this.#analyze(table)]
  }

  /** Fills the tables that the rest reads, with the lines of each record merged. */
  async #deduplicate(): Promise<void> {
    this.#step('deduplicating')
    const mergeLines = (kind: StagedKind) =>
      this.#fill(mergedTable(kind), (rows) => {
        this.#counts[kind].records = rows
      })
    await this.#run([
      ...this.#kinds.flatMap((kind) => this.#analyze(stagedTable(kind))),
      ...this.#kinds.filter((kind) => kind !== 'event').flatMap(mergeLines),
      ...(this.#rows.event > 0 ? this.#summarizeEvents() : []),
      ...this.#fill(AFFECTED_PROJECTS),
      ...(this.#stored.isCopied ? [this.#findProjects()] : []),
    ])
  }

  /** Collects what events refer to, and which events are on several lines. */
  #summarizeEvents(): Statement[] {
    return [
      ...this.#fill(REFERENCED_ENTRIES),
      ...this.#fill(DUPLICATE_EVENTS),
      {
        sql: `SELECT COALESCE(sum(lines - 1), 0)::bigint AS duplicate_lines FROM ${DUPLICATE_EVENTS}`,
        onResult: ({ rows: [row] }) => {
          this.#counts.event.records -= row.duplicate_lines
        },
      },
    ]
  }

  #findTypeMismatches(): Statement[] {
    const onResult = ({ rows }: pg.QueryResult<TypeMismatch>) => {
      this.typeMismatches = rows
    }
    return this.#rows.identifier > 0 ? [{ sql: this.#queries.typeMismatches, onResult }] : []
  }

  /** Finds the issue on the first line of each check, by a statement for each kind of row. */
  #firstIssues(checks: Check[], onIssue: (issue: ImportIssue, check: number) => void): Statement[] {
    return this.#kinds.flatMap((kind) => {
      const queries = checks.flatMap(({ sql, ...check }, i) =>
        check.kind === kind ? [`(SELECT ${i} AS check, line, field::text FROM (${sql} LIMIT 1) found)`] : [],
      )
      const onResult = ({ rows }: pg.QueryResult<{ check: number; line: number; field: string }>) => {
        for (const { check, line, field } of rows) {
          onIssue({ line, field, message: (checks[check] as Check).message }, check)
        }
      }
      return queries.length > 0 ? [{ sql: queries.join(' UNION ALL '), onResult }] : []
    })
  }

  /** The statements that write the rows of a kind, which needs those written before. */
  async #writesOf(kind: StagedKind): Promise<Statement[]> {
    this.#step(TARGET_TABLES[kind])
    if (kind === 'event' && !this.#expressions)
      await this.#run([...this.#fill(DERIVED_EVENTS), ...this.#fill(NUMBERED_EVENTS)])
    const mayConflict = this.#expressions !== undefined || (await this.#mayConflict(kind))
    const chunks = await this.#chunksOf(rowsToWrite(kind))
    // Identifiers are on the lines of their contacts.
    const lines = kind === 'identifier' ? 0 : this.#rows[kind]
    const inserts = chunks.map((chunk) => {
      const onInserted = () => {
        this.#mergedLines += lines / chunks.length
        this.#step(TARGET_TABLES[kind])
      }
      return this.#insert(kind, chunk, mayConflict, onInserted)
    })
    const updates = mayConflict ? chunks.flatMap((chunk) => this.#update(kind, chunk)) : []
    const pageViews = kind === 'event' ? await this.#storePageViews() : []
    return [...inserts, ...updates, ...pageViews].map((statement) => ({ ...statement, query: this.#query }))
  }

  async #storePageViews(): Promise<Statement[]> {
    const chunks = await this.#chunksOf(REFERENCED_ENTRIES, 'has_views')
    const entriesOf = (chunk: string) => `SELECT DISTINCT project_id, entry_id FROM ${chunk}`
    return this.#stored.isCopied
      ? chunks.flatMap((chunk) => this.#forEachProject(storePageViews(`${entriesOf(chunk)} AND project_id = $1`, '$1')))
      : chunks.map((chunk) => ({ sql: storePageViews(entriesOf(chunk)) }))
  }

  /**
   * Whether rows to insert may have the key of a stored row or, for events, of each other. If not, they are inserted
   * without the cost of ON CONFLICT.
   */
  async #mayConflict(kind: StagedKind): Promise<boolean> {
    if (kind === 'event' && this.#counts.event.records < this.#rows.event) return true
    if (this.#stored.isCopied) return Number(this.#copied[this.#stored.tables[kind]]) > 0
    // ORDER BY the key makes the planner use its index, however many rows of a project it expects.
    const { rows } = await timedQuery(
      this.#client,
      `SELECT FROM ${AFFECTED_PROJECTS} p WHERE (
         SELECT t.project_id FROM ${TARGET_TABLES[kind]} t WHERE t.project_id = p.project_id
         ORDER BY ${MERGE_RULES[kind].key} LIMIT 1
       ) IS NOT NULL LIMIT 1`,
      this.#query,
    )
    return rows.length > 0
  }

  /** The rows of a table in chunks, each as a FROM clause that names them `m`. */
  async #chunksOf(table: string, condition = 'true'): Promise<string[]> {
    if (this.isSmall) return [`${table} m WHERE ${condition}`]
    const { rows }: pg.QueryResult<{ page: number }> = await timedQuery(
      this.#client,
      `SELECT generate_series(0, pg_relation_size('${table}') / current_setting('block_size')::bigint - 1,
         ${this.#chunk_pages}) AS page`,
      this.#query,
    )
    return rows.map(
      ({ page }) =>
        `${table} m WHERE m.ctid >= '(${page},0)' AND m.ctid < '(${page + this.#chunk_pages},0)' AND ${condition}`,
    )
  }

  #insert(kind: StagedKind, chunk: string, mayConflict: boolean, onInserted: () => void = () => {}): Statement {
    const sql = this.#stored.isCopied
      ? this.#insertFrom(kind, mayConflict ? `${chunk} AND ${this.#isNew(kind)}` : chunk)
      : `${this.#insertFrom(kind, chunk)}
       ${mayConflict ? `ON CONFLICT (${MERGE_RULES[kind].key}) DO NOTHING` : ''}`
    return {
      sql,
      values: sql.includes('$1') ? [this.#now] : [],
      onResult: ({ rowCount }) => {
        this.#counts[kind].added += Number(rowCount)
        onInserted()
      },
    }
  }

  #insertFrom(kind: StagedKind, chunk: string): string {
    const { defaults, assigned } = MERGE_RULES[kind]
    const given = givenColumns(kind)
    const columns = [...given, ...Object.keys(assigned)]
    const values = [
      ...given.map((column) => (defaults[column] ? `COALESCE(m.${column}, ${defaults[column]})` : `m.${column}`)),
      ...Object.values(assigned),
    ]
    return `INSERT INTO ${TARGET_TABLES[kind]} (${columns}) SELECT ${values} FROM ${chunk}`
  }

  /**
   * The condition that a row is neither stored nor, for events, on an earlier line, while the projects are locked. It takes the
   * place of ON CONFLICT on a Citus cluster, which would count rows in conflict as inserted.
   */
  #isNew(kind: StagedKind): string {
    const { key } = MERGE_RULES[kind]
    const isStored = `SELECT FROM ${this.#stored.tables[kind]} t WHERE ${columnsEqual('t', 'm', key)}`
    const isRepeated = `SELECT FROM ${DUPLICATE_EVENTS} d WHERE ${columnsEqual('d', 'm', key)} AND d.line < m.line`
    return [isStored, ...(kind === 'event' ? [isRepeated] : [])].map((query) => `NOT EXISTS (${query})`).join(' AND ')
  }

  /** Updates the stored records that differ from what the lines say; those just inserted do not. */
  #update(kind: StagedKind, chunk: string): Statement[] {
    const { key, fillable, lastWins } = MERGE_RULES[kind]
    const columns = [...fillable, ...lastWins]
    if (columns.length === 0) return []
    const values = [
      ...fillable.map((column) => `COALESCE(t.${column}, m.${column})`),
      ...lastWins.map((column) => `COALESCE(m.${column}, t.${column})`),
    ]
    const update = `UPDATE ${TARGET_TABLES[kind]} t SET ${columns.map((column, i) => `${column} = ${values[i]}`)}`
    const differs = `${columnsEqual('t', 'm', key)}
         AND (${columns.map((c, i) => `t.${c} IS DISTINCT FROM ${values[i]}`).join(' OR ')})`
    const onResult = ({ rowCount }: pg.QueryResult) => {
      this.#counts[kind].updated += Number(rowCount)
    }
    if (!this.#stored.isCopied) return [{ sql: `${update}\n       FROM ${chunk} AND ${differs}`, onResult }]
    const changed = `SELECT m.* FROM ${this.#stored.tables[kind]} t, ${chunk} AND m.project_id = $1 AND ${differs}`
    return this.#forEachProject(
      `WITH m AS MATERIALIZED (${changed}) ${update} FROM m WHERE t.project_id = $1 AND ${columnsEqual('t', 'm', key)}`,
      onResult,
    )
  }
}
