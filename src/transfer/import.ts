import type pg from 'pg'
import { setOnNodes } from '../database/distribution.ts'
import { IDLE_TRANSACTION_TIMEOUT_ms } from '../database/pool.ts'
import { isPooler } from '../database/pooler-client.ts'
import type { TypeMismatch } from '../domain/identifier.ts'
import { Turns } from '../domain/turns.ts'
import { beginLongTransaction, LazyTransaction, NO_TIMEOUTS, type Timeouts } from './client.ts'
import { ImportConflict, ImportError } from './issues.ts'
import { LineSplitter } from './lines.ts'
import { LOOK_UPS, Merge, type MergeSizes } from './merge.ts'
import { limitsAt, parseLine, RECORD_TYPES, type RecordType } from './records.ts'
import { Stage, TARGET_TABLES } from './stage.ts'
import { storedOn } from './stored.ts'
import { createTablesOfTransaction, EMPTY_TABLES, ensureTables, renewPlans } from './tables.ts'

export { ImportConflict, ImportError } from './issues.ts'

export interface ImportOptions {
  /** The time for defaults and for what must not be in the future; without it, the current time of each. */
  now?: Date
  /** Called often while reading, and at each step of merging. */
  onProgress?: (progress: ImportProgress) => void
  /** The project that all records are of, who need not say so; without it, of any. */
  project_id?: string | undefined
  /** Called when everything is committed. */
  onImported?: () => void
  /** Called once there are rows to send. What it throws ends the import. */
  beforeConnecting?: () => void
  /** Those of the transaction; none without it. */
  timeouts?: Timeouts
  /** The most fields and items of a line; any number without it. */
  maxValues?: number
  /** How much is sent and merged at once; the result does not depend on it. Tests make it small. */
  sizes?: Partial<ImportSizes>
}

export interface ImportSizes extends MergeSizes {
  /** How many characters of lines are buffered before their rows are sent. */
  batch_characters: number
  /** From how many lines on the tables are analyzed right away instead of waiting for autovacuum. */
  analyze_from_lines: number
}

const SIZES: ImportSizes = {
  batch_characters: 262_144,
  chunk_pages: 1000,
  small_rows: 300,
  analyze_from_lines: 10_000,
}

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
  /** By project and key. */
  type_mismatches: TypeMismatch[]
}

/**
 * Imports newline-delimited JSON in one transaction (docs/semantics.md#import): all of it or nothing.
 * Memory holds one line and a few small batches, which temporary tables take, unless they are all (ADR 0012). Projects are locked
 * against other writers only after the input has ended.
 *
 * @param pool in pipeline mode or not; its connections are closed after a large import, and to a Citus cluster they keep temporary
 * tables after a small one, unless they are those of a pooler
 * @param input bytes of UTF-8, or text
 * @throws ImportError for the first bad line; what the input throws; database errors
 */
export async function importRecords(
  pool: pg.Pool,
  input: AsyncIterable<Buffer | string>,
  {
    now,
    onProgress = () => {},
    onImported = () => {},
    beforeConnecting = () => {},
    project_id,
    maxValues,
    timeouts,
    ...options
  }: ImportOptions = {},
): Promise<ImportSummary> {
  const sizes = { ...SIZES, ...options.sizes }
  const connect = () => {
    beforeConnecting()
    return pool.connect()
  }
  const keepsTables = !isPooler(pool)
  let cleanUp: string[] = []
  /** With tables for the rows, unless the stage holds all of them. */
  const begin = async (client: pg.PoolClient) => {
    const stored = await storedOn(client)
    const isHeld = !stored.isCopied && stage.held !== undefined
    if (!isHeld && keepsTables) {
      await ensureTables(client, stored)
      cleanUp = [EMPTY_TABLES]
    }
    // The coordinator of a cluster does not know how large tables are, and plans nothing that reads them.
    if (!stored.isCopied && keepsTables) await renewPlans(client)
    await beginLongTransaction(client, 'READ COMMITTED', timeouts, isHeld ? LOOK_UPS : {})
    if (stored.isCopied) await client.query(setOnCluster(timeouts))
    if (!isHeld && !keepsTables) await client.query(createTablesOfTransaction(stored))
  }
  const transaction = new LazyTransaction(connect, begin)
  const stage = new Stage(() => transaction.client(), sizes.batch_characters, sizes.small_rows)
  try {
    const importing = { now, project_id, maxValues, timeouts, onProgress, sizes }
    const summary = await importInto(transaction, stage, input, importing)
    await transaction.commit()
    onImported()
    if (summary.lines >= sizes.analyze_from_lines) await analyze(pool)
    return summary
  } catch (error) {
    // Any other may have come while rows were being sent.
    if (error instanceof ImportConflict) await transaction.undo(cleanUp)
    else await transaction.close(error as Error)
    throw error
  }
}

