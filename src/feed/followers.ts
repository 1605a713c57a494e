import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import type { Database } from '../database/pool.ts'
import type { Wait } from '../domain/read-lease.ts'
import { Usage } from '../domain/usage.ts'
import { findLastPositions } from '../queries/events.ts'

export interface FollowersOptions {
  /** How many requests may follow feeds at once; half of them in one project. */
  maxFollowers: number
  /** How often the database is asked for what is new, in milliseconds. */
  pollInterval_ms?: number
}

/** Five look-ups a second, however many wait; a follower has an event well within a second of its commit. */
const POLL_INTERVAL_ms = 200

/** Beside an import a look-up may take long, and the next one waits so many times as long (ADR 0020), but hardly longer than this. */
const REST = 4
const MAX_REST_ms = 2_000

/**
 * What took longer is looked up by a statement of its own, so that other projects do not wait for it and rest with it: of those that
 * were looked up together, the next look-ups tell which one was slow. So many at a time, since all are when the database is.
 */
const SLOW_ms = POLL_INTERVAL_ms / REST
const MAX_ALONE = 32

/** What a project has a feed of. */
export type Feed = 'events' | 'erasures'

/** A request that waits for what comes in a feed of its project after a position. */
interface Waiting {
  feed: Feed
  position: number
  end: (lastPosition: number) => void
}

/** A project whose feeds requests wait for, or did until its look-up or the rest after it is over. */
interface FollowedProject {
  waiting: Set<Waiting>
  /** When it is looked up next, as `performance.now()` counts; not while a look-up is under way. */
  due_ms: number
  /** Whether the last look-up was slow, of this project or of another that was looked up with it. */
  isSlow: boolean
  /** Why the last look-up failed, and when. */
  failure?: { error: unknown; at_ms: number } | undefined
}

/**
 * The requests that wait for events or erasures (ADR 0020). While there are any, the last positions of their projects are
 * polled: those of all projects that are due by one statement, those that were slow by one each. So a waiting request costs
 * the database nothing, and a commit by any process ends its wait. On a cluster each project has a look-up of its own, so
 * that one that fails or hangs affects no other.
 */
export class Followers {
  readonly #db: Database
  readonly #pollInterval_ms: number
  readonly #following: Usage
  readonly #followed = new Map<string, FollowedProject>()
  readonly #closing = new AbortController()
  #isPolling = false

  constructor(db: Database, { maxFollowers, pollInterval_ms = POLL_INTERVAL_ms }: FollowersOptions) {
    this.#db = db
    this.#following = new Usage({ all: maxFollowers, project: Math.ceil(maxFollowers / 2) })
    this.#pollInterval_ms = pollInterval_ms
  }

  /** How many requests follow feeds. */
  get count(): number {
    return this.#following.total
  }

  /**
   * Counts a request that may wait, until the returned function is called.
   * @throws ApiError service_unavailable when there are too many
   */
  enter(projectId: string): () => void {
    this.#following.take(projectId, 1)
    return () => this.#following.add(projectId, -1)
  }

  /**
   * Waits until the project's feed has something after the position, and ends with its last position. Ends with undefined
   * when it is cancelled, the followers are closed, or the time is over, at once if it is negative. Rejects with the database's
   * error if the time is over and the last look-up has failed since.
   */
  wait(feed: Feed, projectId: string, position: number, timeout_ms: number): Wait<number | undefined> {
    const { promise: ended, resolve, reject } = Promise.withResolvers<number | undefined>()
    const project = this.#followed.get(projectId) ?? { waiting: new Set(), due_ms: 0, isSlow: false }
    this.#followed.set(projectId, project)
    const leave = () => {
      clearTimeout(timer)
      this.#closing.signal.removeEventListener('abort', cancel)
      project.waiting.delete(one)
    }
    const end = (lastPosition?: number) => {
      leave()
      resolve(lastPosition)
    }
    const cancel = () => end()
    const one = { feed, position, end }
    const begin_ms = performance.now()
    const timer = setTimeout(
      () => {
        leave()
        if (project.failure && project.failure.at_ms >= begin_ms) reject(project.failure.error)
        else resolve(undefined)
      },
      Math.max(0, timeout_ms),
    )
    project.waiting.add(one)
    this.#closing.signal.addEventListener('abort', cancel)
    if (this.#closing.signal.aborted) cancel()
    else if (!this.#isPolling) void this.#poll()
    return { ended, cancel }
  }

  /** Ends all waits, and those that are still to begin. */
  close(): void {
    this.#closing.abort()
  }

  async #poll(): Promise<void> {
    this.#isPolling = true
    do {
      await sleep(this.#pollInterval_ms)
      const now_ms = performance.now()
      const slow: (() => void)[] = []
      for (const [projectId, project] of this.#followed) {
        if (project.due_ms > now_ms) continue
        const check = () => void this.#check(projectId, project)
        if (project.waiting.size === 0) this.#followed.delete(projectId)
        else if (project.isSlow) slow.push(check)
        else check()
      }
      // Those of one turn become one statement.
      for (const [i, check] of slow.entries()) {
        if (i <= MAX_ALONE) await nextTurn()
        check()
      }
    } while (this.#followed.size > 0 && !this.#closing.signal.aborted)
    this.#isPolling = false
  }

  async #check(projectId: string, project: FollowedProject): Promise<void> {
    const begin_ms = performance.now()
    project.due_ms = Number.POSITIVE_INFINITY
    try {
      const last = await findLastPositions(this.#db, projectId)
      project.failure = undefined
      for (const { feed, position, end } of project.waiting) {
        const lastPosition = last?.[feed] ?? 0
        if (lastPosition > position) end(lastPosition)
      }
    } catch (error) {
      project.failure = { error, at_ms: performance.now() }
    }
    const end_ms = performance.now()
    const took_ms = end_ms - begin_ms
    project.isSlow = took_ms > SLOW_ms
    project.due_ms = end_ms + Math.min(took_ms * REST, MAX_REST_ms)
  }
}
