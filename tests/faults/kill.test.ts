import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, readFile, readlink, rm, stat, writeFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { sql } from 'kysely'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { liveProcess } from '../../db/embedded/process-registry.ts'
import { createKey } from '../../src/cli/keys.ts'
import { connect, withServer } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { customEvent, fillFixture } from '../recording/fixture.ts'
import { embeddedUrl, postmasterPid, postmasterPidFile } from '../support/embedded-postgres.ts'
import { onServer } from '../support/global-setup.ts'
import { kill, runFlowtrail, type Service, startService } from '../support/service.ts'
import { holdLock, holdProject } from '../support/waiting.ts'

// The service on its embedded PostgreSQL, as operators run it: no other process starts, supervises or stops that.

let dataDir: string
let db: Database
let keys: { demo: string; other: string }
let service: Service
beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'flowtrail-test-'))
  service = await startService({ DATA_DIR: dataDir, LOG_LEVEL: 'info' })
  const url = await embeddedUrl(dataDir)
  // Sessions that the service opens from now on have to set it themselves.
  await onServer(url, 'ALTER DATABASE flowtrail SET synchronous_commit = off')
  db = connect(url, { max: 1 })
  await fillFixture(url)
  const newKey = (project: string) => createKey(db, project, { name: 'test', scopes: SCOPES, expires_at: null })
  keys = { demo: await newKey('demo'), other: await newKey('other') }
})
beforeEach(async () => {
  if (hasEnded(service.child)) service = await startService({ DATA_DIR: dataDir, LOG_LEVEL: 'info' })
})
const children: ChildProcess[] = []
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
})
afterAll(async () => {
  await kill(service)
  await db.destroy()
  // Stops what a failed test has left.
  await withServer({ databaseUrl: undefined, dataDir }, async () => {})
  await rm(dataDir, { recursive: true })
})

const hasEnded = ({ exitCode, signalCode }: ChildProcess) => exitCode !== null || signalCode !== null

const isAlive = async (pid: number) => (await liveProcess(pid)) !== undefined

/** Expects that neither PostgreSQL nor anything that stands for a running one is left. */
async function expectStopped(pid: number): Promise<void> {
  expect(pid).toBeGreaterThan(0)
  expect(await isAlive(pid)).toBe(false)
  await expect(stat(postmasterPidFile(dataDir))).rejects.toThrow('ENOENT')
  expect(await readdir(path.join(dataDir, 'users'))).toEqual([])
  expect(await readdir(path.join(dataDir, 'lock'))).toEqual([])
}

const post = (custom_event_name: string, project: keyof typeof keys = 'demo') =>
  fetch(`${service.address}/projects/${project}/events`, {
    method: 'POST',
    headers: { 'x-api-key': keys[project], 'content-type': 'application/json', 'idempotency-key': custom_event_name },
    // A repeated post has the same contact.
    body: JSON.stringify(
      customEvent({ custom_event_name, identifiers: [{ key: 'name', value: JSON.stringify(custom_event_name) }] }),
    ),
  })

const get = (url: string) => fetch(`${service.address}${url}`, { headers: { 'x-api-key': keys.demo } })

/** The names of the stored events that begin with this. */
const storedNames = async (beginning: string) => {
  const rows = await db.selectFrom('events').select('custom_event_name').orderBy('custom_event_name').execute()
  return rows.map(({ custom_event_name }) => custom_event_name ?? '').filter((name) => name.startsWith(beginning))
}

/** Posts until it is recorded. Every other response must be a 503, and the service must stay live. */
async function postUntilRecorded(name: string, project?: keyof typeof keys): Promise<Response> {
  const once = async () => {
    const [response, live, ready, read] = await Promise.all([
      post(name, project),
      get('/livez'),
      get('/readyz'),
      get('/projects/demo/modules'),
    ])
    expect(live.status).toBe(200)
    for (const { status } of [response, ready, read]) expect([200, 503]).toContain(status)
    return response
  }
  let last = await once()
  await expect
    .poll(
      async () => {
        if (last.status !== 200) last = await once()
        return last.status
      },
      { timeout: 40_000 },
    )
    .toBe(200)
  return last
}

