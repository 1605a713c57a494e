import { type ChildProcess, execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { type Account, changeOwner, chooseAccount } from './account.ts'
import { findBinaries } from './binaries.ts'
import { hasCode, liveProcess } from './process-registry.ts'
import { isSameFile } from './same-file.ts'
import { connectionString, PORT, SocketDirectory } from './socket.ts'

/** Long, since after a crash PostgreSQL first replays up to max_wal_size of its write-ahead log. */
const START_TIMEOUT_ms = 300_000
/** How long a fast shutdown may take before we request an immediate one, and that one before we give up. */
const STOP_TIMEOUT_ms = 30_000
/** How long a server may have no connection left, while other users wait for the lock, before its users are told. */
const FULL_TIMEOUT_ms = 3_000
const TOO_MANY_CONNECTIONS = '53300'
const POLL_INTERVAL_ms = 30
/** How long after a transient failure the server is launched again; doubles with each. */
const MIN_RELAUNCH_ms = 250
const MAX_RELAUNCH_ms = 4_000
const MAX_LOG_bytes = 16 * 1024 * 1024

/**
 * Settings; those that are PostgreSQL's defaults, too, are set where our docs promise them. The log omits statements and details:
 * they contain personal data.
 */
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

/** Failures to start that go away: backends that outlive a killed postmaster, or a start by a killed Node process. */
const TRANSIENT_FAILURE = /pre-existing shared memory block|lock file ".*" already exists/

interface ServerProcess {
  pid: number
  startTime: string
}

interface Postmaster extends ServerProcess {
  ready: boolean
}

interface Launch {
  child: ChildProcess
  /** Where the log of this launch begins, in bytes. */
  log_offset: number
}

interface RunningServer {
  /** Connection string of the database. */
  url: string
  /** The postmaster, if this call started it. */
  child?: ChildProcess
}

/** What error messages advise. */
export interface Advice {
  /** How to do without the embedded server, as the end of a sentence. */
  alternative: string
  /** How to move the data to another major version of PostgreSQL, as a sentence. */
  upgrade: string
}

interface ClusterOptions {
  /** Of the database, its superuser and, as a prefix, the socket's directory. */
  name: string
  /** PostgreSQL settings that take precedence over ours. */
  settings: Record<string, string>
  advice: Advice
  /** Called with one-line messages. */
  log: (message: string) => void
  /** Called once the cluster has been created. */
  onCreate: () => void
}

/**
 * A PostgreSQL cluster in a data directory, and its server. Calls of `ensureRunning` and `stop` must exclude each other.
 */
export class Cluster {
  readonly #dataDir: string
  readonly #directory: string
  readonly #logFile: string
  readonly #socket: SocketDirectory
  readonly #options: ClusterOptions

  /** @param dataDir absolute, existing, without symlinks */
  constructor(dataDir: string, options: ClusterOptions) {
    this.#dataDir = dataDir
    this.#directory = join(dataDir, 'postgres')
    this.#logFile = join(dataDir, 'postgres.log')
    this.#socket = new SocketDirectory(join(dataDir, 'socket'), this.#directory, `${options.name}-`)
    this.#options = options
  }

  /** Whether a server is running and reachable; it may also be starting or stopping. */
  async isRunning(): Promise<boolean> {
    const postmaster = await this.#postmaster()
    return postmaster !== undefined && !(await this.#isUnreachable(postmaster))
  }

  /**
   * Makes sure that the server is running and accepts connections, whatever state it or the cluster is in.
   *
   * @param mayRestart whether a running server that cannot be reached may be restarted, which breaks the connections of its users
   * @throws Error with the last lines of PostgreSQL's log when it does not start, or with advice when it cannot be reached;
   * PostgreSQL's error when it has no connection left; the signal's reason when that aborts
   */
  async ensureRunning(mayRestart: () => Promise<boolean>, signal?: AbortSignal): Promise<RunningServer> {
    const deadline_ms = Date.now() + START_TIMEOUT_ms
    let launch: Launch | undefined
    let relaunch_ms = MIN_RELAUNCH_ms
    let firstFull_ms: number | undefined
    const waitUnlessLong = (error: unknown): undefined => {
      firstFull_ms ??= Date.now()
      if (!hasCode(error, TOO_MANY_CONNECTIONS) || Date.now() - firstFull_ms > FULL_TIMEOUT_ms) throw error
    }
    try {
      while (Date.now() < deadline_ms) {
        signal?.throwIfAborted()
        const postmaster = await this.#postmaster()
        if (!postmaster) {
          if (!launch || hasExited(launch.child)) {
            if (launch) {
              await this.#throwUnlessTransient(launch)
              await sleep(relaunch_ms)
              relaunch_ms = Math.min(2 * relaunch_ms, MAX_RELAUNCH_ms)
            }
            launch = await this.#launch()
          }
        } else if (await this.#isUnreachable(postmaster)) {
          if (!(await mayRestart())) throw this.#unreachable(postmaster)
          this.#options.log('the socket of the running PostgreSQL is missing; restarting it')
          await this.#shutDown(postmaster)
        } else {
          const socket = await this.#socket.find()
          const url = socket && (await connectionString(socket, this.#options.name).catch(waitUnlessLong))
          if (url) {
            this.#options.log(
              `${launch ? 'PostgreSQL started' : 'using the running PostgreSQL'}, pid ${postmaster.pid}`,
            )
            return { url, child: launch?.child }
          }
        }
        await sleep(POLL_INTERVAL_ms)
      }
      throw await this.#failure('PostgreSQL does not accept connections', launch?.log_offset)
    } catch (error) {
      // One that is full has started, and others use it. The pid of one that has ended may be another process's by now.
      const isOurs = launch && !hasExited(launch.child) && !hasCode(error, TOO_MANY_CONNECTIONS)
      const pid = (isOurs && launch?.child.pid) || 0
      const live = await liveProcess(pid)
      if (live) await this.#shutDown({ pid, startTime: live.startTime })
      throw error
    }
  }

  /** Stops the server, if it is running, and waits until its process has exited. */
  async stop(): Promise<void> {
    const postmaster = await this.#postmaster()
    if (postmaster) await this.#shutDown(postmaster)
    await this.#socket.remove()
  }

  async #shutDown(server: ServerProcess): Promise<void> {
    this.#options.log(`stopping PostgreSQL, pid ${server.pid}`)
    for (const signal of ['SIGINT', 'SIGQUIT'] as const) {
      const deadline_ms = Date.now() + STOP_TIMEOUT_ms
      try {
        if (await isAlive(server)) process.kill(server.pid, signal)
      } catch (error) {
        if (!hasCode(error, 'ESRCH')) throw error
      }
      while (Date.now() < deadline_ms) {
        if (!(await isAlive(server))) return
        await sleep(POLL_INTERVAL_ms)
      }
    }
    throw new Error(`PostgreSQL (pid ${server.pid}) does not stop`)
  }

  async #postmaster(): Promise<Postmaster | undefined> {
    const lines = await this.#pidFile()
    const pid = Number(lines[0])
    const live = await liveProcess(pid)
    if (!live || !(await this.#isOwn(pid, live.command))) return undefined
    return { pid, startTime: live.startTime, ready: lines[7]?.trim() === 'ready' }
  }

  /** Whether a process runs in this cluster, which a server may have been told by another path, such as that of a bind mount. */
  async #isOwn(pid: number, command: string): Promise<boolean> {
    if (command.includes(`-D ${this.#directory} `)) return true
    return /\bpostgres\b/.test(command) && (await isSameFile(`/proc/${pid}/cwd`, this.#directory))
  }

  #unreachable({ pid }: Postmaster): Error {
    return new Error(
      `PostgreSQL (pid ${pid}) runs on ${this.#directory} for other processes, and its socket is not visible here: ` +
        'if it is in a /tmp of their own, as of a service of systemd, set their TMPDIR to a directory that all of you see',
    )
  }

  /** Whether no new connection can be made, for example because /tmp was cleaned. */
  async #isUnreachable(postmaster: Postmaster): Promise<boolean> {
    // Until it is ready, and while it stops, the socket may be missing legitimately.
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

  async #launch(): Promise<Launch> {
    const exists = await pathExists(this.#directory)
    const { alternative } = this.#options.advice
    const { initdb, postgres } = await findBinaries(alternative)
    const account = await chooseAccount(this.#dataDir, exists ? this.#directory : this.#dataDir, postgres, alternative)

    if ((await sizeOf(this.#logFile)) > MAX_LOG_bytes) await rename(this.#logFile, `${this.#logFile}.1`)
    const log = await open(this.#logFile, 'a', 0o600)
    try {
      if (!exists) await this.#initialize(account, initdb, log.fd)
      await this.#checkVersion(account.major)
      await this.#chown(account.owner)
      await this.#removeStalePidFile()
      const socket = await this.#socket.create(account.owner)

      const settings = { ...SETTINGS, unix_socket_directories: `"${socket}"`, ...this.#options.settings }
      const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
      const log_offset = (await log.stat()).size
      this.#options.log('starting PostgreSQL')
      // A session of its own keeps the terminal's Ctrl-C from reaching PostgreSQL: we stop it in order.
      const child = account.spawn(postgres, ['-D', this.#directory, ...args], {
        detached: true,
        stdio: ['ignore', log.fd, log.fd],
      })
      child.on('error', () => {}) // it then has no pid, which `hasExited` checks
      child.unref()
      return { child, log_offset }
    } finally {
      await log.close()
    }
  }

  /** Creates the cluster under a temporary name and renames it, so that it is never incomplete. */
  async #initialize(account: Account, initdb: string, log: number): Promise<void> {
    this.#options.log('creating a PostgreSQL cluster')
    for (const name of await readdir(this.#dataDir)) {
      if (name.startsWith('initdb-')) await rm(join(this.#dataDir, name), { recursive: true, force: true })
    }
    const directory = await mkdtemp(join(this.#dataDir, 'initdb-'))
    await changeOwner(directory, account.owner)
    const options = [
      '--encoding=UTF8',
      '--locale=C',
      '--auth=trust',
      `--username=${this.#options.name}`,
      '--no-instructions',
    ]
    if (this.#options.settings.fsync === 'off') options.push('--no-sync')
    const log_offset = await sizeOf(this.#logFile)
    const child = account.spawn(initdb, ['-D', directory, ...options], { stdio: ['ignore', log, log] })
    const [code] = (await once(child, 'exit')) as [number | null]
    if (code !== 0) throw await this.#failure('initdb failed', log_offset)
    await rename(directory, this.#directory)
    this.#options.onCreate()
  }

  async #checkVersion(major: string): Promise<void> {
    const version = (await readFile(join(this.#directory, 'PG_VERSION'), 'utf8')).trim()
    if (version === major) return
    const problem = `${this.#directory} was created by PostgreSQL ${version}, which PostgreSQL ${major} cannot read`
    throw new Error(`${problem}. ${this.#options.advice.upgrade}`)
  }

  /** PostgreSQL requires that its user owns the files. They change owner only when root switches launch strategies. */
  async #chown(owner: number): Promise<void> {
    if ((await stat(this.#directory)).uid === owner) return
    await promisify(execFile)('chown', ['-R', '-h', String(owner), this.#directory])
  }

  /**
   * Removes a postmaster.pid whose pid belongs to an unrelated process, as after a reboot: PostgreSQL would take that
   * process for its postmaster. If no such process exists, PostgreSQL needs the file to detect shared memory in use; if there is one
   * that cannot be seen, it may be the postmaster.
   */
  async #removeStalePidFile(): Promise<void> {
    const pid = Number((await this.#pidFile())[0])
    const live = await liveProcess(pid)
    if (live && !(await this.#isOwn(pid, live.command)))
      await rm(join(this.#directory, 'postmaster.pid'), { force: true })
  }

  async #throwUnlessTransient({ log_offset }: Launch): Promise<void> {
    if (!TRANSIENT_FAILURE.test(await this.#logFrom(log_offset)))
      throw await this.#failure('PostgreSQL did not start', log_offset)
  }

  async #failure(summary: string, log_offset = 0): Promise<Error> {
    const lines = (await this.#logFrom(log_offset)).trimEnd().split('\n').slice(-10)
    return new Error([`${summary}. The last lines of ${this.#logFile}:`, ...lines].join('\n'))
  }

  async #logFrom(offset: number): Promise<string> {
    return (await readFile(this.#logFile)).subarray(offset).toString()
  }
}

async function isAlive({ pid, startTime }: ServerProcess): Promise<boolean> {
  return (await liveProcess(pid))?.startTime === startTime
}

function hasExited(child: ChildProcess): boolean {
  return child.pid === undefined || child.exitCode !== null || child.signalCode !== null
}

async function pathExists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined
}

async function sizeOf(file: string): Promise<number> {
  return (await stat(file).catch(() => undefined))?.size ?? 0
}
