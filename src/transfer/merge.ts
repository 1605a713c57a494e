import type pg from 'pg'
import { PAGE_VIEWED } from '../domain/event.ts'
import { CHECKS, type Check, earlierIssue, PROJECT_CHECKS } from './checks.ts'
import { DERIVE_EVENTS, IS_COMPLETE, NUMBER_EVENTS } from './derive-events.ts'
import { ImportError, type ImportIssue } from './issues.ts'
import {
  AFFECTED_PROJECTS,
  columnsEqual,
  DUPLICATE_EVENTS,
  MERGE_RULES,
  mergedTable,
  NUMBERED_EVENTS,
  REFERENCED_ENTRIES,
  referencesTable,
} from './merge-rules.ts'
import { storePageViews } from './page-views.ts'
import { STAGED_KINDS, type StagedKind, stagedTable, TARGET_TABLES } from './stage.ts'

/** The counts of one kind of record. */
interface MergeCounts {
  /** How many distinct records are on the lines. */
  records: number
  added: number
  updated: number
}

/** The table of the rows of a kind that are to be written. */
const rowsToWrite = (kind: StagedKind) => (kind === 'event' ? NUMBERED_EVENTS : mergedTable(kind))

/** Merges the rows that a {@link Stage} has loaded into the target tables, in the client's open transaction. */
export class Merge {
  readonly #client: pg.PoolClient
  readonly #rows: Record<StagedKind, number>
  /** The kinds that have rows. */
  readonly #kinds: StagedKind[]
  readonly #now: Date
  readonly #chunk_pages: number
  readonly #onStep: (step: string, mergedLines: number) => void
  /** Until duplicates are found, every row counts as a record. */
  readonly #counts: Record<StagedKind, MergeCounts>
  #mergedLines = 0