test('PostgreSQL flushes what it commits, and listens on a private socket only', async () => {
  const WANTED = { fsync: 'on', full_page_writes: 'on', listen_addresses: '', unix_socket_permissions: '0700' }
  const { rows } = await sql<{ name: string; setting: string }>`
    SELECT name, setting FROM pg_settings WHERE name IN (${sql.join(Object.keys(WANTED))})`.execute(db)
  expect(Object.fromEntries(rows.map(({ name, setting }) => [name, setting]))).toEqual(WANTED)
  expect((await stat(await readlink(path.join(dataDir, 'socket')))).mode & 0o777).toBe(0o700)
})

test('the Ctrl-C of a terminal does not reach PostgreSQL, which must outlive the requests in progress', async () => {
  const groupOf = async (pid = 0) => (await promisify(execFile)('ps', ['-o', 'pgid=', '-p', String(pid)])).stdout.trim()
  expect(await groupOf(await postmasterPid(dataDir))).not.toBe(await groupOf(service.child.pid))
})

test('an event that got a 200 survives kill -9 of all of PostgreSQL, and the service recovers by itself', async () => {
  expect((await post('whole-warm')).status).toBe(200)
  const processes = () =>
    sql<{ pid: number; kind: string }>`
    SELECT pid, backend_type AS kind FROM pg_stat_activity`.execute(db)
  // It flushes what others have left unflushed.
  const walWriter = (await processes()).rows.find(({ kind }) => kind === 'walwriter')
  if (!walWriter) throw new Error('PostgreSQL has no WAL writer')
  process.kill(walWriter.pid, 'SIGSTOP')
  expect((await post('whole-before')).status).toBe(200)
  const { rows } = await processes()
  for (const pid of [await postmasterPid(dataDir), ...rows.map(({ pid }) => pid)]) process.kill(pid, 'SIGKILL')
  await postUntilRecorded('whole-after')
  expect(await storedNames('whole')).toEqual(['whole-after', 'whole-before', 'whole-warm'])
})

test('an event that got a 200 survives kill -9 of the postmaster, again and again', async () => {
  for (const round of ['first', 'second']) {
    const pid = await postmasterPid(dataDir)
    expect((await post(`${round}-before`)).status).toBe(200)
    process.kill(pid, 'SIGKILL')
    await postUntilRecorded(`${round}-after`)
    // The 200 may be from a backend that outlived its postmaster, so the restart may still be under way.
    await expect.poll(() => postmasterPid(dataDir).catch(() => pid), { timeout: 40_000 }).not.toBe(pid)
    await expect.poll(async () => (await get('/readyz')).status, { timeout: 40_000 }).toBe(200)
    await postUntilRecorded(`${round}-later`)
    expect(await storedNames(round)).toEqual([`${round}-after`, `${round}-before`, `${round}-later`])
  }
})

test('events whose commit a kill of PostgreSQL interrupts get a 503, and are stored once when repeated', async () => {
  const obstacle = await holdProject(await embeddedUrl(dataDir), 'other')
  const beforeCommit = post('cut-before-commit', 'other')
  await obstacle.waiting(1)
  await holdCommits()
  const atCommit = post('cut-at-commit')
  await expect.poll(waitingCommits, { timeout: 20_000 }).toBe(2)
  await sql`ALTER SYSTEM RESET synchronous_standby_names`.execute(db)
  process.kill(await postmasterPid(dataDir), 'SIGKILL')

  expect((await atCommit).status).toBe(503)
  expect((await beforeCommit).status).toBe(503)
  await obstacle.release().catch(() => {})
  // It was committed, only the response was lost.
  expect((await postUntilRecorded('cut-at-commit')).headers.get('idempotent-replayed')).toBe('true')
  expect((await postUntilRecorded('cut-before-commit', 'other')).headers.get('idempotent-replayed')).toBeNull()
  expect(await storedNames('cut')).toEqual(['cut-at-commit', 'cut-before-commit'])
})

