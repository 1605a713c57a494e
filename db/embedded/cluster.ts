import { type ChildProcess, execFile } from 'node:child_process'
import { once } from 'node:events'
import { chown, mkdtemp, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { type Account, chooseAccount } from './account.ts'
import { findBinaries } from './binaries.ts'
import { hasCode, liveProcess } from './presence.ts'
import { connectionString, PORT, SocketDirectory } from './socket.ts'

/** Generous, since after a crash PostgreSQL first replays up to max_wal_size of its log. */
const START_DEADLINE_MS = 300_000
/** How long a fast shutdown may take before an immediate one is asked for, and that one before we give up. */
const STOP_DEADLINE_MS = 30_000
const POLL_MS = 30
const LOG_LIMIT_BYTES = 16 * 1024 * 1024

/** What differs from PostgreSQL's defaults. Statements and details stay out of the log: they hold personal data. */
const SETTINGS = {
  listen_addresses: '',
  port: PORT,
  unix_socket_permissions: '0700',
  max_connections: '100',
  shared_buffers: '128MB',
  max_wal_size: '2GB',
  checkpoint_timeout: '15min',
  jit: 'off',
  timezone: 'UTC',
  log_timezone: 'UTC',
  log_checkpoints: 'off',
  log_error_verbosity: 'terse',
  log_min_error_statement: 'panic',
}

/** Failures to start that pass: backends of a killed postmaster not gone yet, or a start left over by a killed Node. */
const PASSING = /pre-existing shared memory block|lock file ".*" already exists/

interface Postmaster {
  pid: number
  birth: string
  ready: boolean
}

interface Start {
  child: ChildProcess
  /** Where this start's lines begin in the log. */
  log_offset: number
}

interface Up {
  /** Connection string of the service's database. */
  url: string
  /** The postmaster, when it is this call that started it. */
  child?: ChildProcess
}

/** A PostgreSQL cluster under a data directory, and its server. Callers of `up` and `down` exclude each other. */
export class Cluster {
  readonly #dataDir: string
  readonly #directory: string
  readonly #log: string
  readonly #socket: SocketDirectory
  readonly #settings: Record<string, string>
  readonly #say: (message: string) => void

  /** @param dataDir absolute, existing, without symlinks */
  constructor(dataDir: string, settings: Record<string, string>, say: (message: string) => void) {
    this.#dataDir = dataDir
    this.#directory = join(dataDir, 'postgres')
    this.#log = join(dataDir, 'postgres.log')
    this.#socket = new SocketDirectory(join(dataDir, 'socket'), this.#directory)
    this.#settings = settings
    this.#say = say
  }

  /** Whether a server runs and its socket can be found, or will be: it may be starting or stopping. */
  async isUp(): Promise<boolean> {
    const postmaster = await this.#postmaster()
    return postmaster !== undefined && !(await this.#isCutOff(postmaster))
  }

  /**
   * Sees to it that the server runs and accepts connections, whatever state it or the cluster is in.
   * @throws when it cannot, with the last lines of PostgreSQL's log; and when the signal is aborted
   */
  async up(signal?: AbortSignal): Promise<Up> {
    const deadline = Date.now() + START_DEADLINE_MS
    let start: Start | undefined
    try {
      while (Date.now() < deadline) {
        signal?.throwIfAborted()
        const postmaster = await this.#postmaster()
        if (!postmaster) {
          if (!start || hasExited(start.child)) {
            if (start) await this.#refuseLastingFailure(start)
            start = await this.#start()
          }
        } else if (await this.#isCutOff(postmaster)) {
          this.#say('the socket of the running PostgreSQL is gone: restarting it')
          await stop(postmaster)
        } else {
          const socket = await this.#socket.find()
          const url = socket && (await connectionString(socket))
          if (url) {
            this.#say(`${start ? 'PostgreSQL runs' : 'using the running PostgreSQL'}, pid ${postmaster.pid}`)
            return { url, child: start?.child }
          }
        }
        await sleep(POLL_MS)
      }
      throw await this.#failure('PostgreSQL does not accept connections', start?.log_offset)
    } catch (error) {
      if (start?.child.pid) await stopPid(start.child.pid)
      throw error
    }
  }

  /** Stops the server, if it runs, and waits until it is gone. */
  async down(): Promise<void> {
    const postmaster = await this.#postmaster()
    if (postmaster) {
      this.#say(`stopping PostgreSQL, pid ${postmaster.pid}`)
      await stop(postmaster)
    }
    await this.#socket.remove()
  }

  async #postmaster(): Promise<Postmaster | undefined> {
    const lines = await this.#pidFile()
    const pid = Number(lines[0])
    const live = pid > 0 ? await liveProcess(pid) : undefined
    if (!live?.command.includes(`-D ${this.#directory} `)) return undefined
    return { pid, birth: live.birth, ready: lines[7]?.trim() === 'ready' }
  }

  /** Whether nobody new can reach the server, as when a cleaner of /tmp was at work. */
  async #isCutOff(postmaster: Postmaster): Promise<boolean> {
    // Before and after it is ready, it has perhaps no socket yet, or no longer.
    return postmaster.ready && !(await this.#socket.hasSocket())
  }

  async #pidFile(): Promise<string[]> {
    try {
      return (await readFile(join(this.#directory, 'postmaster.pid'), 'utf8')).split('\n')
    } catch (error) {
      if (hasCode(error, 'ENOENT')) return []
      throw error
    }
  }

  async #start(): Promise<Start> {
    const exists = await isThere(this.#directory)
    const { initdb, postgres } = await findBinaries()
    const account = await chooseAccount(this.#dataDir, exists ? this.#directory : this.#dataDir, postgres)

    if ((await sizeOf(this.#log)) > LOG_LIMIT_BYTES) await rename(this.#log, `${this.#log}.1`)
    const log = await open(this.#log, 'a', 0o600)
    try {
      if (!exists) await this.#initialize(account, initdb, log.fd)
      await this.#checkVersion(account.major)
      await this.#giveTo(account.owner)
      await this.#forgetPidOfAnother()
      const socket = await this.#socket.make(account.owner)

      const settings = { ...SETTINGS, unix_socket_directories: `"${socket}"`, ...this.#settings }
      const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
      const log_offset = (await log.stat()).size
      this.#say('starting PostgreSQL')
      // In a session of its own, so that Ctrl-C in the terminal is ours to handle.
      const child = account.spawn(postgres, ['-D', this.#directory, ...args], {
        detached: true,
        stdio: ['ignore', log.fd, log.fd],
      })
      child.on('error', () => {}) // has then no pid, which counts as exited
      child.unref()
      return { child, log_offset }
    } finally {
      await log.close()
    }
  }

  /** Makes the cluster under another name first, so that what has the name is always complete. */
  async #initialize(account: Account, initdb: string, log: number): Promise<void> {
    this.#say('making a new PostgreSQL cluster')
    for (const name of await readdir(this.#dataDir)) {
      if (name.startsWith('initdb-')) await rm(join(this.#dataDir, name), { recursive: true, force: true })
    }
    const directory = await mkdtemp(join(this.#dataDir, 'initdb-'))
    await chown(directory, account.owner, -1)
    const options = ['--encoding=UTF8', '--locale=C', '--auth=trust', '--username=flowtrail', '--no-instructions']
    if (this.#settings.fsync === 'off') options.push('--no-sync')
    const log_offset = await sizeOf(this.#log)
    const child = account.spawn(initdb, ['-D', directory, ...options], { stdio: ['ignore', log, log] })
    const [code] = (await once(child, 'exit')) as [number | null]
    if (code !== 0) throw await this.#failure('initdb failed', log_offset)
    await rename(directory, this.#directory)
  }

  async #checkVersion(major: string): Promise<void> {
    const version = (await readFile(join(this.#directory, 'PG_VERSION'), 'utf8')).trim()
    if (version === major) return
    const remedy = 'Export with the release of Flowtrail that made it and import here, or set DATABASE_URL.'
    throw new Error(
      `${this.#directory} was made by PostgreSQL ${version}, and this is PostgreSQL ${major}, which cannot read it. ${remedy}`,
    )
  }

  /** PostgreSQL takes only files that its user owns. Only root ever has to give them, having run in another way. */
  async #giveTo(owner: number): Promise<void> {
    if ((await stat(this.#directory)).uid === owner) return
    await promisify(execFile)('chown', ['-R', '-h', String(owner), this.#directory])
  }

  /**
   * PostgreSQL takes a postmaster.pid for its own whenever a process of that pid exists, though the machine has
   * restarted since. Where none exists we leave the file to it, for what it says of shared memory still in use.
   */
  async #forgetPidOfAnother(): Promise<void> {
    const [pid] = await this.#pidFile()
    if (!Number(pid)) return
    try {
      process.kill(Number(pid), 0)
    } catch {
      return
    }
    if (!(await this.#postmaster())) await rm(join(this.#directory, 'postmaster.pid'), { force: true })
  }

  async #refuseLastingFailure({ log_offset }: Start): Promise<void> {
    if (!PASSING.test(await this.#logFrom(log_offset)))
      throw await this.#failure('PostgreSQL did not start', log_offset)
  }

  async #failure(what: string, log_offset = 0): Promise<Error> {
    const lines = (await this.#logFrom(log_offset)).trimEnd().split('\n').slice(-10)
    return new Error([`${what}. The last lines of ${this.#log}:`, ...lines].join('\n'))
  }

  async #logFrom(offset: number): Promise<string> {
    return (await readFile(this.#log)).subarray(offset).toString()
  }
}

async function stopPid(pid: number): Promise<void> {
  const live = await liveProcess(pid)
  if (live) await stop({ pid, birth: live.birth })
}

async function stop(server: { pid: number; birth: string }): Promise<void> {
  for (const signal of ['SIGINT', 'SIGQUIT'] as const) {
    const deadline = Date.now() + STOP_DEADLINE_MS
    try {
      if (await isAlive(server)) process.kill(server.pid, signal)
    } catch (error) {
      if (!hasCode(error, 'ESRCH')) throw error
    }
    while (Date.now() < deadline) {
      if (!(await isAlive(server))) return
      await sleep(POLL_MS)
    }
  }
  throw new Error(`PostgreSQL, pid ${server.pid}, does not stop.`)
}

async function isAlive({ pid, birth }: { pid: number; birth: string }): Promise<boolean> {
  return (await liveProcess(pid))?.birth === birth
}

function hasExited(child: ChildProcess): boolean {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null
}

async function isThere(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined
}

async function sizeOf(file: string): Promise<number> {
  return (await stat(file).catch(() => undefined))?.size ?? 0
}
