import { setTimeout as sleep } from 'node:timers/promises'
import { isDistributed } from '../database/distribution.ts'
import { isOutage } from '../database/failures.ts'
import type { Database } from '../database/pool.ts'
import { deleteIdempotencyKeys, leastEventId } from '../queries/idempotency.ts'
import { databaseTime_ms, selectProjects } from '../queries/projects.ts'

export interface PrunerOptions {
  /** How old an Idempotency-Key is, in days, when it is deleted. */
  retention_days: number
  /** From the end of a run to the next. */
  interval_ms?: number
  /** How many a statement deletes at most, each of which is a transaction. */
  chunkSize?: number
}

/** What a run has done, and why it ended early. */
export interface PruningRun {
  deleted: number
  duration_ms: number
  error?: unknown
}

const DAY_ms = 24 * 60 * 60 * 1_000
const INTERVAL_ms = 60 * 60 * 1_000
/** Some milliseconds of work, after which others that delete the same rows, such as an erasure, get their turn. */
const CHUNK_SIZE = 1_000
/** After a statement it rests so many times as long. Without, recording was half as fast meanwhile. */
const REST = 4

/**
 * Deletes Idempotency-Keys that are older than a number of days, at once and then every hour (ADR 0028). Recording never
 * waits for it: it only reads keys, and adds new ones. Any number of processes may do so at the same time.
 */
export class IdempotencyPruner {
  /** How many it has deleted. */
  deleted = 0
  readonly #db: Database
  readonly #options: Required<PrunerOptions>
  readonly #closing = new AbortController()
  readonly #runs: Promise<void>

  /** @param onRun called at the end of each run */
  constructor(db: Database, options: PrunerOptions, onRun: (run: PruningRun) => void) {
    this.#db = db
    this.#options = { interval_ms: INTERVAL_ms, chunkSize: CHUNK_SIZE, ...options }
    this.#runs = this.#runUntilClosed(onRun)
  }

  /** Ends the run under way after its statement. */
  async close(): Promise<void> {
    this.#closing.abort()
    await this.#runs
  }

  async #runUntilClosed(onRun: (run: PruningRun) => void): Promise<void> {
    while (!this.#closing.signal.aborted) {
      const [start_ms, deletedBefore] = [performance.now(), this.deleted]
      const failure = await this.#run().then(
        () => undefined,
        (error: unknown) => ({ error }),
      )
      onRun({ deleted: this.deleted - deletedBefore, duration_ms: performance.now() - start_ms, ...failure })
      await this.#rest(this.#options.interval_ms)
    }
  }

  /** Waits, but not when it is closed, and without keeping the process alive. */
  async #rest(duration_ms: number): Promise<void> {
    await sleep(duration_ms, undefined, { signal: this.#closing.signal, ref: false }).catch(() => {})
  }

  async #run(): Promise<void> {
    // Of the two clocks the one that is behind: one that is wrong by days must not delete what is young.
    const now_ms = Math.min(Date.now(), await databaseTime_ms(this.#db))
    const before = leastEventId(now_ms - this.#options.retention_days * DAY_ms)
    let failure: { error: unknown } | undefined
    for (const { project_id } of await selectProjects(this.#db)) {
      try {
        await this.#pruneProject(project_id, before)
      } catch (error) {
        // A project may fail alone: too much of it is still to be read that was deleted, or its node of a cluster is away.
        if (isOutage(error) && !isDistributed(this.#db)) throw error
        failure ??= { error }
      }
    }
    if (failure) throw failure.error
  }

  async #pruneProject(projectId: string, before: string): Promise<void> {
    const { chunkSize } = this.#options
    let deleted: string[]
    let after = ''
    do {
      if (this.#closing.signal.aborted) return
      const start_ms = performance.now()
      try {
        deleted = await deleteIdempotencyKeys(this.#db, projectId, { after, before }, chunkSize)
        this.deleted += deleted.length
      } finally {
        // After a failure too, which may have been a statement that took too long.
        await this.#rest((performance.now() - start_ms) * REST)
      }
      // Not from the beginning again: PostgreSQL reads deleted rows until no transaction can see them any more.
      after = deleted.reduce((greatest, id) => (id > greatest ? id : greatest), after)
    } while (deleted.length === chunkSize)
  }
}
