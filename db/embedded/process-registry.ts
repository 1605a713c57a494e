/**
 * Registrations of processes as files in a directory. A file name identifies its process so precisely that it is never
 * reused: anyone who finds that process dead may delete the file without racing others.
 */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'

const FILE_NAME = /^(?<pid>\d+)-(?<startTime>\w+)-\w+$/

interface LiveProcess {
  /** Together with the pid, distinguishes this process from a later one with the same pid. */
  startTime: string
  command: string
}

/** The process with that pid; undefined when there is none or only a zombie. */
export async function liveProcess(pid: number): Promise<LiveProcess | undefined> {
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

/** Registers this process in `directory`; it may hold several registrations. @returns the name to unregister */
export async function register(directory: string): Promise<string> {
  const self = await liveProcess(process.pid)
  if (!self) throw new Error('Cannot find this process in the process list; is /proc mounted?')
  const name = `${process.pid}-${self.startTime}-${randomBytes(4).toString('hex')}`
  await writeFile(join(directory, name), '', { flag: 'wx' })
  return name
}

export async function unregister(directory: string, name: string): Promise<void> {
  await rm(join(directory, name), { force: true })
}

/** The registrations of live processes. Deletes those of dead ones. */
export async function liveRegistrations(directory: string): Promise<string[]> {
  const live: string[] = []
  for (const name of await readdir(directory)) {
    const { pid, startTime } = name.match(FILE_NAME)?.groups ?? {}
    if (!pid) continue
    if ((await liveProcess(Number(pid)))?.startTime === startTime) live.push(name)
    else await unregister(directory, name)
  }
  return live
}

/**
 * Runs `work` under a lock that all callers on this machine share through `directory`. A killed holder releases it.
 * Two callers cannot both acquire it: each registers before it checks, so the later of the two sees the other.
 *
 * @throws the signal's reason when that aborts first
 */
export async function withLock<T>(directory: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  for (;;) {
    signal?.throwIfAborted()
    if ((await liveRegistrations(directory)).length === 0) {
      const name = await register(directory)
      try {
        if ((await liveRegistrations(directory)).length === 1) return await work()
      } finally {
        await unregister(directory, name)
      }
    }
    await sleep(10 + Math.random() * 40)
  }
}

/** Whether the error is one of Node's, PostgreSQL's or pg's with one of these codes. */
export function hasCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && 'code' in error && codes.includes(String(error.code))
}
