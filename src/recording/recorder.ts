import type pg from 'pg'
import { RECORDER_DEFAULTS, type RecorderOptions } from '../config.ts'
import { isLockTimeout, isOutage, isRetryable, isStalePlan, isUnavailable } from '../database/failures.ts'
import { serviceUnavailable } from '../domain/errors.ts'
import { Usage } from '../domain/usage.ts'
import { beginWithRecordingLock, type EventToRecord, type Outcome, type Recorded, recordBatch } from './batch.ts'
import type { ParsedEvent } from './custom-event.ts'
import { type BatchKind, type EventOutcome, NO_OBSERVER, type RecorderObserver } from './observer.ts'
import { ProjectQueue, type QueuedEvent } from './project-queue.ts'

/** Attempts at a transaction that loses by a serialization failure or a deadlock, which are rare: the locks prevent them. */
const MAX_ATTEMPTS = 5

/** The state of the queues that each kind of batch takes events from. */
const SOURCE_STATES = { 'multi-project': 'queued', 'single-project': 'locked' } as const

/** That of all projects where the database is not distributed: it has the name of their table. */
const ONLY_SHARD = 'projects'

/** How long after it has met others at the recording lock, or a project that they had locked, a recorder takes turns. */
const CONTENTION_ms = 1_000

/**
 * How long after it last found a project locked at the most. Then it goes without a turn once, and finds out whether they still
 * write in the same projects: else those that once met at an import would keep each other waiting for ever.
 */
const MAX_CONTENTION_ms = 10_000

/** How long a batch waits for its turn: many times a batch of each of several processes. Less than any statement timeout. */
const TURN_TIMEOUT_ms = 500

/** How long a recorder goes without turns after one that did not come. */
const STUCK_LOCK_ms = 2_000

/**
 * The most events of a batch while several projects wait, so that none waits long for another. Larger batches save little per
 * event, except for a single project, whose thousand events then share the wait between two batches (ADR 0008).
 */
const CONTESTED_BATCH_SIZE = 256

/**
 * After how many characters a batch takes no more events: a thousand of a thousand. Its statements are written in one turn of
 * the event loop, some milliseconds for these, while its projects are locked.
 */
const BATCH_LENGTH = 1024 * 1024

/** How often events that have waited for too long are looked for. */
const EXPIRY_INTERVAL_ms = 1_000

/** `failed`: the database's error, which is no single event's fault. Whether a broken connection committed is unknown. */
type RecorderOutcome = Outcome | { status: 'failed'; error: unknown }

/** The part of the queue that the events of batches may fill, so that two projects' batches refuse no other's single events. */
const BATCHES_SHARE = 0.75

/** The most characters of events that wait: of a project as many as eight batches of 4 MiB can have. */
const QUEUED_LENGTH = { all: 64 * 1024 * 1024, project: 32 * 1024 * 1024 }

/** How many characters the properties and the values of the identifiers of an event have: all else is short. */
const lengthOf = ({ custom_event_props, identifiers }: ParsedEvent): number =>
  identifiers.reduce((sum, { value }) => sum + value.length, custom_event_props.length)

const LOCKED: RecorderOutcome = { status: 'locked' }

/** What is no setting of the operator's. */
interface RecorderTuning {
  /** How long a batch waits for its turn, in milliseconds. */
  turnTimeout_ms: number
  /** Whether the position of the database with an event is told. */
  readsPosition: boolean
  /** Whether the database is distributed by project, so that each batch is of one shard alone (ADR 0033). */
  isDistributed: boolean
}

const TUNING: RecorderTuning = { turnTimeout_ms: TURN_TIMEOUT_ms, readsPosition: false, isDistributed: false }

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
 *
 * While other processes record in the same projects, multi-project batches take a lock in turn (ADR 0031). A batch takes its
 * events only once it has that, so that it is as large as the wait was long.
 */
export class Recorder {
  readonly #pool: pg.Pool
  readonly #options: RecorderOptions & RecorderTuning
  readonly #observer: RecorderObserver
  /** Those that are not idle; the first is served first. */
  readonly #queues = new Map<string, ProjectQueue>()
  /** How many batches of each kind may run at a time. */
  readonly #slots: number
  readonly #running: Record<BatchKind, number> = { 'multi-project': 0, 'single-project': 0 }
  /**
   * Of a distributed database: the shard of each project that had a batch. When a shard was split, batches of its projects fail,
   * whose events are then recorded one by one, and tell the new ones.
   */
  readonly #shards: Map<string, string> | undefined
  /** The shards of the batches that wait for their turn, or have it. */
  readonly #turns = new Set<string>()
  #foundLocked_ms = Number.NEGATIVE_INFINITY
  #isContendedUntil_ms = Number.NEGATIVE_INFINITY
  #isLockStuckUntil_ms = Number.NEGATIVE_INFINITY
  /** Connections of batches that just ended, for those that begin in the same turn of the event loop. */
  readonly #warmConnections: pg.PoolClient[] = []
  #pendingEvents = 0
  readonly #queuedLength = new Usage(QUEUED_LENGTH)
  #isScheduled = false
  #expiry: NodeJS.Timeout | undefined

