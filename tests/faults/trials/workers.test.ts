import { once } from 'node:events'
import { Agent, get, type IncomingHttpHeaders } from 'node:http'
import { type AddressInfo, connect as connectSocket, createServer, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { sql } from 'kysely'
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { liveProcess } from '../../../db/embedded/process-registry.ts'
import { createKey } from '../../../src/cli/keys.ts'
import { parseMetrics, sum } from '../../../src/cli/scrape.ts'
import { connect, withServer } from '../../../src/database/open.ts'
import type { Database } from '../../../src/database/pool.ts'
import { formatKey, generateKey, SCOPES } from '../../../src/domain/api-key.ts'
import { flowtrailProcessWith, flowtrailWith, postgresRuns, temporaryDirectory, untilPrinted } from '../../cli/run.ts'
import { fillFixture } from '../../recording/fixture.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { freePort, kill, type Process, runFlowtrail } from '../../support/service.ts'
import { holdLock } from '../../support/waiting.ts'

// `serve` with WORKERS=2, as processes.

const MODULES = '/projects/demo/modules'

let database: TestDatabase
let db: Database
let key: string
let server: Process
let address: string
beforeEach(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 })
  await fillFixture(database.url)
  key = await createKey(db, 'demo', { name: 'test', scopes: SCOPES, expires_at: null })
})
afterEach(async () => {
  if (server) await kill(server)
  await db.destroy()
  await database.drop()
})

async function start(settings: Record<string, string> = {}): Promise<void> {
  server = runFlowtrail(['serve'], {
    DATABASE_URL: database.url,
    WORKERS: '2',
    PORT: '0',
    LOG_LEVEL: 'debug',
    ...settings,
  })
  const welcome = await untilPrinted(server, '\n', 'stderr')
  address = /^Flowtrail is listening at (\S+);/.exec(welcome)?.[1] ?? ''
}

interface LogEntry {
  msg: string
  pid: number
  worker?: number
  request_id?: string
}

const log = (): LogEntry[] =>
  server
    .stdout()
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line))

const logged = (wanted: (entry: LogEntry) => boolean) =>
  expect.poll(() => log().find(wanted), { interval: 10 }).toBeDefined()

/** The process of each worker, by its number: the one that began to listen last. */
const pids = () =>
  new Map(log().flatMap(({ msg, pid, worker }) => (msg.startsWith('Server listening') ? [[worker, pid]] : [])))

function pidOf(worker: number | undefined): number {
  const pid = pids().get(worker)
  // 0 would be the whole process group of the tests.
  if (pid === undefined) throw new Error(`no process is known of worker ${worker}`)
  return pid
}

interface Response {
  status: number | undefined
  headers: IncomingHttpHeaders
  body: string
}

let connections = 0

/** A connection that is kept open, once its first request has shown which worker it leads to. */
async function openConnection() {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  onTestFinished(() => agent.destroy())
  connections += 1
  const request_id = `connection-${connections}`
  await send('/livez', { 'x-request-id': request_id }, agent)
  await logged((entry) => entry.request_id === request_id)
  const worker = log().find((entry) => entry.request_id === request_id)?.worker
  return { worker, get: (path: string, headers = {}) => send(path, headers, agent) }
}

/** One connection to each worker. */
async function openBoth() {
  const first = await openConnection()
  const second = await openConnection()
  expect([first.worker, second.worker].sort()).toEqual([1, 2])
  return first.worker === 1 ? ([first, second] as const) : ([second, first] as const)
}

/** Waits until the supervisor knows that the worker listens: the worker says so before it asks for the metrics. */
async function untilKnown(worker: number): Promise<void> {
  let connection = await openConnection()
  while (connection.worker !== worker) connection = await openConnection()
  await connection.get('/metrics')
}

