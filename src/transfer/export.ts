import type { Writable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type pg from 'pg'
import { to as copyTo } from 'pg-copy-streams'
import { canonicalValue, type Identifier } from '../domain/identifier.ts'
import { beginLongTransaction, withClient } from './client.ts'
import { LineSplitter } from './lines.ts'
import { FIELDS, type Field, RECORD_TYPES, type RecordType } from './records.ts'
import { TARGET_TABLES } from './stage.ts'

export interface ExportOptions {
  /** Called often while the records are written. */
  onProgress?: (progress: ExportProgress) => void
}

export interface ExportProgress {
  /** How many bytes were written. */
  bytes: number
  /** The type of the records that are being written. */
  type: RecordType
}

export interface ExportSummary {
  bytes: number
  /** How many records of each type were written. */
  records: Record<RecordType, number>
}

/** The order of the lines of each type; ids are compared byte by byte. */
const ORDER: Record<RecordType, string> = {
  project: 'project_id',
  group: 'group_id',
  module: 'module_id',
  module_version: 'module_id, version_number',
  contact: 'contact_id',
  entry: 'entry_id',
  event: 'entry_id, "timestamp", event_id',
}

/** How each kind of column is written as JSON. The sessions of a pool use UTC. */
export const AS_JSON = {
  text: (column: string) => `to_json(${column})::text`,
  integer: (column: string) => `${column}::text`,
  timestamp: (column: string) => `'"' || to_char(${column}, 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') || '"'`,
  /** @param ofProject a condition: a Citus cluster would ask all nodes, each for a snapshot of its own, without a value */
  identifiers: (_: string, ofProject: string) => `COALESCE((
    SELECT json_agg(json_build_object('key', i.key, 'value', i.value)) FROM contact_identifiers i
    WHERE i.${ofProject} AND i.contact_id = t.contact_id), '[]')::text`,
} satisfies Record<Field['column'], (column: string, ofProject: string) => string>

/**
 * Exports a project in the format of an import (docs/semantics.md#export): every stored field in the order of
 * {@link FIELDS}, from one snapshot, without API keys and idempotency keys. The same data always gives the same bytes.
 * PostgreSQL builds the lines, which are streamed.
 *
 * @param output written with backpressure, and not ended
 * @throws Error when the project does not exist; what the output throws; database errors
 */
export async function exportProject(
  pool: pg.Pool,
  projectId: string,
  output: Writable,
  { onProgress = () => {} }: ExportOptions = {},
): Promise<ExportSummary> {
  return withClient(pool, async (client) => {
    await beginLongTransaction(client, 'REPEATABLE READ READ ONLY')
    const project = await client.query('SELECT FROM projects WHERE project_id = $1', [projectId])
    if (project.rowCount === 0) throw new Error(`project ${JSON.stringify(projectId)} does not exist`)
    const summary = { bytes: 0, records: {} as Record<RecordType, number> }
    const ofProject = `project_id = ${client.escapeLiteral(projectId)}`
    const rows = RECORD_TYPES.map((type): Selection => [type, ofProject])
    await pipeline(exportedLines(client, ofProject, rows, summary, onProgress), output, { end: false })
    await client.query('COMMIT')
    return summary
  })
}

/**
 * Exports all that is stored of a contact: it, its entries and their events as in an import, and its idempotency keys with
 * their responses, which cannot be imported. From one snapshot.
 *
 * @param output written with backpressure, and not ended
 * @throws Error when the contact does not exist any more; what the output throws; database errors
 */
export async function exportContact(
  pool: pg.Pool,
  projectId: string,
  contactId: string,
  output: Writable,
): Promise<void> {
  await withClient(pool, async (client) => {
    await beginLongTransaction(client, 'REPEATABLE READ READ ONLY')
    const ofProject = `project_id = ${client.escapeLiteral(projectId)}`
    const ofContact = `${ofProject} AND contact_id = ${client.escapeLiteral(contactId)}`
    const ofEntries = `${ofProject} AND entry_id IN (SELECT entry_id FROM entries WHERE ${ofContact})`
    const ofEvents = `${ofProject} AND event_id IN (SELECT event_id FROM events WHERE ${ofEntries})`
    const rows: Selection[] = [
      ['contact', ofContact],
      ['entry', ofContact],
      ['event', ofEntries],
    ]
    const summary = { bytes: 0, records: {} as Record<RecordType, number> }
    const fields = ['project_id', 'idempotency_key', 'event_id', 'response']
    const json = fields.map((name) => `',"${name}":' || ${AS_JSON.text(name)}`).join(' || ')
    const keys = `SELECT '{"type":"idempotency_key"' || ${json} || '}'
      FROM idempotency_keys WHERE ${ofEvents} ORDER BY idempotency_key`
    const lines = async function* () {
      yield* exportedLines(client, ofProject, rows, summary, () => {})
      yield* client.query(copyTo(verbatim(keys))) as AsyncIterable<Buffer>
    }
    await pipeline(lines, output, { end: false })
    if (summary.records.contact === 0) throw new Error(`contact ${JSON.stringify(contactId)} does not exist any more`)
    await client.query('COMMIT')
  })
}

/** The rows of a type that meet a condition in SQL. */
type Selection = [type: RecordType, condition: string]

/** All lines, in chunks that need not end at a line break; keeps the summary up to date. */
async function* exportedLines(
  client: pg.PoolClient,
  ofProject: string,
  rows: readonly Selection[],
  summary: ExportSummary,
  onProgress: (progress: ExportProgress) => void,
): AsyncGenerator<Buffer> {
  for (const [type, condition] of rows) {
    const copy = client.query(copyTo(copyLines(type, ofProject, condition)))
    for await (const chunk of type === 'contact' ? sortedIdentifiers(copy) : (copy as AsyncIterable<Buffer>)) {
      yield chunk
      summary.bytes += chunk.length
      onProgress({ bytes: summary.bytes, type })
    }
    // The row count of a COPY arrives after its last chunk, before the result of the next statement.
    await client.query('SELECT')
    summary.records[type] = copy.rowCount
  }
}

/** A COPY of the lines of one type. @param ofProject the condition that a row is of the project */
function copyLines(type: RecordType, ofProject: string, condition: string): string {
  const fields = Object.entries<Field>(FIELDS[type]).map(([name, { column, presence, nullable }]) => {
    const json = AS_JSON[column](`t.${name}`, ofProject)
    if (nullable) return `',"${name}":' || COALESCE(${json}, 'null')`
    return presence === 'required' ? `',"${name}":' || ${json}` : `COALESCE(',"${name}":' || ${json}, '')`
  })
  return verbatim(`SELECT '{"type":"${type}"' || ${fields.join(' || ')} || '}' FROM ${TARGET_TABLES[type]} t
      WHERE ${condition} ORDER BY ${ORDER[type]}`)
}

/**
 * A COPY that outputs lines of JSON verbatim: CSV whose delimiter and quote are control characters, which JSON text never
 * contains, so that nothing is ever quoted.
 */
const verbatim = (query: string) => `COPY (${query}) TO STDOUT (FORMAT csv, DELIMITER E'\\x02', QUOTE E'\\x01')`

/** So many that their line is never too long for an import, over HTTP either. */
const MAX_IDENTIFIERS_OF_LINE = 300

/**
 * Sorts the identifiers of each contact; here, because their canonical values are not stored. A contact with very many of them has
 * several lines, each with its own part, which an import adds up.
 */
async function* sortedIdentifiers(contacts: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const splitter = new LineSplitter(Number.POSITIVE_INFINITY)
  for await (const chunk of contacts) {
    const lines = splitter.push(chunk).flatMap((line) => {
      const contact = JSON.parse(line) as { identifiers: Identifier[] }
      const identifiers = sorted(contact.identifiers)
      return parts(identifiers).map((part) => `${JSON.stringify({ ...contact, identifiers: part })}\n`)
    })
    yield Buffer.from(lines.toArray().join(''))
  }
}

/** At least one, which may be empty. */
const parts = (identifiers: Identifier[]): Identifier[][] =>
  Array.from({ length: Math.max(1, Math.ceil(identifiers.length / MAX_IDENTIFIERS_OF_LINE)) }, (_, i) =>
    identifiers.slice(i * MAX_IDENTIFIERS_OF_LINE, (i + 1) * MAX_IDENTIFIERS_OF_LINE),
  )

/** By key, then by canonical value, comparing UTF-8 byte by byte. */
function sorted(identifiers: Identifier[]): Identifier[] {
  return identifiers
    .map((identifier) => ({ identifier, sortKey: Buffer.from(`${identifier.key}\0${canonicalOf(identifier)}`) }))
    .sort((a, b) => a.sortKey.compare(b.sortKey))
    .map(({ identifier }) => identifier)
}

function canonicalOf({ value }: Identifier): string {
  const parsed = canonicalValue(value)
  return parsed.ok ? parsed.canonical : value
}
