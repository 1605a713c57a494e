import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { connect as connectSocket, type Socket } from 'node:net'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { customEvent, fillFixture } from '../recording/fixture.ts'
import { createTestApp } from '../support/app.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { freePort, kill, type Service, startService } from '../support/service.ts'
import { holdLock, holdProject } from '../support/waiting.ts'

let database: TestDatabase
let db: Database
let key: string
let service: Service
let sockets: Socket[]
beforeEach(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 })
  await fillFixture(database.url)
  key = await createKey(db, 'demo', { name: 'test', scopes: SCOPES, expires_at: null })
  sockets = []
})
afterEach(async () => {
  for (const socket of sockets) socket.destroy()
  if (service) await kill(service)
  await db.destroy()
  await database.drop()
})

const start = async (settings: Record<string, string> = {}) => {
  service = await startService({ DATABASE_URL: database.url, LOG_LEVEL: 'debug', ...settings })
}

/** A keep-alive connection; `responses` resolves to everything received when it is closed. */
function openConnection() {
  const { hostname, port } = new URL(service.address)
  const socket = connectSocket(Number(port), hostname)
  sockets.push(socket)
  let received = ''
  socket.on('data', (chunk) => {
    received += chunk
  })
  socket.on('error', () => {}) // it is closed as well
  /** The head of a request without the empty line at its end. */
  const head = (method: string, path: string, ...headers: string[]) =>
    [`${method} ${path} HTTP/1.1`, `Host: ${hostname}`, `X-Api-Key: ${key}`, ...headers].join('\r\n')
  const headOfPost = (body: string, ...headers: string[]) => {
    const length = `Content-Length: ${Buffer.byteLength(body)}`
    return `${head('POST', '/projects/demo/events', 'Content-Type: application/json', length, ...headers)}\r\n\r\n`
  }
  return {
    socket,
    responses: once(socket, 'close').then(() => received),
    get: (path: string) => socket.write(`${head('GET', path)}\r\n\r\n`),
    record: (custom_event_name: string) => {
      const body = JSON.stringify(customEvent({ custom_event_name }))
      socket.write(headOfPost(body) + body)
    },
    /** Sends a request but for its last bytes, once the server has read so much of it. Resolves to what sends the rest. */
    begin: async (method: string, path: string) => {
      // One packet, which the server reads at once.
      socket.write(`${head('GET', '/livez')}\r\n\r\n${head(method, path)}`)
      await vi.waitFor(() => expect(received).toContain('"ok"'), { timeout: 30_000, interval: 10 })
      return () => socket.write('\r\n\r\n')
    },
    /** The same for a post, of which only the body is missing. */
    beginRecord: async (custom_event_name: string) => {
      const body = JSON.stringify(customEvent({ custom_event_name }))
      const id = randomUUID()
      socket.write(headOfPost(body, `X-Request-Id: ${id}`))
      await vi.waitFor(() => expect(service.stdout()).toContain(id), { timeout: 30_000, interval: 10 })
      return () => socket.write(body)
    },
  }
}

/** Resolves once the service has logged that it is stopping. */
const stopping = () => expect.poll(() => service.stdout(), { timeout: 30_000, interval: 10 }).toContain('stopping')

const isRefused = () =>
  fetch(`${service.address}/livez`).then(
    () => false,
    () => true,
  )

const statusesOf = (responses: string) => [...responses.matchAll(/^HTTP\/1\.1 (\d+)/gm)].map(([, status]) => status)

const storedNames = async () => {
  const rows = await db.selectFrom('events').select('custom_event_name').orderBy('custom_event_name').execute()
  return rows.map(({ custom_event_name }) => custom_event_name)
}

