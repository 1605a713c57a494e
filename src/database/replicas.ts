import { setTimeout as sleep } from 'node:timers/promises'
import { crc32 } from 'node:zlib'
import type pg from 'pg'
import { adviceFor, messageOf } from './advice.ts'
import type { Database } from './pool.ts'
import { MAX_LAG_ms, openStatePool, Replica, type ReplicaOptions } from './replica.ts'
import { readServerState, type ServerState, type WalPosition } from './wal-position.ts'

// Reads on standby servers (ADR 0032). A standby that has replayed the write-ahead log up to where it reached at a time has all
// that was committed before that time. So one that is confirmed up to a second ago needs to be compared with the writes of
// the last second alone.

/** How often each server is asked how far it is. */
const INTERVAL_ms = 200

const LAGS = 'it is more than a second behind'
const NOT_COMPARED = 'it has not been compared with the primary server yet'

/** What a project was last known to have, and when. */
interface Write {
  position: WalPosition
  noted_ms: number
}

/** Where the primary server's log reached, at the time or later. */
interface Mark {
  asked_ms: number
  position: WalPosition
}

export interface ReplicasOptions extends ReplicaOptions {
  /** Called when a replica can be read from, or no longer, with the reason. */
  onChange?: (name: string, problem: string | undefined) => void
}

/** What an app needs of {@link Replicas}. */
export type ReadReplicas = Pick<Replicas, 'databaseFor' | 'noteWrite' | 'usage' | 'primaryReads'>

/**
 * The standby servers of a database, and which reads they may serve: those of a project of which they have every write that
 * this process knows of. Each server is asked for its position all the time; one that does not respond, does not keep up or
 * has been promoted is left out within a second.
 */
export class Replicas {
  readonly #primary: Database
  readonly #primaryState: pg.Pool
  readonly #replicas: readonly Replica[]
  readonly #onChange: NonNullable<ReplicasOptions['onChange']>
  /** The writes of the last second, the latest last. */
  readonly #writes = new Map<string, Write>()
  /** Of the last second, the latest last. */
  #marks: Mark[] = []
  /** What the primary server said last. */
  #primaryServer: ServerState | undefined
  /** Why the primary server has not told its position. */
  #primaryProblem: string | undefined
  /** Since when there are marks of one and the same log. */
  #markedSince_ms = Number.POSITIVE_INFINITY
  readonly #problems = new Map<Replica, string | undefined>()
  readonly #closing = new AbortController()
  #loops: Promise<void>[] = []
  /** Reads that were sent to the primary server. */
  #primaryReads = 0

  constructor(primary: { url: string; db: Database }, urls: readonly string[], options: ReplicasOptions = {}) {
    const { onChange = () => {}, ...replicaOptions } = options
    this.#primary = primary.db
    this.#primaryState = openStatePool(primary.url)
    this.#replicas = urls.map((url) => new Replica(url, primary.db, replicaOptions))
    this.#onChange = onChange
  }

