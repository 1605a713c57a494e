import cluster, { type Worker } from 'node:cluster'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { createRegistry } from '../http/metrics.ts'
import { requestCounter } from '../http/rate-limit.ts'
import { measureWorkers, WorkerMetrics } from '../http/worker-metrics.ts'
import { describeRelease } from '../release.ts'
import { Channel } from './channel.ts'
import { type Running, workerStopTimeout } from './process.ts'
import type { Assignment, SupervisorFunctions, WorkerFunctions } from './protocol.ts'

/** TypeScript in a checkout, JavaScript in a package. */
const WORKER = path.join(import.meta.dirname, `worker${path.extname(import.meta.filename)}`)
/** What ends a worker that has served for so long is not what ended the one before it. */
const STABLE_ms = 10_000
/** Before a worker is replaced; doubles with each that has ended too soon. */
const MIN_WAIT_ms = 1_000
const MAX_WAIT_ms = 30_000
/** How long a worker may take to tell its metrics, before those that it told last count. */
const METRICS_TIMEOUT_ms = 1_000
/** How often a worker is asked whether it responds. */
const PING_INTERVAL_ms = 5_000
/** After how many pings without a response a worker counts as missing, and after how many it is killed. */
const MISSING_AFTER_pings = 2
const KILLED_AFTER_pings = 6

/** A worker from its start to its end. */
interface Member {
  child: Worker
  channel: Channel<WorkerFunctions>
  /** When it began to listen, on the clock of performance.now(); undefined before. */
  listening_ms?: number
  /** How many pings it has not responded to since its last response. */
  missedPings: number
  /** Why it could not listen. */
  failure?: string
  ended: Promise<End>
}

interface End {
  /** How a worker has ended. */
  end: string
  /** Whether that was in order. */
  isOrderly: boolean
}

/** The workers of a server, by number, from 1 on. One that ends is replaced until `stop`. */
export class Workers {
  /** How many have ended and were replaced. */
  replaced = 0
  readonly #assignment: Omit<Assignment, 'worker'>
  readonly #log: Running['log']
  readonly #count: number
  readonly #members = new Map<number, Member>()
  /** The workers that could not listen when they were last started. */
  readonly #failed = new Set<number>()
  /** The URL of the API, once a worker listens. */
  #url: string | undefined
  readonly #listening = Promise.withResolvers<string>()
  readonly #failure = Promise.withResolvers<never>()
  readonly #stopping = new AbortController()
  readonly #done: Promise<void>[]
  /** The ends, not in order, of workers that were to drain. */
  readonly #cutOff: string[] = []
  readonly #metrics: WorkerMetrics
  readonly #countRequest = requestCounter()

  constructor(count: number, assignment: Omit<Assignment, 'worker'>, log: Running['log']) {
    this.#count = count
    this.#assignment = assignment
    this.#log = log
    this.#failure.promise.catch(() => {})
    const registry = createRegistry(describeRelease())
    measureWorkers(registry, this)
    this.#metrics = new WorkerMetrics(registry)
    cluster.setupPrimary({ exec: WORKER, args: [], serialization: 'advanced' })
    this.#done = Array.from({ length: count }, (_, i) => this.#keep(i + 1))
  }

  /** Resolves to the URL of the API when each worker listens or has failed to. */
  get listening(): Promise<string> {
    return this.#listening.promise
  }