test.each<[string, NodeJS.Signals[]]>([
  ['SIGTERM', ['SIGTERM']],
  ['SIGHUP, then SIGINT, sent a second time by npm, and SIGTERM', ['SIGHUP', 'SIGINT', 'SIGINT', 'SIGTERM']],
])('%s finishes the requests in flight, accepts no new ones, and exits with 0 soon', async (_, signals) => {
  // Without it, a connection that is kept open would be closed in the end.
  await start({ DRAIN_TIMEOUT_MS: '600000', QUEUE_TIMEOUT_MS: '120000' })
  const obstacle = await holdProject(database.url)
  const [busy, queued, uploading, idle] = [openConnection(), openConnection(), openConnection(), openConnection()]
  busy.record('in flight')
  await obstacle.waiting(1)
  queued.record('in the queue')
  const upload = await uploading.beginRecord('uploaded later')
  idle.get('/livez')
  await new Promise((resolve) => idle.socket.once('data', resolve))
  // Requests that begin before the stop and arrive after it; what no retry would help comes before the 503.
  const late: [string, string, string][] = [
    ['GET', '/projects/demo/modules', '503'],
    ['POST', '/projects/demo/events', '503'],
    ['DELETE', '/projects/demo/modules', '503'],
    ['GET', '/livez', '503'],
    ['GET', '/readyz', '503'],
    ['GET', '/nowhere', '404'],
    ['GET', '/projects/demo/modules/%ff', '400'],
  ]
  const connections = late.map(openConnection)
  const arrivals = await Promise.all(connections.map((one, i) => one.begin(late[i]?.[0] ?? '', late[i]?.[1] ?? '')))

  for (const signal of signals) {
    service.child.kill(signal)
    await stopping()
  }
  await expect.poll(isRefused, { timeout: 30_000 }).toBe(true)
  expect(statusesOf(await idle.responses)).toEqual(['200'])
  for (const arrive of arrivals) arrive()
  for (const [i, connection] of connections.entries()) {
    const [alive, last = ''] = (await connection.responses).split(/(?<=\})(?=HTTP)/)
    expect(alive).toContain('keep-alive')
    expect(statusesOf(last), late[i]?.join(' ')).toEqual([late[i]?.[2]])
    expect(last).toMatch(/^connection: close\r$/im)
    if (late[i]?.[2] === '503') expect(last).toMatch(/^retry-after: [1-9]\d*\r$[\s\S]*"service_unavailable"/im)
  }
  upload()

  await obstacle.release()
  for (const { responses } of [busy, queued, uploading]) {
    expect(statusesOf(await responses)).toEqual(['200'])
    expect(await responses).toMatch(/^connection: close\r$/im)
  }
  expect(await service.exit).toBe(0)
  expect(service.stderr()).toMatch(/^Flowtrail is listening at .*\n$/)
  expect(await storedNames()).toEqual(['in flight', 'in the queue', 'uploaded later'])
})

test('within DRAIN_DELAY a stopping server serves every request, says that it stops, and ignores further signals', async () => {
  await start({ DRAIN_DELAY: '5' })
  const [kept, last] = [openConnection(), openConnection()]
  const arrive = await kept.begin('GET', '/projects/demo/modules')
  const arriveLast = await last.begin('GET', '/livez')
  service.child.kill('SIGTERM')
  await stopping()
  service.child.kill('SIGINT')
  arrive()
  expect(await kept.responses).toMatch(/keep-alive[\s\S]*HTTP\/1\.1 200 OK[\s\S]*connection: close/i)
  const ready = await fetch(`${service.address}/readyz`)
  expect([ready.status, ready.headers.get('retry-after')]).toEqual([503, '1'])
  expect(ready.headers.get('connection')).toBe('close')
  const recording = openConnection()
  recording.record('within the delay')
  expect(statusesOf(await recording.responses)).toEqual(['200'])
  expect(service.stdout()).not.toContain('draining')
  await expect.poll(isRefused, { timeout: 30_000 }).toBe(true)
  arriveLast()
  expect(await last.responses).toMatch(/200 OK[\s\S]*HTTP\/1\.1 503/)
  expect(await service.exit).toBe(0)
  expect(await storedNames()).toEqual(['within the delay'])
})

