/**
 * The PostgreSQL that comes with us, for when nobody gives us one. It outlives the process that starts it: each
 * process that needs it says so in `users`, whoever finds it down starts it, and the last to leave stops it.
 *
 * In the data directory: `postgres` the cluster, `postgres.log`, `socket` a link to the directory of the socket,
 * `users` and `lock` a file for each process that uses the server, or is starting or stopping it.
 * All these processes must see each other: one machine, one pid namespace.
 */
import type { ChildProcess } from 'node:child_process'
import { mkdir, realpath } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { Cluster } from './cluster.ts'
import { alone, enter, leave, present } from './presence.ts'

const SUPERVISION_INTERVAL_MS = 1_000

export interface EmbeddedServer {
  /** Connection string of the `flowtrail` database on it (over the Unix socket). */
  readonly url: string
  /** Lets go of the server; the last user's release stops it (fast shutdown, awaited). Idempotent. */
  release(): Promise<void>
}

export interface EmbeddedOptions {
  /** Absolute or relative; made if missing. The cluster goes to `postgres` in it. */
  dataDir: string
  /** PostgreSQL settings for the case that it is this call that starts it, such as `fsync: 'off'` for tests. */
  settings?: Record<string, string>
  /** Told what happens, in messages of a line. */
  onLog?: (message: string) => void
  /** While this is held, start the server again whenever it dies. */
  supervise?: boolean
}

/**
 * Starts the embedded PostgreSQL of a data directory, or joins those who use it already.
 * @throws Error, saying what to do, when it is not installed for this platform, cannot run under this account, or the
 * data is of another major version; with the last lines of PostgreSQL's log when it does not start
 */
export async function useEmbeddedServer(options: EmbeddedOptions): Promise<EmbeddedServer> {
  const path = resolve(options.dataDir)
  await mkdir(path, { recursive: true })
  const dataDir = await realpath(path)
  const [users, lock] = [join(dataDir, 'users'), join(dataDir, 'lock')]
  for (const directory of [users, lock]) await mkdir(directory, { recursive: true })

  const say = options.onLog ?? (() => {})
  const cluster = new Cluster(dataDir, options.settings ?? {}, say)
  const part = async (user: string) => {
    await leave(users, user)
    if ((await present(users)).length === 0) await cluster.down()
  }
  const { user, url, child } = await alone(lock, async () => {
    const user = await enter(users)
    try {
      return { user, ...(await cluster.up()) }
    } catch (error) {
      await part(user).catch(() => {}) // the first error tells more
      throw error
    }
  })
  const endSupervision = options.supervise ? supervise(cluster, child, lock, say) : async () => {}

  const release = async () => {
    await endSupervision()
    await alone(lock, () => part(user))
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

/** Keeps the server up until the returned function is called. */
function supervise(cluster: Cluster, child: ChildProcess | undefined, lock: string, say: (message: string) => void) {
  const end = new AbortController()
  const revive = async () => {
    if (await cluster.isUp()) return
    say('PostgreSQL is gone: starting it again')
    await alone(lock, async () => {
      const { child } = await cluster.up(end.signal)
      child?.once('exit', check)
    })
  }
  let checking: Promise<void> | undefined
  const check = () => {
    if (end.signal.aborted) return
    checking ??= revive()
      .catch((error: Error) => {
        if (!end.signal.aborted) say(error.message.replaceAll('\n', ' '))
      })
      .finally(() => {
        checking = undefined
      })
  }
  // The exit of a child of ours is told at once; others have to be watched.
  child?.once('exit', check)
  const timer = setInterval(check, SUPERVISION_INTERVAL_MS).unref()
  return async () => {
    end.abort()
    clearInterval(timer)
    await checking
  }
}
