import type pg from 'pg'
import { isLockTimeout, isRetryable, isUnavailable } from '../database/failures.ts'
import { serviceUnavailable } from '../domain/errors.ts'
import { type Outcome, type Post, type Recorded, recordBatch } from './batch.ts'
import type { ParsedEvent } from './custom-event.ts'

const MAX_TRIES = 5

export interface RecorderLimits {
  /**
   * How many events may be under way or wait for their turn, over all projects, before more are turned away. Those of one
   * project may take up half of it, so that one that is held up leaves room for the others.
   */
  maxWaiting?: number
  /** How long an event may wait for its turn, in milliseconds; its caller has given up by then, or tries elsewhere. */
  maxWait_ms?: number
  /** How long a batch may wait for its project to be free before others have their turn, in milliseconds. */
  maxLockWait_ms?: number
  /** The most events of one transaction. */
  maxBatch?: number
}

/** A post that waits for its turn. */
interface Waiting {
  post: Post
  /** When it has waited too long, on the clock of performance.now(). */
  latest_ms: number
  settle: (outcome: Recorded | Error) => void
}

/**
 * Records custom events in batches: while one commits, the next gathers, over all projects and without timers, so that a
 * lone event is recorded at once and a crowd shares its commits. Each batch is one transaction that holds its projects'
 * rows, so the outcome is always that of the posts one after another, also with several processes on one database.
 */
export class Recorder {
  readonly #pool: pg.Pool
  readonly #limits: Required<RecorderLimits>
  readonly #waiting = new Map<string, Waiting[]>()
  /** Projects with a batch under way: a second one would only wait for the first. */
  readonly #busy = new Set<string>()
  /** Projects that somebody else was seen to write in. */
  readonly #contested = new Set<string>()
  /** Batches that may be begun: of all projects together, which never wait for a lock, and of contested ones alone. */
  readonly #free: { shared: number; lone: number }
  /** Connections that are at hand for the next batches of this moment, else they go back to the pool. */
  readonly #idle: pg.PoolClient[] = []
  #pending = 0
  #isScheduled = false

  /**
   * @param pool of at least two connections of the recorder's own, in pipeline mode, so that writers never keep readers
   * from theirs
   */
  constructor(pool: pg.Pool, limits: RecorderLimits = {}) {
    this.#pool = pool
    this.#limits = { maxWaiting: 2_000, maxWait_ms: 10_000, maxLockWait_ms: 500, maxBatch: 256, ...limits }
    const half = Math.max(1, Math.floor(pool.options.max / 2))
    this.#free = { shared: half, lone: half }
  }

  /**
   * Records the event and resolves once it is committed; with an idempotency key that was used for the same event,
   * resolves to the stored answer.
   *
   * @throws ApiError module_does_not_exist, identifier_conflict, idempotency_key_reused; service_unavailable when too
   * many wait or this one waited too long. What the database answers to a transaction that lost against others too
   * often
   */
  async record(project_id: string, event: ParsedEvent, idempotency_key?: string): Promise<Recorded> {
    const { maxWaiting } = this.#limits
    const ahead = this.#waiting.get(project_id)?.length ?? 0
    if (this.#pending >= maxWaiting || ahead >= maxWaiting / 2) throw serviceUnavailable()
    this.#pending += 1
    const post = { ...event, project_id, idempotency_key }
    const latest_ms = performance.now() + this.#limits.maxWait_ms
    const outcome = await new Promise<Recorded | Error>((settle) => {
      this.#queueOf(project_id).push({ post, latest_ms, settle })
      this.#schedule()
    })
    this.#pending -= 1
    if (outcome instanceof Error) throw outcome
    return outcome
  }

  #queueOf(projectId: string): Waiting[] {
    const queue = this.#waiting.get(projectId) ?? []
    this.#waiting.set(projectId, queue)
    return queue
  }

