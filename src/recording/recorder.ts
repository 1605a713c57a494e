import type pg from 'pg'
import { RECORDER_DEFAULTS, type RecorderOptions } from '../config.ts'
import { isLockTimeout, isRetryable, isStalePlan, isUnavailable } from '../database/failures.ts'
import { serviceUnavailable } from '../domain/errors.ts'
import { Usage } from '../domain/usage.ts'
import { type EventToRecord, type Outcome, type Recorded, recordBatch } from './batch.ts'
import type { ParsedEvent } from './custom-event.ts'
import { type EventOutcome, NO_OBSERVER, type RecorderObserver } from './observer.ts'
import { ProjectQueue, type QueuedEvent } from './project-queue.ts'

/** Attempts at a transaction that loses by a serialization failure or a deadlock, which are rare: the locks prevent them. */
const MAX_ATTEMPTS = 5

/**
 * A multi-project batch skips projects that are locked and so never waits. A single-project batch waits for the lock of its
 * project, up to a timeout. So no two batches wait for each other, and a locked project delays no other.
 */
type BatchKind = 'multi-project' | 'single-project'

/** The state of the queues that each kind of batch takes events from. */
const SOURCE_STATES = { 'multi-project': 'queued', 'single-project': 'locked' } as const

interface Batch {
  kind: BatchKind
  queues: ProjectQueue[]
  events: QueuedEvent[]
}

/** `failed`: the database's error, which is no single event's fault. Whether a broken connection committed is unknown. */
type RecorderOutcome = Outcome | { status: 'failed'; error: unknown }

/** The part of the queue that the events of batches may fill, so that two projects' batches refuse no other's single events. */
const BATCHES_SHARE = 0.75

/** The most characters of properties that wait: of a project as many as eight batches of 4 MiB can have. */
const QUEUED_LENGTH = { all: 64 * 1024 * 1024, project: 32 * 1024 * 1024 }

const LOCKED: RecorderOutcome = { status: 'locked' }

/**
 * Records custom events by natural batching (ADR 0008): while a batch is committed, the events for the next one gather, of
 * all projects and without timers.
 *
 * It trades latency for throughput, and only under load: an event waits for at most the batches ahead of it, and many events
 * share one commit and its round trips. An event that arrives alone is recorded at once.
 *
 * A batch is one transaction that locks its projects' rows, so that the outcome is that of one event after another, with
 * several processes on one database too (docs/semantics.md#concurrency). A project is in one batch at a time. Its
 * events wait in a ProjectQueue, whose state (see the diagram there) decides which kind of batch takes them.
 */
export class Recorder {
  readonly #pool: pg.Pool
  readonly #options: RecorderOptions
  readonly #observer: RecorderObserver
  /** Those that are not idle; the first is served first. */
  readonly #queues = new Map<string, ProjectQueue>()
  /** How many more batches of each kind may run at a time. */
  readonly #freeSlots: Record<BatchKind, number>
  /** Connections of batches that just ended, for those that begin in the same turn of the event loop. */
  readonly #warmConnections: pg.PoolClient[] = []
  #pendingEvents = 0
  readonly #queuedLength = new Usage(QUEUED_LENGTH)
  #isScheduled = false

  /**
   * @param pool of at least two connections, in pipeline mode. They are the recorder's own, so that writers never keep readers
   * waiting
   */
  constructor(pool: pg.Pool, options: Partial<RecorderOptions> = {}, observer = NO_OBSERVER) {
    this.#pool = pool
    this.#observer = observer
    this.#options = { ...RECORDER_DEFAULTS, ...options }
    // Half of the connections each, so that batches that wait for locks never keep the others from a connection.
    const half = Math.max(1, Math.floor(pool.options.max / 2))
    this.#freeSlots = { 'multi-project': half, 'single-project': half }
  }