/** From now on a commit, once it is flushed, waits for a standby that does not exist. */
async function holdCommits(): Promise<void> {
  await sql`ALTER SYSTEM SET synchronous_standby_names = 'nobody'`.execute(db)
  await sql`SELECT pg_reload_conf()`.execute(db)
  const client = new pg.Client(await embeddedUrl(dataDir))
  client.on('error', () => {})
  await client.connect()
  // PostgreSQL heeds the setting a moment later. The last of these commits waits until the kill.
  const commit = async (): Promise<void> => {
    await client.query("SELECT pg_logical_emit_message(true, '', '')")
    await commit()
  }
  await client.query('SET synchronous_commit = on')
  commit().catch(() => {})
  await expect.poll(waitingCommits, { timeout: 20_000 }).toBe(1)
}

async function waitingCommits(): Promise<number> {
  const waiting = sql`SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep'`
  return (await waiting.execute(db)).rows.length
}

test('an event that got a 200 survives kill -9 of the service, and the next one adopts PostgreSQL and stops it', async () => {
  const pid = await postmasterPid(dataDir)
  expect((await post('recorded')).status).toBe(200)
  const others = Array.from({ length: 20 }, async (_, i) => {
    const response = await post(`recorded-${i}`)
    if (response.status !== 200) throw new Error(`got ${response.status}`)
    return `recorded-${i}`
  })
  await Promise.any(others)
  await kill(service)
  const recorded = (await Promise.allSettled(others)).flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  const stored = await storedNames('recorded')
  expect(stored).toEqual(expect.arrayContaining(['recorded', ...recorded]))
  expect(new Set(stored).size).toBe(stored.length)

  service = await startService({ DATA_DIR: dataDir, LOG_LEVEL: 'info' })
  expect(await postmasterPid(dataDir)).toBe(pid)
  expect((await post('adopted')).status).toBe(200)
  await stop()
  await expectStopped(pid)
})

test('a service brings back a PostgreSQL that it has adopted', async () => {
  await kill(service)
  service = await startService({ DATA_DIR: dataDir, LOG_LEVEL: 'info' })
  const pid = await postmasterPid(dataDir)
  process.kill(pid, 'SIGKILL')
  await expect.poll(() => postmasterPid(dataDir).catch(() => pid), { timeout: 40_000 }).not.toBe(pid)
  await postUntilRecorded('adopted-after')
})

test('SIGTERM while PostgreSQL is being brought back leaves none behind', async () => {
  const commands = async () => (await promisify(execFile)('ps', ['-eo', 'args'])).stdout
  expect(await commands()).toContain(dataDir)
  const pid = await postmasterPid(dataDir)
  process.kill(pid, 'SIGKILL')
  await expect.poll(() => service.stdout(), { timeout: 30_000 }).toContain('PostgreSQL has stopped; restarting it')
  service.child.kill('SIGTERM')
  expect(await service.exit).toBe(0)
  expect(await commands()).not.toContain(dataDir)
  expect(await readdir(path.join(dataDir, 'users'))).toEqual([])
  await withServer({ databaseUrl: undefined, dataDir }, async () => {})
  await expectStopped(pid)
})

test('PostgreSQL runs as long as the work of a command, and has stopped when that is done', async () => {
  await stop()
  const pid = await withServer({ databaseUrl: undefined, dataDir }, async ({ url }) => {
    const connection = connect(url)
    // Fails if PostgreSQL is stopped meanwhile.
    await sql`SELECT pg_sleep(0.3)`.execute(connection)
    await connection.destroy()
    return postmasterPid(dataDir)
  })
  await expectStopped(pid)
})

test('a service whose output nobody reads any longer goes on, and stops PostgreSQL', async () => {
  const pid = await postmasterPid(dataDir)
  service.child.stdout?.destroy()
  service.child.stderr?.destroy()
  expect((await post('unheard')).status).toBe(200)
  service.child.kill('SIGTERM')
  expect(await service.exit).toBe(0)
  await expectStopped(pid)
})

