import { readdir, readFile, writeFile } from 'node:fs/promises'

/** How the kernel counts in /proc: USER_HZ, a constant of its interface. */
const TICKS_A_SECOND = 100

interface Process {
  pid: number
  parent: number
  /** CPU time of its own, and of children that have ended, in seconds. */
  own_s: number
  ended_s: number
}

/** CPU seconds used so far by a process and all its descendants, ended children included. */
export async function cpuSeconds(root: number | undefined): Promise<number | undefined> {
  if (root === undefined) return undefined
  const processes = await allProcesses()
  let total = 0
  for (const { pid, own_s, ended_s } of processes.values()) {
    if (isWithin(processes, pid, root)) total += own_s + (pid === root ? ended_s : 0)
  }
  return total
}

/** The most memory that a process has held at once, since its start or the last `resetPeakMemory`, in megabytes. */
export async function peakMemory(pid: number): Promise<number> {
  return memory(pid, 'VmHWM')
}

/** The memory that a process holds now, in megabytes. */
export async function currentMemory(pid: number): Promise<number> {
  return memory(pid, 'VmRSS')
}

/** Resets the peak that `peakMemory` reads. */
export async function resetPeakMemory(pid: number): Promise<void> {
  const PEAK = '5'
  await writeFile(`/proc/${pid}/clear_refs`, PEAK)
}

/** The process that all of PostgreSQL's descend from, when the given backend runs on this machine. */
export async function postmasterOf(backend: number): Promise<number | undefined> {
  const command = await readFile(`/proc/${backend}/cmdline`, 'utf8').catch(() => '')
  return command.startsWith('postgres') ? (await readProcess(String(backend)))?.parent : undefined
}

async function memory(pid: number, field: string): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Number(new RegExp(`^${field}:\\s+(\\d+) kB`, 'm').exec(status)?.[1]) / 1024
}

function isWithin(processes: ReadonlyMap<number, Process>, pid: number, root: number): boolean {
  for (let at: number | undefined = pid; at; at = processes.get(at)?.parent) if (at === root) return true
  return false
}

async function allProcesses(): Promise<Map<number, Process>> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const found = await Promise.all(pids.map(readProcess))
  return new Map(found.filter((process) => process !== undefined).map((process) => [process.pid, process]))
}

async function readProcess(name: string): Promise<Process | undefined> {
  const stat = await readFile(`/proc/${name}/stat`, 'utf8').catch(() => undefined) // it may have ended meanwhile
  if (stat === undefined) return undefined
  // The second field, the program's name in parentheses, may itself hold spaces and parentheses.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const seconds = (first: number) => (Number(fields[first]) + Number(fields[first + 1])) / TICKS_A_SECOND
  return { pid: Number(name), parent: Number(fields[1]), own_s: seconds(11), ended_s: seconds(13) }
}
