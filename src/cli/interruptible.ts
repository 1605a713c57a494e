import { constants } from 'node:os'
import { type DatabaseLocation, type DatabaseServer, withDatabase, withServer } from '../database/open.ts'
import type { Database, PoolOptions } from '../database/pool.ts'
import { STOP_SIGNALS, type StopSignal } from '../stop-signals.ts'
import type { Output } from './context.ts'

/** How long an interrupted command may take to release the database. */
const RELEASE_DEADLINE_ms = 10_000
/** How long it may then take to close its files and say what it has done. */
const EXIT_DEADLINE_ms = 3_000

/** The operator has interrupted a command. */
export class Interrupted extends Error {
  readonly signal: StopSignal
  /** The exit status by which shells report an end by this signal. */
  readonly status: number
  /** Whether the command has no other end, so that there is nothing to say. */
  isUsual = false

  constructor(signal: StopSignal) {
    super('interrupted')
    this.signal = signal
    this.status = 128 + constants.signals[signal]
  }
}

/**
 * Runs a command's work on the configured database, with its schema made sure of.
 * @param stderr gets a notice if an embedded database is created
 * @param work also gets the signal of an interruption, which breaks the connections of `db`, for other connections
 */
export const onDatabase = <T>(
  location: DatabaseLocation,
  stderr: Output,
  work: (db: Database, url: string, signal: AbortSignal) => Promise<T>,
  options?: PoolOptions,
): Promise<T> =>
  interruptible((unlessInterrupted, signal) =>
    withDatabase(announcing(location, stderr), (db, url) => unlessInterrupted(() => work(db, url, signal)), {
      ...options,
      signal,
    }),
  )

/** Runs a command that goes on until it is interrupted. */
export async function untilInterrupted<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run()
  } catch (error) {
    if (error instanceof Interrupted) error.isUsual = true
    throw error
  }
}

/** Runs a command's work on the configured server, whatever its schema. @param work and `stderr` as those of `onDatabase` */
export const onServer = <T>(
  location: DatabaseLocation,
  stderr: Output,
  work: (server: DatabaseServer, signal: AbortSignal) => Promise<T>,
): Promise<T> =>
  interruptible((unlessInterrupted, signal) =>
    withServer(announcing(location, stderr), (server) => unlessInterrupted(() => work(server, signal)), signal),
  )

/**
 * Has a notice written when an embedded database is created: an operator who forgot `DATABASE_URL` would otherwise look for the
 * effects of a command in the wrong database.
 */
export const announcing = (location: DatabaseLocation, stderr: Output): DatabaseLocation => ({
  ...location,
  onCreate: () => stderr.write(`DATABASE_URL is not set; created a database in ${location.dataDir}\n`),
})

/** Ends the process as the signal would. An exit waits for what is being read, which of a device may never come. */
function endBy({ signal, status }: Interrupted): void {
  process.removeAllListeners(signal)
  process.kill(process.pid, signal)
  // As the first process of a container it gets no signal that it does not listen to.
  process.exit(status)
}

/**
 * Lets the stop signals abort the work, but not what releases the database around it: an embedded server that no other
 * process uses is stopped, which undoes what was not committed. Further signals are ignored: npm forwards those that the
 * terminal has already sent.
 *
 * @param run also gets the signal that a stop signal aborts
 */
export async function interruptible<T>(
  run: (unlessInterrupted: <R>(work: () => Promise<R>) => Promise<R>, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const interruption = new AbortController()
  const interrupted = Promise.withResolvers<never>()
  interrupted.promise.catch(() => {})
  const interrupt = (signal: StopSignal) => {
    if (interruption.signal.aborted) return
    const reason = new Interrupted(signal)
    interruption.abort(reason)
    interrupted.reject(reason)
    setTimeout(endBy, RELEASE_DEADLINE_ms, reason).unref()
  }
  for (const signal of STOP_SIGNALS) process.on(signal, interrupt)
  try {
    return await run(async (work) => {
      interruption.signal.throwIfAborted()
      return Promise.race([interrupted.promise, work()])
    }, interruption.signal)
  } catch (error) {
    // What the signal has broken fails with an error of its own.
    interruption.signal.throwIfAborted()
    throw error
  } finally {
    if (interruption.signal.aborted) setTimeout(endBy, EXIT_DEADLINE_ms, interruption.signal.reason).unref()
    else for (const signal of STOP_SIGNALS) process.off(signal, interrupt)
  }
}
