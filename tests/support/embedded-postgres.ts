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
  const { stdout } = await promisify(execFile)('pgrep', ['-P', String(pid)])
  for (const one of [pid, ...stdout.trim().split('\n').map(Number)]) {
    try {
      process.kill(one, signal)
    } catch (error) {
      // A backend may end meanwhile.
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
    }
  }
}