test('SIGTERM while PostgreSQL starts ends the service without listening, and stops PostgreSQL', async () => {
  await stop()
  // From outside it might come when PostgreSQL has started already.
  const signalAtStart = `import childProcess from 'node:child_process'
    import { syncBuiltinESMExports } from 'node:module'
    const { spawn } = childProcess
    childProcess.spawn = (...args) => {
      if (args.flat().includes('-D')) process.kill(process.pid, 'SIGTERM')
      return spawn(...args)
    }
    syncBuiltinESMExports()`
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(signalAtStart)}`
  const starting = runFlowtrail(['serve'], { DATA_DIR: dataDir, NODE_OPTIONS })
  children.push(starting.child)
  expect(await starting.exit).toBe(0)
  expect(starting.stderr()).toBe('')
  const [, pid] = /stopping PostgreSQL, pid (\d+)/.exec(starting.stdout()) ?? []
  await expectStopped(Number(pid))
})

test('SIGTERM while a PostgreSQL does not respond ends the service that waits for it', async () => {
  const postmaster = await postmasterPid(dataDir)
  process.kill(postmaster, 'SIGSTOP')
  try {
    const waiting = runFlowtrail(['serve'], { DATA_DIR: dataDir })
    children.push(waiting.child)
    await expect.poll(() => readdir(path.join(dataDir, 'users')), { timeout: 30_000 }).toHaveLength(2)
    waiting.child.kill('SIGTERM')
    expect(await waiting.exit).toBe(0)
    expect(waiting.stderr()).toBe('')
  } finally {
    process.kill(postmaster, 'SIGCONT')
  }
  expect(await readdir(path.join(dataDir, 'users'))).toHaveLength(1)
  expect((await post('after-the-wait')).status).toBe(200)
})

test('SIGTERM while the schema is migrated ends the service, and its use of PostgreSQL', async () => {
  const lock = await holdLock(await embeddedUrl(dataDir), 'LOCK TABLE kysely_migration')
  const migrating = runFlowtrail(['serve'], { DATA_DIR: dataDir })
  children.push(migrating.child)
  await lock.waiting(1)
  migrating.child.kill('SIGTERM')
  expect([await migrating.exit, migrating.stderr()]).toEqual([0, ''])
  await lock.release()
  expect(await readdir(path.join(dataDir, 'users'))).toHaveLength(1)
})

test('a service that finds its port in use stops the PostgreSQL that it has started', async () => {
  await stop()
  const other = createServer()
  await once(other.listen(0, '127.0.0.1'), 'listening')
  const { port } = other.address() as AddressInfo
  const refused = runFlowtrail(['serve'], { DATA_DIR: dataDir, PORT: String(port) })
  children.push(refused.child)
  expect(await refused.exit).toBe(1)
  other.close()
  expect(refused.stderr()).toMatch(/^flowtrail: Port \d+ on 127\.0\.0\.1 is already in use\. [^\n]+\n$/)
  const [, pid] = /PostgreSQL started, pid (\d+)/.exec(refused.stdout()) ?? []
  await expectStopped(Number(pid))
})

test('a postmaster.pid with the pid of another PostgreSQL is ignored, and that one left alone', async () => {
  const lines = (await readFile(postmasterPidFile(dataDir), 'utf8')).split('\n')
  await stop()
  const stranger = spawn(process.execPath, [
    '-e',
    'setInterval(() => {}, 60_000)',
    'postgres',
    '-D',
    `${dataDir}/postgres2`,
    '-c',
    'port=5432',
  ])
  children.push(stranger)
  await writeFile(postmasterPidFile(dataDir), [stranger.pid, ...lines.slice(1)].join('\n'))

  service = await startService({ DATA_DIR: dataDir, LOG_LEVEL: 'info' })
  expect((await post('beside-a-stranger')).status).toBe(200)
  const pid = await postmasterPid(dataDir)
  expect(pid).not.toBe(stranger.pid)
  await stop()
  await expectStopped(pid)
  expect(hasEnded(stranger)).toBe(false)
})

async function stop(): Promise<void> {
  service.child.kill('SIGTERM')
  expect(await service.exit).toBe(0)
}
