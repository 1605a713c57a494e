import type pg from 'pg'
import { CHECKS, type Check, earlier, type Fault, PROJECT_CHECKS } from './checks.ts'
import { COMPLETE, DERIVE_EVENTS } from './derive-events.ts'
import { ImportError } from './lines.ts'
import {
  DERIVED_EVENTS,
  mergedTable,
  NAMED_ENTRIES,
  namingTable,
  on,
  REPEATED_EVENTS,
  SHAPES,
  TOUCHED_PROJECTS,
} from './merge-rules.ts'
import { KINDS, type Staged, stagedTable, TABLES } from './stage.ts'

/** What became of the records of one kind. */
export interface Merged {
  /** How many different records the lines were about. */
  records: number
  added: number
  updated: number
}

/**
 * How many pages of 8 KiB one statement reads its rows from, so that the memory that it takes for what it writes and
 * the wait for the next progress are bounded.
 */
const CHUNK_pages = 1000

/** Merges what a {@link Stage} has loaded into the real tables, in the transaction that is open on the client. */
export class Merge {
  readonly #client: pg.PoolClient
  readonly #rows: Record<Staged, number>
  readonly #now: Date
  readonly #tell: (step: string, lines: number) => void
  readonly #merged = Object.fromEntries(KINDS.map((kind) => [kind, { records: 0, added: 0, updated: 0 }])) as Record<
    Staged,
    Merged
  >

  /** How many lines' records are merged. */
  #lines = 0

  /**
   * @param rows how many rows of each kind are staged
   * @param tell told at each step what comes next and how many lines are merged
   */
  constructor(
    client: pg.PoolClient,
    rows: Record<Staged, number>,
    now: Date,
    tell: (step: string, lines: number) => void,
  ) {
    this.#client = client
    this.#rows = rows
    this.#now = now
    this.#tell = tell
  }

