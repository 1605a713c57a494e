import pg from 'pg'
import { begin, withClient } from './client.ts'
import { ImportError, LineSplitter } from './lines.ts'
import { Merge } from './merge.ts'
import { limitsAt, parseLine, RECORD_TYPES, type RecordType } from './records.ts'
import { Stage, TABLES } from './stage.ts'

export { ImportError } from './lines.ts'

export interface ImportOptions {
  /** The moment that counts as now, for defaults and for what may not lie in the future. */
  now?: Date
  /** Told often while reading, and at each step of merging. */
  onProgress?: (progress: ImportProgress) => void
}

export interface ImportProgress {
  phase: 'reading' | 'merging'
  /** How much was read. */
  bytes: number
  lines: number
  /** Of how many of the lines the records are merged. */
  merged_lines: number
  /** What is being merged. */
  step?: string
}

/** What became of the records of one type: `read` counts lines, the others count records. */
export interface ImportedRecords {
  read: number
  added: number
  updated: number
  unchanged: number
}

export interface ImportSummary {
  lines: number
  records: Record<RecordType, ImportedRecords>
  /** Lines about a record that an earlier line is about. */
  duplicate_lines: number
  /** Identifiers attached to contacts, new and stored ones. */
  identifiers_added: number
}

/** From how many lines on the tables' statistics are renewed at once, rather than when PostgreSQL comes to it. */
const LARGE_lines = 10_000

/** SQLSTATEs of transactions that lost against another: serialization failure and deadlock. */
const LOST = ['40001', '40P01']

/**
 * Imports newline-delimited JSON in one transaction (decisions, "Operator's command line"): all of it or nothing.
 * Holds one line and a few small batches in memory. What it writes is locked against other writers of the same
 * projects only after the input has ended.
 *
 * @param input bytes of UTF-8, or text
 * @throws ImportError for the first bad line; what the input throws; what PostgreSQL answers
 */
export async function importRecords(
  pool: pg.Pool,
  input: AsyncIterable<Buffer | string>,
  options: ImportOptions = {},
): Promise<ImportSummary> {
  return withClient(pool, async (client) => {
    await begin(client, 'READ COMMITTED')
    try {
      const summary = await importInto(client, input, options)
      await client.query('COMMIT')
      if (summary.lines >= LARGE_lines) await analyze(client)
      return summary
    } catch (error) {
      await client.query('ROLLBACK').catch(() => {})
      throw explained(error)
    }
  })
}

function explained(error: unknown): unknown {
  if (!(error instanceof pg.DatabaseError) || !LOST.includes(error.code ?? '')) return error
  return new Error('another writer of the same project got in the way; nothing was imported, try again', {
    cause: error,
  })
}

async function importInto(
  client: pg.PoolClient,
  input: AsyncIterable<Buffer | string>,
  { now = new Date(), onProgress = () => {} }: ImportOptions,
): Promise<ImportSummary> {
  const stage = new Stage(client)
  const splitter = new LineSplitter()
  const limits = limitsAt(now)
  let bytes = 0

  const take = async (lines: Iterable<string>) => {
    for (const line of lines) {
      const parsed = parseLine(line, limits)
      if (!parsed.ok) throw new ImportError(splitter.lines, parsed.field, parsed.reason)
      const sending = stage.add(parsed.record, splitter.lines)
      if (sending) await sending
    }
    onProgress({ phase: 'reading', bytes, lines: splitter.lines, merged_lines: 0 })
  }

  // The plans for merging need sizes and rough shares, not PostgreSQL's large samples.
  await client.query(`SELECT set_config('default_statistics_target', '10', true)`)
  await stage.create()
  for await (const chunk of input) {
    const buffer = typeof chunk === 'string' ? Buffer.from(chunk) : chunk
    bytes += buffer.length
    await take(splitter.push(buffer))
  }
  await take(splitter.end())
  await stage.finish()

  const merge = new Merge(client, stage.rows, now, (step, merged_lines) =>
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

/** Plans made before a large import are bad after it. The import is committed, so this may fail without harm. */
async function analyze(client: pg.PoolClient): Promise<void> {
  await client.query(`ANALYZE ${Object.values(TABLES).join(', ')}`).catch(() => {})
}
