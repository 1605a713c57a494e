import { finished } from 'node:stream/promises'
import type pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import { timedQuery } from '../database/timed-query.ts'
import { namesOf, ofOtherType } from '../domain/identifier.ts'
import { isPipelined } from './client.ts'
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

/** The table that each kind is stored in. Its staging table has most of its columns and a few more. */
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
export const STAGING_COLUMNS: Partial<Record<StagedKind, Record<string, string>>> = {
  // The index in the line's array, the contact id that the identifier holds, if its key is `contact_id`, and the digest and
  // the contact id that its text has under another type.
  identifier: {
    ordinal: 'integer',
    claimed_contact_id: 'text COLLATE "C"',
    other_type_digest: 'bytea',
    other_type_contact_id: 'text COLLATE "C"',
  },
  // They record whether null in a derived column means "derive it" (not given) or "unknown" (given).
  event: { max_page_given: 'boolean', total_pages_given: 'boolean' },
}

/** The temporary table of the rows as they were read: one per line, or one per identifier of the line. */
export const stagedTable = (kind: StagedKind) => `staged_${TARGET_TABLES[kind]}`

/** The columns that are filled from a record; `line` comes before them. Those of a later schema are not among them. */
export const COLUMNS: Record<StagedKind, string[]> = {
  ...(Object.fromEntries(RECORD_TYPES.map((type) => [type, Object.keys(FIELDS[type])])) as Record<
    RecordType,
    string[]
  >),
  contact: ['project_id', 'contact_id', 'created_at'],
  identifier: [
    ...['project_id', 'contact_id', 'key', 'value', 'digest'],
    ...['ordinal', 'claimed_contact_id', 'other_type_digest', 'other_type_contact_id'],
  ],
  event: [...Object.keys(FIELDS.event), 'max_page_given', 'total_pages_given'],
}

/** What takes PostgreSQL some milliseconds to read from JSON, which each statement does that reads rows that are held. */
const HELD_characters = 1_048_576

const SPECIAL = /[\\\t\n\r]/
const ESCAPES: Record<string, string> = { '\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r' }

/** A value in COPY's text format. */
function encode(value: unknown): string {
  if (value === undefined || value === null) return '\\N'
  const text = String(value)
  return SPECIAL.test(text) ? text.replace(/[\\\t\n\r]/g, (special) => ESCAPES[special] as string) : text
}

interface StagedRow {
  line: number
  row: object
}

/** The rows of each kind. */
export type StagedRows = Record<StagedKind, StagedRow[]>

/** The rows of a kind that wait to be sent. */
interface Batch {
  rows: StagedRow[]
  /** How long the lines are. */
  characters: number
}

const noRows = (): Batch => ({ rows: [], characters: 0 })

/**
 * Loads records into temporary tables, which are empty again when the transaction ends (ADR 0012). A connection runs one
 * COPY at a time, and the types of records may be mixed: so rows are buffered by kind and sent in batches, each its own
 * COPY. In pipeline mode, where there is no COPY, a batch is an INSERT.
 */
export class Stage {
  /** How many rows of each kind were added. */
  readonly counts = Object.fromEntries(STAGED_KINDS.map((kind) => [kind, 0])) as Record<StagedKind, number>
  readonly #client: () => Promise<pg.ClientBase>
  readonly #batch_characters: number
  readonly #heldRows: number
  /** How many rows were added, and how long their lines are, in all. */
  #count = 0
  #characters = 0
  readonly #batches = Object.fromEntries(STAGED_KINDS.map((kind) => [kind, noRows()])) as Record<StagedKind, Batch>
  #sending: Promise<void> = Promise.resolve()

  /**
   * @param client a connection with the temporary tables and an open transaction; called when there are rows to send
   * @param batch_characters how many characters of lines are buffered before their rows are sent
   * @param heldRows up to how many rows are held, unless they have too many characters
   */
  constructor(client: () => Promise<pg.ClientBase>, batch_characters: number, heldRows = 0) {
    this.#client = client
    this.#batch_characters = batch_characters
    this.#heldRows = heldRows
  }

