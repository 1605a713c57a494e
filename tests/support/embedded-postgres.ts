/** The embedded PostgreSQL of a data directory, as other processes see it. */
import { execFile } from 'node:child_process'
import { readFile, readlink } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { connectionString } from '../../db/embedded/socket.ts'

/** Its connection string, while it accepts connections. */
export async function embeddedUrl(dataDir: string): Promise<string> {
  const url = await connectionString(await readlink(path.join(dataDir, 'socket')), 'flowtrail')
  if (!url) throw new Error('PostgreSQL does not accept connections')
  return url
}

export const postmasterPidFile = (dataDir: string) => path.join(dataDir, 'postgres/postmaster.pid')

/** The pid of the running postmaster, or of the last one if that was killed. */
export const postmasterPid = async (dataDir: string) =>
  Number.parseInt(await readFile(postmasterPidFile(dataDir), 'utf8'), 10)

/** Sends a signal to the postmaster and all its processes. */
export async function signalPostgres(dataDir: string, signal: NodeJS.Signals): Promise<void> {
  await signalFamily(await postmasterPid(dataDir), signal)
}

/** Sends a signal to a process and its children. */
export async function signalFamily(pid: number, signal: NodeJS.Signals): Promise<void> {
  // Of a killed process there are no children any more; a stopped one starts no others.
  const children = signal === 'SIGKILL' ? await childrenOf(pid) : []
  send(pid, signal)
  for (const child of new Set([...children, ...(await childrenOf(pid))])) send(child, signal)
}

async function childrenOf(pid: number): Promise<number[]> {
  try {
    const { stdout } = await promisify(execFile)('pgrep', ['-P', String(pid)])
    return stdout.trim().split('\n').map(Number)
  } catch (error) {
    const NONE = 1
    if ((error as { code?: unknown }).code !== NONE) throw error
    return []
  }
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    // It may end meanwhile.
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}
