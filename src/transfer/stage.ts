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

/** What is staged apart: the records by type, and the identifiers that stand in contacts. */
export type Staged = RecordType | 'identifier'

/** The table that each kind ends in. Its staged rows lie in a temporary table of the same columns and some more. */
export const TABLES: Record<Staged, string> = {
  project: 'projects',
  group: 'groups',
  module: 'modules',
  module_version: 'module_versions',
  contact: 'contacts',
  identifier: 'contact_identifiers',
  entry: 'entries',
  event: 'events',
}

export const KINDS = Object.keys(TABLES) as Staged[]

/** Columns that only the staged rows have; all have `line`. */
const STAGED_ONLY: Partial<Record<Staged, Record<string, string>>> = {
  // The place in the line's array, and the contact whose id the identifier says to be.
  identifier: { place: 'integer', claimed_contact_id: 'text COLLATE "C"' },
  // Null in a derived column may mean "derive it" or "unknown".
  event: { max_page_given: 'boolean', total_pages_given: 'boolean' },
}

/** The temporary table that holds what was read, a row a line (of identifiers: several). */
export const stagedTable = (kind: Staged) => `imported_${TABLES[kind]}`

/** How many characters of rows are gathered before they are sent. */
const BATCH_characters = 256 * 1024

/** The columns of the staged rows besides `line`. */
const COLUMNS: Record<Staged, string[]> = {
  ...(Object.fromEntries(RECORD_TYPES.map((type) => [type, Object.keys(FIELDS[type])])) as Record<
    RecordType,
    string[]
  >),
  contact: ['project_id', 'contact_id', 'created_at'],
  identifier: ['project_id', 'contact_id', 'key', 'value', 'digest', 'place', 'claimed_contact_id'],
  event: [...Object.keys(FIELDS.event), 'max_page_given', 'total_pages_given'],
}

const SPECIAL = /[\\\t\n\r]/
const ESCAPES: Record<string, string> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' }

/** A value in the text format of COPY. */
function encode(value: unknown): string {
  if (value === undefined || value === null) return '\\N'
  const text = String(value)
  return SPECIAL.test(text) ? text.replace(/[\\\t\n\r]/g, (special) => ESCAPES[special] as string) : text
}

/**
 * Loads records into temporary tables, which last until the transaction ends. A connection does one COPY at a time,
 * and records may come in any order: so rows are gathered by kind and sent in small batches, each a COPY of its own.
 */
export class Stage {
  /** How many rows of each kind were added. */
  readonly rows = Object.fromEntries(KINDS.map((kind) => [kind, 0])) as Record<Staged, number>
  readonly #client: pg.PoolClient
  readonly #batches = Object.fromEntries(KINDS.map((kind) => [kind, ''])) as Record<Staged, string>
  #sending: Promise<void> = Promise.resolve()

  constructor(client: pg.PoolClient) {
    this.#client = client
  }

  /** Makes the temporary tables. A transaction must be open. */
  async create(): Promise<void> {
    for (const kind of KINDS) {
      const extra = Object.entries(STAGED_ONLY[kind] ?? {}).map(([name, type]) => `, NULL::${type} AS ${name}`)
      await this.#client.query(
        `CREATE TEMPORARY TABLE ${stagedTable(kind)} ON COMMIT DROP AS
         SELECT 0::bigint AS line, t.*${extra.join('')} FROM ${TABLES[kind]} t WITH NO DATA`,
      )
    }
  }

  /** Takes a record in. @returns a promise to wait for before the next call, when a batch is on its way */
  add(record: ImportRecord, line: number): Promise<void> | undefined {
    if (record.type === 'contact') for (const row of identifierRows(record)) this.#addRow('identifier', row, line)
    this.#addRow(record.type, record.type === 'event' ? eventRow(record) : record, line)
    return this.#sendFull('identifier') ?? this.#sendFull(record.type)
  }

  /** Sends what is left and waits until all has arrived. */
  async finish(): Promise<void> {
    for (const kind of KINDS) await this.#send(kind)
    await this.#sending
  }

  #addRow(kind: Staged, row: object, line: number): void {
    const values = row as Record<string, unknown>
    let text = String(line)
    for (const column of COLUMNS[kind]) text += `\t${encode(values[column])}`
    this.rows[kind] += 1
    this.#batches[kind] += `${text}\n`
  }

  #sendFull(kind: Staged): Promise<void> | undefined {
    return this.#batches[kind].length >= BATCH_characters ? this.#send(kind) : undefined
  }

  /** Waits for the batch before this one only, so that reading goes on while a batch is on its way. */
  async #send(kind: Staged): Promise<void> {
    const rows = this.#batches[kind]
    if (rows === '') return
    this.#batches[kind] = ''
    await this.#sending
    this.#sending = this.#copy(kind, rows)
    // Its failure is met by whoever waits for it next.
    this.#sending.catch(() => {})
  }

  async #copy(kind: Staged, rows: string): Promise<void> {
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
  identifiers.map(({ key, value, canonical }, place) => ({
    project_id,
    contact_id,
    key,
    value,
    digest: `\\x${identifierDigest(key, canonical).toString('hex')}`,
    place,
    claimed_contact_id: contactIdOf({ key, canonical }),
  }))
