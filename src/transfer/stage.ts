import { finished } from 'node:stream/promises'
import type pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { contactIdOf, identifierDigest } from '../domain/identifier.ts'
import {
  type ContactRecord,
  type EventRecord,
  FIELDS,
  type ImportRecord,
  RECORD_TYPES,
  type RecordType,
} from './records.ts'

/** What has a staging table of its own: each type of record, and the identifiers that contact records contain. */
export type StagedKind = RecordType | 'identifier'

/** The table that each kind is stored in. Its staging table has the same columns and a few more. */
export const TARGET_TABLES: Record<StagedKind, string> = {
  project: 'projects',
  group: 'groups',
  module: 'modules',
  module_version: 'module_versions',
  contact: 'contacts',
  identifier: 'contact_identifiers',
  entry: 'entries',
  event: 'events',
}

export const STAGED_KINDS = Object.keys(TARGET_TABLES) as StagedKind[]

/** Columns that only the staging tables have, by type, besides `line`, which all of them have. */
const STAGING_COLUMNS: Partial<Record<StagedKind, Record<string, string>>> = {
  // The index in the line's array, and the contact id that the identifier holds, if its key is `contact_id`.
  identifier: { ordinal: 'integer', claimed_contact_id: 'text COLLATE "C"' },
  // They record whether null in a derived column means "derive it" (not given) or "unknown" (given).
  event: { max_page_given: 'boolean', total_pages_given: 'boolean' },
}

/** The temporary table of the rows as they were read: one per line, or one per identifier of the line. */
export const stagedTable = (kind: StagedKind) => `staged_${TARGET_TABLES[kind]}`

/** The columns that are filled from a record; `line` comes before them. */
const COLUMNS: Record<StagedKind, string[]> = {
  ...(Object.fromEntries(RECORD_TYPES.map((type) => [type, Object.keys(FIELDS[type])])) as Record<
    RecordType,
    string[]
  >),
  contact: ['project_id', 'contact_id', 'created_at'],
  identifier: ['project_id', 'contact_id', 'key', 'value', 'digest', 'ordinal', 'claimed_contact_id'],
  event: [...Object.keys(FIELDS.event), 'max_page_given', 'total_pages_given'],
}

const SPECIAL = /[\\\t\n\r]/
const ESCAPES: Record<string, string> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' }

/** A value in COPY's text format. */
function encode(value: unknown): string {
  if (value === undefined || value === null) return '\\N'
  const text = String(value)
  return SPECIAL.test(text) ? text.replace(/[\\\t\n\r]/g, (special) => ESCAPES[special] as string) : text
}

/**
 * Loads records into temporary tables, which last until the transaction ends (ADR 0012). A connection runs one COPY at
 * a time, and the types of records may be mixed: so rows are buffered by kind and sent in batches, each its own COPY.
 */
export class Stage {
  /** How many rows of each kind were added. */
  readonly rows = Object.fromEntries(STAGED_KINDS.map((kind) => [kind, 0])) as Record<StagedKind, number>
  readonly #client: pg.PoolClient
  readonly #batch_characters: number
  readonly #batches = Object.fromEntries(STAGED_KINDS.map((kind) => [kind, ''])) as Record<StagedKind, string>
  #sending: Promise<void> = Promise.resolve()

  /** @param batch_characters how many characters of rows are buffered before they are sent */
  constructor(client: pg.PoolClient, batch_characters: number) {
    this.#client = client
    this.#batch_characters = batch_characters
  }

  /** Creates the temporary tables. A transaction must be open. */
  async createTables(): Promise<void> {
    for (const kind of STAGED_KINDS) {
      const extra = Object.entries(STAGING_COLUMNS[kind] ?? {}).map(([name, type]) => `, NULL::${type} AS ${name}`)
      await this.#client.query(
        `CREATE TEMPORARY TABLE ${stagedTable(kind)} ON COMMIT DROP AS
         SELECT 0::bigint AS line, t.*${extra.join('')} FROM ${TARGET_TABLES[kind]} t WITH NO DATA`,
      )
    }
  }

  /** Adds a record. @returns a promise to await before the next call, when a batch is being sent */
  add(record: ImportRecord, line: number): Promise<void> | undefined {
    if (record.type === 'contact') for (const row of identifierRows(record)) this.#addRow('identifier', row, line)
    this.#addRow(record.type, record.type === 'event' ? eventRow(record) : record, line)
    return this.#sendFull('identifier') ?? this.#sendFull(record.type)
  }

  /** Sends the remaining rows and waits until PostgreSQL has stored all of them. */
  async finish(): Promise<void> {
    for (const kind of STAGED_KINDS) await this.#send(kind)
    await this.#sending
  }

  #addRow(kind: StagedKind, row: object, line: number): void {
    const values = row as Record<string, unknown>
    let text = String(line)
    for (const column of COLUMNS[kind]) text += `\t${encode(values[column])}`
    this.rows[kind] += 1
    this.#batches[kind] += `${text}\n`
  }

  #sendFull(kind: StagedKind): Promise<void> | undefined {
    return this.#batches[kind].length >= this.#batch_characters ? this.#send(kind) : undefined
  }

  /** Waits only for the previous batch, so that reading continues while a batch is being sent. */
  async #send(kind: StagedKind): Promise<void> {
    const rows = this.#batches[kind]
    if (rows === '') return
    this.#batches[kind] = ''
    await this.#sending
    this.#sending = this.#copy(kind, rows)
    // A failure is reported where the promise is awaited next.
    this.#sending.catch(() => {})
  }

  async #copy(kind: StagedKind, rows: string): Promise<void> {
    const copy = this.#client.query(
      copyFrom(`COPY ${stagedTable(kind)} (line, ${COLUMNS[kind].join(', ')}) FROM STDIN`),
    )
    copy.end(Buffer.from(rows))
    await finished(copy)
  }
}

const eventRow = (event: EventRecord) => ({
  ...event,
  max_page_given: event.max_page_index !== undefined,
  total_pages_given: event.total_pages !== undefined,
})

const identifierRows = ({ project_id, contact_id, identifiers }: ContactRecord) =>
  identifiers.map(({ key, value, canonical }, ordinal) => ({
    project_id,
    contact_id,
    key,
    value,
    digest: `\\x${identifierDigest(key, canonical).toString('hex')}`,
    ordinal,
    claimed_contact_id: contactIdOf({ key, canonical }),
  }))
