import { connect as connectSocket, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { customEvent, fillFixture } from '../recording/fixture.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { kill, type Service, startService } from '../support/service.ts'
import { type HeldLock, holdProject } from '../support/waiting.ts'

let database: TestDatabase
let db: Database
let key: string
let service: Service
let obstacle: HeldLock
let sockets: Socket[]
beforeEach(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 })
  await fillFixture(database.url)
  key = await createKey(db, 'demo', { name: 'test', scopes: SCOPES, expires_at: null })
  service = await startService({ DATABASE_URL: database.url, LOG_LEVEL: 'info' })
  obstacle = await holdProject(database.url)
  sockets = []
})
afterEach(async () => {
  for (const socket of sockets) socket.destroy()
  await obstacle.release()
  await kill(service)
  await db.destroy()
  await database.drop()
})

/** A keep-alive connection; `responses` resolves to everything received when it is closed. */
function openConnection() {
  const { hostname, port } = new URL(service.address)
  const socket = connectSocket(Number(port), hostname)
  sockets.push(socket)
  const send = (method: string, path: string, body = '') =>
    socket.write(
      `${method} ${path} HTTP/1.1\r\nHost: ${hostname}\r\nX-Api-Key: ${key}\r\nContent-Type: application/json\r\n` +
        `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    )
  return {
    socket,
    responses: text(socket),
    get: (path: string) => send('GET', path),
    record: (custom_event_name: string) =>
      send('POST', '/projects/demo/events', JSON.stringify(customEvent({ custom_event_name }))),
  }
}

/** Less than the service waits for clients that keep their connections open. */
const SOON_ms = 20_000

/** Resolves once the service has logged that it is stopping. */
const stopping = () => expect.poll(() => service.stdout(), { timeout: 10_000, interval: 10 }).toContain('stopping')

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
  ['SIGINT, sent a second time by npm', ['SIGINT', 'SIGINT']],
  ['SIGINT and SIGTERM, repeatedly', ['SIGINT', 'SIGTERM', 'SIGINT', 'SIGTERM']],
])(
  '%s finishes the requests in flight, accepts no new ones, and exits with 0 soon',
  { timeout: SOON_ms },
  async (_, signals) => {
    const busy = openConnection()
    const queued = openConnection()
    const idle = openConnection()
    busy.record('in flight')
    await obstacle.waiting(1)
    queued.record('in the queue')
    idle.get('/livez')
    await new Promise((resolve) => idle.socket.once('data', resolve))

    for (const signal of signals) {
      service.child.kill(signal)
      await stopping()
    }
    await expect.poll(isRefused).toBe(true)
    expect(statusesOf(await idle.responses)).toEqual(['200'])
    busy.get('/projects/demo/modules')

    await obstacle.release()
    // The new request gets a 503, unless the connection was closed before it was read.
    expect(['200', '200 503']).toContain(statusesOf(await busy.responses).join(' '))
    expect(statusesOf(await queued.responses)).toEqual(['200'])
    expect(await service.exit).toBe(0)
    expect(await storedNames()).toEqual(['in flight', 'in the queue'])
  },
)