  /** How many events wait or are being recorded, and of how many projects: none when the recorder is idle. */
  get pending(): { events: number; projects: number } {
    return { events: this.#pendingEvents, projects: this.#queues.size }
  }

  /**
   * Records the event. Resolves once it is committed, or was under the same idempotency key before.
   *
   * @param isOfBatch whether it came with others in one request
   * @throws ApiError module_does_not_exist, identifier_conflict, idempotency_key_reused; service_unavailable when too many
   * events are queued or this one was for too long. The database's error otherwise
   */
  async record(project_id: string, event: ParsedEvent, idempotency_key?: string, isOfBatch = false): Promise<Recorded> {
    const { maxQueuedEvents } = this.#options
    const queue = this.#queues.get(project_id) ?? new ProjectQueue(project_id)
    const { length } = event.custom_event_props
    const hasPlace = this.#pendingEvents < maxQueuedEvents * (isOfBatch ? BATCHES_SHARE : 1)
    const isLong = !this.#queuedLength.hasShare(project_id, length) || !this.#queuedLength.hasRoom(length)
    if (!hasPlace || queue.size >= maxQueuedEvents / 2 || isLong) {
      this.#observer.onOverload(1)
      throw serviceUnavailable()
    }
    this.#queues.set(project_id, queue)
    this.#pendingEvents += 1
    this.#queuedLength.add(project_id, length)
    try {
      return await new Promise((resolve, reject) => {
        const queued_ms = performance.now()
        const queued = { event: { ...event, project_id, idempotency_key }, queued_ms, resolve, reject }
        this.#observer.onQueue?.(queued)
        queue.add(queued)
        this.#schedule()
      })
    } finally {
      this.#pendingEvents -= 1
      this.#queuedLength.add(project_id, -length)
    }
  }

  /** Starts batches once all events that arrive in this turn of the event loop are queued. */
  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.#startBatches()
    })
  }

  #startBatches(): void {
    for (const kind of ['multi-project', 'single-project'] as const) {
      while (this.#freeSlots[kind] > 0) {
        const batch = this.#nextBatch(kind)
        if (batch.events.length === 0) break
        void this.#run(batch)
      }
    }
    for (const connection of this.#warmConnections.splice(0)) connection.release()
  }

  /** Takes events for a batch of this kind; an empty one when none wait for it. */
  #nextBatch(kind: BatchKind): Batch {
    const { maxBatchSize } = this.#options
    const batch: Batch = { kind, queues: [], events: [] }
    for (const queue of this.#queues.values()) {
      if (queue.state !== SOURCE_STATES[kind]) continue
      batch.queues.push(queue)
      batch.events.push(...queue.take(maxBatchSize - batch.events.length))
      if (kind === 'single-project' || batch.events.length === maxBatchSize) break
    }
    return batch
  }

  /** Records a batch and settles its events; those of locked projects go back to their queues. Never rejects. */
  async #run({ kind, queues, events }: Batch): Promise<void> {
    this.#freeSlots[kind] -= 1
    const { maxQueueWait_ms, lockTimeout_ms } = this.#options
    const now_ms = performance.now()
    const [expired, current] = partition(events, ({ queued_ms }) => now_ms - queued_ms > maxQueueWait_ms)
    for (const { reject } of expired) reject(serviceUnavailable())
    if (expired.length > 0) this.#observer.onOverload(expired.length)

    const record = () =>
      this.#record(
        current.map(({ event }) => event),
        kind === 'single-project' ? lockTimeout_ms : undefined,
      )
    const outcomes = await (this.#observer.aroundBatch?.({ kind, events: current }, record) ?? record())

    if (current.length > 0) {
      this.#observer.onBatch({
        kind,
        waits_ms: current.map(({ queued_ms }) => now_ms - queued_ms),
        duration_ms: performance.now() - now_ms,
        outcomes: outcomes.map(nameOf),
      })
    }
    const locked = current.filter((_, i) => outcomes[i]?.status === 'locked')
    const lockedByProject = Map.groupBy(locked, ({ event }) => event.project_id)
    for (const queue of queues) this.#finish(queue, lockedByProject.get(queue.projectId) ?? [])
    this.#freeSlots[kind] += 1
    // Before the callers go on: PostgreSQL records the next batches while they send their responses.
    this.#startBatches()
    for (const [i, queued] of current.entries()) settle(queued, outcomes[i] as RecorderOutcome)
  }

  /** What waits in the queue of a project that was just served comes after the other projects. */
  #finish(queue: ProjectQueue, locked: readonly QueuedEvent[]): void {
    queue.finish(locked)
    this.#queues.delete(queue.projectId)
    if (queue.state !== 'idle') this.#queues.set(queue.projectId, queue)
  }

  /** Records events in one transaction; one by one when it fails and the database is available. */
  async #record(events: readonly EventToRecord[], lockTimeout_ms?: number): Promise<RecorderOutcome[]> {
    if (events.length === 0) return []
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#transaction(events, lockTimeout_ms)
      } catch (error) {
        if (isLockTimeout(error)) return events.map(() => LOCKED)
        // Each time, a connection with plans from before the change is closed, so that this ends.
        if (isStalePlan(error)) continue
        if (isRetryable(error) && attempt < MAX_ATTEMPTS) {
          this.#observer.onRetry()
          continue
        }
        if (events.length > 1 && !isUnavailable(error)) return this.#recordOneByOne(events, lockTimeout_ms)
        return events.map(() => ({ status: 'failed', error }))
      }
    }
  }

  /**
   * For a batch that one of its events makes fail: alone, only that event does. Once one is locked, later events of its
   * project are left out too, so that they do not overtake it.
   */
  async #recordOneByOne(events: readonly EventToRecord[], lockTimeout_ms?: number): Promise<RecorderOutcome[]> {
    const outcomes: RecorderOutcome[] = []
    const lockedProjects = new Set<string>()
    for (const event of events) {
      const isBehindLocked = lockedProjects.has(event.project_id)
      const [outcome] = isBehindLocked ? [LOCKED] : await this.#record([event], lockTimeout_ms)
      if (outcome?.status === 'locked') lockedProjects.add(event.project_id)
      outcomes.push(outcome as RecorderOutcome)
    }
    return outcomes
  }

  /** @throws an error that isUnavailable when it is unknown whether the transaction was committed: it must not be repeated */
  async #transaction(events: readonly EventToRecord[], lockTimeout_ms?: number): Promise<Outcome[]> {
    const connection = this.#warmConnections.pop() ?? (await this.#pool.connect())
    try {
      const outcomes = await recordBatch(connection, events, lockTimeout_ms, this.#observer.onCommit)
      this.#warmConnections.push(connection)
      return outcomes
    } catch (error) {
      const isRolledBack = await connection.query('ROLLBACK').then(
        () => true,
        () => false,
      )
      connection.release(!isRolledBack || isStalePlan(error))
      throw isRolledBack ? error : new Error('Connection terminated within a transaction', { cause: error })
    }
  }
}

/** Gives the caller of a queued event its outcome; an event that is back in its queue has none yet. */
function settle({ resolve, reject }: QueuedEvent, outcome: RecorderOutcome): void {
  if (outcome.status === 'recorded') resolve(outcome.response)
  else if (outcome.status !== 'locked') reject(outcome.error)
}

function nameOf(outcome: RecorderOutcome): EventOutcome {
  if (outcome.status === 'recorded') return outcome.response.replayed ? 'replayed' : 'recorded'
  return outcome.status === 'refused' ? outcome.error.errorCode : outcome.status
}

function partition<T>(items: readonly T[], test: (item: T) => boolean): [T[], T[]] {
  return [items.filter(test), items.filter((item) => !test(item))]
}
