/** PostgreSQL refuses to run as root, so root needs a strategy for launching it as another user. */
import { type ChildProcess, execFile, type SpawnOptions, spawn } from 'node:child_process'
import { chown, readFile, stat } from 'node:fs/promises'
import { promisify } from 'node:util'

interface LaunchStrategy {
  /** A command with its options that runs the program; empty when the program is run directly. */
  wrapper: string[]
  uid?: number
  gid?: number
  /** The uid that PostgreSQL, launched this way, expects to own its files. */
  owner: number
}

export interface Account {
  /** The uid that must own the cluster and the socket directory. */
  owner: number
  /** PostgreSQL's major version. */
  major: string
  spawn(program: string, args: string[], options?: SpawnOptions): ChildProcess
}

const PROBE = 'test -x "$1" || { echo "no access to $1" >&2; exit 1; }; exec "$2" --version'

/**
 * Finds an account under which PostgreSQL agrees to run and which has access to its programs and the data directory.
 *
 * @param home the cluster, or the directory in which it will be created
 * @param alternative what to do instead, for the error message
 * @throws Error when there is none, with advice
 */
export async function chooseAccount(
  dataDir: string,
  home: string,
  postgres: string,
  alternative: string,
): Promise<Account> {
  const failures: string[] = []
  for (const strategy of await launchStrategies(home)) {
    try {
      const probe = commandLine(strategy, 'sh', ['-c', PROBE, 'sh', dataDir, postgres])
      const { stdout } = await promisify(execFile)(...probe, { ...identity(strategy), env: environment() })
      const major = stdout.match(/\d+/)?.[0] ?? ''
      return {
        owner: strategy.owner,
        major,
        spawn: (program, args, options) => launch(strategy, program, args, options),
      }
    } catch (error) {
      const { stderr, message } = error as Error & { stderr?: string }
      failures.push((stderr || message).trim().replaceAll('\n', ' '))
    }
  }
  const advice =
    process.geteuid?.() === 0
      ? 'it refuses to run as root, and no other account can access it and the data directory: run as an ordinary user'
      : 'check that this user may access the data directory'
  throw new Error(`The embedded PostgreSQL cannot run: ${advice}, or ${alternative}. (${failures.join('; ')})`)
}

/** Gives a file to a user. Sandboxes such as systemd's refuse the system call, so it is left out where it changes nothing. */
export async function changeOwner(path: string, owner: number): Promise<void> {
  if ((await stat(path)).uid !== owner) await chown(path, owner, -1)
}

async function launchStrategies(home: string): Promise<LaunchStrategy[]> {
  const euid = process.geteuid?.() ?? 0
  if (euid !== 0) return [{ wrapper: [], owner: euid }]

  // A directory of another user, as in a container's bind mount, calls for running as that user.
  const { uid: homeUid, gid: homeGid } = await stat(home)
  const { uid, gid } = homeUid === 0 ? await unprivilegedUser() : { uid: homeUid, gid: homeGid }
  const ids = [`--reuid=${uid}`, `--regid=${gid}`, '--clear-groups']
  const capabilities = ['--inh-caps=+dac_override', '--ambient-caps=+dac_override']
  const strategies: LaunchStrategy[] = [
    // A user namespace maps root to another name; the files remain root's.
    { wrapper: ['unshare', '--user', `--map-user=${uid}`, `--map-group=${gid}`, '--'], owner: 0 },
    // Most containers forbid such namespaces, but let root become another user,
    { wrapper: [], uid, gid, owner: uid },
    // and let that user access directories, such as /root, that only root may.
    { wrapper: ['setpriv', ...ids, ...capabilities, '--'], owner: uid },
  ]
  return homeUid === 0 ? strategies : strategies.slice(1)
}

/** A user in /etc/passwd, since initdb has to find its own user name. */
async function unprivilegedUser(): Promise<{ uid: number; gid: number }> {
  const users = (await readFile('/etc/passwd', 'utf8')).split('\n').map((line) => line.split(':'))
  const user = users.find(([name]) => name === 'postgres') ?? users.find(([name]) => name === 'nobody')
  return { uid: Number(user?.[2] ?? 65534), gid: Number(user?.[3] ?? 65534) }
}

function launch(strategy: LaunchStrategy, program: string, args: string[], options: SpawnOptions = {}): ChildProcess {
  return spawn(...commandLine(strategy, program, args), { ...options, ...identity(strategy), env: environment() })
}

function commandLine({ wrapper }: LaunchStrategy, program: string, args: string[]): [string, string[]] {
  const [command, ...options] = wrapper
  return command ? [command, [...options, program, ...args]] : [program, args]
}

function identity({ uid, gid }: LaunchStrategy): { uid?: number; gid?: number } {
  return uid === undefined ? {} : { uid, gid }
}

/** Passes on none of our variables: PGPORT and the like change PostgreSQL's settings, and it has no use for our secrets. */
function environment(): NodeJS.ProcessEnv {
  return { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' }
}
