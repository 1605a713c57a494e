import { constants } from 'node:os'
import type { Config } from '../config.ts'
import { type DatabaseServer, openServer, withDatabase } from '../database/open.ts'
import type { Database } from '../database/pool.ts'

/** How long what was interrupted may take to let go of the database. */
const RELEASE_DEADLINE_ms = 10_000

/** The operator has ended a command before its time. */
export class Interrupted extends Error {
  /** As shells report the end by a signal. */
  readonly status: number

  constructor(signal: 'SIGINT' | 'SIGTERM') {
    super('interrupted')
    this.status = 128 + constants.signals[signal]
  }
}

/** Runs a command's work on the configured database, with its schema made sure of. */
export const onDatabase = <T>(config: Config, work: (db: Database, url: string) => Promise<T>): Promise<T> =>
  interruptible((unlessInterrupted) => withDatabase(config, (db, url) => unlessInterrupted(() => work(db, url))))

/** Runs a command's work on the configured server, whatever its schema. */
export const onServer = <T>(config: Config, work: (server: DatabaseServer) => Promise<T>): Promise<T> =>
  interruptible(async (unlessInterrupted) => {
    const server = await openServer(config)
    try {
      return await unlessInterrupted(() => work(server))
    } finally {
      await server.release()
    }
  })

/**
 * Lets SIGINT and SIGTERM break off work, and what is around it let go of the database all the same: a server that
 * nobody else uses is stopped, which undoes what was not committed. Further signals change nothing: npm passes on
 * what the terminal has sent already.
 */
async function interruptible<T>(
  run: (unlessInterrupted: <R>(work: () => Promise<R>) => Promise<R>) => Promise<T>,
): Promise<T> {
  const interruption = new AbortController()
  const interrupted = Promise.withResolvers<never>()
  interrupted.promise.catch(() => {})
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      const reason = new Interrupted(signal)
      interruption.abort(reason)
      interrupted.reject(reason)
      setTimeout(() => process.exit(reason.status), RELEASE_DEADLINE_ms).unref()
    })
  }
  return run(async (work) => {
    interruption.signal.throwIfAborted()
    return Promise.race([interrupted.promise, work()])
  })
}