  /**
   * @param pool of at least two connections, in pipeline mode. They are the recorder's own, so that writers never keep readers
   * waiting
   */
  constructor(pool: pg.Pool, options: Partial<RecorderOptions & RecorderTuning> = {}, observer = NO_OBSERVER) {
    this.#pool = pool
    this.#observer = observer
    this.#options = { ...RECORDER_DEFAULTS, ...TUNING, ...options }
    this.#shards = this.#options.isDistributed ? new Map() : undefined
    // Half of the connections each, so that batches that wait for locks never keep the others from a connection.
    this.#slots = Math.max(1, Math.floor(pool.options.max / 2))
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
    const length = lengthOf(event)
    const hasPlace = this.#pendingEvents < maxQueuedEvents * (isOfBatch ? BATCHES_SHARE : 1)
    const isLong = !this.#queuedLength.fits(project_id, length)
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
        const queued = { event: { ...event, project_id, idempotency_key }, length, queued_ms, resolve, reject }
        this.#observer.onQueue?.(queued)
        queue.add(queued)
        this.#schedule()
        this.#scheduleExpiry()
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

  #scheduleExpiry(): void {
    this.#expiry ??= setTimeout(() => this.#expire(), EXPIRY_INTERVAL_ms).unref()
  }

  /** Refuses what waits for too long: with many locked projects it takes long until each has a batch. */
  #expire(): void {
    this.#expiry = undefined
    const before_ms = performance.now() - this.#options.maxQueueWait_ms
    for (const queue of this.#queues.values()) {
      this.#refuseExpired(queue.expire(before_ms))
      if (queue.state === 'idle') this.#queues.delete(queue.projectId)
    }
    if (this.#queues.size > 0) this.#scheduleExpiry()
  }

