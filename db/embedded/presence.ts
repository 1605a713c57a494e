/**
 * Files that say which processes are here. Each is named after its process so exactly that the name is never used
 * again: whoever finds that process gone may delete the file without a thought for others doing the same.
 */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'

const NAME = /^(\d+)-(\w+)-\w+$/

interface LiveProcess {
  /** With the pid, names this process and no later one that was given the same pid. */
  birth: string
  command: string
}

/** The process of that pid, unless there is none or all that is left of it is a zombie. */
export async function liveProcess(pid: number): Promise<LiveProcess | undefined> {
  return process.platform === 'linux' ? fromProc(pid) : fromPs(pid)
}

async function fromProc(pid: number): Promise<LiveProcess | undefined> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8')
    const command = await readFile(`/proc/${pid}/cmdline`, 'utf8')
    // The second field, the program's name in parentheses, may itself hold spaces and parentheses.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
    const [state, startTicks] = [fields[0], fields[19]]
    if (state === 'Z' || state === 'X') return undefined
    // Ticks count from the boot, and a service may well start at the same tick of every boot.
    const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '')
    return { birth: `${boot.slice(0, 8)}${startTicks}`, command: command.replaceAll('\0', ' ') }
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
  return { birth: started.replaceAll(/\W/g, ''), command: `${command} ` }
}

/** Says in `directory` that this process is here, until `leave`. May be called several times. */
export async function enter(directory: string): Promise<string> {
  const self = await liveProcess(process.pid)
  if (!self) throw new Error('This process does not find itself: is /proc mounted?')
  const name = `${process.pid}-${self.birth}-${randomBytes(4).toString('hex')}`
  await writeFile(join(directory, name), '', { flag: 'wx' })
  return name
}

/** Takes back what `enter` said. */
export async function leave(directory: string, name: string): Promise<void> {
  await rm(join(directory, name), { force: true })
}

/** The names of those who entered `directory` and live; the files of the dead are deleted. */
export async function present(directory: string): Promise<string[]> {
  const living: string[] = []
  for (const name of await readdir(directory)) {
    const [, pid, birth] = name.match(NAME) ?? []
    if (!pid) continue
    if ((await liveProcess(Number(pid)))?.birth === birth) living.push(name)
    else await leave(directory, name)
  }
  return living
}

/**
 * Runs `work` while no other caller on this machine runs theirs under the same directory. A holder that is killed
 * holds nothing. Two callers cannot both get in: each enters before it looks, so the later of the two sees the other.
 */
export async function alone<T>(directory: string, work: () => Promise<T>): Promise<T> {
  for (;;) {
    if ((await present(directory)).length === 0) {
      const name = await enter(directory)
      try {
        if ((await present(directory)).length === 1) return await work()
      } finally {
        await leave(directory, name)
      }
    }
    await sleep(10 + Math.random() * 40)
  }
}

/** Whether the error is one of Node's, PostgreSQL's or pg's with one of these codes. */
export function hasCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && 'code' in error && codes.includes(String(error.code))
}
