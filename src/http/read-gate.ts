import { channel } from 'node:diagnostics_channel'
import type { ServerResponse } from 'node:http'
import { type ApiError, serviceUnavailable } from '../domain/errors.ts'
import type { ReadLease, Wait } from '../domain/read-lease.ts'
import { type Limit, Usage } from '../domain/usage.ts'

const KiB = 1024
const MiB = 1024 * KiB

export interface ReadGateOptions {
  /** Reads between their admission and their serialized body. */
  reads: Limit
  /** Bytes that those may read from the database. One read may always have a project's share, however much it asks for. */
  reading_bytes: Limit
  /** Bytes of serialized bodies that are not sent yet. */
  unsent_bytes: Limit
  /** The same of responses to writes. */
  unsentOfWrites_bytes: Limit
  /** Reads that wait for their admission. */
  waiting: Limit
  /** How long a read may wait, in milliseconds. */
  maxWait_ms: number
  /** How long a client may read nothing of its response, in milliseconds, before it is disconnected. */
  maxStall_ms: number
  /** The same while others wait for the memory of such responses. */
  maxStallUnderPressure_ms: number
}

export const READ_GATE_DEFAULTS: ReadGateOptions = {
  // Light reads share round trips to the database; more at once would not be faster.
  reads: { all: 128, project: 64 },
  // One large read of a project, two in all, and room for small ones beside them.
  reading_bytes: { all: 20 * MiB, project: 8 * MiB },
  unsent_bytes: { all: 64 * MiB, project: 32 * MiB },
  // More batches of a thousand events than the queue takes, each with its usual response.
  unsentOfWrites_bytes: { all: 32 * MiB, project: 16 * MiB },
  waiting: { all: 1_000, project: 500 },
  maxWait_ms: 5_000,
  maxStall_ms: 30_000,
  maxStallUnderPressure_ms: 2_000,
}

const SWEEP_INTERVAL_ms = 500

/** The largest value that is read: half of what V8 can keep in a string, since parts of it may be escaped. */
const MAX_VALUE_bytes = 256 * MiB

/** How long a write that was refused is expected to come again. */
const RETRY_ms = 5_000

/** Reads that ask for no more pass those that wait for room, within what large reads of two projects leave free. */
const SMALL_READ_bytes = 512 * KiB

/** The `ReadWait` of each read that had to wait, where its request's code runs. To publish costs nothing while nobody subscribes. */
export const READ_WAIT_CHANNEL = 'flowtrail:read-wait'
const waits = channel(READ_WAIT_CHANNEL)

/** A read that has waited, and was admitted or refused. */
export interface ReadWait {
  duration_ms: number
}

async function timed(admission: Promise<void>): Promise<void> {
  const start_ms = performance.now()
  await admission.finally(() => {
    const wait: ReadWait = { duration_ms: performance.now() - start_ms }
    waits.publish(wait)
  })
}

/** A read that waits to be admitted. */
interface Waiting {
  lease: Lease
  bytes: number
  admit: () => void
}

/**
 * Admits reads so that no project can take the service hostage (ADR 0019): it bounds how many there are at once and how
 * many bytes they hold, gives none more than its share, and lets the others wait in a queue for each project, which take
 * turns. It disconnects clients that do not read their responses.
 */
export class ReadGate {
  readonly #options: ReadGateOptions
  readonly #reads: Usage
  readonly #reading: Usage
  readonly #unsent: Usage
  readonly #unsentOfWrites: Usage
  readonly #waiting: Usage
  /** Of what is being read, the part of small reads. */
  #smallReading_bytes = 0
  /** By project; the one whose turn is next comes first. */
  readonly #queues = new Map<string, Waiting[]>()
  readonly #sending = new Set<Lease>()
  /** The last write of each project that was refused, since clients had too much to take. */
  readonly #refusedWrites = new Map<string, { bytes: number; refused_ms: number }>()
  readonly #sweep: NodeJS.Timeout
  /** How many reads were admitted, refused, and cancelled while they waited, and how many clients were disconnected. */
  readonly counts = { admitted: 0, refused: 0, cancelled: 0, cut: 0 }

