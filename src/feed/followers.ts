import { setTimeout } from 'node:timers/promises'
import type { Database } from '../database/pool.ts'
import { serviceUnavailable } from '../domain/errors.ts'
import type { Wait } from '../domain/read-lease.ts'
import { selectLastPositions } from '../queries/projects.ts'

export interface FollowersOptions {
  /** How many requests may wait at once; half of them in one project. */
  maxFollowers: number
  /** How often the database is asked for new events, in milliseconds. */
  pollInterval_ms?: number
}

/** Five look-ups a second, however many wait; a follower has an event well within a second of its commit. */
const POLL_INTERVAL_ms = 200

/** A request that waits for events of its project after a position. */
interface Follower {
  projectId: string
  position: number
  deadline_ms: number
  end: (lastPosition?: number) => void
}

/**
 * The requests that wait for events (docs/adr/0020). While there are any, one look-up after another asks for the last
 * positions of all their projects, so that a waiting request costs the database nothing, and an event of any process ends
 * its wait.
 */
export class Followers {
  readonly #db: Database
  readonly #maxFollowers: number
  readonly #pollInterval_ms: number
  readonly #byProject = new Map<string, Set<Follower>>()
  #isPolling = false
  #isClosed = false
  /** How many requests wait. */
  count = 0

  constructor(db: Database, { maxFollowers, pollInterval_ms = POLL_INTERVAL_ms }: FollowersOptions) {
    this.#db = db
    this.#maxFollowers = maxFollowers
    this.#pollInterval_ms = pollInterval_ms
  }

  /**
   * Waits until the project has an event after the position, or the time is over, or the followers are closed. Ends with
   * the position of the project's last event in the first case, else with undefined.
   * @throws ApiError service_unavailable when too many wait
   */
  wait(projectId: string, position: number, timeout_ms: number): Wait<number | undefined> {
    const followers = this.#byProject.get(projectId) ?? new Set()
    if (this.count >= this.#maxFollowers || followers.size >= this.#maxFollowers / 2) throw serviceUnavailable()
    const { promise: ended, resolve } = Promise.withResolvers<number | undefined>()
    const follower: Follower = {
      projectId,
      position,
      deadline_ms: performance.now() + timeout_ms,
      end: (lastPosition) => {
        if (followers.delete(follower)) this.count -= 1
        if (followers.size === 0) this.#byProject.delete(projectId)
        resolve(lastPosition)
      },
    }
    followers.add(follower)
    this.#byProject.set(projectId, followers)
    this.count += 1
    if (this.#isClosed) follower.end()
    else if (!this.#isPolling) void this.#poll()
    return { ended, cancel: () => follower.end() }
  }

  /** Ends all waits, and those that are still to begin. */
  close(): void {
    this.#isClosed = true
    for (const follower of this.#all()) follower.end()
  }

  async #poll(): Promise<void> {
    this.#isPolling = true
    while (this.count > 0) {
      await setTimeout(this.#pollInterval_ms, undefined, { ref: false })
      // Without the database nobody learns of events; whoever reads next learns why.
      const projects = await selectLastPositions(this.#db, [...this.#byProject.keys()]).catch(() => [])
      const lastPositions = new Map(projects.map(({ project_id, last_position }) => [project_id, last_position]))
      const now_ms = performance.now()
      for (const follower of this.#all()) {
        const lastPosition = lastPositions.get(follower.projectId) ?? 0
        if (lastPosition > follower.position) follower.end(lastPosition)
        else if (follower.deadline_ms <= now_ms) follower.end()
      }
    }
    this.#isPolling = false
  }

  #all(): Follower[] {
    return [...this.#byProject.values()].flatMap((followers) => [...followers])
  }
}