  /** How many serve, and how many of those that should do not. */
  get states(): { serving: number; missing: number } {
    const isServing = ({ listening_ms, missedPings }: Member) =>
      listening_ms !== undefined && missedPings < MISSING_AFTER_pings
    const serving = [...this.#members.values()].filter(isServing).length
    return { serving, missing: this.#count - serving }
  }

  /** Rejects when no worker can listen. */
  get failure(): Promise<never> {
    return this.#failure.promise
  }

  /**
   * Lets all workers drain, and waits until they have ended; those that have not in time are killed.
   * @throws Error if requests of one were cut off
   */
  async stop(): Promise<void> {
    this.#stopping.abort()
    for (const { channel } of this.#members.values()) channel.call('stop', undefined).catch(() => {})
    const deadline = setTimeout(() => this.#killAll(), workerStopTimeout(this.#assignment.config.server))
    await Promise.all(this.#done)
    clearTimeout(deadline)
    if (this.#cutOff.length > 0) throw new Error(this.#cutOff.join('; '))
  }

  #killAll(): void {
    for (const [worker, member] of this.#members) this.#kill(worker, member, 'has not ended in time')
  }

  #kill(worker: number, { child }: Member, reason: string): void {
    this.#log.error({ worker }, `killing the worker, which ${reason}`)
    child.process.kill('SIGKILL')
  }

  async #keep(worker: number): Promise<void> {
    const { signal } = this.#stopping
    // How many in a row have ended too soon.
    let early = 0
    while (!signal.aborted) {
      const { end, isOrderly, listening_ms, failure } = await this.#run(worker)
      const hasListened = listening_ms !== undefined
      if (signal.aborted) {
        const reason = failure === undefined ? '' : `: ${failure}`
        if (hasListened && !isOrderly) this.#cutOff.push(`${end} while it drained${reason}`)
        return
      }
      if (!hasListened) this.#setFailed(worker, failure ?? end)
      // The server ends.
      if (this.#failed.size === this.#count) return
      early = hasListened && performance.now() - listening_ms >= STABLE_ms ? 0 : early + 1
      // One that has listened is replaced at once, unless the one before it ended too soon as well.
      const waits = early - (hasListened ? 1 : 0)
      const wait_ms = waits > 0 ? Math.min(MAX_WAIT_ms, MIN_WAIT_ms * 2 ** (waits - 1)) : 0
      this.#log.error({ worker, failure }, `${end}; starting another in ${wait_ms / 1_000} s`)
      await sleep(wait_ms, undefined, { signal }).catch(() => {})
      if (!signal.aborted) this.replaced += 1
    }
  }

  /** Runs a worker until it ends. */
  async #run(worker: number): Promise<End & Pick<Member, 'listening_ms' | 'failure'>> {
    let child: Worker
    try {
      child = cluster.fork()
    } catch (error) {
      // Node has an event for some failures to start a process; others, such as for want of memory, it throws.
      return { end: `worker ${worker}: ${(error as Error).message}`, isOrderly: false }
    }
    const member = this.#start(worker, child)
    this.#members.set(worker, member)
    const ended = await member.ended
    this.#members.delete(worker)
    this.#metrics.end(worker)
    return { ...ended, listening_ms: member.listening_ms, failure: member.failure }
  }

  #start(worker: number, child: Worker): Member {
    const channel = new Channel<WorkerFunctions>(child, {
      onListening: (url) => {
        member.listening_ms = performance.now()
        this.#watch(worker, member)
        this.#setListening(worker, url)
      },
      onFailure: (message) => {
        member.failure = message
      },
      countRequests: (keyIds) => Promise.all(keyIds.map(this.#countRequest)),
      shareRefusal: (address) => {
        for (const other of this.#members.values()) {
          if (other !== member) other.channel.call('onRefusal', address).catch(() => {})
        }
      },
      metrics: () => this.#collectMetrics(),
    } satisfies SupervisorFunctions)
    const ended = new Promise<End>((resolve) => {
      child.on('exit', (status, signal) => {
        const how = signal ? `was ended by ${signal}` : `ended with status ${status}`
        resolve({ end: `worker ${worker} (pid ${child.process.pid}) ${how}`, isOrderly: status === 0 })
      })
      child.on('error', (error) => {
        // It could not be started. Any other error, such as of a message that comes too late, is followed by its end.
        if (child.process.pid === undefined) resolve({ end: `worker ${worker}: ${error.message}`, isOrderly: false })
      })
    })
    ended.then(() => channel.close())
    channel.call('start', this.#assignmentOf(worker)).catch(() => {})
    const member: Member = { child, channel, missedPings: 0, ended }
    return member
  }

  /** Kills a worker that does not respond any longer: requests on its connections would wait for ever. */
  #watch(worker: number, member: Member): void {
    const ping = () => {
      if (member.missedPings === KILLED_AFTER_pings) {
        this.#kill(worker, member, `has not responded for ${(KILLED_AFTER_pings * PING_INTERVAL_ms) / 1_000} s`)
      }
      member.missedPings += 1
      const onResponse = () => {
        member.missedPings = 0
      }
      member.channel.call('ping', undefined).then(onResponse, () => {})
    }
    const timer = setInterval(ping, PING_INTERVAL_ms)
    member.ended.then(() => clearInterval(timer))
  }

  #assignmentOf(worker: number): Assignment {
    const { config } = this.#assignment
    // Old keys are deleted by one, which rests in between to leave the database to others.
    const idempotencyRetention_days = worker === 1 ? config.idempotencyRetention_days : undefined
    return { ...this.#assignment, worker, config: { ...config, idempotencyRetention_days } }
  }

  #setListening(worker: number, url: string): void {
    this.#url = url
    this.#failed.delete(worker)
    this.#checkListening()
  }

  #setFailed(worker: number, message: string): void {
    this.#failed.add(worker)
    if (this.#failed.size === this.#count) this.#failure.reject(new Error(message))
    this.#checkListening()
  }

  #checkListening(): void {
    const listening = [...this.#members.values()].filter(({ listening_ms }) => listening_ms !== undefined)
    if (this.#url !== undefined && listening.length + this.#failed.size >= this.#count)
      this.#listening.resolve(this.#url)
  }

  /** The metrics of all workers that listen, and of those that have ended. */
  async #collectMetrics(): Promise<string> {
    const updates = [...this.#members].map(async ([worker, { channel, listening_ms }]) => {
      if (listening_ms === undefined) return
      const timeout = sleep(METRICS_TIMEOUT_ms, undefined, { ref: false })
      const metrics = await Promise.race([channel.call('collectMetrics', undefined).catch(() => undefined), timeout])
      if (metrics && this.#members.get(worker)?.channel === channel) this.#metrics.update(worker, metrics)
    })
    await Promise.all(updates)
    return this.#metrics.text()
  }
}