  constructor(options: Partial<ReadGateOptions> = {}) {
    this.#options = { ...READ_GATE_DEFAULTS, ...options }
    this.#reads = new Usage(this.#options.reads)
    this.#reading = new Usage(this.#options.reading_bytes)
    this.#unsent = new Usage(this.#options.unsent_bytes)
    this.#unsentOfWrites = new Usage(this.#options.unsentOfWrites_bytes)
    this.#waiting = new Usage(this.#options.waiting)
    this.#sweep = setInterval(() => this.#disconnectStalled(), SWEEP_INTERVAL_ms).unref()
  }

  /** What is used now. */
  get usage() {
    const unsent_bytes = this.#unsent.total + this.#unsentOfWrites.total
    return { reads: this.#reads.total, waiting: this.#waiting.total, unsent_bytes }
  }

  close(): void {
    clearInterval(this.#sweep)
  }

  /**
   * Waits until a read may begin. It ends with its response.
   *
   * @param bytes the most that it reads from the database, unless it asks its lease for more
   * @throws ApiError service_unavailable when too many wait already, when it has waited too long, and when its client is gone
   */
  admit(project: string, bytes: number, response: ServerResponse): Lease | Promise<Lease> {
    const lease = new Lease(this, project, response)
    return this.enter(lease, bytes)?.then(() => lease) ?? lease
  }

  /** The lease of a read that holds nothing until it begins. */
  lease(project: string, response: ServerResponse): Lease {
    return new Lease(this, project, response)
  }

  /**
   * The lease of a write whose response may be large, which does not wait: its client is to come again.
   *
   * @param bytes how large its response is expected to be
   * @throws ApiError service_unavailable while clients have too much to take of such responses
   */
  leaseResponse(project: string, bytes: number, response: ServerResponse): Lease {
    if (!this.#unsentOfWrites.fits(project, bytes)) {
      this.#refusedWrites.set(project, { bytes, refused_ms: performance.now() })
      throw serviceUnavailable()
    }
    const lease = new Lease(this, project, response, true)
    lease.reserve(bytes)
    return lease
  }

  /**
   * For leases: begins reading as many bytes, or waits for it.
   * @param isFollower whether it is one of the requests that follow a feed, which have a limit of their own and are not
   * refused because many wait
   */
  enter(lease: Lease, bytes: number, isFollower = false): Promise<void> | undefined {
    const { project } = lease
    if (lease.isClosed) return Promise.reject(this.#refuse('cancelled'))
    if (lease.isExtended) return this.#wait(lease, bytes)
    const isNext = !this.#queues.has(project) && this.#mayPass(bytes, this.#awaitedRoom_bytes())
    if (isNext && this.#hasShare(project, bytes) && this.#hasRoom(bytes)) {
      this.#start(lease, bytes)
      return
    }
    const mayWait = isFollower || this.#waiting.fits(project, 1)
    return mayWait ? this.#wait(lease, bytes, isFollower ? 0 : 1) : Promise.reject(this.#refuse('refused'))
  }

  /** For leases: the read is over, which had been admitted with as many bytes. */
  leave({ project }: Lease, bytes: number): void {
    this.#reads.add(project, -1)
    this.#reading.add(project, -bytes)
    if (bytes <= SMALL_READ_bytes) this.#smallReading_bytes -= bytes
    this.#admitWaiting()
  }

  /** For leases: there are more bytes to send than before, or fewer. */
  changeUnsent(lease: Lease, bytes: number): void {
    const unsent = lease.isOfWrite ? this.#unsentOfWrites : this.#unsent
    unsent.add(lease.project, bytes)
    if (lease.isSending) this.#sending.add(lease)
    else this.#sending.delete(lease)
    if (bytes < 0) this.#admitWaiting()
  }

  #hasShare(project: string, bytes: number): boolean {
    return (
      this.#reads.hasShare(project, 1) &&
      this.#reading.hasShare(project, bytes) &&
      this.#unsent.hasShare(project, bytes)
    )
  }

  #hasRoom(bytes: number): boolean {
    return this.#reads.hasRoom(1) && this.#reading.hasRoom(bytes) && this.#unsent.hasRoom(bytes)
  }

  /** The most that a read asks for which waits for room alone; 0 if none does. */
  #awaitedRoom_bytes(): number {
    let most_bytes = 0
    for (const [project, [first]] of this.#queues) {
      if (first && this.#hasShare(project, first.bytes)) most_bytes = Math.max(most_bytes, first.bytes)
    }
    return most_bytes
  }

  /** Whether a read may take room while one of another project waits for it, which must not happen again and again. */
  #mayPass(bytes: number, awaited_bytes: number): boolean {
    if (awaited_bytes === 0) return true
    if (bytes > SMALL_READ_bytes) return false
    const { all, project } = this.#options.reading_bytes
    return awaited_bytes <= SMALL_READ_bytes || this.#smallReading_bytes + bytes <= all - 2 * project
  }

