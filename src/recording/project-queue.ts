import assert from 'node:assert'
import type { EventToRecord, Recorded } from './batch.ts'

/**
 * The state of a project's queue.
 *
 *              add()             take()                 finish(), none left
 *     [idle] --------> [queued] --------> [recording] -----------------------> [idle]
 *                         ^                |   ^   |
 *                         |    finish(),   |   |   |  finish(), project was locked
 *                         +-- others wait -+   |   v
 *                                       take() +--- [locked]
 *
 * When all that wait expire, it goes from `queued` or `locked` to `idle`.
 *
 * - `idle`: no events.
 * - `queued`: events wait for the next multi-project batch.
 * - `recording`: a batch is recording events; others may wait. A second batch would only wait for the lock of the first.
 * - `locked`: events wait for a single-project batch, since another process or an import was seen to hold the project's lock.
 */
export type QueueState = 'idle' | 'queued' | 'recording' | 'locked'

/** The states that may follow each. */
const TRANSITIONS: Record<QueueState, readonly QueueState[]> = {
  idle: ['queued'],
  queued: ['recording', 'idle'],
  recording: ['idle', 'queued', 'locked'],
  locked: ['recording', 'idle'],
}

/** An event whose caller waits for it to be recorded. */
export interface QueuedEvent {
  event: EventToRecord
  /** How many characters its properties and identifiers have. */
  length: number
  /** When it came, in milliseconds of performance.now(). */
  queued_ms: number
  resolve: (recorded: Recorded) => void
  reject: (error: unknown) => void
}

/** The events of one project, in the order in which they are recorded. */
export class ProjectQueue {
  readonly projectId: string
  #state: QueueState = 'idle'
  #waiting: QueuedEvent[] = []
  #recording = 0

  constructor(projectId: string) {
    this.projectId = projectId
  }

  get state(): QueueState {
    return this.#state
  }

  /** The number of events that wait or are being recorded. */
  get size(): number {
    return this.#waiting.length + this.#recording
  }

  add(event: QueuedEvent): void {
    this.#waiting.push(event)
    if (this.#state === 'idle') this.#enter('queued')
  }

  /** Removes those that wait and came before, in milliseconds of performance.now(). */
  expire(before_ms: number): QueuedEvent[] {
    const kept = this.#waiting.findIndex(({ queued_ms }) => queued_ms >= before_ms)
    const expired = this.#waiting.splice(0, kept < 0 ? this.#waiting.length : kept)
    if (expired.length > 0 && this.size === 0) this.#enter('idle')
    return expired
  }

  /** Takes the oldest events for a batch: so many at the most, and none after those that have this length. */
  take(max: number, maxLength: number): QueuedEvent[] {
    this.#enter('recording')
    let length = 0
    let count = 0
    while (count < max && count < this.#waiting.length && length < maxLength) {
      length += (this.#waiting[count] as QueuedEvent).length
      count += 1
    }
    this.#recording = count
    return this.#waiting.splice(0, count)
  }

  /**
   * Ends the batch that took events.
   *
   * @param locked those of the events that were not recorded since the project was locked; they are the next again
   */
  finish(locked: readonly QueuedEvent[]): void {
    this.#waiting.unshift(...locked)
    this.#recording = 0
    if (locked.length > 0) this.#enter('locked')
    else this.#enter(this.#waiting.length > 0 ? 'queued' : 'idle')
  }

  #enter(state: QueueState): void {
    assert(TRANSITIONS[this.#state].includes(state), `a queue cannot go from ${this.#state} to ${state}`)
    this.#state = state
  }
}
