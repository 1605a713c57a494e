import type pg from 'pg'
import type { components } from '../../generated/api.ts'
import { invalidRequest, malformedRequest, recordConflict, serviceUnavailable } from '../domain/errors.ts'
import { Usage } from '../domain/usage.ts'
import { ImportConflict, ImportError, importRecords } from './import.ts'

type ImportResult = components['schemas']['ImportResult']

/** How long an import waits for the lock of its project. Only a much larger import holds it for as long. */
const LOCK_TIMEOUT_ms = 5_000
/** A statement on 16 MiB takes a second. */
const STATEMENT_TIMEOUT_ms = 10_000
/** Longer than a request may take to arrive; a lock does not last much longer when the network between is cut. */
const IDLE_TIMEOUT_ms = 45_000
/** So many take about a millisecond to parse. Those of a contact with hundreds of identifiers are fewer. */
const MAX_VALUES_OF_LINE = 1_000

/** Imports the records of requests (docs/semantics.md#import): as many at once as its pool has connections. */
export class Importer {
  readonly #pool: pg.Pool
  readonly #running: Usage

  readonly #lockTimeout_ms: number

  /** @param pool in pipeline mode. Its connections are the imports' own, since they keep temporary tables */
  constructor(pool: pg.Pool, lockTimeout_ms = LOCK_TIMEOUT_ms) {
    this.#pool = pool
    this.#lockTimeout_ms = lockTimeout_ms
    const { max } = pool.options
    this.#running = new Usage({ all: max, project: Math.ceil(max / 2) })
  }

  /**
   * Imports records of a project, all of them or none.
   *
   * @param lines newline-delimited JSON in UTF-8, in parts
   * @throws ApiError invalid_request for the first bad line or for none at all; record_conflict; service_unavailable when
   * as many imports are under way; what the input throws. The database's error otherwise
   */
  async import(project_id: string, lines: AsyncIterable<Buffer>): Promise<ImportResult> {
    if (!this.#running.hasShare(project_id, 1) || !this.#running.hasRoom(1)) throw serviceUnavailable()
    this.#running.add(project_id, 1)
    try {
      const { records } = await importRecords(this.#pool, notEmpty(lines), {
        project_id,
        maxValues: MAX_VALUES_OF_LINE,
        timeouts: {
          statement_timeout: STATEMENT_TIMEOUT_ms,
          idle_in_transaction_session_timeout: IDLE_TIMEOUT_ms,
          lock_timeout: this.#lockTimeout_ms,
        },
        // Autovacuum does it, and nobody waits.
        sizes: { analyze_from_lines: Number.POSITIVE_INFINITY },
      })
      const all = Object.values(records)
      const [added, changed, unchanged] = [
        sum(all.map((one) => one.added)),
        sum(all.map((one) => one.updated)),
        sum(all.map((one) => one.unchanged)),
      ]
      return { records: added + changed + unchanged, added, changed, unchanged }
    } catch (error) {
      if (!(error instanceof ImportError)) throw error
      const { line, field, message } = error.issue
      const issue = { pointer: `/body/${line}${field}`, message }
      throw error instanceof ImportConflict ? recordConflict(issue) : invalidRequest([issue])
    } finally {
      this.#running.add(project_id, -1)
    }
  }
}

async function* notEmpty(parts: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let isEmpty = true
  for await (const part of parts) {
    isEmpty = false
    yield part
  }
  if (isEmpty) throw malformedRequest('The body has no records; send one JSON object on each line.')
}

const sum = (numbers: number[]) => numbers.reduce((total, number) => total + number, 0)
