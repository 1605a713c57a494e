import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { connect, type Socket } from 'node:net'
import { setTimeout } from 'node:timers/promises'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { createKey } from '../../../src/cli/keys.ts'
import { connect as connectDatabase } from '../../../src/database/open.ts'
import { SCOPES } from '../../../src/domain/api-key.ts'
import { EVENT } from '../../http/requests.ts'
import { withExamples } from '../../support/app.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { kill, type Service, startService } from '../../support/service.ts'
import { isLong, size } from './trial.ts'

// More load than the service can take, and connections that only cost: it refuses what is too much, says so, and recovers.

const CAPACITY_s = 3
const OVERLOAD = 10
const OVERLOAD_s = size(10, 60)
/** So many more than the service lets wait that most of them are refused; a client that has as many waits, too. */
const MAX_IN_FLIGHT = 1_000
/** How many requests at once measure the capacity: enough to keep every part busy. */
const BUSY = 32
/** Far more than a probe or a request ever takes; refused requests wait for five seconds. */
const PROBE_ms = 5_000
const TIMEOUT_ms = size(180_000, 600_000)

let database: TestDatabase
let service: Service
let key: string
const agent = new Agent({ keepAlive: true, maxFreeSockets: MAX_IN_FLIGHT })
const probes = new Agent({ keepAlive: true })

function* records(): Generator<object> {
  const entry = { project_id: 'demo', entry_id: '019ca8bb-b5c0-7000-8000-000000000001' }
  for (let i = 0; i < 1_000; i += 1) {
    const props = { custom_event_name: 'n', custom_event_props: JSON.stringify({ text: 'x'.repeat(300) }) }
    const timestamp = new Date(Date.UTC(2026, 1, 1, 0, 0, i)).toISOString()
    yield { type: 'event', ...entry, event_id: `e${i}`, timestamp, event_type: 'custom_event:triggered', ...props }
  }
}
/** Half a megabyte, so that ten times the capacity are not more requests than the trial itself can send. */
const LIST = '/projects/demo/entries/019ca8bb-b5c0-7000-8000-000000000001/events?limit=1000'

beforeAll(async () => {
  database = await createTestDatabase()
  const db = connectDatabase(database.url, { max: 1 })
  await withExamples(records())(database.url, db)
  key = await createKey(db, 'demo', { name: 'test', scopes: SCOPES, expires_at: null })
  await db.destroy()
  service = await startService({ DATABASE_URL: database.url, QUEUE_SIZE: '200' })
})
afterAll(async () => {
  agent.destroy()
  probes.destroy()
  await kill(service)
  await database.drop()
})

interface Outcome {
  path: string
  status: number
  retryAfter: string | undefined
  duration_ms: number
}

function send(path: string, body?: object, by = agent): Promise<Outcome> {
  const start_ms = performance.now()
  const { promise, resolve, reject } = Promise.withResolvers<Outcome>()
  const json = body && JSON.stringify(body)
  const headers = {
    'x-api-key': key,
    ...(json && { 'content-type': 'application/json', 'content-length': json.length }),
  }
  request(service.address + path, { method: json ? 'POST' : 'GET', agent: by, headers })
    .on('error', reject)
    .on('response', (response) => {
      response.on('error', reject).on('end', () => {
        const retryAfter = response.headers['retry-after']
        resolve({ path, status: response.statusCode ?? 0, retryAfter, duration_ms: performance.now() - start_ms })
      })
      response.resume()
    })
    .end(json)
  return promise
}

/** A connection that is broken is an outcome, too. */
const outcomeOf = (i: number) =>
  sendOne(i).catch((): Outcome => ({ path: '', status: 0, retryAfter: undefined, duration_ms: 0 }))

/** Reads and recordings in turn. */
const sendOne = (i: number) => (i % 2 === 0 ? send(LIST) : send('/projects/demo/events', EVENT))
const percentile = (values: number[], p: number) =>
  values.sort((a, b) => a - b)[Math.floor(values.length * p)] ?? Number.NaN

/** The median of some requests, one after another, in milliseconds. Fails if one is not a 200. */
async function medianOf(count: number): Promise<number> {
  const durations = []
  for (let i = 0; i < count; i += 1) {
    const { status, duration_ms } = await sendOne(i)
    expect(status).toBe(200)
    durations.push(duration_ms)
  }
  return percentile(durations, 0.5)
}

/** Asks for liveness and readiness until told to stop. @returns how long the slowest took, in milliseconds */
async function probe(stop: AbortSignal): Promise<number> {
  let worst_ms = 0
  while (!stop.aborted) {
    for (const path of ['/livez', '/readyz']) {
      const { status, duration_ms } = await send(path, undefined, probes)
      expect([path, status]).toEqual([path, 200])
      worst_ms = Math.max(worst_ms, duration_ms)
    }
    await setTimeout(50)
  }
  return worst_ms
}