  /** @throws ImportError for the first line that contradicts an earlier line or what is stored */
  async run(): Promise<Record<Staged, Merged>> {
    this.#step('gathering')
    for (const kind of KINDS) if (this.#rows[kind] > 0) await this.#query(`ANALYZE ${stagedTable(kind)}`)
    for (const kind of KINDS) if (kind !== 'event') await this.#gather(kind)
    await this.#gatherEvents()
    await this.#gatherProjects()
    this.#step('waiting for the projects')
    const withoutProject = await this.#firstFault(PROJECT_CHECKS)
    for (const chunk of await this.#chunks('project')) await this.#insert('project', chunk, true)
    await this.#lockProjects()
    this.#step('checking')
    const fault = earlier(withoutProject, await this.#firstFault(CHECKS))
    if (fault) throw new ImportError(fault.line, fault.field, fault.reason)
    for (const kind of KINDS) if (this.#rows[kind] > 0) await this.#merge(kind)
    return this.#merged
  }

  #step(step: string): void {
    this.#tell(step, Math.round(this.#lines))
  }

  async #query<R extends pg.QueryResultRow>(sql: string, values: unknown[] = []): Promise<pg.QueryResult<R>> {
    return this.#client.query<R>(sql, values)
  }

  async #gather(kind: Staged): Promise<void> {
    const { key, fixed, kept, free } = SHAPES[kind]
    const order = kind === 'identifier' ? ['line', 'place'] : ['line']
    const given = (column: string, sort: string) =>
      `(array_agg(${column} ORDER BY ${sort}) FILTER (WHERE ${column} IS NOT NULL))[1] AS ${column}`
    const result = await this.#query(
      `CREATE TEMPORARY TABLE ${mergedTable(kind)} ON COMMIT DROP AS
       SELECT ${[
         ...key,
         'min(line) AS line',
         ...[...fixed, ...kept].map((column) => given(column, order.join(', '))),
         ...free.map((column) => given(column, 'line DESC')),
       ].join(', ')}
       FROM ${stagedTable(kind)} GROUP BY ${key} ORDER BY ${key}`,
    )
    this.#merged[kind].records = result.rowCount ?? 0
    if (this.#merged[kind].records > 0) await this.#query(`ANALYZE ${mergedTable(kind)}`)
  }

  /** Events are merged from their lines; all that is gathered is what they name, and which of them have several lines. */
  async #gatherEvents(): Promise<void> {
    await this.#query(
      `CREATE TEMPORARY TABLE ${NAMED_ENTRIES} ON COMMIT DROP AS
       SELECT project_id, entry_id, module_version_number, min(line) AS line, bool_or(NOT (${COMPLETE})) AS incomplete
       FROM ${stagedTable('event')} GROUP BY project_id, entry_id, module_version_number`,
    )
    await this.#query(`ANALYZE ${NAMED_ENTRIES}`)
    await this.#query(
      `CREATE TEMPORARY TABLE ${REPEATED_EVENTS} ON COMMIT DROP AS
       SELECT project_id, event_id, min(line) AS line, count(*) AS lines FROM ${stagedTable('event')}
       GROUP BY project_id, event_id HAVING count(*) > 1`,
    )
    await this.#query(`ANALYZE ${REPEATED_EVENTS}`)
    const { rows } = await this.#query<{ repeats: number }>(
      `SELECT COALESCE(sum(lines - 1), 0)::bigint AS repeats FROM ${REPEATED_EVENTS}`,
    )
    this.#merged.event.records = this.#rows.event - (rows[0]?.repeats ?? 0)
  }

  async #gatherProjects(): Promise<void> {
    const touched = KINDS.map((kind) => `SELECT project_id FROM ${namingTable(kind)}`)
    await this.#query(`CREATE TEMPORARY TABLE ${TOUCHED_PROJECTS} ON COMMIT DROP AS ${touched.join(' UNION ')}`)
    await this.#query(`ANALYZE ${TOUCHED_PROJECTS}`)
  }

  /**
   * Holds the lock that the recording of events takes too. New projects are inserted before, so that of two imports
   * of one new project the second waits here, and sees all of the first from here on. Both go in the order of the
   * ids, so that they cannot wait for each other.
   */
  async #lockProjects(): Promise<void> {
    await this.#query(
      `SELECT count(*) FROM (
         SELECT project_id FROM projects WHERE project_id IN (SELECT project_id FROM ${TOUCHED_PROJECTS})
         ORDER BY project_id FOR NO KEY UPDATE
       ) locked`,
    )
  }

  /** The first line that any of the checks finds, the first of the checks where several find it. */
  async #firstFault(checks: Check[]): Promise<Fault | undefined> {
    let first: Fault | undefined
    for (const { kind, sql, reason } of checks) {
      if (this.#rows[kind] === 0) continue
      const { rows } = await this.#query<{ line: number; field: string }>(`${sql} LIMIT 1`)
      first = earlier(first, rows[0] && { ...rows[0], reason })
    }
    return first
  }

  async #merge(kind: Staged): Promise<void> {
    this.#step(TABLES[kind])
    if (kind === 'event') await this.#query(DERIVE_EVENTS)
    const mayClash = await this.#mayClash(kind)
    const chunks = await this.#chunks(kind)
    // Identifiers stand on their contacts' lines.
    const lines = kind === 'identifier' ? 0 : this.#rows[kind]
    for (const chunk of chunks) {
      await this.#insert(kind, chunk, mayClash)
      this.#lines += lines / chunks.length
      this.#step(TABLES[kind])
    }
    if (mayClash) for (const chunk of chunks) await this.#update(kind, chunk)
  }

  /**
   * Whether rows to insert may have the key of a stored one or, of events, of each other. Without that, inserting need
   * not look.
   */
  async #mayClash(kind: Staged): Promise<boolean> {
    if (kind === 'event' && this.#merged.event.records < this.#rows.event) return true
    // In the order of the key, so that its index is read, however many rows of a project are expected.
    const { rows } = await this.#query(
      `SELECT FROM ${TOUCHED_PROJECTS} p WHERE (
         SELECT t.project_id FROM ${TABLES[kind]} t WHERE t.project_id = p.project_id
         ORDER BY ${SHAPES[kind].key.map((column) => `t.${column}`)} LIMIT 1
       ) IS NOT NULL LIMIT 1`,
    )
    return rows.length > 0
  }

  /** The rows to merge, as what follows FROM with `m` as their name, one chunk after the other. */
  async #chunks(kind: Staged): Promise<string[]> {
    if (kind !== 'event') return this.#chunksOf(mergedTable(kind))
    return [...(await this.#chunksOf(stagedTable(kind), COMPLETE)), ...(await this.#chunksOf(DERIVED_EVENTS))]
  }

  async #chunksOf(table: string, condition = 'true'): Promise<string[]> {
    const { rows } = await this.#query<{ page: number }>(
      `SELECT generate_series(0, pg_relation_size('${table}') / current_setting('block_size')::bigint - 1,
         ${CHUNK_pages}) AS page`,
    )
    return rows.map(
      ({ page }) =>
        `${table} m WHERE m.ctid >= '(${page},0)' AND m.ctid < '(${page + CHUNK_pages},0)' AND ${condition}`,
    )
  }

  async #insert(kind: Staged, chunk: string, mayClash: boolean): Promise<void> {
    const { key, fixed, kept, free, defaults } = SHAPES[kind]
    const columns = [...key, ...fixed, ...kept, ...free]
    const values = columns.map((c) => (defaults[c] ? `COALESCE(m.${c}, ${defaults[c]})` : `m.${c}`))
    const usesNow = Object.values(defaults).includes('$1')
    const result = await this.#query(
      `INSERT INTO ${TABLES[kind]} (${columns}) SELECT ${values} FROM ${chunk}
       ${mayClash ? 'ON CONFLICT DO NOTHING' : ''}`,
      usesNow ? [this.#now] : [],
    )
    this.#merged[kind].added += result.rowCount ?? 0
  }

  /** Changes the stored records that the lines say something new about; just inserted ones are as the lines say. */
  async #update(kind: Staged, chunk: string): Promise<void> {
    const { key, fillable, free } = SHAPES[kind]
    const columns = [...fillable, ...free]
    if (columns.length === 0) return
    const values = [
      ...fillable.map((column) => `COALESCE(t.${column}, m.${column})`),
      ...free.map((column) => `COALESCE(m.${column}, t.${column})`),
    ]
    const result = await this.#query(
      `UPDATE ${TABLES[kind]} t SET ${columns.map((column, i) => `${column} = ${values[i]}`)}
       FROM ${chunk} AND ${on('t', 'm', key)}
         AND (${columns.map((c, i) => `t.${c} IS DISTINCT FROM ${values[i]}`).join(' OR ')})`,
    )
    this.#merged[kind].updated += result.rowCount ?? 0
  }
}