test('with ADMIN_PORT, probes and metrics are served there alone, until the last request has finished', async () => {
  const ADMIN_PORT = String(await freePort())
  await start({ ADMIN_PORT, BASE_PATH: '/v' })
  const admin = `http://127.0.0.1:${ADMIN_PORT}`
  const get = async (url: string) => {
    const response = await fetch(url, { headers: { 'X-Api-Key': key } })
    return { status: response.status, body: await response.text() }
  }
  for (const path of ['/livez', '/readyz', '/metrics', '/v/livez', '/v/readyz', '/v/metrics']) {
    expect((await get(service.address + path)).status, path).toBe(404)
    expect((await get(admin + path)).status, path).toBe(200)
  }
  for (const path of ['/v/docs/', '/v/openapi.json', '/v/projects/demo/modules']) {
    expect((await get(service.address + path)).status, path).toBe(200)
    const { status, body } = await get(admin + path)
    expect([status, JSON.parse(body).error.code], path).toEqual([404, 'route_not_found'])
  }
  expect((await get(`${admin}/metrics`)).body).toContain(
    '_count{operation="listModules",method="GET",status="200",error_code=""} 1\n',
  )

  const obstacle = await holdLock(database.url, 'LOCK TABLE modules')
  const connection = openConnection()
  connection.get('/v/projects/demo/modules')
  await obstacle.waiting(1)
  service.child.kill('SIGTERM')
  await expect.poll(isRefused, { timeout: 30_000 }).toBe(true)
  expect((await get(`${admin}/livez`)).status).toBe(200)
  expect((await get(`${admin}/readyz`)).status).toBe(503)
  await obstacle.release()
  expect(statusesOf(await connection.responses)).toEqual(['200'])
  expect(await service.exit).toBe(0)
})

test('requests that are not finished within DRAIN_TIMEOUT_MS are cut off, and store nothing', async () => {
  await start({ DRAIN_TIMEOUT_MS: '1', QUEUE_TIMEOUT_MS: '120000' })
  const obstacle = await holdProject(database.url)
  const endless = openConnection()
  endless.record('endless')
  await obstacle.waiting(1)
  service.child.kill('SIGTERM')
  expect(await endless.responses).toBe('')
  expect(await service.exit).toBe(0)
  await obstacle.release()
  expect(await storedNames()).toEqual([])
})

test('a server whose reads wait for a lock ends soon after DRAIN_TIMEOUT_MS', async () => {
  await start({ DRAIN_TIMEOUT_MS: '100', STATEMENT_TIMEOUT_MS: '60000' })
  const obstacle = await holdLock(database.url, 'LOCK TABLE modules')
  const client = openConnection()
  client.get('/projects/demo/modules')
  await obstacle.waiting(1)
  service.child.kill('SIGTERM')
  expect(await service.exit).toBe(0)
  await obstacle.release()
})

test('a request that a stop finds at its key is still served, and the use of the key is written', async () => {
  await start()
  const obstacle = await holdLock(database.url, 'LOCK TABLE api_keys')
  const connection = openConnection()
  connection.get('/projects/demo/modules')
  await obstacle.waiting(1)
  service.child.kill('SIGTERM')
  await expect.poll(isRefused, { timeout: 30_000 }).toBe(true)
  await obstacle.release()
  expect(statusesOf(await connection.responses)).toEqual(['200'])
  expect(await service.exit).toBe(0)
  expect(service.stdout()).not.toContain('uses of keys not recorded')
  const { last_used_at } = await db.selectFrom('api_keys').select('last_used_at').executeTakeFirstOrThrow()
  expect(last_used_at).toMatch(/:00\.000Z$/)
})

test('an app that closes waits for the uses of keys that are not yet written', async () => {
  const api = await createTestApp({ fill: fillFixture })
  const obstacle = await holdLock(api.databaseUrl, 'LOCK TABLE api_keys IN SHARE MODE')
  // A look-up, which has a connection of its own.
  expect((await api.call({ path: '/projects/demo/modules/quiz' })).statusCode).toBe(200)
  await obstacle.waiting(1)
  const closed = api.app.close().then(() => 'closed')
  // As long as the lock is held, only the query can end.
  expect(await Promise.race([closed, obstacle.query('SELECT pg_sleep(0.2)')])).not.toBe('closed')
  await obstacle.release()
  await closed
  const ofDemo = api.db.selectFrom('api_keys').select('last_used_at').where('project_id', '=', 'demo')
  expect((await ofDemo.executeTakeFirstOrThrow()).last_used_at).not.toBeNull()
  await api.close()
})

test('SIGTERM at the moment at which the server begins to listen stops it too', async () => {
  const signal = `import net from 'node:net'
    const { listen } = net.Server.prototype
    net.Server.prototype.listen = function (...args) {
      process.emit('SIGTERM')
      return listen.apply(this, args)
    }`
  await start({ NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(signal)}` })
  expect(await service.exit).toBe(0)
  expect(service.stdout()).toContain('stopping')
})
