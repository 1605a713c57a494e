import type pg from 'pg'
import { CHECKS, type Check, earlier, type Fault, PROJECT_CHECKS } from './checks.ts'
import { INSERT_EVENTS } from './insert-events.ts'
import { ImportError } from './lines.ts'
import { type Kind, mergedTable, on, REPEATED_EVENTS, SHAPED, SHAPES } from './shapes.ts'
import { KINDS, type Staged, stagedTable, TABLES } from './stage.ts'

/** What became of the records of one kind. */
export interface Merged {
  /** How many different records the lines were about. */
  records: number
  added: number
  updated: number
}

/** How many rows one statement writes, so that the memory it takes and the wait for the next progress are bounded. */
const CHUNK_rows = 50_000

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
    for (const kind of SHAPED) await this.#gather(kind)
    await this.#gatherRepeatedEvents()
    this.#step('waiting for the projects')
    const withoutProject = await this.#firstFault(PROJECT_CHECKS)
    await this.#insert('project')
    await this.#lockProjects()
    this.#step('checking')
    const fault = earlier(withoutProject, await this.#firstFault(CHECKS))
    if (fault) throw new ImportError(fault.line, fault.field, fault.reason)
    for (const kind of SHAPED) {
      if (this.#rows[kind] === 0) continue
      this.#step(TABLES[kind])
      await this.#insert(kind)
      await this.#update(kind)
      // Identifiers stand on their contacts' lines.
      if (kind !== 'identifier') this.#lines += this.#rows[kind]
    }
    await this.#insertEvents()
    return this.#merged
  }

  #step(step: string): void {
    this.#tell(step, this.#lines)
  }

  async #query<R extends pg.QueryResultRow>(sql: string, values: unknown[] = []): Promise<pg.QueryResult<R>> {
    return this.#client.query<R>(sql, values)
  }

  async #gather(kind: Kind): Promise<void> {
    const { key, fixed, kept, free } = SHAPES[kind]
    const order = kind === 'identifier' ? ['line', 'place'] : ['line']
    const given = (column: string, sort: string) =>
      `(array_agg(${column} ORDER BY ${sort}) FILTER (WHERE ${column} IS NOT NULL))[1] AS ${column}`
    const result = await this.#query(
      `CREATE TEMPORARY TABLE ${mergedTable(kind)} ON COMMIT DROP AS
       SELECT ${[
         ...key,
         'min(line) AS line',
         `row_number() OVER (ORDER BY ${key}) AS position`,
         ...[...fixed, ...kept].map((column) => given(column, order.join(', '))),
         ...free.map((column) => given(column, 'line DESC')),
       ].join(', ')}
       FROM ${stagedTable(kind)} GROUP BY ${key} ORDER BY ${key}`,
    )
    const records = result.rowCount ?? 0
    this.#merged[kind].records = records
    if (records === 0) return
    await this.#query(`CREATE INDEX ON ${mergedTable(kind)} (position)`)
    await this.#query(`ANALYZE ${mergedTable(kind)}`)
  }

  /** Events are merged from where they are staged; all that is gathered is which of them have several lines. */
  async #gatherRepeatedEvents(): Promise<void> {
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

  /**
   * Holds the lock that the recording of events takes too. New projects are inserted before, so that of two imports
   * of one new project the second waits here, and sees all of the first from here on. Both go in the order of the
   * ids, so that they cannot wait for each other.
   */
  async #lockProjects(): Promise<void> {
    const touched = KINDS.filter((kind) => this.#rows[kind] > 0).map((k) => `SELECT project_id FROM ${stagedTable(k)}`)
    if (touched.length === 0) return
    await this.#query(
      `SELECT count(*) FROM (
         SELECT project_id FROM projects WHERE project_id IN (${touched.join(' UNION ')})
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

  async #insert(kind: Kind): Promise<void> {
    const { key, fixed, kept, free, defaults } = SHAPES[kind]
    const columns = [...key, ...fixed, ...kept, ...free]
    const values = columns.map((column) => (defaults[column] ? `COALESCE(${column}, ${defaults[column]})` : column))
    const usesNow = Object.values(defaults).includes('$1')
    for (let position = 0; position < this.#merged[kind].records; position += CHUNK_rows) {
      const result = await this.#query(
        `INSERT INTO ${TABLES[kind]} (${columns})
         SELECT ${values} FROM ${mergedTable(kind)}
         WHERE position > ${position} AND position <= ${position + CHUNK_rows} ORDER BY position
         ON CONFLICT DO NOTHING`,
        usesNow ? [this.#now] : [],
      )
      this.#merged[kind].added += result.rowCount ?? 0
    }
  }

  /** Changes the stored records that the lines say something new about; just inserted ones are as the lines say. */
  async #update(kind: Kind): Promise<void> {
    const { key, fillable, free } = SHAPES[kind]
    const columns = [...fillable, ...free]
    if (columns.length === 0) return
    const values = [
      ...fillable.map((column) => `COALESCE(t.${column}, m.${column})`),
      ...free.map((column) => `COALESCE(m.${column}, t.${column})`),
    ]
    for (let position = 0; position < this.#merged[kind].records; position += CHUNK_rows) {
      const result = await this.#query(
        `UPDATE ${TABLES[kind]} t SET ${columns.map((column, i) => `${column} = ${values[i]}`)}
         FROM ${mergedTable(kind)} m
         WHERE ${on('t', 'm', key)} AND (${columns.map((c, i) => `t.${c} IS DISTINCT FROM ${values[i]}`).join(' OR ')})
           AND m.position > ${position} AND m.position <= ${position + CHUNK_rows}`,
      )
      this.#merged[kind].updated += result.rowCount ?? 0
    }
  }

  /** Inserts the events that are not stored yet, those of about CHUNK_rows rows' entries at a time. */
  async #insertEvents(): Promise<void> {
    if (this.#rows.event === 0) return
    this.#step(TABLES.event)
    await this.#query(`CREATE INDEX ON ${stagedTable('event')} (project_id, entry_id)`)
    let after = ['', '']
    for (let last = await this.#lastOfNext(after); last; last = await this.#lastOfNext(after)) {
      const upto = [last.project_id, last.entry_id]
      const inserted = await this.#query(INSERT_EVENTS, [...after, ...upto])
      this.#merged.event.added += inserted.rowCount ?? 0
      this.#lines += last.rows
      after = upto
      this.#step(TABLES.event)
    }
  }

  /** The last of the entries that the next CHUNK_rows rows belong to, and how many rows up to it are left. */
  async #lastOfNext(after: string[]): Promise<{ project_id: string; entry_id: string; rows: number } | undefined> {
    const { rows } = await this.#query<{ project_id: string; entry_id: string; rows: number }>(
      `SELECT last.project_id, last.entry_id, (
         SELECT count(*) FROM ${stagedTable('event')} i
         WHERE (i.project_id, i.entry_id) > ($1, $2) AND (i.project_id, i.entry_id) <= (last.project_id, last.entry_id)
       ) AS rows
       FROM (
         SELECT project_id, entry_id FROM ${stagedTable('event')} WHERE (project_id, entry_id) > ($1, $2)
         ORDER BY project_id, entry_id LIMIT ${CHUNK_rows}
       ) last ORDER BY project_id DESC, entry_id DESC LIMIT 1`,
      after,
    )
    return rows[0]
  }
}
