import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { customEvent, fillFixture, IMPORTED_ENTRY } from '../recording/fixture.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { createDatabaseProxy, type DatabaseProxy } from '../support/database-proxy.ts'
import { kill, type Service, startService } from '../support/service.ts'
import { holdLock, holdProject } from '../support/waiting.ts'

let database: TestDatabase
let db: Database
let key: string
let proxy: DatabaseProxy
let service: Service
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 })
  await fillFixture(database.url)
  key = await createKey(db, 'demo', { name: 'test', scopes: SCOPES, expires_at: null })
  proxy = await createDatabaseProxy(inject('databaseServer'))
  service = await startService({ DATABASE_URL: proxy.reach(database.url), LOG_LEVEL: 'info' })
})
afterEach(() => proxy.restore())
afterAll(async () => {
  await kill(service)
  await proxy.close()
  await db.destroy()
  await database.drop()
})

const READS = [
  '/projects/demo/modules',
  '/projects/demo/modules/quiz',
  '/projects/demo/modules/quiz/versions',
  '/projects/demo/modules/quiz/versions/1',
  `/projects/demo/entries/${IMPORTED_ENTRY}`,
  `/projects/demo/entries/${IMPORTED_ENTRY}/events`,
  '/projects/demo/entries-page-views',
]

interface Answer {
  status: number
  headers: Headers
  body: string
}

async function send(path: string, init: RequestInit = {}, { address }: Service = service): Promise<Answer> {
  const response = await fetch(`${address}${path}`, {
    ...init,
    headers: { 'x-api-key': key, 'content-type': 'application/json', ...init.headers },
  })
  return { status: response.status, headers: response.headers, body: await response.text() }
}
const get = (path: string, to?: Service) => send(path, {}, to)
const post = (custom_event_name: string, to?: Service) =>
  send('/projects/demo/events', { method: 'POST', body: JSON.stringify(customEvent({ custom_event_name })) }, to)