/** Sends a request, over a connection of its own unless an agent has one. */
const send = (path: string, headers: Record<string, string> = {}, agent: Agent | false = false, signal?: AbortSignal) =>
  new Promise<Response>((resolve, reject) => {
    const options = { headers: { 'x-api-key': key, ...headers }, agent, signal }
    get(address + path, options, async (response) => {
      const body = await text(response).catch(reject)
      resolve({ status: response.statusCode, headers: response.headers, body: body ?? '' })
    }).on('error', reject)
  })

/** Node forgets a connection that reaches the last worker as it stops listening: its client waits until the supervisor ends. */
const isRefused = () =>
  send('/livez', {}, false, AbortSignal.timeout(1_000)).then(
    () => false,
    (error: NodeJS.ErrnoException) => error.code === 'ECONNREFUSED',
  )

const isServed = () =>
  send('/livez', {}, false, AbortSignal.timeout(1_000)).then(
    ({ status }) => status === 200,
    () => false,
  )

test('the workers share a port, which the one line at the start tells, and each line of their log names them', async () => {
  await start()
  const [one, two] = await openBoth()
  for (const connection of [one, two]) expect((await connection.get(MODULES)).status).toBe(200)
  expect(server.stderr()).toBe(`Flowtrail is listening at ${address}; docs at ${address}/docs\n`)
  const workers = Map.groupBy(log(), ({ pid }) => pid)
  expect(workers.size).toBe(3)
  for (const [pid, entries] of workers) {
    const numbers = new Set(entries.map(({ worker }) => worker))
    const [number] = [...pids()].find(([, other]) => other === pid) ?? []
    expect(numbers).toEqual(new Set([number]))
  }
  expect([...pids().values()]).not.toContain(server.child.pid)
})

test.each<[NodeJS.Signals, string]>([
  ['SIGKILL', 'was ended by SIGKILL'],
  ['SIGTERM', 'ended with status 0'],
])('a worker that gets %s is replaced, and the other one serves on', async (signal, end) => {
  await start()
  const [one, two] = await openBoth()
  const pid = pidOf(two.worker)
  const obstacle = await holdLock(database.url, 'LOCK TABLE modules')
  const waiting = one.get(MODULES)
  await obstacle.waiting(1)
  process.kill(pid, signal)
  await logged(({ msg }) => msg === `worker 2 (pid ${pid}) ${end}; starting another in 0 s`)
  while (pids().get(2) === pid) expect((await send('/livez')).status).toBe(200)
  await obstacle.release()
  expect((await waiting).status).toBe(200)
  const again = await Promise.all([openConnection(), openConnection()])
  expect(again.map(({ worker }) => worker).sort()).toEqual([1, 2])
})

test('all workers that are killed at once are replaced, on the same port', async () => {
  await start()
  const killed = [...pids().values()]
  for (const pid of killed) process.kill(pid, 'SIGKILL')
  for (const pid of killed) await logged(({ msg }) => msg.includes(`(pid ${pid}) was ended by SIGKILL`))
  await expect.poll(isServed).toBe(true)
})

test('a worker that ends again and again is replaced less and less often', async () => {
  await start()
  for (const wait_s of [0, 1, 2]) {
    const pid = pidOf(1)
    process.kill(pid, 'SIGKILL')
    await logged(({ msg }) => msg === `worker 1 (pid ${pid}) was ended by SIGKILL; starting another in ${wait_s} s`)
    await expect.poll(() => pids().get(1), { interval: 10 }).not.toBe(pid)
    await untilKnown(1)
  }
})