  #refuseExpired(expired: readonly QueuedEvent[]): void {
    for (const { reject } of expired) reject(serviceUnavailable())
    if (expired.length > 0) this.#observer.onOverload(expired.length)
  }

  #startBatches(): void {
    for (const kind of ['multi-project', 'single-project'] as const) {
      for (let first = this.#first(kind); first; first = this.#first(kind)) void this.#run(kind, first)
    }
    for (const connection of this.#warmConnections.splice(0)) connection.release()
  }

  /** The first queue that a batch of this kind can take events from now. */
  #first(kind: BatchKind): ProjectQueue | undefined {
    if (this.#running[kind] >= this.#slots) return undefined
    const turns = kind === 'multi-project' && this.#takesTurns ? this.#turns : undefined
    return this.#waiting(kind).find((queue) => !turns?.has(this.#shardOf(queue) ?? ''))
  }

  /** Where the project is; of a distributed database unknown until it has had a batch. */
  #shardOf({ projectId }: ProjectQueue): string | undefined {
    return this.#shards ? this.#shards.get(projectId) : ONLY_SHARD
  }

  /** Whether others write in the same projects, as far as was seen lately. Imports count too, though they take no turns. */
  get #takesTurns(): boolean {
    const now_ms = performance.now()
    return now_ms < this.#isContendedUntil_ms && now_ms >= this.#isLockStuckUntil_ms
  }

  #renewTurns(): void {
    const end_ms = this.#foundLocked_ms + MAX_CONTENTION_ms
    this.#isContendedUntil_ms = Math.min(performance.now() + CONTENTION_ms, end_ms)
  }

  /** Takes events for a batch of this kind, of these queues in their order. */
  #take(kind: BatchKind, from: Iterable<ProjectQueue>): { queues: ProjectQueue[]; events: QueuedEvent[] } {
    const { maxBatchSize } = this.#options
    const isAlone = this.#waiting(kind).take(2).toArray().length === 1
    const size = isAlone ? maxBatchSize : Math.min(maxBatchSize, CONTESTED_BATCH_SIZE)
    const queues: ProjectQueue[] = []
    const events: QueuedEvent[] = []
    let length = 0
    for (const queue of from) {
      queues.push(queue)
      const taken = queue.take(size - events.length, BATCH_LENGTH - length)
      events.push(...taken)
      length = taken.reduce((sum, event) => sum + event.length, length)
      if (events.length === size || length >= BATCH_LENGTH) break
    }
    return { queues, events }
  }

  /** The queues that a batch of this kind can take events from, in the order in which they are served. */
  #waiting(kind: BatchKind): IteratorObject<ProjectQueue> {
    return this.#queues.values().filter(({ state }) => state === SOURCE_STATES[kind])
  }

  /** Records a batch and settles its events; those of locked projects go back to their queues. Never rejects. */
  async #run(kind: BatchKind, first: ProjectQueue): Promise<void> {
    this.#running[kind] += 1
    const shard = kind === 'multi-project' ? this.#shardOf(first) : undefined
    const turn = this.#takesTurns ? shard : undefined
    const begun = turn === undefined ? undefined : await this.#beginInTurn(turn)
    const isOfShard = (queue: ProjectQueue) => this.#shardOf(queue) === shard
    const { queues, events } = this.#take(kind, shard === undefined ? [first] : this.#waiting(kind).filter(isOfShard))
    const { maxQueueWait_ms, lockTimeout_ms } = this.#options
    const now_ms = performance.now()
    const isExpired = ({ queued_ms }: QueuedEvent) => now_ms - queued_ms > maxQueueWait_ms
    this.#refuseExpired(events.filter(isExpired))
    const current = events.filter((event) => !isExpired(event))
    if (begun && current.length === 0) {
      // Sent ahead of what the connection is used for next, which notices a broken one.
      begun.query('ROLLBACK').catch(() => {})
      this.#warmConnections.push(begun)
    }

    const record = () =>
      this.#record(
        current.map(({ event }) => event),
        kind === 'single-project' ? lockTimeout_ms : undefined,
        begun,
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
    this.#running[kind] -= 1
    if (turn !== undefined) this.#turns.delete(turn)
    if (kind === 'multi-project' && locked.length > 0 && !begun) {
      this.#foundLocked_ms = performance.now()
      this.#renewTurns()
    }
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

  /**
   * Records events in one transaction; one by one when it fails and the database is available.
   *
   * @param begun a connection whose transaction has begun, for the first attempt
   */
  async #record(
    events: readonly EventToRecord[],
    lockTimeout_ms?: number,
    begun?: pg.PoolClient,
  ): Promise<RecorderOutcome[]> {
    if (events.length === 0) return []
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#transaction(events, lockTimeout_ms, attempt === 1 ? begun : undefined)
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
   * project are left out too, so that they do not overtake it. Once a connection fails, the others fail as well: were the
   * database away, each would wait for it.
   */
  async #recordOneByOne(events: readonly EventToRecord[], lockTimeout_ms?: number): Promise<RecorderOutcome[]> {
    const outcomes: RecorderOutcome[] = []
    const lockedProjects = new Set<string>()
    let outage: RecorderOutcome | undefined
    for (const event of events) {
      const known = outage ?? (lockedProjects.has(event.project_id) ? LOCKED : undefined)
      const [outcome] = known ? [known] : await this.#record([event], lockTimeout_ms)
      if (outcome?.status === 'locked') lockedProjects.add(event.project_id)
      if (outcome?.status === 'failed' && isOutage(outcome.error)) outage = outcome
      outcomes.push(outcome as RecorderOutcome)
    }
    return outcomes
  }

  /**
   * @returns a connection with a transaction that holds the shard's recording lock; none when that takes too long, or the database
   * is away, as the batch will find out
   */
  async #beginInTurn(shard: string): Promise<pg.PoolClient | undefined> {
    this.#turns.add(shard)
    const begin = () => this.#beginWithLock(shard)
    return this.#observer.detached?.(begin) ?? begin()
  }

  async #beginWithLock(shard: string): Promise<pg.PoolClient | undefined> {
    try {
      const connection = await this.#connect()
      const begin = () => beginWithRecordingLock(connection, shard, this.#options.turnTimeout_ms)
      const { waited } = await this.#orRollBack(connection, begin)
      if (waited) this.#renewTurns()
      return connection
    } catch (error) {
      if (isLockTimeout(error)) this.#isLockStuckUntil_ms = performance.now() + STUCK_LOCK_ms
      return undefined
    }
  }

  /** @throws an error that isUnavailable when it is unknown whether the transaction was committed: it must not be repeated */
  async #transaction(
    events: readonly EventToRecord[],
    lockTimeout_ms?: number,
    begun?: pg.PoolClient,
  ): Promise<Outcome[]> {
    const connection = begun ?? (await this.#connect())
    const { onCommit } = this.#observer
    const { readsPosition } = this.#options
    const options = { lockTimeout_ms, hasBegun: begun !== undefined, readsPosition, shards: this.#shards, onCommit }
    const outcomes = await this.#orRollBack(connection, () => recordBatch(connection, events, options))
    this.#warmConnections.push(connection)
    return outcomes
  }

  async #connect(): Promise<pg.PoolClient> {
    return this.#warmConnections.pop() ?? (await this.#pool.connect())
  }

  /** Rolls back and releases the connection when the work fails. */
  async #orRollBack<T>(connection: pg.PoolClient, work: () => Promise<T>): Promise<T> {
    try {
      return await work()
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
