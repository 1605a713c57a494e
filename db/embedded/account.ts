/** PostgreSQL refuses to run as root, so root must find a way to run it as somebody else. */
import { type ChildProcess, execFile, type SpawnOptions, spawn } from 'node:child_process'
import { readFile, stat } from 'node:fs/promises'
import { promisify } from 'node:util'

interface Way {
  /** The command, with its options, that runs ours; empty when ours runs by itself. */
  via: string[]
  uid?: number
  gid?: number
  /** The uid that PostgreSQL, run this way, must find as the owner of its files. */
  owner: number
}

export interface Account {
  /** The uid that must own the cluster and the socket directory. */
  owner: number
  /** PostgreSQL's major version. */
  major: string
  spawn(program: string, args: string[], options?: SpawnOptions): ChildProcess
}

const TRIAL = 'test -x "$1" || { echo "no access to $1" >&2; exit 1; }; exec "$2" --version'

/**
 * Finds an account that PostgreSQL accepts and that reaches its programs and the data directory.
 * @param home the cluster, or the directory in which it is to be
 * @throws when there is none, saying what to do
 */
export async function chooseAccount(dataDir: string, home: string, postgres: string): Promise<Account> {
  const failures: string[] = []
  for (const way of await ways(home)) {
    try {
      const trial = command(way, 'sh', ['-c', TRIAL, 'sh', dataDir, postgres])
      const { stdout } = await promisify(execFile)(...trial, { ...identity(way), env: environment() })
      const major = stdout.match(/\d+/)?.[0] ?? ''
      return { owner: way.owner, major, spawn: (program, args, options) => spawnIn(way, program, args, options) }
    } catch (error) {
      const { stderr, message } = error as Error & { stderr?: string }
      failures.push((stderr || message).trim().replaceAll('\n', ' '))
    }
  }
  const advice =
    process.geteuid?.() === 0
      ? 'it refuses root, and no other account reaches it and the data directory: run as an ordinary user'
      : 'check that this user may enter the data directory'
  throw new Error(`The embedded PostgreSQL cannot run: ${advice}, or set DATABASE_URL. (${failures.join('; ')})`)
}

async function ways(home: string): Promise<Way[]> {
  const euid = process.geteuid?.() ?? 0
  if (euid !== 0) return [{ via: [], owner: euid }]

  // Where the directory is another user's, as in a container's bind mount, that user is the one to run as.
  const { uid: homeUid, gid: homeGid } = await stat(home)
  const { uid, gid } = homeUid === 0 ? await unprivilegedUser() : { uid: homeUid, gid: homeGid }
  const ids = [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups']
  const reach = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override']
  const all: Way[] = [
    // A user namespace gives root another name; the files remain root's.
    { via: ['unshare', '--user', `--map-user=${uid}`, `--map-group=${gid}`, '--'], owner: 0 },
    // Containers mostly forbid such namespaces, but let root become another user,
    { via: [], uid, gid, owner: uid },
    // and let that user enter directories, such as /root, that only root may.
    { via: ['setpriv', ...ids, ...reach, '--'], owner: uid },
  ]
  return homeUid === 0 ? all : all.slice(1)
}

/** A user in /etc/passwd, since initdb insists on knowing its own name. */
async function unprivilegedUser(): Promise<{ uid: number; gid: number }> {
  const users = (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'))
  const user = users.find(([name]) => name === 'postgres') ?? users.find(([name]) => name === 'nobody')
  return { uid: Number(user?.[2] ?? 65534), gid: Number(user?.[3] ?? 65534) }
}

function spawnIn(way: Way, program: string, args: string[], options: SpawnOptions = {}): ChildProcess {
  return spawn(...command(way, program, args), { ...options, ...identity(way), env: environment() })
}

function command({ via: [wrapper, ...options] }: Way, program: string, args: string[]): [string, string[]] {
  return wrapper ? [wrapper, [...options, program, ...args]] : [program, args]
}

function identity({ uid, gid }: Way): { uid?: number; gid?: number } {
  return uid === undefined ? {} : { uid, gid }
}

/** Nothing of ours: PGPORT and its like change PostgreSQL's settings, and our secrets are none of its business. */
function environment(): NodeJS.ProcessEnv {
  return { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' }
}