  /**
   * @param rows how many rows of each kind are staged
   * @param chunk_pages how many table pages one statement reads its rows from
   * @param onStep called at each step with its name and how many lines are merged so far
   */
  constructor(
    client: pg.PoolClient,
    rows: Record<StagedKind, number>,
    now: Date,
    chunk_pages: number,
    onStep: (step: string, mergedLines: number) => void,
  ) {
    this.#client = client
    this.#rows = rows
    this.#kinds = STAGED_KINDS.filter((kind) => rows[kind] > 0)
    this.#counts = Object.fromEntries(
      STAGED_KINDS.map((kind) => [kind, { records: rows[kind], added: 0, updated: 0 }]),
    ) as Record<StagedKind, MergeCounts>
    this.#now = now
    this.#chunk_pages = chunk_pages
    this.#onStep = onStep
  }

  /** @throws ImportError for the first line that contradicts an earlier line or what is stored */
  async run(): Promise<Record<StagedKind, MergeCounts>> {
    this.#step('deduplicating')
    for (const kind of this.#kinds) await this.#query(`ANALYZE ${stagedTable(kind)}`)
    for (const kind of STAGED_KINDS) if (kind !== 'event') await this.#deduplicate(kind)
    await this.#summarizeEvents()
    await this.#collectProjects()
    this.#step('locking projects')
    const missingProject = await this.#firstIssue(PROJECT_CHECKS)
    for (const chunk of await this.#chunksOf(rowsToWrite('project'))) await this.#insert('project', chunk, true)
    await this.#lockProjects()
    this.#step('checking')
    const issue = earlierIssue(missingProject, await this.#firstIssue(CHECKS))
    if (issue) throw new ImportError(issue)
    for (const kind of this.#kinds) await this.#write(kind)
    return this.#counts
  }

  #step(step: string): void {
    this.#onStep(step, Math.round(this.#mergedLines))
  }

  /** @returns the rows, and how many the statement returned or wrote */
  async #query<R extends pg.QueryResultRow>(
    sql: string,
    values: unknown[] = [],
  ): Promise<{ rows: R[]; count: number }> {
    const { rows, rowCount } = await this.#client.query<R>(sql, values)
    return { rows, count: Number(rowCount) }
  }

  /** Creates a temporary table, with statistics for the planner. @returns how many rows it has */
  async #createTable(table: string, query: string): Promise<number> {
    const { count } = await this.#query(`CREATE TEMPORARY TABLE ${table} ON COMMIT DROP AS ${query}`)
    await this.#query(`ANALYZE ${table}`)
    return count
  }

  async #deduplicate(kind: StagedKind): Promise<void> {
    const { key, immutable, firstWins, lastWins } = MERGE_RULES[kind]
    const order = kind === 'identifier' ? 'line, ordinal' : 'line'
    const given = (column: string, sort: string) =>
      `(array_agg(${column} ORDER BY ${sort}) FILTER (WHERE ${column} IS NOT NULL))[1] AS ${column}`
    this.#counts[kind].records = await this.#createTable(
      mergedTable(kind),
      `SELECT ${[
        ...key,
        'min(line) AS line',
        ...[...immutable, ...firstWins].map((column) => given(column, order)),
        ...lastWins.map((column) => given(column, 'line DESC')),
      ]}
       FROM ${stagedTable(kind)} GROUP BY ${key} ORDER BY ${key}`,
    )
  }

  /** Collects what events refer to, and which events are on several lines. */
  async #summarizeEvents(): Promise<void> {
    await this.#createTable(
      REFERENCED_ENTRIES,
      `SELECT project_id, entry_id, module_version_number, min(line) AS line,
         bool_or(NOT (${IS_COMPLETE})) AS incomplete, bool_or(event_type = '${PAGE_VIEWED}') AS has_views
       FROM ${stagedTable('event')} GROUP BY project_id, entry_id, module_version_number`,
    )
    await this.#createTable(
      DUPLICATE_EVENTS,
      `SELECT project_id, event_id, min(line) AS line, count(*) AS lines FROM ${stagedTable('event')}
       GROUP BY project_id, event_id HAVING count(*) > 1`,
    )
    const { rows } = await this.#query<{ duplicate_lines: number }>(
      `SELECT COALESCE(sum(lines - 1), 0)::bigint AS duplicate_lines FROM ${DUPLICATE_EVENTS}`,
    )
    for (const { duplicate_lines } of rows) this.#counts.event.records -= duplicate_lines
  }

  async #collectProjects(): Promise<void> {
    const projects = STAGED_KINDS.map((kind) => `SELECT project_id FROM ${referencesTable(kind)}`)
    await this.#createTable(AFFECTED_PROJECTS, projects.join(' UNION '))
  }

  /**
   * Takes the lock that recording events takes, too (docs/semantics.md#concurrency). New projects are inserted before, so
   * that of two imports of one new project the second waits there and sees everything of the first from then on. Both
   * steps go in the order of the ids, so that imports cannot deadlock.
   */
  async #lockProjects(): Promise<void> {
    await this.#query(
      `SELECT count(*) FROM (
         SELECT project_id FROM projects WHERE project_id IN (SELECT project_id FROM ${AFFECTED_PROJECTS})
         ORDER BY project_id FOR NO KEY UPDATE
       ) locked`,
    )
  }

  /** The issue on the first line; of several on it that of the first check. */
  async #firstIssue(checks: Check[]): Promise<ImportIssue | undefined> {
    let first: ImportIssue | undefined
    for (const { sql, message } of checks.filter((check) => this.#kinds.includes(check.kind))) {
      const { rows } = await this.#query<{ line: number; field: string }>(`${sql} LIMIT 1`)
      first = earlierIssue(first, rows[0] && { ...rows[0], message })
    }
    return first
  }

  async #write(kind: StagedKind): Promise<void> {
    this.#step(TARGET_TABLES[kind])
    if (kind === 'event') {
      await this.#query(DERIVE_EVENTS)
      await this.#query(NUMBER_EVENTS)
    }
    const mayConflict = await this.#mayConflict(kind)
    const chunks = await this.#chunksOf(rowsToWrite(kind))
    // Identifiers are on the lines of their contacts.
    const lines = kind === 'identifier' ? 0 : this.#rows[kind]
    for (const chunk of chunks) {
      await this.#insert(kind, chunk, mayConflict)
      this.#mergedLines += lines / chunks.length
      this.#step(TARGET_TABLES[kind])
    }
    if (mayConflict) for (const chunk of chunks) await this.#update(kind, chunk)
    if (kind === 'event') await this.#storePageViews()
  }

  async #storePageViews(): Promise<void> {
    for (const chunk of await this.#chunksOf(REFERENCED_ENTRIES, 'has_views')) {
      await this.#query(storePageViews(`SELECT DISTINCT project_id, entry_id FROM ${chunk}`))
    }
  }

  /**
   * Whether rows to insert may have the key of a stored row or, for events, of each other. If not, they are inserted
   * without the cost of ON CONFLICT.
   */
  async #mayConflict(kind: StagedKind): Promise<boolean> {
    if (kind === 'event' && this.#counts.event.records < this.#rows.event) return true
    // ORDER BY the key makes the planner use its index, however many rows of a project it expects.
    const { rows } = await this.#query(
      `SELECT FROM ${AFFECTED_PROJECTS} p WHERE (
         SELECT t.project_id FROM ${TARGET_TABLES[kind]} t WHERE t.project_id = p.project_id
         ORDER BY ${MERGE_RULES[kind].key} LIMIT 1
       ) IS NOT NULL LIMIT 1`,
    )
    return rows.length > 0
  }

  /** The rows of a table in chunks, each as a FROM clause that names them `m`. */
  async #chunksOf(table: string, condition = 'true'): Promise<string[]> {
    const { rows } = await this.#query<{ page: number }>(
      `SELECT generate_series(0, pg_relation_size('${table}') / current_setting('block_size')::bigint - 1,
         ${this.#chunk_pages}) AS page`,
    )
    return rows.map(
      ({ page }) =>
        `${table} m WHERE m.ctid >= '(${page},0)' AND m.ctid < '(${page + this.#chunk_pages},0)' AND ${condition}`,
    )
  }

  async #insert(kind: StagedKind, chunk: string, mayConflict: boolean): Promise<void> {
    const { key, immutable, firstWins, lastWins, defaults, assigned } = MERGE_RULES[kind]
    const given = [...key, ...immutable, ...firstWins, ...lastWins]
    const columns = [...given, ...Object.keys(assigned)]
    const values = [
      ...given.map((column) => (defaults[column] ? `COALESCE(m.${column}, ${defaults[column]})` : `m.${column}`)),
      ...Object.values(assigned),
    ]
    const usesNow = values.some((value) => value.includes('$1'))
    const { count } = await this.#query(
      `INSERT INTO ${TARGET_TABLES[kind]} (${columns}) SELECT ${values} FROM ${chunk}
       ${mayConflict ? `ON CONFLICT (${key}) DO NOTHING` : ''}`,
      usesNow ? [this.#now] : [],
    )
    this.#counts[kind].added += count
  }

  /** Updates the stored records that differ from what the lines say; those just inserted do not. */
  async #update(kind: StagedKind, chunk: string): Promise<void> {
    const { key, fillable, lastWins } = MERGE_RULES[kind]
    const columns = [...fillable, ...lastWins]
    if (columns.length === 0) return
    const values = [
      ...fillable.map((column) => `COALESCE(t.${column}, m.${column})`),
      ...lastWins.map((column) => `COALESCE(m.${column}, t.${column})`),
    ]
    const { count } = await this.#query(
      `UPDATE ${TARGET_TABLES[kind]} t SET ${columns.map((column, i) => `${column} = ${values[i]}`)}
       FROM ${chunk} AND ${columnsEqual('t', 'm', key)}
         AND (${columns.map((c, i) => `t.${c} IS DISTINCT FROM ${values[i]}`).join(' OR ')})`,
    )
    this.#counts[kind].updated += count
  }
}