test('a worker for which the system has no memory is started later, and the other one serves on', async () => {
  // Node throws this error, where it has an event for others.
  const lacksMemory = `
    import cluster from 'node:cluster'
    const { fork } = cluster
    let forks = 0
    cluster.fork = () => {
      forks += 1
      if (forks === 3) throw new Error('spawn ENOMEM')
      return fork()
    }`
  await start({ NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(lacksMemory)}` })
  const pid = pidOf(1)
  process.kill(pid, 'SIGKILL')
  await logged(({ msg }) => msg === 'worker 1: spawn ENOMEM; starting another in 2 s')
  while (pids().get(1) === pid) expect((await send('/livez')).status).toBe(200)
  await openBoth()
})

describe('a stop', () => {
  test.each(['the supervisor', 'all processes, as the Ctrl-C of a terminal'])(
    'of %s lets every worker drain',
    async (stopped) => {
      await start({ DRAIN_DELAY: '5' })
      const connections = await openBoth()
      const probes = await openBoth()
      const obstacle = await holdLock(database.url, 'LOCK TABLE modules')
      const waiting = connections.map((connection) => connection.get(MODULES))
      await obstacle.waiting(2)
      const all = stopped === 'the supervisor' ? [] : pids().values()
      for (const pid of [server.child.pid ?? 0, ...all]) process.kill(pid, 'SIGINT')
      for (const { worker } of connections) {
        await logged((entry) => entry.worker === worker && entry.msg.startsWith('stopping: serving'))
      }
      for (const probe of probes) {
        const { status, headers } = await probe.get('/readyz')
        expect([status, headers.connection]).toEqual([503, 'close'])
      }
      server.child.kill('SIGTERM')
      await expect.poll(isRefused).toBe(true)
      await obstacle.release()
      for (const { status, headers } of await Promise.all(waiting)) {
        expect([status, headers.connection]).toEqual([200, 'close'])
      }
      expect(await server.exit).toBe(0)
      expect(server.stderr()).toMatch(/^Flowtrail is listening at .*\n$/)
    },
  )

  test('fails if a worker is killed meanwhile', async () => {
    await start()
    const [one] = await openBoth()
    const obstacle = await holdLock(database.url, 'LOCK TABLE modules')
    const waiting = one.get(MODULES)
    const cut = expect(waiting).rejects.toThrow()
    await obstacle.waiting(1)
    server.child.kill('SIGTERM')
    await logged(({ worker, msg }) => worker === 1 && msg.startsWith('stopping'))
    const pid = pidOf(1)
    process.kill(pid, 'SIGKILL')
    await cut
    await obstacle.release()
    expect(await server.exit).toBe(1)
    expect(server.stderr()).toContain(`\nflowtrail: worker 1 (pid ${pid}) was ended by SIGKILL while it drained\n`)
  })
})

test('a worker that is blocked is killed in the end, and the embedded PostgreSQL stopped', async () => {
  await using directory = await temporaryDirectory()
  const embedded = { DATABASE_URL: '', DATA_DIR: directory.path, DRAIN_TIMEOUT_MS: '1' }
  await start(embedded)
  const pid = pidOf(2)
  process.kill(pid, 'SIGSTOP')
  server.child.kill('SIGTERM')
  expect(await server.exit).toBe(1)
  expect(log()).toContainEqual(
    expect.objectContaining({ worker: 2, msg: 'killing the worker, which has not ended in time' }),
  )
  expect(server.stderr()).toContain(`flowtrail: worker 2 (pid ${pid}) was ended by SIGKILL while it drained\n`)
  expect(await liveProcess(pid)).toBeUndefined()
  expect(await postgresRuns(directory.path)).toBe(false)
})

test('metrics are those of all workers, and of those that have ended', async () => {
  const ADMIN_PORT = String(await freePort())
  await start({ ADMIN_PORT })
  for (let i = 0; i < 6; i += 1) expect((await send(MODULES)).status).toBe(200)
  const scrape = async () => parseMetrics(await (await fetch(`http://127.0.0.1:${ADMIN_PORT}/metrics`)).text(), 0)
  const requests = { operation: 'listModules', status: '200' }
  const countOf = (metrics: ReturnType<typeof parseMetrics>) =>
    sum(metrics, 'flowtrail_request_duration_seconds_count', requests)
  const metrics = await scrape()
  expect(countOf(metrics)).toBe(6)
  expect(sum(metrics, 'flowtrail_build_info')).toBe(1)
  const served = log().flatMap(({ worker, msg }) => (msg === 'request' ? [worker] : []))
  expect(new Set(served)).toEqual(new Set([1, 2]))

  const uptime = sum(metrics, 'process_start_time_seconds')
  const pid = pidOf(1)
  process.kill(pid, 'SIGKILL')
  await logged(({ msg }) => msg.startsWith('worker 1 '))
  await expect.poll(() => pids().get(1)).not.toBe(pid)
  for (let i = 0; i < 2; i += 1) expect((await send(MODULES)).status).toBe(200)
  const later = await scrape()
  expect(countOf(later)).toBe(8)
  expect(sum(later, 'process_start_time_seconds')).toBe(uptime)

  const status = await flowtrailWith({ DATABASE_URL: database.url, ADMIN_PORT })('status')
  expect(status).toMatchObject({ status: 0, stderr: '' })
  expect(status.stdout).toContain(': ready')
})

test('a worker that does not respond keeps its metrics, and does not keep others from theirs', async () => {
  await start()
  const [one, two] = await openBoth()
  const pid = pidOf(2)
  await two.get(MODULES)
  const countAt = async () => {
    const metrics = parseMetrics((await one.get('/metrics')).body, 0)
    return sum(metrics, 'flowtrail_request_duration_seconds_count', { operation: 'listModules' })
  }
  expect(await countAt()).toBe(1)
  process.kill(pid, 'SIGSTOP')
  await one.get(MODULES)
  expect(await countAt()).toBe(2)
  process.kill(pid, 'SIGCONT')
  expect((await two.get(MODULES)).status).toBe(200)
  expect(await countAt()).toBe(3)
})

test('a worker that goes on not to respond is killed and replaced', { timeout: 90_000 }, async () => {
  await start()
  const [one] = await openBoth()
  const workers = async () => {
    const metrics = parseMetrics((await one.get('/metrics')).body, 0)
    const states = ['serving', 'missing'].map((state) => sum(metrics, 'flowtrail_workers', { state }))
    return [...states, sum(metrics, 'flowtrail_workers_replaced_total')]
  }
  expect(await workers()).toEqual([2, 0, 0])
  const pid = pidOf(2)
  process.kill(pid, 'SIGSTOP')
  await expect.poll(workers, { timeout: 30_000 }).toEqual([1, 1, 0])
  await expect.poll(workers, { timeout: 60_000 }).toEqual([2, 0, 1])
  const ends = log().flatMap(({ msg }) => (/^killing|; starting/.test(msg) ? [msg] : []))
  expect(ends).toEqual([
    'killing the worker, which has not responded for 30 s',
    `worker 2 (pid ${pid}) was ended by SIGKILL; starting another in 0 s`,
  ])
  await openBoth()
})

test('RATE_LIMIT_PER_MINUTE is that of all workers', async () => {
  await start({ RATE_LIMIT_PER_MINUTE: '10' })
  const responses = await Promise.all(Array.from({ length: 30 }, () => send(MODULES)))
  const served = () => new Set(log().flatMap(({ worker, msg }) => (msg === 'request' ? [worker] : [])))
  await expect.poll(served).toEqual(new Set([1, 2]))
  const left = responses.filter(({ status }) => status === 200).map(({ headers }) => headers.ratelimit)
  expect(left.sort()).toEqual(Array.from({ length: 10 }, (_, i) => expect.stringMatching(`^"default";r=${i};t=`)))
  expect(responses.filter(({ status }) => status === 429)).toHaveLength(20)
})

test('a client whose keys one worker has refused too often is refused by the other', async () => {
  await start()
  const [one, two] = await openBoth()
  const unknown = { 'x-api-key': formatKey(generateKey()) }
  const statuses: (number | undefined)[] = []
  // The minute may end in between, but not in each round. The second worker alone refuses fewer than its own limit.
  for (let round = 0; round < 3 && !statuses.includes(429); round += 1) {
    for (let i = 0; i < 61; i += 1) await one.get(MODULES, unknown)
    for (let i = 0; i < 10; i += 1) statuses.push((await two.get(MODULES, unknown)).status)
  }
  expect(statuses).toContain(429)
})

test('one worker alone deletes old Idempotency-Keys', async () => {
  // So that whoever would delete one says that it failed.
  await sql`ALTER TABLE idempotency_keys RENAME TO renamed`.execute(db)
  await start({ IDEMPOTENCY_RETENTION_DAYS: '1' })
  const isFailure = ({ msg }: LogEntry) => msg.startsWith('old Idempotency-Keys could not be deleted')
  await logged(isFailure)
  // A server that stops waits for what has begun.
  server.child.kill('SIGTERM')
  expect(await server.exit).toBe(0)
  expect(log().filter(isFailure)).toMatchObject([{ worker: 1 }])
})

test('a connection beyond MAX_CONNECTIONS of all workers is closed', async () => {
  await start({ MAX_CONNECTIONS: '1' })
  const { hostname, port } = new URL(address)
  const sockets: Socket[] = []
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy()
  })
  for (let i = 0; i < 2; i += 1) {
    const socket = connectSocket(Number(port), hostname)
    sockets.push(socket)
    socket.write('GET /livez HTTP/1.1\r\nHost: x\r\n\r\n')
    expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1.1 200/)
  }
  const third = connectSocket(Number(port), hostname)
  sockets.push(third)
  await once(third, 'close')
})