  /** Begins batches once all that arrives in this turn of the event loop is there. */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.#begin()
    })
  }

  #begin(): void {
    for (const kind of ['shared', 'lone'] as const) {
      for (let batch = this.#take(kind); batch.length > 0; batch = this.#take(kind)) void this.#run(kind, batch)
    }
    for (const client of this.#idle.splice(0)) client.release()
  }

  /** The next batch of this kind; none when there is nothing to do, or no connection to do it on. */
  #take(kind: 'shared' | 'lone'): Waiting[] {
    const batch: Waiting[] = []
    if (this.#free[kind] === 0) return batch
    for (const [projectId, queue] of this.#waiting) {
      if (this.#busy.has(projectId) || this.#contested.has(projectId) !== (kind === 'lone')) continue
      batch.push(...queue.splice(0, this.#limits.maxBatch - batch.length))
      // What is left goes to the back: the others come first.
      this.#waiting.delete(projectId)
      if (queue.length > 0) this.#waiting.set(projectId, queue)
      if (kind === 'lone' || batch.length === this.#limits.maxBatch) break
    }
    return batch
  }

  /** Records the batch and tells each caller its outcome. What was left out waits on, at the head of its queue. */
  async #run(kind: 'shared' | 'lone', batch: Waiting[]): Promise<void> {
    const projectIds = new Set(batch.map(({ post }) => post.project_id))
    for (const projectId of projectIds) {
      this.#busy.add(projectId)
      // Whether it still is, this batch finds out.
      this.#contested.delete(projectId)
    }
    this.#free[kind] -= 1

    const now_ms = performance.now()
    const [late, timely] = partition(batch, ({ latest_ms }) => latest_ms < now_ms)
    for (const { settle } of late) settle(serviceUnavailable())
    const outcomes = await this.#outcomesOf(
      timely.map(({ post }) => post),
      kind === 'lone',
    )
    const leftOut = timely.filter((_, i) => outcomes[i] === undefined)
    for (const waiting of leftOut.toReversed()) {
      this.#contested.add(waiting.post.project_id)
      this.#queueOf(waiting.post.project_id).unshift(waiting)
    }
    this.#free[kind] += 1
    for (const projectId of projectIds) this.#busy.delete(projectId)
    // What comes next is on its way before the callers are told: PostgreSQL works on it while they are.
    this.#begin()
    timely.forEach(({ settle }, i) => {
      const outcome = outcomes[i]
      if (outcome !== undefined) settle(outcome)
    })
  }

  /** What became of each post; an error of the database that cannot be laid at one post's door is everybody's. */
  async #outcomesOf(posts: Post[], wait: boolean): Promise<(Outcome | Error)[]> {
    for (let tries = 1; posts.length > 0; tries += 1) {
      try {
        return await this.#transaction(posts, wait)
      } catch (error) {
        if (isLockTimeout(error)) return posts.map(() => undefined)
        if (isRetryable(error) && tries < MAX_TRIES) continue
        if (posts.length === 1 || isUnavailable(error)) return posts.map(() => error as Error)
        break
      }
    }
    // One of them is at fault; on their own, it alone fails.
    const outcomes: (Outcome | Error)[] = []
    for (const post of posts) outcomes.push(...(await this.#outcomesOf([post], wait)))
    return outcomes
  }

  async #transaction(posts: Post[], wait: boolean): Promise<Outcome[]> {
    const client = this.#idle.pop() ?? (await this.#pool.connect())
    try {
      const outcomes = await recordBatch(client, posts, wait ? this.#limits.maxLockWait_ms : undefined)
      this.#idle.push(client)
      return outcomes
    } catch (error) {
      // Behind what failed PostgreSQL refuses everything until the transaction ends.
      const isSane = await client.query('ROLLBACK').then(
        () => true,
        () => false,
      )
      client.release(!isSane)
      // Nobody knows whether a transaction was committed whose connection broke, so it must not be run again.
      throw isSane ? error : new Error('Connection terminated within a transaction', { cause: error })
    }
  }
}

function partition<T>(items: readonly T[], test: (item: T) => boolean): [T[], T[]] {
  return [items.filter(test), items.filter((item) => !test(item))]
}