  #start(lease: Lease, bytes: number): void {
    const counted = Math.min(bytes, this.#options.reading_bytes.project)
    this.#reads.add(lease.project, 1)
    this.#reading.add(lease.project, counted)
    if (counted <= SMALL_READ_bytes) this.#smallReading_bytes += counted
    this.counts.admitted += 1
    lease.start(counted)
  }

  #refuse(reason: 'refused' | 'cancelled'): ApiError {
    this.counts[reason] += 1
    return serviceUnavailable()
  }

  /** @param counted how many waiting reads it counts as */
  #wait(lease: Lease, bytes: number, counted = 1): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const { project } = lease
    const queue = this.#queues.get(project) ?? []
    this.#queues.set(project, queue)
    this.#waiting.add(project, counted)
    const end = () => {
      clearTimeout(timeout)
      lease.onClose = undefined
      this.#waiting.add(project, -counted)
    }
    const leave = (reason: 'refused' | 'cancelled') => {
      queue.splice(queue.indexOf(waiting), 1)
      if (queue.length === 0) this.#queues.delete(project)
      end()
      reject(this.#refuse(reason))
      // Perhaps only this one did not fit.
      this.#admitWaiting()
    }
    const admit = () => {
      end()
      this.#start(lease, bytes)
      resolve()
    }
    const waiting = { lease, bytes, admit }
    const timeout = setTimeout(() => leave('refused'), this.#options.maxWait_ms)
    lease.onClose = () => leave('cancelled')
    // Those that were admitted before come first: they hold memory already.
    if (lease.isExtended) queue.unshift(waiting)
    else queue.push(waiting)
    return waits.hasSubscribers ? timed(promise) : promise
  }

  /** Admits whoever fits, the projects in turn. */
  #admitWaiting(): void {
    let awaited_bytes = 0
    // A project that is put back comes to the end of the same iteration.
    for (const [project, queue] of this.#queues) {
      const [first] = queue
      if (!first || !this.#hasShare(project, first.bytes)) continue
      if (!this.#hasRoom(first.bytes) || !this.#mayPass(first.bytes, awaited_bytes)) {
        awaited_bytes = Math.max(awaited_bytes, first.bytes)
        continue
      }
      queue.shift()
      this.#queues.delete(project)
      if (queue.length > 0) this.#queues.set(project, queue)
      first.admit()
    }
  }

  #disconnectStalled(): void {
    const { maxStall_ms, maxStallUnderPressure_ms } = this.#options
    const now_ms = performance.now()
    for (const [project, { refused_ms }] of this.#refusedWrites) {
      if (now_ms - refused_ms > RETRY_ms) this.#refusedWrites.delete(project)
    }
    const firstWaiting = [...this.#queues].flatMap(([project, [first]]) => (first ? [[project, first] as const] : []))
    const mustReadersHurry = pressureOn(this.#unsent, firstWaiting)
    const mustWritersHurry = pressureOn(this.#unsentOfWrites, [...this.#refusedWrites])
    for (const lease of this.#sending) {
      // It is not its client that it waits for.
      if (lease.isReading) continue
      const isUnderPressure = (lease.isOfWrite ? mustWritersHurry : mustReadersHurry)(lease.project)
      if (now_ms - lease.progressed_ms < (isUnderPressure ? maxStallUnderPressure_ms : maxStall_ms)) continue
      this.counts.cut += 1
      lease.disconnect()
    }
  }
}

/** What tells whether others wait for memory that the responses of a project have. */
function pressureOn(usage: Usage, awaited: (readonly [string, { bytes: number }])[]): (project: string) => boolean {
  const isRoomAwaited = awaited.some(([, { bytes }]) => !usage.hasRoom(bytes))
  const lackShare = awaited.filter(([project, { bytes }]) => !usage.hasShare(project, bytes))
  const projects = new Set(lackShare.map(([project]) => project))
  return (project) => isRoomAwaited || projects.has(project)
}

/** What one read, or the response to a batch, uses of a {@link ReadGate}, until its response ends. */
export class Lease implements ReadLease {
  readonly #gate: ReadGate
  readonly #response: ServerResponse
  readonly project: string
  /** Whether it is the response to a write, which reads nothing. */
  readonly isOfWrite: boolean
  /** What it was admitted with, while it reads. */
  #reading_bytes: number | undefined
  #unsent_bytes = 0
  /** When the client last took a part of the body, on the clock of performance.now(). */
  progressed_ms = 0
  /** Whether more has been read than what it was admitted with: something large. */
  isExtended = false
  #isOver = false
  /** Called when the response ends. */
  onClose: (() => void) | undefined

  constructor(gate: ReadGate, project: string, response: ServerResponse, isOfWrite = false) {
    this.#gate = gate
    this.#response = response
    this.project = project
    this.isOfWrite = isOfWrite
    response.once('close', () => this.#close())
  }

  /** Whether the response has ended, or its client is gone. */
  get isClosed(): boolean {
    return this.#response.destroyed
  }

  /** Whether more is read, or waits to be, of what it is to send. */
  get isReading(): boolean {
    return !this.#isOver
  }

  get isSending(): boolean {
    return this.#unsent_bytes > 0
  }

  /** For the gate: as many bytes are about to be sent. */
  reserve(bytes: number): void {
    if (!this.isClosed) this.#setUnsent(bytes)
  }

  /** For the gate: it was admitted with as many bytes. */
  start(bytes: number): void {
    this.#reading_bytes = bytes
    // Its request failed while it waited for more.
    if (this.#isOver) this.#leave()
  }

  async extend(bytes: number): Promise<void> {
    if (bytes > MAX_VALUE_bytes) throw new Error(`a row of ${bytes} bytes is too large to be read`)
    this.isExtended = true
    const admission = this.#gate.enter(this, bytes)
    // What it leaves is offered to itself first.
    this.#leave()
    await admission
  }

  async begin(bytes: number): Promise<void> {
    this.#leave()
    this.isExtended = false
    this.#isOver = false
    await this.#gate.enter(this, bytes, true)
  }

  pause<Result>({ ended, cancel }: Wait<Result>): Promise<Result> {
    this.#leave()
    this.onClose = cancel
    if (this.isClosed) cancel()
    return ended
  }

  /** Nothing more is read: the body is ready to be sent. A client that is gone does not end a read before. */
  send(bytes: number): void {
    this.#isOver = true
    this.progressed_ms = performance.now()
    if (!this.isClosed) this.#setUnsent(bytes)
    this.#leave()
  }

  /** The client has taken a part of the body. */
  sent(bytes: number): void {
    this.progressed_ms = performance.now()
    this.#setUnsent(Math.max(0, this.#unsent_bytes - bytes))
  }

  disconnect(): void {
    this.#response.destroy()
  }

  #leave(): void {
    if (this.#reading_bytes === undefined) return
    const bytes = this.#reading_bytes
    this.#reading_bytes = undefined
    this.#gate.leave(this, bytes)
  }

  #setUnsent(bytes: number): void {
    const change = bytes - this.#unsent_bytes
    this.#unsent_bytes = bytes
    this.#gate.changeUnsent(this, change)
  }

  #close(): void {
    this.onClose?.()
    this.#setUnsent(0)
  }
}
