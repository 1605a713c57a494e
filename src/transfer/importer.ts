import type pg from 'pg'
import type { components } from '../../generated/api.ts'
import { IMPORT_STATEMENT_TIMEOUT_ms } from '../database/open.ts'
import { SELECT_WAL_POSITION, type WalPosition } from '../database/wal-position.ts'
import { invalidRequest, malformedRequest, recordConflict, serviceUnavailable } from '../domain/errors.ts'
import type { TypeMismatch } from '../domain/identifier.ts'
import { type Limit, Usage } from '../domain/usage.ts'
import { ImportConflict, ImportError, importRecords } from './import.ts'

type ImportResult = components['schemas']['ImportResult']

/** Only a much larger import holds the lock of a project for as long. */
const LOCK_TIMEOUT_ms = 5_000
/** Longer than a request may take to arrive; a lock does not last much longer when the network between is cut. */
const IDLE_TIMEOUT_ms = 45_000
/** So many take about a millisecond to parse. Those of a contact with hundreds of identifiers are fewer. */
const MAX_VALUES_OF_LINE = 1_000

/** How much of bodies may be buffered before their imports have a connection: of one, what is held, or a line and a batch of each type. */
const BUFFERED_bytes = { all: 64 * 1024 * 1024, project: 32 * 1024 * 1024 }

export interface ImporterOptions {
  /** How long an import waits for the lock of its project. */
  lockTimeout_ms: number
  buffered_bytes: Limit
  /** Called for identifiers that were added with such a mismatch. */
  onTypeMismatch: (mismatch: TypeMismatch) => void
  /** Called with what each import has done. */
  onImport: (result: ImportResult) => void
  /** Whether the position of the database with the records is told. */
  readsPosition: boolean
}

/** The response to an import. */
export interface Imported {
  body: ImportResult
  /** Of the database with the records, if it is wanted and known. */
  position: WalPosition | undefined
}

const DEFAULTS: ImporterOptions = {
  lockTimeout_ms: LOCK_TIMEOUT_ms,
  buffered_bytes: BUFFERED_bytes,
  onTypeMismatch: () => {},
  onImport: () => {},
  readsPosition: false,
}

/**
 * Imports the records of requests (docs/semantics.md#import): as many at once as its pool has connections. An import takes one
 * when a full batch, or the end of its body, has arrived.
 */
export class Importer {
  readonly #pool: pg.Pool
  readonly #lockTimeout_ms: number
  readonly #onTypeMismatch: ImporterOptions['onTypeMismatch']
  readonly #onImport: ImporterOptions['onImport']
  readonly #readsPosition: boolean
  readonly #connections: Usage
  readonly #buffered_bytes: Usage

  /** @param pool in pipeline mode. Its connections are the imports' own, since they may keep temporary tables */
  constructor(pool: pg.Pool, options: Partial<ImporterOptions> = {}) {
    const { lockTimeout_ms, buffered_bytes, onTypeMismatch, onImport, readsPosition } = { ...DEFAULTS, ...options }
    const { max } = pool.options
    this.#pool = pool
    this.#lockTimeout_ms = lockTimeout_ms
    this.#onTypeMismatch = onTypeMismatch
    this.#onImport = onImport
    this.#readsPosition = readsPosition
    this.#connections = new Usage({ all: max, project: Math.ceil(max / 2) })
    this.#buffered_bytes = new Usage(buffered_bytes)
  }

  /**
   * Imports records of a project, all of them or none.
   *
   * @param lines newline-delimited JSON in UTF-8, in parts
   * @throws ApiError invalid_request for the first bad line or for none at all; record_conflict; service_unavailable when
   * too many imports are under way; what the input throws. The database's error otherwise
   */
  async import(project_id: string, lines: AsyncIterable<Buffer>): Promise<Imported> {
    // Now rather than after the body has arrived.
    if (!this.#connections.fits(project_id, 1)) throw serviceUnavailable()
    let connections = 0
    let buffered_bytes = 0
    const buffer = (bytes: number) => {
      if (connections > 0) return
      this.#buffered_bytes.take(project_id, bytes)
      buffered_bytes += bytes
    }
    const release = () => {
      this.#buffered_bytes.add(project_id, -buffered_bytes)
      this.#connections.add(project_id, -connections)
      buffered_bytes = connections = 0
    }
    try {
      const { records, type_mismatches } = await importRecords(this.#pool, notEmpty(lines, buffer), {
        project_id,
        beforeConnecting: () => {
          this.#connections.take(project_id, 1)
          release()
          connections = 1
        },
        maxValues: MAX_VALUES_OF_LINE,
        timeouts: {
          statement_timeout: IMPORT_STATEMENT_TIMEOUT_ms,
          idle_in_transaction_session_timeout: IDLE_TIMEOUT_ms,
          lock_timeout: this.#lockTimeout_ms,
        },
        // Autovacuum does it, and nobody waits.
        sizes: { analyze_from_lines: Number.POSITIVE_INFINITY },
      })
      for (const mismatch of type_mismatches) this.#onTypeMismatch(mismatch)
      const total = (of: 'added' | 'updated' | 'unchanged') =>
        Object.values(records).reduce((sum, counts) => sum + counts[of], 0)
      const [added, changed, unchanged] = [total('added'), total('updated'), total('unchanged')]
      const result = { records: added + changed + unchanged, added, changed, unchanged }
      this.#onImport(result)
      return { body: result, position: this.#readsPosition ? await this.#readPosition() : undefined }
    } catch (error) {
      if (!(error instanceof ImportError)) throw error
      const { line, field, message } = error.issue
      const issue = { pointer: `/body/${line}${field}`, message }
      throw error instanceof ImportConflict ? recordConflict(issue) : invalidRequest([issue])
    } finally {
      release()
    }
  }

  async #readPosition(): Promise<WalPosition | undefined> {
    // What was imported must not fail because its position is unknown.
    const result = await this.#pool.query(SELECT_WAL_POSITION).catch(() => undefined)
    return result?.rows[0].wal_position
  }
}

/** The parts as they are. @param onPart called with the bytes of each */
async function* notEmpty(parts: AsyncIterable<Buffer>, onPart: (bytes: number) => void): AsyncGenerator<Buffer> {
  let isEmpty = true
  for await (const part of parts) {
    isEmpty = false
    onPart(part.length)
    yield part
  }
  if (isEmpty) throw malformedRequest('The body has no records; send one JSON object on each line.')
}