interface Importing
  extends Required<Pick<ImportOptions, 'onProgress'>>,
    Pick<ImportOptions, 'now' | 'project_id' | 'maxValues' | 'timeouts'> {
  sizes: ImportSizes
}

async function importInto(
  transaction: LazyTransaction,
  stage: Stage,
  input: AsyncIterable<Buffer | string>,
  { now, project_id, maxValues, timeouts, onProgress, sizes }: Importing,
): Promise<ImportSummary> {
  const splitter = new LineSplitter()
  const turns = new Turns()
  let bytes = 0

  const addLines = async (lines: Iterable<string>) => {
    // Lines may be written while the input arrives, for hours.
    const limits = { ...limitsAt(now ?? new Date()), project_id, maxValues }
    for (const line of lines) {
      const turn = turns.next()
      if (turn) await turn
      const parsed = parseLine(line, limits)
      if (!parsed.ok) throw new ImportError({ line: splitter.lines, ...parsed.issue })
      const sending = stage.add(parsed.record, splitter.lines, line.length)
      if (sending) await sending
    }
    onProgress({ phase: 'reading', bytes, lines: splitter.lines, merged_lines: 0 })
  }

  for await (const chunk of input) {
    const buffer = typeof chunk === 'string' ? Buffer.from(chunk) : chunk
    bytes += buffer.length
    await addLines(splitter.push(buffer))
  }
  await addLines(splitter.end())
  const client = await transaction.client()
  const stored = await storedOn(client)
  const held = stored.isCopied ? undefined : stage.held
  if (!held) await stage.finish()
  // Input may take its time, but from now on projects are locked.
  if (!timeouts) await client.query(LIMIT_IDLE_TIME)
  const merge = new Merge(
    client,
    stored,
    { counts: stage.counts, held },
    now ?? new Date(),
    sizes,
    (step, merged_lines) => onProgress({ phase: 'merging', bytes, lines: splitter.lines, merged_lines, step }),
  )
  // PostgreSQL's statistics of the tables quote their rows, and would last as long as the session.
  if (!merge.isSmall) transaction.closeAtEnd()
  const merged = await merge.run()
  const summarize = (type: RecordType): [RecordType, ImportedRecords] => {
    const { records, added, updated } = merged[type]
    return [type, { read: stage.counts[type], added, updated, unchanged: records - added - updated }]
  }
  return {
    lines: splitter.lines,
    records: Object.fromEntries(RECORD_TYPES.map(summarize)) as Record<RecordType, ImportedRecords>,
    duplicate_lines: RECORD_TYPES.reduce((sum, type) => sum + stage.counts[type] - merged[type].records, 0),
    identifiers_added: merged.identifier.added,
    type_mismatches: merge.typeMismatches,
  }
}

const LIMIT_IDLE_TIME = `SET LOCAL idle_in_transaction_session_timeout = ${IDLE_TRANSACTION_TIMEOUT_ms}`

/** What a transaction on a Citus cluster needs: keys of any number are sent to shards, where locks are waited for. */
const setOnCluster = ({ lock_timeout } = NO_TIMEOUTS) =>
  ['SET LOCAL citus.max_intermediate_result_size = -1', ...setOnNodes({ lock_timeout, synchronous_commit: 'on' })].join(
    '; ',
  )

/** A large import makes the planner's statistics stale. The import is committed already, so a failure is harmless. */
async function analyze(pool: pg.Pool): Promise<void> {
  await pool.query(`ANALYZE ${Object.values(TARGET_TABLES)}`).catch(() => {})
}
