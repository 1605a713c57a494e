/**
 * The PostgreSQL from our npm packages, for use without a server of one's own. It outlives the process that starts it
 * (ADR 0011): each process that uses it registers in `users`, the first to find it stopped starts it, and the last one to
 * unregister stops it.
 *
 * The data directory contains `postgres` (the cluster), `postgres.log`, `socket` (a symlink to the directory of the
 * socket), and `users` and `lock`, with a file for each process that uses the server, or is starting or stopping it.
 * These processes must be on one machine and in one pid namespace.
 */
import type { ChildProcess } from 'node:child_process'
import { mkdir, realpath } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { type Advice, Cluster } from './cluster.ts'
import { foreignRegistrations, liveRegistrations, register, unregister, withLock } from './process-registry.ts'

/** Short, since a check only reads two small files. The exit of a child process is noticed without it. */
const SUPERVISION_INTERVAL_ms = 1_000

/** Longer than a process that has been killed is taken for alive. */
const FOREIGN_TIMEOUT_ms = 6_000
const FOREIGN_POLL_INTERVAL_ms = 200

export interface EmbeddedServer {
  /** Connection string of the database `name` (over the Unix socket). */
  readonly url: string
  /** Ends this use; with the last one the server stops (fast shutdown, awaited). Idempotent. */
  release(): Promise<void>
}

export interface EmbeddedOptions {
  /** Absolute or relative; created if missing. */
  dataDir: string
  /** Of the database and its superuser, lower-case letters; also the prefix of the socket's directory. */
  name?: string
  /** PostgreSQL settings in case this call starts the server, such as `fsync: 'off'` for tests. */
  settings?: Record<string, string>
  /** Called with one-line messages. */
  onLog?: (message: string) => void
  /** Called if the data directory had no cluster, once one has been created. */
  onCreate?: (() => void) | undefined
  /** Restart the server whenever it dies, until the release. */
  supervise?: boolean
  advice?: Partial<Advice>
  /** Gives up the start when it aborts. */
  signal?: AbortSignal | undefined
}

const ADVICE: Advice = { alternative: 'use another server', upgrade: 'Dump it with the older version.' }

/**
 * Starts the embedded PostgreSQL of a data directory, or uses the running one.
 * @throws Error with advice when it is not installed for this platform, cannot run under this account, the data is of another major
 * version, or processes use it that are in another container or whose socket cannot be seen; with the last lines of PostgreSQL's log
 * when it does not start; the signal's reason when that aborts first
 */
export async function useEmbeddedServer(options: EmbeddedOptions): Promise<EmbeddedServer> {
  const path = resolve(options.dataDir)
  const advice = { ...ADVICE, ...options.advice }
  await mkdir(path, { recursive: true }).catch(({ message }: Error) => {
    throw new Error(`The directory ${path} cannot be made: ${message}. Choose another, or ${advice.alternative}`)
  })
  const dataDir = await realpath(path)
  const [users, lock] = [join(dataDir, 'users'), join(dataDir, 'lock')]
  for (const directory of [users, lock]) await mkdir(directory, { recursive: true })

  const { name = 'postgres', settings = {}, onLog: log = () => {}, onCreate = () => {}, signal } = options
  const cluster = new Cluster(dataDir, { name, settings, advice, log, onCreate })
  const endUse = async (user: string) => {
    await unregister(users, user)
    if ((await liveRegistrations(users)).length === 0) await cluster.stop()
  }
  // One that is supervised is restarted in any case, and the other users connect again.
  const mayRestart = async () => options.supervise === true || (await liveRegistrations(users)).length === 1
  const start = async () => {
    await waitForForeign(users, dataDir, signal)
    const user = await register(users)
    try {
      return { user, ...(await cluster.ensureRunning(mayRestart, signal)) }
    } catch (error) {
      await endUse(user).catch(() => {}) // the first error is more informative
      throw error
    }
  }
  const { user, url, child } = await withLock(lock, start, signal)
  const endSupervision = options.supervise ? supervise(cluster, child, lock, log) : async () => {}

  const release = async () => {
    await endSupervision()
    await withLock(lock, () => endUse(user))
  }
  let released: Promise<void> | undefined
  return {
    url,
    release: () => {
      released ??= release()
      return released
    },
  }
}

/**
 * Waits until no process of another pid namespace uses the server. One that a killed container left is gone in a few seconds.
 * @throws Error if there is one that is alive
 */
async function waitForForeign(users: string, dataDir: string, signal?: AbortSignal): Promise<void> {
  const deadline_ms = performance.now() + FOREIGN_TIMEOUT_ms
  while ((await foreignRegistrations(users)).length > 0) {
    signal?.throwIfAborted()
    if (performance.now() > deadline_ms) {
      throw new Error(
        `${dataDir} is in use by a process of another container (or pid namespace), and two PostgreSQLs would destroy the data: ` +
          'run commands in the same container, for example with `docker exec`, or use a PostgreSQL of your own',
      )
    }
    await sleep(FOREIGN_POLL_INTERVAL_ms)
  }
}

/** Keeps the server running until the returned function is called. */
function supervise(cluster: Cluster, child: ChildProcess | undefined, lock: string, log: (message: string) => void) {
  const end = new AbortController()
  const restart = async () => {
    if (await cluster.isRunning()) return
    log('PostgreSQL has stopped; restarting it')
    const start = async () => {
      const { child } = await cluster.ensureRunning(async () => true, end.signal)
      child?.once('exit', check)
    }
    await withLock(lock, start, end.signal)
  }
  let checking: Promise<void> | undefined
  const check = () => {
    if (end.signal.aborted) return
    checking ??= restart()
      .catch((error: Error) => {
        if (!end.signal.aborted) log(error.message.replaceAll('\n', ' '))
      })
      .finally(() => {
        checking = undefined
      })
  }
  // The exit of our own child is an event; a server that another process started has to be polled.
  child?.once('exit', check)
  const timer = setInterval(check, SUPERVISION_INTERVAL_ms).unref()
  return async () => {
    end.abort()
    clearInterval(timer)
    await checking
  }
}