test('a supervisor that is killed leaves no worker, and PostgreSQL to the next server', async () => {
  await using directory = await temporaryDirectory()
  const settings = { DATA_DIR: directory.path, DATABASE_URL: '' }
  await start(settings)
  const workers = [...pids().values()]
  await kill(server)
  await expect.poll(async () => Promise.all(workers.map(liveProcess))).toEqual([undefined, undefined])
  expect(await isRefused()).toBe(true)
  expect(await postgresRuns(directory.path)).toBe(true)

  await start({ ...settings, PORT: new URL(address).port })
  expect(server.stdout()).not.toContain('starting PostgreSQL')
  expect((await send('/readyz')).status).toBe(200)
  server.child.kill('SIGTERM')
  expect(await server.exit).toBe(0)
  expect(await postgresRuns(directory.path)).toBe(false)
})

test('SIGTERM while the workers start ends them all, and PostgreSQL', async () => {
  await using directory = await temporaryDirectory()
  server = runFlowtrail(['serve'], { DATA_DIR: directory.path, WORKERS: '2', PORT: '0' })
  const starting = await untilPrinted(server, '"worker":')
  server.child.kill('SIGTERM')
  expect(await server.exit).toBe(0)
  expect(starting).toContain('PostgreSQL started')
  expect(server.stderr()).toBe('')
  expect(await postgresRuns(directory.path)).toBe(false)
  await withServer({ databaseUrl: undefined, dataDir: directory.path }, async () => {})
})

test.each(['PORT', 'ADMIN_PORT'])('a %s in use is one line and status 1', async (setting) => {
  const other = createServer()
  await once(other.listen(0, '127.0.0.1'), 'listening')
  onTestFinished(() => void other.close())
  const { port } = other.address() as AddressInfo
  const settings = { DATABASE_URL: database.url, WORKERS: '2', PORT: '0', LOG_LEVEL: 'error' }
  const ended = await flowtrailProcessWith({ ...settings, [setting]: String(port) })('serve')
  // The other one's failure ends the server.
  const replaced = [...ended.stdout.matchAll(/worker (\d) [^"]*; starting another/g)].map(([, worker]) => worker)
  expect(new Set(replaced).size).toBe(1)
  expect(ended).toMatchObject({
    status: 1,
    stderr: `flowtrail: Port ${port} on 127.0.0.1 is already in use. Set ${setting} to another, e.g. ${setting}=${port + 1}\n`,
  })
})
