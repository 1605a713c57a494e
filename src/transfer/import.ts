import type pg from 'pg'
import { isRetryable } from '../database/failures.ts'
import { beginLongTransaction, withClient } from './client.ts'
import { ImportError } from './issues.ts'
import { LineSplitter } from './lines.ts'
import { Merge } from './merge.ts'
import { limitsAt, parseLine, RECORD_TYPES, type RecordType } from './records.ts'
import { Stage, TARGET_TABLES } from './stage.ts'

export { ImportError } from './issues.ts'

export interface ImportOptions {
  /** The current time, used for defaults and for times that must not be in the future. */
  now?: Date
  /** Called often while reading, and at each step of merging. */
  onProgress?: (progress: ImportProgress) => void
  /** How much is sent and merged at once; the result does not depend on it. Tests make it small. */
  sizes?: Partial<ImportSizes>
}

export interface ImportSizes {
  /** How many characters of rows are buffered before they are sent. */
  batch_characters: number
  /**
   * How many table pages of 8 KiB one statement of the merge reads its rows from. It bounds the memory that PostgreSQL
   * takes for the foreign key checks of the statement, and the time between two progress reports.
   */
  chunk_pages: number
  /** From how many lines on the tables are analyzed right away instead of waiting for autovacuum. */
  analyze_from_lines: number
}

const SIZES: ImportSizes = { batch_characters: 262_144, chunk_pages: 1000, analyze_from_lines: 10_000 }

export interface ImportProgress {
  phase: 'reading' | 'merging'
  /** How many bytes were read. */
  bytes: number
  lines: number
  /** How many of the lines are merged. */
  merged_lines: number
  /** What is being merged. */
  step?: string
}

/** The counts of one type of record: `read` counts lines, the others count records. */
export interface ImportedRecords {
  read: number
  added: number
  updated: number
  unchanged: number
}

export interface ImportSummary {
  lines: number
  records: Record<RecordType, ImportedRecords>
  /** Lines whose record is also on an earlier line. */
  duplicate_lines: number
  /** Identifiers added to contacts, new and stored ones. */
  identifiers_added: number
}

/**
 * Imports newline-delimited JSON in one transaction (docs/semantics.md#import): all of it or nothing.
 * Memory holds one line and a few small batches (ADR 0012). Projects are locked against other writers only after the
 * input has ended.
 *
 * @param input bytes of UTF-8, or text
 * @throws ImportError for the first bad line; what the input throws; database errors
 */
export async function importRecords(
  pool: pg.Pool,
  input: AsyncIterable<Buffer | string>,
  { now = new Date(), onProgress = () => {}, ...options }: ImportOptions = {},
): Promise<ImportSummary> {
  const sizes = { ...SIZES, ...options.sizes }
  return withClient(pool, async (client) => {
    await beginLongTransaction(client, 'READ COMMITTED')
    try {
      const summary = await importInto(client, input, { now, onProgress, sizes })
      await client.query('COMMIT')
      if (summary.lines >= sizes.analyze_from_lines) await analyze(client)
      return summary
    } catch (error) {
      throw explainConflict(error)
    }
  })
}

function explainConflict(error: unknown): unknown {
  if (!isRetryable(error)) return error
  return new Error('conflict with a concurrent writer of the same project; nothing was imported, try again', {
    cause: error,
  })
}

async function importInto(
  client: pg.PoolClient,
  input: AsyncIterable<Buffer | string>,
  { now, onProgress, sizes: { batch_characters, chunk_pages } }: Required<ImportOptions> & { sizes: ImportSizes },
): Promise<ImportSummary> {
  const stage = new Stage(client, batch_characters)
  const splitter = new LineSplitter()
  const limits = limitsAt(now)
  let bytes = 0

  const addLines = async (lines: Iterable<string>) => {
    for (const line of lines) {
      const parsed = parseLine(line, limits)
      if (!parsed.ok) throw new ImportError({ line: splitter.lines, ...parsed.issue })
      const sending = stage.add(parsed.record, splitter.lines)
      if (sending) await sending
    }
    onProgress({ phase: 'reading', bytes, lines: splitter.lines, merged_lines: 0 })
  }

  await stage.createTables()
  for await (const chunk of input) {
    const buffer = typeof chunk === 'string' ? Buffer.from(chunk) : chunk
    bytes += buffer.length
    await addLines(splitter.push(buffer))
  }
  await addLines(splitter.end())
  await stage.finish()

  const merge = new Merge(client, stage.rows, now, chunk_pages, (step, merged_lines) =>
    onProgress({ phase: 'merging', bytes, lines: splitter.lines, merged_lines, step }),
  )
  const merged = await merge.run()
  const summarize = (type: RecordType): [RecordType, ImportedRecords] => {
    const { records, added, updated } = merged[type]
    return [type, { read: stage.rows[type], added, updated, unchanged: records - added - updated }]
  }
  return {
    lines: splitter.lines,
    records: Object.fromEntries(RECORD_TYPES.map(summarize)) as Record<RecordType, ImportedRecords>,
    duplicate_lines: RECORD_TYPES.reduce((sum, type) => sum + stage.rows[type] - merged[type].records, 0),
    identifiers_added: merged.identifier.added,
  }
}

/** A large import makes the planner's statistics stale. The import is committed already, so a failure is harmless. */
async function analyze(client: pg.PoolClient): Promise<void> {
  await client.query(`ANALYZE ${Object.values(TARGET_TABLES)}`).catch(() => {})
}
