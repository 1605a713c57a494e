import { type ChildProcess, execFile, type ForkOptions, fork, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import promises, {
  access,
  chmod,
  chown,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  rmdir,
  stat,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises'
import { syncBuiltinESMExports } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, relative } from 'node:path'
import timers, { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { findBinaries } from '../../db/embedded/binaries.ts'
import { liveProcess, liveRegistrations, register, unregister, withLock } from '../../db/embedded/process-registry.ts'
import { type EmbeddedOptions, type EmbeddedServer, useEmbeddedServer } from '../../db/embedded/server.ts'

const OPTIONS = { name: 'app', settings: { fsync: 'off' }, advice: { alternative: 'set APP_DATABASE_URL' } }
const USER_SCRIPT = fileURLToPath(new URL('./embedded-user.ts', import.meta.url))
const NOBODY = 65534
const isRoot = process.geteuid?.() === 0

/** The data directory of a cluster that was created and stopped. */
let created: string
beforeAll(async () => {
  created = await mkdtemp(join(tmpdir(), 'flowtrail-test-'))
  await (await useEmbeddedServer({ dataDir: created, ...OPTIONS })).release()
})
afterAll(() => rm(created, { recursive: true }))

let home: string
let dataDir: string
let servers: EmbeddedServer[]
let children: ChildProcess[]

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'flowtrail-test '))
  await chmod(home, 0o755)
  dataDir = join(home, 'data')
  servers = []
  children = []
})

afterEach(async () => {
  for (const child of children) await kill(child)
  for (const server of servers) await server.release()
  if (await isThere(join(dataDir, 'postgres/postmaster.pid'))) await (await use()).release()
  expect(await isThere(join(dataDir, 'postgres/postmaster.pid'))).toBe(false)
  await rm(home, { recursive: true })
})

/** Gives the test a copy of the created cluster, in a fraction of the time that creating one takes. */
async function copyCluster(): Promise<void> {
  await mkdir(dataDir)
  await promisify(execFile)('cp', ['-a', join(created, 'postgres'), dataDir])
}

async function use(options: Partial<EmbeddedOptions> = {}): Promise<EmbeddedServer> {
  const server = await useEmbeddedServer({ dataDir, ...OPTIONS, ...options })
  servers.push(server)
  return server
}

/** Starts another process that uses the server, and waits until it does. */
async function useElsewhere(options: ForkOptions = {}): Promise<{ child: ChildProcess; url: string }> {
  const argument = JSON.stringify({ dataDir, ...OPTIONS })
  const child = fork(USER_SCRIPT, [argument], { execArgv: [], ...options })
  children.push(child)
  const [{ url, failure }] = (await once(child, 'message')) as [{ url: string; failure?: string }]
  if (failure) throw new Error(failure)
  return { child, url }
}

async function releaseElsewhere(child: ChildProcess): Promise<void> {
  child.send('release')
  await once(child, 'exit')
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  child.kill('SIGKILL')
  await once(child, 'exit')
}

async function query(url: string, sql: string): Promise<unknown[][]> {
  const client = new pg.Client({ connectionString: url })
  client.on('error', () => {})
  await client.connect()
  try {
    return (await client.query({ text: sql, rowMode: 'array' })).rows
  } finally {
    await client.end()
  }
}

async function postmasterPid(): Promise<number> {
  return Number.parseInt(await readFile(join(dataDir, 'postgres/postmaster.pid'), 'utf8'), 10)
}

async function isRunning(pid: number): Promise<boolean> {
  return (await liveProcess(pid)) !== undefined
}

async function killPostmaster(): Promise<void> {
  const pid = await postmasterPid()
  process.kill(pid, 'SIGKILL')
  await expect.poll(() => isRunning(pid)).toBe(false)
}

async function isThere(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => undefined)) !== undefined
}

