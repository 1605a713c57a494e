import { afterEach, beforeEach, expect, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { customEvent, fillFixture } from '../recording/fixture.ts'
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

async function statusOf(project: string, path: string, init: RequestInit = {}): Promise<number> {
  const headers = { 'X-Api-Key': keys[project] ?? '', 'Content-Type': 'application/json' }
  return (await fetch(`${service.address}/projects/${project}${path}`, { ...init, headers })).status
}

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

test('WRITE_CONNECTIONS reaches the pool', async () => {
  service = await startService({ DATABASE_URL: database.url, WRITE_CONNECTIONS: '6' })
  const obstacle = await holdLock(database.url, 'SELECT FROM projects FOR UPDATE')
  const recordings = PROJECTS.map(record)
  // Half of them may wait for a lock.
  await obstacle.waiting(3)
  await obstacle.release()
  expect(await Promise.all(recordings)).toEqual([200, 200, 200])
})
