/**
 * Registrations of processes as files in a directory. A file name identifies its process so precisely that it is never
 * reused: anyone who finds that process dead may delete the file without racing others. A process that cannot be seen, since it is
 * in another pid namespace or the system hides it, is taken for alive as long as it touches its file.
 */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readdir, readFile, readlink, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'

const FILE_NAME = /^(?<pid>\d+)-(?<startTime>\w+)-(?:(?<namespace>\d*)_)?\w+$/

const TOUCH_INTERVAL_ms = 1_000
/** So long no process is too busy to touch its file, and a container that was killed is back no sooner than it has to wait. */
const SILENCE_ms = 5_000

/** The longest that a process waits before it tries again to acquire a lock. */
const MAX_BACKOFF_ms = 1_000

interface LiveProcess {
  /** Together with the pid, distinguishes this process from a later one with the same pid. */
  startTime: string
  command: string
}

/** The process with that pid; undefined when there is none or only a zombie. */
export async function liveProcess(pid: number): Promise<LiveProcess | undefined> {
  // 0 and NaN are those of a file without one.
  if (!(pid > 0)) return undefined
  return process.platform === 'linux' ? fromProc(pid) : fromPs(pid)
}

async function fromProc(pid: number): Promise<LiveProcess | undefined> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8')
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8')
    // The second field, the program's name in parentheses, may itself contain spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const [state, startTicks] = [fields[0], fields[19]]
    if (state === 'Z' || state === 'X') return undefined
    // Ticks count from boot, and a service may well start at the same tick of every boot.
    const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '')
    return { startTime: `${boot.slice(0, 8)}${startTicks}`, command: command.replaceAll('\0', ' ') }
  } catch (error) {
    if (hasCode(error, 'ENOENT', 'ESRCH')) return undefined
    throw error
  }
}

async function fromPs(pid: number): Promise<LiveProcess | undefined> {
  const env = { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' }
  const columns = ['-o', 'stat=', '-o', 'lstart=', '-o', 'command=']
  const ps = await promisify(execFile)('ps', ['-ww', ...columns, '-p', String(pid)], { env }).catch((error) => {
    if (error.code === 1) return undefined // no such process
    throw error
  })
  const [, state, started, command] = ps?.stdout.match(/^\s*(\S+)\s+(\S+\s+\S+\s+\d+\s+[\d:]+\s+\d+)\s+(.*)/) ?? []
  if (!state || !started || !command || state.startsWith('Z')) return undefined
  return { startTime: started.replaceAll(/\W/g, ''), command: `${command} ` }
}

/** What tells the pid namespace of this process from others of the machine; empty where there is only one. */
async function pidNamespace(): Promise<string> {
  const link = await readlink('/proc/self/ns/pid').catch(() => '')
  return link.replaceAll(/\D/g, '')
}

const touching = new Map<string, NodeJS.Timeout>()

/** Registers this process in `directory`; it may hold several registrations. @returns the name to unregister */
export async function register(directory: string): Promise<string> {
  const name = await createName()
  await registerAs(directory, name)
  return name
}

/** A new name for a registration of this process. */
async function createName(): Promise<string> {
  const self = await liveProcess(process.pid)
  if (!self) throw new Error('Cannot find this process in the process list; is /proc mounted?')
  return `${process.pid}-${self.startTime}-${await pidNamespace()}_${randomBytes(4).toString('hex')}`
}

async function registerAs(directory: string, name: string): Promise<void> {
  const file = join(directory, name)
  await writeFile(file, '', { flag: 'wx' })
  // It may have been deleted while this process was suspended.
  const create = () => (touching.has(file) ? writeFile(file, '') : undefined)
  const touch = () =>
    utimes(file, new Date(), new Date())
      .catch(create)
      .catch(() => {})
  touching.set(file, setInterval(touch, TOUCH_INTERVAL_ms).unref())
}

export async function unregister(directory: string, name: string): Promise<void> {
  const file = join(directory, name)
  clearInterval(touching.get(file))
  touching.delete(file)
  await rm(file, { force: true })
}

/** The registrations of live processes. Deletes those of dead ones. */
export async function liveRegistrations(directory: string): Promise<string[]> {
  const live: string[] = []
  for (const name of await readdir(directory)) {
    if (!FILE_NAME.test(name)) continue
    if (await isLive(directory, name)) live.push(name)
    else await unregister(directory, name)
  }
  return live
}

/** The registrations of processes in other pid namespaces, such as containers, that are probably alive. */
export async function foreignRegistrations(directory: string): Promise<string[]> {
  const own = await pidNamespace()
  const isForeign = (name: string) => (name.match(FILE_NAME)?.groups?.namespace ?? own) !== own
  return (await liveRegistrations(directory)).filter(isForeign)
}

async function isLive(directory: string, name: string): Promise<boolean> {
  const { pid, startTime, namespace } = name.match(FILE_NAME)?.groups ?? {}
  const own = await pidNamespace()
  if ((namespace ?? own) === own) {
    const live = await liveProcess(Number(pid))
    if (live) return live.startTime === startTime
    if (!(await isHidden(Number(pid)))) return false
  }
  const touched_ms = (await stat(join(directory, name)).catch(() => undefined))?.mtimeMs ?? 0
  // One from the future, before the clock was set back, is old: who is alive has touched it since.
  return Math.abs(Date.now() - touched_ms) < SILENCE_ms
}

/** Whether there is a process of another user with this pid, which /proc does not show, as with systemd's ProtectProc. */
async function isHidden(pid: number): Promise<boolean> {
  // A zombie is shown.
  if (process.platform !== 'linux' || (await stat(`/proc/${pid}`).catch(() => undefined))) return false
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return hasCode(error, 'EPERM')
  }
}

/**
 * Runs `work` under a lock that all callers on this machine share through `directory`. A killed holder releases it.
 * Two callers cannot both acquire it: each registers before it checks, so the later of the two sees the other. It is not fair.
 *
 * @throws the signal's reason when that aborts first
 */
export async function withLock<T>(directory: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  for (let longest_ms = 50; ; ) {
    signal?.throwIfAborted()
    // Before the look, so that little time passes until others see this process.
    const name = await createName()
    if ((await liveRegistrations(directory)).length === 0) {
      await registerAs(directory, name)
      try {
        if ((await liveRegistrations(directory)).length === 1) return await work()
      } finally {
        await unregister(directory, name)
      }
      // Another has tried at the same time. The slower the machine, the further apart their next attempts must be.
      longest_ms = Math.min(longest_ms * 2, MAX_BACKOFF_ms)
    }
    await sleep(10 + Math.random() * (longest_ms - 10), undefined, { signal }).catch(() => {})
  }
}

/** Whether the error is one of Node's, PostgreSQL's or pg's with one of these codes. */
export function hasCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && 'code' in error && codes.includes(String(error.code))
}