describe('one user', () => {
  test('creates a cluster, serves the named database over the socket only, and stops', async () => {
    vi.stubEnv('PGPORT', '1')
    vi.stubEnv('PGSSLMODE', 'require')
    const { url, release } = await use()
    const settings = "current_setting('listen_addresses'), current_setting('timezone'), current_setting('jit')"
    const [row] = await query(url, `SELECT current_database(), getdatabaseencoding(), ${settings}`)
    vi.unstubAllEnvs()
    expect(row).toEqual(['app', 'UTF8', '', 'UTC', 'off'])

    const [pid, socket] = [await postmasterPid(), await readlink(join(dataDir, 'socket'))]
    expect((await stat(socket)).mode & 0o777).toBe(0o700)
    await release()
    await release()
    expect(await isRunning(pid)).toBe(false)
    expect(await isThere(socket)).toBe(false)
    expect(await readdir(join(dataDir, 'users'))).toEqual([])
    expect(await readdir(join(dataDir, 'lock'))).toEqual([])
  })

  test('says what to do when its directory cannot be made', async () => {
    const file = join(home, 'file')
    await writeFile(file, '')
    await expect(useEmbeddedServer({ dataDir: file, ...OPTIONS })).rejects.toThrow(
      `The directory ${file} cannot be made: EEXIST: file already exists, mkdir '${file}'. Choose another, or set APP_DATABASE_URL`,
    )
  })

  test('finds the data again, also by a relative path', async () => {
    await copyCluster()
    const first = await use()
    await query(first.url, 'CREATE TABLE kept AS SELECT 42 AS answer')
    await first.release()
    const second = await use({ dataDir: relative(process.cwd(), dataDir) })
    expect(await query(second.url, 'SELECT answer FROM kept')).toEqual([[42]])
    expect(second.url).toBe(first.url)
  })

  test('removes what a killed initdb left', async () => {
    await mkdir(join(dataDir, 'initdb-killed/base'), { recursive: true })
    await use()
    expect(await isThere(join(dataDir, 'initdb-killed'))).toBe(false)
  })

  test('restores missing library symlinks', async () => {
    await copyCluster()
    const { postgres } = await findBinaries('')
    const link = join(postgres, '../../lib/libecpg.so') // one that no server needs: others run meanwhile
    await rm(link)
    await use()
    await access(link)
  })
})

describe('several users', () => {
  test('of one process share a server, which the last one stops', async () => {
    await copyCluster()
    const [first, second] = await Promise.all([use(), use()])
    const pid = await postmasterPid()
    expect(second.url).toBe(first.url)
    await second.release()
    expect(await query(first.url, 'SELECT 1')).toEqual([[1]])
    expect(await postmasterPid()).toBe(pid)
    await first.release()
    expect(await isRunning(pid)).toBe(false)
  })

  test('in processes that start at once share a server, which the last one stops', async () => {
    const [first, second, third] = await Promise.all([useElsewhere(), useElsewhere(), use()])
    const pid = await postmasterPid()
    expect(new Set([first.url, second.url, third.url]).size).toBe(1)
    expect(await readFile(join(dataDir, 'postgres.log'), 'utf8')).not.toMatch(/already exists/)
    await Promise.all([releaseElsewhere(first.child), third.release()])
    expect(await query(second.url, 'SELECT 1')).toEqual([[1]])
    expect(await postmasterPid()).toBe(pid)
    await releaseElsewhere(second.child)
    expect(await isRunning(pid)).toBe(false)
  })

  test('adopt the server of a killed process, and the last one stops it', async () => {
    await copyCluster()
    const { child } = await useElsewhere()
    const pid = await postmasterPid()
    await kill(child)
    const server = await use()
    expect(await query(server.url, 'SELECT 1')).toEqual([[1]])
    expect(await postmasterPid()).toBe(pid)
    await server.release()
    expect(await isRunning(pid)).toBe(false)
  })

  test('acquire the lock one at a time, also after a holder was killed', async () => {
    const lock = join(home, 'lock')
    await mkdir(lock)
    const name = await register(lock)
    await unregister(lock, name)
    await writeFile(join(lock, name.replace(/-\w+-/, '-0-')), '') // this pid, another start time
    let inside = 0
    const work = async () => {
      expect(++inside).toBe(1)
      await sleep(2)
      inside--
    }
    await Promise.all(Array.from({ length: 8 }, () => withLock(lock, work)))
    expect(await liveRegistrations(lock)).toEqual([])
  })

  test('that want the lock at the same time wait longer after each attempt', async () => {
    const lock = join(home, 'lock')
    await mkdir(lock)
    const other = await register(home)
    const { readdir } = promises
    const waits_ms: unknown[] = []
    let looks = 0
    try {
      // Six times there is another one after one's own registration.
      vi.spyOn(promises, 'readdir').mockImplementation(async (directory) => {
        const names = await readdir(directory)
        looks += 1
        return (looks % 2 === 0 && looks <= 12 ? [...names, other] : names) as never
      })
      vi.spyOn(timers, 'setTimeout').mockImplementation(async (wait_ms) => {
        waits_ms.push(wait_ms)
        return undefined as never
      })
      vi.spyOn(Math, 'random').mockReturnValue(1)
      syncBuiltinESMExports()
      await withLock(lock, async () => {})
    } finally {
      vi.restoreAllMocks()
      syncBuiltinESMExports()
      await unregister(home, other)
    }
    expect(waits_ms).toEqual([100, 200, 400, 800, 1_000, 1_000])
  })
})

