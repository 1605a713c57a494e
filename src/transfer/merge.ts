import type pg from 'pg'
import { CONTACT_ID_KEY } from '../identifier.ts'
import { ImportError } from './lines.ts'
import { FIELDS, PAGE_VIEW } from './records.ts'
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

/** The kinds that are merged alike. Events are not: they are many, never change, and have columns to derive. */
type Kind = Exclude<Staged, 'event'>

interface Shape {
  key: string[]
  /** Columns that keep their first value; a line that says otherwise is refused for `conflict`. */
  fixed: string[]
  conflict: string
  /** Those of the fixed columns that a later line may fill in. */
  fillable: string[]
  /** Columns that keep their first value, whatever later lines say. */
  kept: string[]
  /** Columns that take the last value given. */
  free: string[]
  /** In SQL, what stands in a column of a new record where no line gave it; `$1` is now. */
  defaults: Record<string, string>
  /** What must be stored or on an earlier line: the columns of this kind that hold the parent's key. */
  parents: { kind: Kind; columns: string[] }[]
}

const PLAIN = { fixed: [], conflict: '', fillable: [], kept: [], free: [], defaults: {}, parents: [] }

const SHAPES: Record<Kind, Shape> = {
  project: { ...PLAIN, key: ['project_id'], free: ['name'], defaults: { name: 'project_id' } },
  group: {
    ...PLAIN,
    key: ['project_id', 'group_id'],
    free: ['name'],
    defaults: { name: 'group_id' },
    parents: [{ kind: 'project', columns: ['project_id'] }],
  },
  module: {
    ...PLAIN,
    key: ['project_id', 'module_id'],
    free: ['group_id', 'title', 'created_at'],
    defaults: { created_at: '$1' },
    parents: [
      { kind: 'project', columns: ['project_id'] },
      { kind: 'group', columns: ['project_id', 'group_id'] },
    ],
  },
  module_version: {
    ...PLAIN,
    key: ['project_id', 'module_id', 'version_number'],
    fixed: ['saved_at', 'published_at', 'json_string'],
    conflict: 'a saved version cannot change',
    fillable: ['published_at'],
    parents: [{ kind: 'module', columns: ['project_id', 'module_id'] }],
  },
  contact: {
    ...PLAIN,
    key: ['project_id', 'contact_id'],
    free: ['created_at'],
    defaults: { created_at: '$1' },
    parents: [{ kind: 'project', columns: ['project_id'] }],
  },
  identifier: {
    ...PLAIN,
    key: ['project_id', 'digest'],
    fixed: ['contact_id'],
    conflict: 'the identifier belongs to another contact',
    kept: ['key', 'value'],
  },
  entry: {
    ...PLAIN,
    key: ['project_id', 'entry_id'],
    fixed: ['module_id', 'contact_id'],
    conflict: "an entry's module and contact cannot change",
    free: ['created_at', 'updated_at', 'entry_data'],
    defaults: { created_at: '$1', entry_data: "'{}'" },
    parents: [
      { kind: 'module', columns: ['project_id', 'module_id'] },
      { kind: 'contact', columns: ['project_id', 'contact_id'] },
    ],
  },
}

const SHAPED = Object.keys(SHAPES) as Kind[]

/** The temporary table that holds one row a record: the line it first stands on, and what its lines say together. */
const mergedTable = (kind: Kind) => `merged_${TABLES[kind]}`

const on = (left: string, right: string, columns: string[], others: string[] = columns) =>
  columns.map((column, i) => `${left}.${column} = ${right}.${others[i]}`).join(' AND ')

/** Merges what a {@link Stage} has loaded into the real tables, in the transaction that is open on the client. */
export class Merge {
  readonly #client: pg.PoolClient
  readonly #rows: Record<Staged, number>
  readonly #now: Date
  readonly #onStep: (step: string) => void
  readonly #merged = Object.fromEntries(KINDS.map((kind) => [kind, { records: 0, added: 0, updated: 0 }])) as Record<
    Staged,
    Merged
  >