  /** Begins to ask the servers. Until then, all reads go to the primary server. */
  start(): void {
    this.#loops = [
      this.#repeat(() => this.#askPrimary()),
      ...this.#replicas.map((replica) => this.#repeat(() => this.#ask(replica))),
    ]
  }

  /**
   * The database to read a project from: the least busy replica that has what the project is known to have, else the primary
   * server. Reads that come one after the other are sent to the same replica as long as it can serve them.
   *
   * @param least what the caller knows the project to have
   */
  databaseFor(projectId: string, least: WalPosition = Number.NEGATIVE_INFINITY): Database {
    const write = this.#writes.get(projectId)
    const { length } = this.#replicas
    const first = crc32(projectId) % length
    let chosen: Replica | undefined
    for (const i of this.#replicas.keys()) {
      const replica = this.#replicas[(first + i) % length] as Replica
      const isLessBusy = chosen === undefined || replica.queriesUnderWay < chosen.queriesUnderWay
      const hasWrite = !write || replica.position >= write.position || replica.confirmed_ms > write.noted_ms
      if (isLessBusy && replica.isUsable && hasWrite && replica.position >= least) chosen = replica
    }
    if (chosen === undefined) this.#primaryReads += 1
    else chosen.reads += 1
    return chosen?.db ?? this.#primary
  }

  /** What there is to measure of each replica. */
  get usage() {
    const now_ms = performance.now()
    return this.#replicas.map(({ name, isUsable, confirmed_ms, reads, fallbacks }) => ({
      ...{ name, isUsable, reads, fallbacks },
      lag_s: (now_ms - confirmed_ms) / 1_000,
    }))
  }

  /** How many reads were sent to the primary server, since no replica could serve them. */
  get primaryReads(): number {
    return this.#primaryReads
  }

  /** Takes note of a write that was committed. @param position that includes it, or UNKNOWN_POSITION */
  noteWrite(projectId: string, position: WalPosition): void {
    const { position: earlier = position } = this.#writes.get(projectId) ?? {}
    this.#writes.delete(projectId)
    this.#writes.set(projectId, { position: Math.max(earlier, position), noted_ms: performance.now() })
  }

  async close(): Promise<void> {
    this.#closing.abort()
    await Promise.all(this.#loops)
    await Promise.all(this.#replicas.map((replica) => replica.close()))
    await this.#primaryState.end()
  }

  async #repeat(ask: () => Promise<void>): Promise<void> {
    const { signal } = this.#closing
    while (!signal.aborted) {
      await ask()
      await sleep(INTERVAL_ms, undefined, { signal }).catch(() => {})
    }
  }

  async #askPrimary(): Promise<void> {
    const asked_ms = performance.now()
    const earlier = this.#replicas.map((replica) => replica.state)
    const state = await readServerState(this.#primaryState).catch((error: unknown) => ({ error }))
    this.#forget(performance.now() - MAX_LAG_ms)
    this.#primaryProblem =
      'error' in state ? describe(state.error) : state.is_standby ? 'DATABASE_URL is of a standby server' : undefined
    // While there is none, what is known of the replicas grows too old.
    if ('error' in state || state.is_standby || state.wal_position === null) return
    const { instance, wal_position: position } = state
    // Another server may have taken its place, with a log of its own.
    if (instance !== this.#primaryServer?.instance) {
      this.#marks = []
      this.#markedSince_ms = Number.POSITIVE_INFINITY
      for (const replica of this.#replicas) replica.forget()
    }
    this.#primaryServer = state
    this.#marks.push({ asked_ms, position })
    this.#markedSince_ms = Math.min(this.#markedSince_ms, asked_ms)
    for (const [i, replica] of this.#replicas.entries()) {
      const before = earlier[i]
      if (before) replica.compare(before, position)
    }
  }

  async #ask(replica: Replica): Promise<void> {
    await replica.ask()
    // Without anything to compare with, it is not the replica that has a problem.
    if (this.#marks.length === 0 && this.#primaryProblem === undefined) return
    const problem = this.#judge(replica)
    if (problem === NOT_COMPARED) return
    if (problem === LAGS && performance.now() - this.#markedSince_ms < MAX_LAG_ms) return
    if (this.#problems.has(replica) && this.#problems.get(replica) === problem) return
    this.#problems.set(replica, problem)
    this.#onChange(replica.name, problem)
  }

  /** Takes into account what a replica has said. @returns why nothing is read from it, if so */
  #judge(replica: Replica): string | undefined {
    const problem = this.#problemOf(replica)
    if (problem !== undefined) {
      replica.confirmed_ms = Number.NEGATIVE_INFINITY
      return problem
    }
    const mark = this.#marks.findLast(({ position }) => position <= replica.position)
    if (mark) replica.confirmed_ms = mark.asked_ms
    return replica.isUsable ? undefined : LAGS
  }

  #problemOf({ state, failure, isAhead }: Replica): string | undefined {
    if (this.#marks.length === 0) return `the position of the primary server is unknown: ${this.#primaryProblem}`
    if (state === undefined) return describe(failure).replaceAll('DATABASE_URL', 'DATABASE_REPLICA_URLS')
    if (state.database !== this.#primaryServer?.database) return 'it is not of the database of DATABASE_URL'
    if (!state.is_standby) return 'it is no standby server; it may have been promoted'
    if (state.wal_position === null) return 'it does not replay the log of a primary server'
    const { timeline } = this.#primaryServer
    if (timeline !== null && state.timeline !== null && timeline !== state.timeline) {
      return 'it follows another server than DATABASE_URL, as after a failover'
    }
    if (isAhead === undefined) return NOT_COMPARED
    if (isAhead) return 'it has replayed what the primary server has not written, as after a failover'
    return undefined
  }

  #forget(before_ms: number): void {
    this.#marks = this.#marks.filter(({ asked_ms }) => asked_ms >= before_ms)
    for (const [projectId, { noted_ms }] of this.#writes) {
      if (noted_ms >= before_ms) break
      this.#writes.delete(projectId)
    }
  }
}

function describe(error: unknown): string {
  const advice = adviceFor(error)
  return advice === undefined ? messageOf(error) : `${messageOf(error)}. ${advice}`
}