describe('a process in another pid namespace', () => {
  /** Its registration: the pid and the start time say nothing here. */
  const FOREIGN = '1-0-1_0'
  const registration = () => join(dataDir, 'users', FOREIGN)
  beforeEach(async () => {
    await copyCluster()
    await mkdir(join(dataDir, 'users'))
    await writeFile(registration(), '')
  })

  test('is not joined by a second PostgreSQL', async () => {
    // The directory is removed before the timer is.
    const touch = setInterval(() => utimes(registration(), new Date(), new Date()).catch(() => {}), 500)
    onTestFinished(() => clearInterval(touch))
    await expect(use()).rejects.toThrow(`${dataDir} is in use by a process of another container`)
    expect(await isThere(join(dataDir, 'postgres/postmaster.pid'))).toBe(false)
    expect(await isThere(registration())).toBe(true)
  })

  test('that was killed is forgotten', async () => {
    // Three seconds ago, so that it is not yet certain, and two are to be waited for.
    const killed = new Date(Date.now() - 3_000)
    await utimes(registration(), killed, killed)
    const { url } = await use()
    expect(await query(url, 'SELECT 1')).toEqual([[1]])
    expect(await isThere(registration())).toBe(false)
  })

  test('that was killed before the clock was set back is forgotten', async () => {
    const later = new Date(Date.now() + 3_600_000)
    await utimes(registration(), later, later)
    const { url } = await use()
    expect(await query(url, 'SELECT 1')).toEqual([[1]])
    expect(await isThere(registration())).toBe(false)
  })
})

describe('after a crash', () => {
  beforeEach(copyCluster)

  test('a server that was started by another path, such as that of a bind mount, is found', async () => {
    const { child } = await useElsewhere()
    const pid = await postmasterPid()
    await kill(child)
    await rename(dataDir, `${dataDir}-moved`)
    dataDir = `${dataDir}-moved`
    const server = await use()
    expect(await postmasterPid()).toBe(pid)
    expect(await query(server.url, 'SELECT 1')).toEqual([[1]])
  })

  test('a supervised server comes back with what was committed', async () => {
    const { url, release } = await use({ supervise: true })
    await query(url, 'CREATE TABLE kept AS SELECT 42 AS answer')
    for (const _ of ['once', 'and again']) {
      await killPostmaster()
      await expect.poll(() => query(url, 'SELECT answer FROM kept').catch(String), { timeout: 20_000 }).toEqual([[42]])
    }
    const pid = await postmasterPid()
    await release()
    expect(await isRunning(pid)).toBe(false)
  })

  test('a supervised server comes back though busy backends outlive the postmaster', async () => {
    const { url } = await use({ supervise: true })
    const busy = query(url, "SELECT count(*) FROM generate_series(1, 5000000) AS n WHERE n::text = 'x'").catch(String)
    await expect
      .poll(() => query(url, "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%n::text%' AND pid <> pg_backend_pid()"))
      .toHaveLength(1)
    await killPostmaster()
    await expect.poll(() => query(url, 'SELECT 1').catch(String), { timeout: 20_000 }).toEqual([[1]])
    await busy
  })

  test('a server that another process started is supervised too', async () => {
    const { child, url } = await useElsewhere()
    await use({ supervise: true })
    await killPostmaster()
    await expect.poll(() => query(url, 'SELECT 1').catch(String), { timeout: 20_000 }).toEqual([[1]])
    await releaseElsewhere(child)
    expect(await query(url, 'SELECT 1')).toEqual([[1]])
  })

  test('a release while the server is being brought back leaves none behind', async () => {
    const server = await use({ supervise: true })
    await killPostmaster()
    await server.release()
    expect(await isRunning(await postmasterPid().catch(() => 0))).toBe(false)
  })

  test.each(['a dead process', 'an unrelated process'])(
    'a postmaster.pid with the pid of %s is ignored',
    async (whose) => {
      const { child } = await useElsewhere()
      await Promise.all([kill(child), killPostmaster()])
      const file = join(dataDir, 'postgres/postmaster.pid')
      const lines = (await readFile(file, 'utf8')).split('\n')
      if (whose === 'an unrelated process') await writeFile(file, [process.pid, ...lines.slice(1)].join('\n'))
      const server = await use()
      expect(await query(server.url, 'SELECT 1')).toEqual([[1]])
    },
  )
})

