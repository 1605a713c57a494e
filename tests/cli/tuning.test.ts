import { sql } from 'kysely'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { connect, openWritePool } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { leastEventId } from '../../src/queries/idempotency.ts'
import { recordBatch } from '../../src/recording/batch.ts'
import { customEvent, fillFixture, parsedEvent } from '../recording/fixture.ts'
import { isOnCitus } from '../support/citus.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { kill, type Service, startService } from '../support/service.ts'
import { holdLock, holdProject } from '../support/waiting.ts'

const PROJECTS = ['demo', 'other', 'third']

let database: TestDatabase
let db: Database
let keys: Record<string, string>
let service: Service
beforeEach(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 })
  await fillFixture(database.url)
  keys = {}
  for (const project of PROJECTS) {
    keys[project] = await createKey(db, project, { name: 'test', scopes: SCOPES, expires_at: null })
  }
})
afterEach(async () => {
  await kill(service)
  await db.destroy()
  await database.drop()
})

function call(project: string, path: string, init: RequestInit = {}): Promise<Response> {
  const headers = { 'X-Api-Key': keys[project] ?? '', 'Content-Type': 'application/json', ...init.headers }
  return fetch(`${service.address}/projects/${project}${path}`, { ...init, headers })
}

const statusOf = async (...request: Parameters<typeof call>) => (await call(...request)).status

const record = (project: string) =>
  statusOf(project, '/events', { method: 'POST', body: JSON.stringify(customEvent()) })

test('QUEUE_SIZE and BATCH_SIZE reach the recorder', async () => {
  // On a busy machine no event may time out.
  const settings = { QUEUE_SIZE: '8', BATCH_SIZE: '1', QUEUE_TIMEOUT_MS: '60000' }
  service = await startService({ DATABASE_URL: database.url, ...settings })
  const obstacle = await holdProject(database.url)
  const statuses: number[] = []
  const send = async () => statuses.push(await record('demo'))
  const first = send()
  await obstacle.waiting(1)
  const others = Array.from({ length: 9 }, send)
  // A project may use half of the queue.
  await expect.poll(() => statuses.length, { timeout: 30_000 }).toBeGreaterThanOrEqual(5)
  expect(new Set(statuses)).toEqual(new Set([503]))
  await obstacle.release()
  await Promise.all([first, ...others])
  const transactions = await db
    .selectFrom('events')
    .select((eb) => eb.ref('xmin' as never).as('xmin'))
    .distinct()
    .execute()
  const recorded = statuses.filter((status) => status === 200)
  expect(recorded.length).toBeGreaterThan(1)
  expect(transactions).toHaveLength(recorded.length)
})

test('READ_CONNECTIONS reaches the pool', async () => {
  service = await startService({ DATABASE_URL: database.url, READ_CONNECTIONS: '6' })
  const obstacle = await holdLock(database.url, 'LOCK TABLE module_versions IN ACCESS EXCLUSIVE MODE')
  const reads = Array.from({ length: 10 }, (_, i) => statusOf('demo', `/modules/quiz/versions?limit=${i + 1}`))
  // The sixth is reserved for look-ups.
  await obstacle.waiting(5)
  await obstacle.release()
  expect(await Promise.all(reads)).toEqual(reads.map(() => 200))
})

// The projects are on different shards, which no statement can lock together.
test.skipIf(isOnCitus)('WRITE_CONNECTIONS reaches the pool', async () => {
  service = await startService({ DATABASE_URL: database.url, WRITE_CONNECTIONS: '6' })
  const obstacle = await holdLock(database.url, 'SELECT FROM projects FOR UPDATE')
  const recordings = PROJECTS.map(record)
  // Half of them may wait for a lock.
  await obstacle.waiting(3)
  await obstacle.release()
  expect(await Promise.all(recordings)).toEqual([200, 200, 200])
})

// On a cluster no statement can give an event and its key another id.
test.skipIf(isOnCitus)(
  'IDEMPOTENCY_RETENTION_DAYS deletes older keys from the start, and without it they are kept',
  async () => {
    const event = customEvent()
    const pool = openWritePool(database.url, { max: 1 })
    const client = await pool.connect()
    await recordBatch(client, [{ ...parsedEvent(event), project_id: 'demo', idempotency_key: 'old' }])
    client.release()
    await pool.end()
    const old = leastEventId(Date.now() - 10 * 24 * 60 * 60 * 1_000)
    await sql`WITH renamed AS (UPDATE events SET event_id = ${old}) UPDATE idempotency_keys SET event_id = ${old}`.execute(
      db,
    )
    const isReplayed = async () => {
      const init = { method: 'POST', headers: { 'Idempotency-Key': 'old' }, body: JSON.stringify(event) }
      return (await call('demo', '/events', init)).headers.has('idempotent-replayed')
    }
    const keys = () => db.selectFrom('idempotency_keys').select('event_id').execute()

    for (const settings of [{}, { IDEMPOTENCY_RETENTION_DAYS: '11' }] as Record<string, string>[]) {
      service = await startService({ DATABASE_URL: database.url, ...settings })
      expect(await isReplayed()).toBe(true)
      service.child.kill('SIGTERM')
      // It ends the first run, if there is one.
      expect(await service.exit).toBe(0)
      expect(await keys()).toHaveLength(1)
    }
    service = await startService({ DATABASE_URL: database.url, IDEMPOTENCY_RETENTION_DAYS: '9' })
    await expect.poll(keys, { timeout: 30_000 }).toEqual([])
    expect(await isReplayed()).toBe(false)
    expect(await isReplayed()).toBe(true)
  },
)