  /**
   * Adds a record.
   * @param characters how long its line is
   * @returns a promise to await before the next call, when a batch is being sent
   */
  add(record: ImportRecord, line: number, characters: number): Promise<void> | undefined {
    if (record.type === 'contact') {
      const rows = identifierRows(record)
      for (const row of rows) this.#addRow('identifier', { line, row }, characters / rows.length)
    }
    this.#addRow(record.type, { line, row: record.type === 'event' ? eventRow(record) : record }, characters)
    return this.#holds() ? undefined : (this.#sendFull('identifier') ?? this.#sendFull(record.type))
  }

  /** All rows, if they are so few and small that none of them has been sent. */
  get held(): StagedRows | undefined {
    if (!this.#holds()) return undefined
    return Object.fromEntries(STAGED_KINDS.map((kind) => [kind, this.#batches[kind].rows])) as StagedRows
  }

  #holds(): boolean {
    return this.#count <= this.#heldRows && this.#characters <= HELD_characters
  }

  /** Sends the remaining rows and waits until PostgreSQL has stored all of them. */
  async finish(): Promise<void> {
    await this.#sending
    const client = await this.#client()
    const batches = STAGED_KINDS.map((kind) => [kind, this.#take(kind)] as const).filter(([, rows]) => rows.length > 0)
    if (isPipelined(client)) await Promise.all(batches.map(([kind, rows]) => insert(client, kind, rows)))
    else for (const [kind, rows] of batches) await copy(client, kind, rows)
  }

  #addRow(kind: StagedKind, row: StagedRow, characters: number): void {
    const batch = this.#batches[kind]
    this.counts[kind] += 1
    this.#count += 1
    this.#characters += characters
    batch.rows.push(row)
    batch.characters += characters
  }

  #sendFull(kind: StagedKind): Promise<void> | undefined {
    return this.#batches[kind].characters >= this.#batch_characters ? this.#send(kind) : undefined
  }

  /** The rows of a kind, which are not kept. */
  #take(kind: StagedKind): StagedRow[] {
    const { rows } = this.#batches[kind]
    this.#batches[kind] = noRows()
    return rows
  }

  /** Waits only for the previous batch, so that reading continues while a batch is being sent. */
  async #send(kind: StagedKind): Promise<void> {
    const rows = this.#take(kind)
    await this.#sending
    const client = await this.#client()
    this.#sending = isPipelined(client) ? insert(client, kind, rows) : copy(client, kind, rows)
    // A failure is reported where the promise is awaited next.
    this.#sending.catch(() => {})
  }
}

async function copy(client: pg.ClientBase, kind: StagedKind, rows: StagedRow[]): Promise<void> {
  const stream = client.query(copyFrom(`COPY ${stagedTable(kind)} (line, ${COLUMNS[kind].join(', ')}) FROM STDIN`))
  stream.end(Buffer.from(rows.map(({ line, row }) => encodeRow(kind, line, row)).join('')))
  await finished(stream)
}

async function insert(client: pg.ClientBase, kind: StagedKind, rows: StagedRow[]): Promise<void> {
  const table = stagedTable(kind)
  await timedQuery(client, {
    name: table,
    text: `INSERT INTO ${table} SELECT * FROM json_populate_recordset(NULL::${table}, $1)`,
    values: [asJson(rows)],
  })
}

/** Rows as objects with the names of the columns. */
export const asJson = (rows: StagedRow[]): string => JSON.stringify(rows.map(({ line, row }) => ({ line, ...row })))

/** A row in COPY's text format. */
function encodeRow(kind: StagedKind, line: number, row: object): string {
  const values = row as Record<string, unknown>
  let text = String(line)
  for (const column of COLUMNS[kind]) text += `\t${encode(values[column])}`
  return `${text}\n`
}

const eventRow = (event: EventRecord) => ({
  ...event,
  max_page_given: event.max_page_index !== undefined,
  total_pages_given: event.total_pages !== undefined,
})

const identifierRows = ({ project_id, contact_id, identifiers }: ContactRecord) =>
  identifiers.map(({ key, value, canonical }, ordinal) => {
    const { digest, contact_id: claimed_contact_id } = namesOf(key, canonical)
    const other = ofOtherType({ key, value, canonical })
    return {
      project_id,
      contact_id,
      key,
      value,
      digest: bytea(digest),
      ordinal,
      claimed_contact_id,
      other_type_digest: bytea(other?.digest),
      other_type_contact_id: other?.contact_id,
    }
  })

/** As PostgreSQL reads bytes from text. */
const bytea = (bytes?: Buffer) => bytes && `\\x${bytes.toString('hex')}`