describe('the directory of the socket', () => {
  beforeEach(copyCluster)

  test('is recreated when it was removed under a running server', async () => {
    const { child, url } = await useElsewhere()
    await kill(child)
    await rm(await readlink(join(dataDir, 'socket')), { recursive: true })
    const second = await use()
    expect(second.url).toBe(url)
    expect(await query(url, 'SELECT 1')).toEqual([[1]])
  })

  test('is not recreated for a command while others use the server, whose connections would break', async () => {
    const { url } = await useElsewhere()
    const pid = await postmasterPid()
    const socket = await readlink(join(dataDir, 'socket'))
    // As it is for a command beside a service with a /tmp of its own.
    await rename(socket, `${socket}-hidden`)
    await expect(use()).rejects.toThrow(`PostgreSQL (pid ${pid}) runs on ${dataDir}/postgres for other processes`)
    await rename(`${socket}-hidden`, socket)
    expect(await postmasterPid()).toBe(pid)
    expect(await query(url, 'SELECT 1')).toEqual([[1]])
  })

  test('is not that of the original when the data directory is copied', async () => {
    const original = await use()
    await original.release()
    await promisify(execFile)('cp', ['-a', dataDir, `${dataDir}-copy`])
    const again = await use()
    await query(again.url, 'CREATE TABLE kept AS SELECT 1')
    const copy = await use({ dataDir: `${dataDir}-copy`, supervise: true })
    expect(copy.url).not.toBe(again.url)
    expect(await query(again.url, 'SELECT * FROM kept')).toEqual([[1]])
    expect(await query(copy.url, "SELECT to_regclass('kept') IS NULL")).toEqual([[true]])
    await copy.release()
    expect(await query(again.url, 'SELECT * FROM kept')).toEqual([[1]])
  })

  test('is recreated by supervision too, or only the socket', async () => {
    const { url } = await use({ supervise: true })
    const socket = await readlink(join(dataDir, 'socket'))
    for (const victim of [join(socket, '.s.PGSQL.5432'), socket]) {
      await rm(victim, { recursive: true })
      await expect.poll(() => query(url, 'SELECT 1').catch(String), { timeout: 20_000 }).toEqual([[1]])
    }
  })

  test('gets another name when its own is taken', async () => {
    const first = await use()
    await first.release()
    const socket = await readlink(join(dataDir, 'socket'))
    await symlink(home, socket)
    const second = await use()
    expect(second.url).not.toBe(first.url)
    expect(await query(second.url, 'SELECT 1')).toEqual([[1]])
    await rm(socket)
  })

  test.runIf(isRoot)('gets another name when the directory belongs to another user', async () => {
    const first = await use()
    await first.release()
    const socket = await readlink(join(dataDir, 'socket'))
    await mkdir(socket)
    await chown(socket, NOBODY, NOBODY)
    const second = await use()
    expect(second.url).not.toBe(first.url)
    await rmdir(socket)
  })

  test('is in another TMPDIR after that was changed', async () => {
    const first = await use()
    await first.release()
    const other = join(home, 'other')
    await mkdir(other)
    vi.stubEnv('TMPDIR', other)
    const { url } = await use()
    vi.unstubAllEnvs()
    const { uid } = await stat(join(dataDir, 'postgres'))
    // PostgreSQL may run as a user who has no access to the directory of root.
    expect(dirname(await readlink(join(dataDir, 'socket')))).toBe(uid === process.geteuid?.() ? other : '/tmp')
    expect(await query(url, 'SELECT 1')).toEqual([[1]])
  })

  test('is in /tmp when the path under TMPDIR is too long for a socket', async () => {
    const long = join(home, 'long'.repeat(20))
    await mkdir(long)
    vi.stubEnv('TMPDIR', long)
    const { url } = await use()
    vi.unstubAllEnvs()
    expect(await readlink(join(dataDir, 'socket'))).toMatch(/^\/tmp\//)
    expect(await query(url, 'SELECT 1')).toEqual([[1]])
  })
})

describe('an error explains', () => {
  beforeEach(copyCluster)

  test('why PostgreSQL does not start, with its log', async () => {
    await expect(use({ settings: { fsync: 'off', max_connections: 'many' } })).rejects.toThrow(
      /did not start(.|\n)*invalid value for parameter "max_connections": "many"/,
    )
    expect(await readdir(join(dataDir, 'users'))).toEqual([])
  })

  test('that the server has no connection left, and does not wait for minutes', async () => {
    const settings = { ...OPTIONS.settings, max_connections: '2', superuser_reserved_connections: '0' }
    const { url } = await use({ settings: { ...settings, max_wal_senders: '0', autovacuum_max_workers: '1' } })
    await using others = new AsyncDisposableStack()
    for (let i = 0; i < 2; i += 1) {
      const client = new pg.Client(url)
      await client.connect()
      others.defer(() => client.end())
    }
    await expect(use()).rejects.toThrow('too many clients already')
  })

  test('that another major version created the data', async () => {
    await (await use()).release()
    const file = join(dataDir, 'postgres/PG_VERSION')
    const version = await readFile(file, 'utf8')
    await writeFile(file, '14\n')
    await expect(use()).rejects.toThrow(/created by PostgreSQL 14, which PostgreSQL 18 cannot read\. Dump it/)
    await writeFile(file, version)
  })

  test('that the package for the platform is missing', async () => {
    const arch = Object.getOwnPropertyDescriptor(process, 'arch')
    Object.defineProperty(process, 'arch', { ...arch, value: 'pdp11' })
    try {
      await expect(use()).rejects.toThrow(/PostgreSQL for \w+-pdp11 is not installed\..*npm ci.*set APP_DATABASE_URL/)
    } finally {
      Object.defineProperty(process, 'arch', { ...arch })
    }
  })
})

describe.runIf(isRoot)('as root', () => {
  /** A PATH with nothing but these programs. */
  async function pathOf(...programs: string[]): Promise<string> {
    const directory = join(home, 'bin')
    await mkdir(directory)
    for (const program of programs) {
      const found = spawnSync('sh', ['-c', `command -v ${program}`], { encoding: 'utf8' }).stdout.trim()
      if (found) await symlink(found, join(directory, program))
    }
    return directory
  }
  const setpriv = ['--reuid=65534', '--inh-caps=+dac_override', '--ambient-caps=+dac_override', 'true']
  const canKeepReach = isRoot && spawnSync('setpriv', setpriv).status === 0
  const canUnshare = isRoot && spawnSync('unshare', ['--user', '--map-user=65534', 'true']).status === 0

  test.runIf(canUnshare || canKeepReach)('runs in a directory that only root can access', async () => {
    await chmod(home, 0o700)
    const { url } = await use()
    expect(await query(url, 'SELECT 1')).toEqual([[1]])
  })

  test('runs as another user where user namespaces are forbidden, and again where they are not', async () => {
    const PATH = await pathOf('sh', 'chown')
    const { child, url } = await useElsewhere({ env: { PATH } })
    await query(url, 'CREATE TABLE kept AS SELECT 42 AS answer')
    expect((await stat(join(dataDir, 'postgres'))).uid).not.toBe(0)
    await releaseElsewhere(child)
    const server = await use()
    expect(await query(server.url, 'SELECT answer FROM kept')).toEqual([[42]])
  })

  test.runIf(canKeepReach)('gives that user access where only root has it', async () => {
    await chmod(home, 0o700)
    const PATH = await pathOf('sh', 'chown', 'setpriv')
    const { url } = await useElsewhere({ env: { PATH } })
    expect(await query(url, 'SELECT 1')).toEqual([[1]])
  })

  test('explains what to do when no other user can access the data', async () => {
    await chmod(home, 0o700)
    const PATH = await pathOf('sh', 'chown')
    await expect(useElsewhere({ env: { PATH } })).rejects.toThrow(/run as an ordinary user, or set APP_DATABASE_URL/)
  })

  test('runs as the owner of the data directory', async () => {
    await mkdir(dataDir, { mode: 0o700 })
    await chown(dataDir, NOBODY, NOBODY)
    const { url } = await use()
    expect(await query(url, 'SELECT 1')).toEqual([[1]])
    expect((await stat(join(dataDir, 'postgres'))).uid).toBe(NOBODY)
  })

  const readable = ['-c', 'test -x "$1" && test -r "$2"', 'sh', process.execPath, USER_SCRIPT]
  const canReach = isRoot && spawnSync('sh', readable, { uid: NOBODY, gid: NOBODY }).status === 0
  test('is not required: an ordinary user can run it too', async ({ skip }) => {
    skip(!canReach, 'nobody cannot reach Node or this checkout')
    await chown(home, NOBODY, NOBODY)
    const { child, url } = await useElsewhere({ uid: NOBODY, gid: NOBODY })
    expect(await query(url, 'SELECT 1')).toEqual([[1]])
    expect((await stat(join(dataDir, 'postgres'))).uid).toBe(NOBODY)
    await releaseElsewhere(child)
  })
})