test('more load than it can take is served or refused with Retry-After', {
  timeout: TIMEOUT_ms,
}, async () => {
  const quiet_ms = await medianOf(40)
  let served = 0
  const end_ms = performance.now() + CAPACITY_s * 1_000
  const keepBusy = async (i: number) => {
    for (; performance.now() < end_ms; served += 1) expect((await sendOne(i)).status).toBe(200)
  }
  await Promise.all(Array.from({ length: BUSY }, (_, i) => keepBusy(i)))
  const capacity = served / CAPACITY_s

  const stop = new AbortController()
  const probing = probe(stop.signal)
  const offered = Math.ceil(OVERLOAD * capacity * OVERLOAD_s)
  const outcomes: Promise<Outcome>[] = []
  let inFlight = 0
  const start_ms = performance.now()
  const elapsed_s = () => (performance.now() - start_ms) / 1_000
  // Whether earlier ones have a response or not, but no more at once than connections are allowed.
  while (elapsed_s() < OVERLOAD_s) {
    const due = Math.min(offered, OVERLOAD * capacity * elapsed_s())
    while (outcomes.length < due && inFlight < MAX_IN_FLIGHT) {
      inFlight += 1
      outcomes.push(outcomeOf(outcomes.length).finally(() => (inFlight -= 1)))
    }
    await setTimeout(10)
  }
  const all = await Promise.all(outcomes)
  // The service allows only so many connections.
  agent.destroy()
  const settled_s = elapsed_s()
  stop.abort()
  const worstProbe_ms = await probing
  const recovered_ms = await medianOf(40)

  const counts = Object.groupBy(all, ({ status }) => status)
  const [ok = [], refused = []] = [counts[200], counts[503]]
  const p99Of = (isRead: boolean) => {
    const same = ok.filter(({ path }) => (path === LIST) === isRead)
    return `${percentile(
      same.map((one) => one.duration_ms),
      0.99,
    ).toFixed(0)} ms`
  }
  console.log(
    `overload: capacity ${capacity.toFixed(0)}/s, sent ${(all.length / OVERLOAD_s).toFixed(0)}/s for ${OVERLOAD_s} s, settled after ${settled_s.toFixed(1)} s; ` +
      `${ok.length} × 200 (p99 of reads ${p99Of(true)}, of recordings ${p99Of(false)}), ${refused.length} × 503; ` +
      `probes at worst ${worstProbe_ms.toFixed(0)} ms; median before ${quiet_ms.toFixed(1)} ms, after ${recovered_ms.toFixed(1)} ms`,
  )
  expect(Object.keys(counts).sort()).toEqual(['200', '503'])
  // Else it was no overload. How many times the capacity are sent depends on the machine, which the trial shares.
  expect(refused.length).toBeGreaterThan(all.length / 4)
  expect(refused.filter(({ retryAfter }) => !/^\d+$/.test(retryAfter ?? ''))).toEqual([])
  expect(worstProbe_ms).toBeLessThanOrEqual(PROBE_ms)
  expect(recovered_ms).toBeLessThanOrEqual(Math.max(200, 5 * quiet_ms))
})

const sockets = new Set<Socket>()
afterEach(() => {
  for (const socket of sockets) socket.destroy()
})

/** Opens connections, a hundred at a time. Resolves to how many are open. */
async function openConnections(count: number, begin: (socket: Socket) => void): Promise<void> {
  const { hostname, port } = new URL(service.address)
  for (let opened = 0; opened < count; opened += 100) {
    await Promise.all(
      Array.from({ length: Math.min(100, count - opened) }, async () => {
        const socket = connect(Number(port), hostname)
        sockets.add(socket)
        socket.on('error', () => {}).on('close', () => sockets.delete(socket))
        await once(socket, 'connect')
        begin(socket)
      }),
    )
  }
}

const HEAD =
  'POST /projects/demo/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n'

test('slow heads and endless bodies keep no one else waiting', { timeout: TIMEOUT_ms }, async () => {
  const quiet_ms = await medianOf(40)
  await openConnections(400, (socket) => socket.write('GET /projects/demo/modules HTTP/1.1\r\nHost: x\r\nX-Slow: '))
  await openConnections(100, (socket) => socket.write(`${HEAD}X-Api-Key: ${key}\r\n\r\n`))
  const all = [...sockets]
  const [start_ms, slow, statuses] = [performance.now(), all.slice(0, 400), new Map<string, number>()]
  for (const socket of all) {
    socket.once('data', (chunk) => {
      const status = String(chunk).slice(9, 12)
      statuses.set(status, (statuses.get(status) ?? 0) + 1)
    })
  }
  // A byte of each head, and white space without an end in each body, ten times a second.
  const trickle = setInterval(() => {
    for (const socket of sockets) socket.write(slow.includes(socket) ? 'x' : `1000\r\n${' '.repeat(4096)}\r\n`)
  }, 100)
  const meanwhile_ms = await medianOf(200)
  // Until they are cut off: a request has 30 seconds.
  while (isLong && sockets.size > 0) await setTimeout(100)
  clearInterval(trickle)
  console.log(
    `500 slow connections: median before ${quiet_ms.toFixed(1)} ms, meanwhile ${meanwhile_ms.toFixed(1)} ms; ${sockets.size} open ` +
      `after ${((performance.now() - start_ms) / 1_000).toFixed(0)} s; responses ${JSON.stringify(Object.fromEntries(statuses))}`,
  )
  expect(meanwhile_ms).toBeLessThanOrEqual(Math.max(200, 5 * quiet_ms))
  if (isLong) expect(Object.fromEntries(statuses)).toEqual({ 400: 400, 413: 100 })
})

test('idle connections, as many as are allowed, keep no one else waiting', { timeout: TIMEOUT_ms }, async () => {
  const quiet_ms = await medianOf(40)
  const descriptors = Number(execFileSync('/bin/sh', ['-c', 'ulimit -n']).toString()) || Number.POSITIVE_INFINITY
  // The service allows 10,000, of which others need some.
  const count = Math.min(9_900, descriptors - 500)
  await openConnections(count, () => {})
  const open = sockets.size
  const meanwhile_ms = await medianOf(200)
  console.log(
    `${open} idle connections: median before ${quiet_ms.toFixed(1)} ms, meanwhile ${meanwhile_ms.toFixed(1)} ms`,
  )
  expect(open).toBe(count)
  expect(meanwhile_ms).toBeLessThanOrEqual(Math.max(200, 5 * quiet_ms))
})
