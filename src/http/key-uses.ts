import { AsyncLocalStorage } from 'node:async_hooks'
import type { Database } from '../database/pool.ts'
import { toIsoTimestamp } from '../domain/timestamp.ts'
import { type KeyUse, updateKeysUsed } from '../queries/api-keys.ts'

const MINUTE_ms = 60_000
/** How long a use waits for others, to be written with them in one statement. */
const DELAY_ms = 100
/** How many uses are written at once, in some two milliseconds, for which lists wait on the shared connection. */
const MAX_BATCH = 100

/**
 * Records the minute in which each key was last used, in the background and for many keys at once. The trade: a process that is
 * killed loses the uses of the last 100 ms, and an error those of many keys.
 */
export class KeyUses {
  readonly #db: Database
  readonly #onError: (error: unknown) => void
  /** Keys whose use in the current minute is recorded already. Replaced every minute, which bounds it. */
  #usedThisMinute = new Set<string>()
  #minute = 0
  /** Those that are yet to be written, by the name of the key. */
  readonly #waiting = new Map<string, KeyUse>()
  #timer: NodeJS.Timeout | undefined
  #written: Promise<void> = Promise.resolve()
  /** Runs a function in no request's context: what is done for many is in the trace of none. */
  readonly #outsideRequests = AsyncLocalStorage.snapshot()

  /** @param onError called when uses could not be written, which are lost then */
  constructor(db: Database, onError: (error: unknown) => void) {
    this.#db = db
    this.#onError = onError
  }

  /** @param name of the key, its project included */
  record(name: string, project_id: string, key_id: string): void {
    const minute = Math.floor(Date.now() / MINUTE_ms)
    if (minute !== this.#minute) {
      this.#minute = minute
      this.#usedThisMinute = new Set()
    }
    if (this.#usedThisMinute.has(name)) return
    this.#usedThisMinute.add(name)
    this.#waiting.set(name, { project_id, key_id, minute: toIsoTimestamp(new Date(minute * MINUTE_ms)) })
    this.#timer ??= this.#outsideRequests(() => setTimeout(() => void this.write(), DELAY_ms).unref())
  }

  /**
   * Writes what waits. Resolves when every use recorded so far is written, or after an error, so that a stop waits for one failure
   * alone: what still waits then is written with the next uses.
   */
  write(): Promise<void> {
    clearTimeout(this.#timer)
    this.#timer = undefined
    this.#written = this.#written.then(() => this.#writeWaiting())
    return this.#written
  }

  async #writeWaiting(): Promise<void> {
    try {
      while (this.#waiting.size > 0) {
        const batch = [...this.#waiting.entries().take(MAX_BATCH)]
        for (const [name] of batch) this.#waiting.delete(name)
        const uses = batch.map(([, use]) => use)
        await updateKeysUsed(this.#db, uses)
      }
    } catch (error) {
      this.#onError(error)
    }
  }
}