  /** @param rows how many rows of each kind are staged */
  constructor(client: pg.PoolClient, rows: Record<Staged, number>, now: Date, onStep: (step: string) => void) {
    this.#client = client
    this.#rows = rows
    this.#now = now
    this.#onStep = onStep
  }

  /** @throws ImportError for the first line that contradicts an earlier line or what is stored */
  async run(): Promise<Record<Staged, Merged>> {
    this.#onStep('gathering')
    for (const kind of KINDS) if (this.#rows[kind] > 0) await this.#query(`ANALYZE ${stagedTable(kind)}`)
    for (const kind of SHAPED) await this.#gather(kind)
    this.#onStep('waiting for the projects')
    await this.#insert('project')
    await this.#lockProjects()
    this.#onStep('checking')
    await this.#check()
    for (const kind of SHAPED) {
      if (this.#rows[kind] === 0) continue
      this.#onStep(TABLES[kind])
      await this.#insert(kind)
      await this.#update(kind)
    }
    await this.#insertEvents()
    return this.#merged
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

  /** Runs every check and refuses the first line that any of them finds. */
  async #check(): Promise<void> {
    let first: { line: number; field: string; reason: string } | undefined
    for (const { kind, sql, values, reason } of CHECKS) {
      if (this.#rows[kind] === 0) continue
      const { rows } = await this.#query<{ line: number; field: string }>(`${sql} LIMIT 1`, values)
      const found = rows[0]
      if (found && (!first || found.line < first.line)) first = { ...found, reason }
    }
    if (first) throw new ImportError(first.line, first.field, first.reason)
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
    const total = this.#rows.event
    if (total === 0) return
    this.#onStep(TABLES.event)
    await this.#query(`CREATE INDEX ON ${stagedTable('event')} (project_id, entry_id)`)
    let after = ['', '']
    for (let done = 0; done < total; ) {
      const { project_id, entry_id, rows, records } = await this.#nextEntries(after)
      const chunk = [...after, project_id, entry_id]
      const inserted = await this.#query(INSERT_EVENTS, chunk)
      this.#merged.event.records += records
      this.#merged.event.added += inserted.rowCount ?? 0
      done += rows
      after = [project_id, entry_id]
      this.#onStep(`${TABLES.event}: ${done} of ${total}`)
    }
  }

  /** The last of the next entries that have CHUNK_rows rows together, or a few more, and what those rows are. */
  async #nextEntries(
    after: string[],
  ): Promise<{ project_id: string; entry_id: string; rows: number; records: number }> {
    const result = await this.#query<{ project_id: string; entry_id: string; rows: number; records: number }>(
      `WITH last AS (
         SELECT project_id, entry_id FROM (
           SELECT project_id, entry_id FROM ${stagedTable('event')} WHERE (project_id, entry_id) > ($1, $2)
           ORDER BY project_id, entry_id LIMIT ${CHUNK_rows}
         ) rows ORDER BY project_id DESC, entry_id DESC LIMIT 1
       ), records AS (
         SELECT count(*) AS rows FROM ${stagedTable('event')} i
         WHERE (i.project_id, i.entry_id) > ($1, $2)
           AND (i.project_id, i.entry_id) <= ((SELECT project_id FROM last), (SELECT entry_id FROM last))
         GROUP BY i.project_id, i.event_id
       )
       SELECT last.project_id, last.entry_id, sum(records.rows)::bigint AS rows, count(*) AS records
       FROM last, records GROUP BY 1, 2`,
      after,
    )
    return result.rows[0] as (typeof result.rows)[number]
  }
}

interface Check {
  /** The kind that the check reads: without rows of it there is nothing to find. */
  kind: Staged
  /** Selects `line` and `field` of what is wrong, the first line first. */
  sql: string
  values?: unknown[]
  reason: string
}

function missingParent(kind: Kind | 'event', parent: Kind, columns: string[]): Check {
  const { key } = SHAPES[parent]
  return {
    kind,
    reason: `no such ${parent} is stored or on an earlier line`,
    sql: `SELECT i.line, '/${columns.at(-1)}' AS field FROM ${stagedTable(kind)} i
      WHERE NOT EXISTS (SELECT FROM ${TABLES[parent]} p WHERE ${on('p', 'i', key, columns)})
        AND NOT EXISTS (SELECT FROM ${mergedTable(parent)} p WHERE ${on('p', 'i', key, columns)} AND p.line < i.line)
      ORDER BY i.line`,
  }
}

/** The pointer of the first column for which the condition holds, else null. */
const firstField = (columns: string[], condition: (column: string) => string) =>
  `CASE ${columns.map((column) => `WHEN ${condition(column)} THEN '/${column}'`).join(' ')} END`

function changedColumn(kind: Kind): Check {
  const { key, fixed, conflict } = SHAPES[kind]
  const differs = (column: string) => `i.${column} <> COALESCE(t.${column}, m.${column})`
  const field =
    kind === 'identifier'
      ? `CASE WHEN ${differs('contact_id')} THEN '/identifiers/' || i.place END`
      : firstField(fixed, differs)
  return {
    kind,
    reason: `differs from what is stored or on an earlier line: ${conflict}`,
    sql: `SELECT line, field FROM (
        SELECT i.line, ${kind === 'identifier' ? 'i.place' : '0'} AS place, ${field} AS field
        FROM ${stagedTable(kind)} i
        JOIN ${mergedTable(kind)} m ON ${on('m', 'i', key)}
        LEFT JOIN ${TABLES[kind]} t ON ${on('t', 'i', key)}
      ) compared WHERE field IS NOT NULL ORDER BY line, place`,
  }
}

/** A contact is known by the identifier `contact_id` that holds its own id, so no other contact may own that one. */
const CLAIMED = `i.claimed_contact_id IS NOT NULL AND i.claimed_contact_id <> i.contact_id`
const takenId = (contacts: string, condition: string): Check => ({
  kind: 'identifier',
  reason: `is the id of another contact, which alone is known by the identifier ${CONTACT_ID_KEY} with that value`,
  sql: `SELECT i.line, '/identifiers/' || i.place || '/value' AS field FROM ${stagedTable('identifier')} i
    WHERE ${CLAIMED} AND EXISTS (
      SELECT FROM ${contacts} c
      WHERE c.project_id = i.project_id AND c.contact_id = i.claimed_contact_id AND ${condition})
    ORDER BY i.line, i.place`,
})
const claimedId = (claim: string): Check => ({
  kind: 'contact',
  reason: `is the value of the identifier ${CONTACT_ID_KEY} of another contact, so that no contact can have that id`,
  sql: `SELECT m.line, '/contact_id' AS field FROM ${mergedTable('contact')} m
    WHERE NOT EXISTS (SELECT FROM contacts c WHERE c.project_id = m.project_id AND c.contact_id = m.contact_id)
      AND EXISTS (${claim})
    ORDER BY m.line`,
})

const DERIVED = ['module_version_number', 'max_page_id', 'max_page_key', 'max_page_index', 'total_pages']
const CONTENT = Object.keys(FIELDS.event).filter((c) => !DERIVED.includes(c) && !['project_id', 'event_id'].includes(c))
/** For each derived column, whether a staged row gives it. */
const GIVEN: Record<string, string> = {
  module_version_number: 'i.module_version_number IS NOT NULL',
  max_page_id: 'i.max_page_given',
  max_page_key: 'i.max_page_given',
  max_page_index: 'i.max_page_given',
  total_pages: 'i.total_pages_given',
}

const CHECKS: Check[] = [
  ...SHAPED.flatMap((kind) => SHAPES[kind].parents.map((parent) => missingParent(kind, parent.kind, parent.columns))),
  ...SHAPED.filter((kind) => SHAPES[kind].fixed.length > 0).map(changedColumn),
  {
    kind: 'module',
    reason: 'must have a published version, stored or in this file',
    sql: `SELECT m.line, '/module_id' AS field FROM ${mergedTable('module')} m
      WHERE NOT EXISTS (SELECT FROM module_versions v WHERE ${on('v', 'm', ['project_id', 'module_id'])}
          AND v.published_at IS NOT NULL)
        AND NOT EXISTS (SELECT FROM ${mergedTable('module_version')} v
          WHERE ${on('v', 'm', ['project_id', 'module_id'])} AND v.published_at IS NOT NULL)
      ORDER BY m.line`,
  },
  takenId('contacts', 'true'),
  takenId(mergedTable('contact'), 'c.line < i.line'),
  claimedId(`SELECT FROM contact_identifiers s WHERE s.project_id = m.project_id AND s.contact_id <> m.contact_id
    AND s.digest = sha256('\\x${Buffer.from(`${CONTACT_ID_KEY}\0s`).toString('hex')}' || convert_to(m.contact_id, 'UTF8'))`),
  claimedId(`SELECT FROM ${stagedTable('identifier')} i WHERE i.project_id = m.project_id
    AND i.claimed_contact_id = m.contact_id AND i.contact_id <> m.contact_id AND i.line < m.line`),
  missingParent('event', 'entry', ['project_id', 'entry_id']),
  {
    kind: 'event',
    reason: 'no such version of the module is stored or on an earlier line',
    sql: `SELECT i.line, '/module_version_number' AS field FROM ${stagedTable('event')} i
      LEFT JOIN entries e ON ${on('e', 'i', ['project_id', 'entry_id'])}
      LEFT JOIN ${mergedTable('entry')} m ON ${on('m', 'i', ['project_id', 'entry_id'])}
      WHERE i.module_version_number IS NOT NULL
        AND NOT EXISTS (SELECT FROM module_versions v WHERE v.project_id = i.project_id
          AND v.module_id = COALESCE(e.module_id, m.module_id) AND v.version_number = i.module_version_number)
        AND NOT EXISTS (SELECT FROM ${mergedTable('module_version')} v WHERE v.project_id = i.project_id
          AND v.module_id = COALESCE(e.module_id, m.module_id) AND v.version_number = i.module_version_number
          AND v.line < i.line)
      ORDER BY i.line`,
  },
  {
    kind: 'event',
    reason: 'differs from the stored event of this id: an event cannot change',
    sql: `SELECT line, field FROM (
        SELECT i.line, ${firstField([...CONTENT, ...DERIVED], (column) =>
          [GIVEN[column], `i.${column} IS DISTINCT FROM t.${column}`].filter(Boolean).join(' AND '),
        )} AS field
        FROM ${stagedTable('event')} i JOIN events t ON ${on('t', 'i', ['project_id', 'event_id'])}
      ) compared WHERE field IS NOT NULL ORDER BY line`,
  },
  {
    kind: 'event',
    reason: 'differs from an earlier line with the same event_id',
    sql: `SELECT line, field FROM (
        SELECT i.line, ${firstField([...CONTENT, ...DERIVED], (column) =>
          column in GIVEN
            ? `(i.${column}, ${GIVEN[column]}) IS DISTINCT FROM (f.${column}, ${GIVEN[column]?.replace('i.', 'f.')})`
            : `i.${column} IS DISTINCT FROM f.${column}`,
        )} AS field
        FROM (SELECT project_id, event_id, min(line) AS line FROM ${stagedTable('event')}
          GROUP BY project_id, event_id HAVING count(*) > 1) repeated
        JOIN ${stagedTable('event')} f ON f.line = repeated.line
        JOIN ${stagedTable('event')} i ON ${on('i', 'repeated', ['project_id', 'event_id'])}
      ) compared WHERE field IS NOT NULL ORDER BY line`,
  },
]

/** The version in effect: the one last published at or before the event; for an older event the first published. */
const publishedVersion = (condition: string, direction: 'ASC' | 'DESC') => `(
  SELECT v.version_number FROM module_versions v
  WHERE v.project_id = n.project_id AND v.module_id = n.module_id AND ${condition}
  ORDER BY v.published_at ${direction}, v.version_number DESC LIMIT 1)`

/** How the columns are filled that a line may leave out. */
const DERIVATION: Record<string, string> = {
  module_version_number: `COALESCE(d.module_version_number,
    ${publishedVersion('v.published_at <= d."timestamp"', 'DESC')},
    ${publishedVersion('v.published_at IS NOT NULL', 'ASC')})`,
  max_page_id: 'CASE WHEN d.max_page_given THEN d.max_page_id ELSE d.furthest_id END',
  max_page_key: 'CASE WHEN d.max_page_given THEN d.max_page_key ELSE d.furthest_key END',
  max_page_index: 'CASE WHEN d.max_page_given THEN d.max_page_index ELSE d.furthest[1] END',
  total_pages: 'CASE WHEN d.total_pages_given THEN d.total_pages ELSE d.latest[2] END',
}

/**
 * Inserts the staged events of the entries after ($1, $2) up to ($3, $4). What a line leaves out is derived from the
 * page views of the entry, stored ones and those of the file, at or before the event's time: the furthest page is the
 * one of the greatest index, of equal ones the earliest view; the number of pages is that of the latest view that
 * states one. A running maximum finds both: arrays compare item by item, and `place` tells the views of an entry
 * apart. OFFSET 0 keeps the look-ups of single entries from becoming a join with a whole table.
 */
const INSERT_EVENTS = `
  WITH staged AS (
    SELECT * FROM ${stagedTable('event')}
    WHERE (project_id, entry_id) > ($1, $2) AND (project_id, entry_id) <= ($3, $4)
  ), known AS (
    SELECT * FROM staged
    UNION ALL
    SELECT v.* FROM (SELECT DISTINCT project_id, entry_id FROM staged) s
    CROSS JOIN LATERAL (
      SELECT NULL::bigint AS line, e.*, true AS max_page_given, true AS total_pages_given FROM events e
      WHERE ${on('e', 's', ['project_id', 'entry_id'])} AND e.event_type = '${PAGE_VIEW}' OFFSET 0
    ) v
  ), placed AS (
    SELECT *, event_type = '${PAGE_VIEW}' AS is_view,
      row_number() OVER (PARTITION BY project_id, entry_id ORDER BY "timestamp", event_id) AS place
    FROM known
  ), reached AS (
    SELECT *,
      max(ARRAY[page_index, -place]) FILTER (WHERE is_view) OVER so_far AS furthest,
      max(ARRAY[place, total_pages]) FILTER (WHERE is_view AND total_pages_given) OVER so_far AS latest
    FROM placed WINDOW so_far AS (PARTITION BY project_id, entry_id ORDER BY "timestamp")
  ), derived AS (
    SELECT *,
      max(page_id) FILTER (WHERE place = -furthest[2]) OVER same_furthest AS furthest_id,
      max(page_key) FILTER (WHERE place = -furthest[2]) OVER same_furthest AS furthest_key
    FROM reached WINDOW same_furthest AS (PARTITION BY project_id, entry_id, furthest)
  )
  INSERT INTO events (${Object.keys(FIELDS.event).join(', ')})
  SELECT ${Object.keys(FIELDS.event).map((column) => DERIVATION[column] ?? `d.${column}`)}
  FROM derived d
  CROSS JOIN LATERAL (
    SELECT e.project_id, e.module_id FROM entries e WHERE ${on('e', 'd', ['project_id', 'entry_id'])} OFFSET 0
  ) n
  WHERE d.line IS NOT NULL
  ON CONFLICT DO NOTHING`