function expectUnavailable({ status, headers, body }: Answer): void {
  expect(status, body).toBe(503)
  expect(JSON.parse(body)).toMatchObject({ error: { code: 'service_unavailable' }, projectId: 'demo' })
  expect(headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
}

const eventNames = async () => {
  const rows = await db.selectFrom('events').select('custom_event_name').execute()
  return rows.map(({ custom_event_name }) => custom_event_name)
}

test('while a table is locked, requests that do not need it pass, and those that do succeed afterwards', async () => {
  const lock = await holdLock(database.url, 'LOCK TABLE module_versions')
  const path = '/projects/demo/modules/quiz/versions/1'
  const waiting = [
    get(path),
    get(path),
    get('/projects/demo/modules/quiz'),
    get('/projects/demo/modules/quiz/versions'),
  ]
  // The equal reads are one statement.
  await lock.waiting(3)
  const others = [`/projects/demo/entries/${IMPORTED_ENTRY}`, '/projects/demo/entries', '/readyz']
  for (const other of others) expect((await get(other)).status).toBe(200)
  await lock.release()
  for (const { status } of await Promise.all(waiting)) expect(status).toBe(200)
})

describe('while the database is unreachable', () => {
  test('the log says when that began and, with the number of failed requests, when it ended', async () => {
    const outages = () =>
      service
        .stdout()
        .split('\n')
        .slice(0, -1)
        .map((line) => JSON.parse(line) as Record<string, unknown>)
        .filter(({ msg }) => /^the database is|failed/.test(String(msg)))
    proxy.cut()
    for (let i = 0; i < 3; i += 1) expectUnavailable(await get('/projects/demo/modules'))
    expect(outages()).toMatchObject([{ level: 'error', err: {}, msg: expect.stringContaining('DATABASE_URL') }])
    proxy.restore()
    await expect.poll(outages, { timeout: 30_000 }).toHaveLength(2)
    expect(outages()[1]).toMatchObject({ failed_requests: expect.any(Number), msg: 'the database is available again' })
  })

  test.each(READS)('GET %s is a 503, and a 200 once it is back', async (path) => {
    expect((await get(path)).status).toBe(200)
    proxy.cut()
    expectUnavailable(await get(path))
    expectUnavailable(await get(path))
    await proxy.disconnected()
    proxy.restore()
    expect((await get(path)).status).toBe(200)
  })

  test('recordCustomEvent is a 503 that stores nothing, and a 200 once it is back', async () => {
    proxy.cut()
    expectUnavailable(await post('while unreachable'))
    proxy.restore()
    expect(await eventNames()).not.toContain('while unreachable')
    expect((await post('back again')).status).toBe(200)
    expect(await eventNames()).toContain('back again')
  })

  test.each(['', 'ft_wrong'])('the key "%s" is still refused', async (wrong) => {
    proxy.cut()
    expect((await send('/projects/demo/modules', { headers: { 'x-api-key': wrong } })).status).toBe(401)
  })

  test('the service is live but not ready', async () => {
    proxy.cut()
    expect((await get('/livez')).status).toBe(200)
    const { status, headers } = await get('/readyz')
    expect(status).toBe(503)
    expect(headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
    proxy.restore()
    expect((await get('/readyz')).status).toBe(200)
  })
})

describe('a connection that breaks', () => {
  test('during a read makes it a 503', async () => {
    const obstacle = await holdLock(database.url, 'LOCK TABLE modules')
    const response = get('/projects/demo/modules')
    await obstacle.waiting(1)
    proxy.cut()
    expectUnavailable(await response)
    await obstacle.release()
  })

  test('during a recording transaction makes it a 503 that stores nothing', async () => {
    const obstacle = await holdProject(database.url)
    const response = post('interrupted')
    await obstacle.waiting(1)
    proxy.cut()
    expectUnavailable(await response)
    await obstacle.release()
    expect(await eventNames()).not.toContain('interrupted')
  })

  test('at any moment causes only 200 and 503, and every 200 is stored once', async () => {
    const stored: string[] = []
    const lost: string[] = []
    for (let round = 0; round < 30; round += 1) {
      const responses = Array.from({ length: 8 }, async (_, i) => {
        const custom_event_name = `round ${round}, ${i}`
        const response = await post(custom_event_name)
        if (response.status === 200) stored.push(custom_event_name)
        else {
          expectUnavailable(response)
          lost.push(custom_event_name)
        }
        // The moment of the cut differs between rounds: after the first response, the second, …
        if (i === round % 9) proxy.cut()
      })
      // … and before all of them.
      if (round % 9 === 8) proxy.cut()
      const reads = READS.map(async (path) => {
        const response = await get(path)
        if (response.status !== 200) expectUnavailable(response)
      })
      await Promise.all([...responses, ...reads])
      proxy.restore()
    }
    const names = await eventNames()
    for (const name of stored) expect(names.filter((other) => other === name)).toHaveLength(1)
    expect(stored.length).toBeGreaterThan(0)
    expect(lost.length).toBeGreaterThan(0)
  })
})

describe('a statement that waits for a lock', () => {
  test.each([
    ['and is cancelled, as by a timeout', 'pg_cancel_backend', '57014'],
    ['and whose backend is terminated', 'pg_terminate_backend', '57P01'],
  ])('%s makes the request a 503', async (_, end) => {
    // The service may not have noticed yet that the test before has cut its connections.
    await expect.poll(async () => (await post('recovered')).status).toBe(200)
    const obstacle = await holdProject(database.url)
    const response = post(end)
    const [pid] = await obstacle.waiting(1)
    await obstacle.query(`SELECT ${end}(${pid})`)
    expectUnavailable(await response)
    await obstacle.release()
    expect(await eventNames()).not.toContain(end)
    expect((await post('after it')).status).toBe(200)
  })
})

describe('a database that stops responding', () => {
  // Those timeouts that are no settings are longer than a test should take.
  const IMPATIENT = `const { setTimeout } = globalThis
    globalThis.setTimeout = (work, ms, ...rest) => setTimeout(work, Math.min(ms, 3000), ...rest)`
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(IMPATIENT)}`

  let frozen: DatabaseProxy
  let impatient: Service
  beforeAll(async () => {
    frozen = await createDatabaseProxy(inject('databaseServer'))
    const DATABASE_URL = frozen.reach(database.url)
    // No timeout applies to what happens before the service listens: a migration takes as long as it needs.
    const obstacle = await holdLock(database.url, 'LOCK TABLE kysely_migration')
    const starting = startService({ DATABASE_URL, STATEMENT_TIMEOUT_MS: '1000', NODE_OPTIONS })
    const [pid] = await obstacle.waiting(1)
    await obstacle.query(`DO $$ BEGIN
      WHILE clock_timestamp() < (SELECT query_start FROM pg_stat_activity WHERE pid = ${pid}) + interval '1.2 seconds'
      LOOP PERFORM pg_sleep(0.01); END LOOP; END $$`)
    await obstacle.release()
    impatient = await starting
  })
  afterEach(() => frozen.restore())
  afterAll(async () => {
    await kill(impatient)
    await frozen.close()
  })
  const request = () =>
    Promise.all([
      get('/projects/demo/modules', impatient),
      get(`/projects/demo/entries/${IMPORTED_ENTRY}/events`, impatient),
      post('impatient', impatient),
    ])
  const statuses = async () => (await request()).map(({ status }) => status)
  const failures = (message: string) =>
    impatient
      .stdout()
      .split('\n')
      .filter((line) => line.includes(message)).length

  test('because of a lock makes requests in flight a 503 after STATEMENT_TIMEOUT_MS', async () => {
    const cancelled = () => failures('canceling statement due to statement timeout')
    const before = cancelled()
    const obstacle = await holdLock(database.url, 'LOCK TABLE events')
    const [modules, ...others] = await request()
    await obstacle.release()
    expect(modules.status).toBe(200)
    for (const response of others) expectUnavailable(response)
    // PostgreSQL's timeout is shorter than the one for its response.
    await expect.poll(cancelled, { timeout: 30_000 }).toBe(before + 2)
    await expect.poll(statuses).toEqual([200, 200, 200])
  })

  test('makes requests in flight a 503 in time, and causes no errors once it is back', async () => {
    await expect.poll(statuses).toEqual([200, 200, 200])
    frozen.freeze()
    for (const response of await request()) expectUnavailable(response)
    frozen.restore()
    expect(await statuses()).toEqual([200, 200, 200])
  })

  test('keeps a service that is stopping only so long', async () => {
    await expect.poll(statuses).toEqual([200, 200, 200])
    frozen.freeze()
    impatient.child.kill('SIGTERM')
    expect(await impatient.exit).toBe(1)
  })
})
