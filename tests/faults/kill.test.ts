import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { migrate } from '../../db/migrate.ts'
import { createKey } from '../../src/cli/keys.ts'
import { readConfig } from '../../src/config.ts'
import { connect, type DatabaseServer, openServer } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { customEvent, fillFixture } from '../recording/fixture.ts'
import { kill, type Service, startService } from '../support/service.ts'

// Durability is tested on a PostgreSQL of its own, with fsync on.
let dataDir: string
let server: DatabaseServer
let db: Database
let key: string
let service: Service
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'flowtrail-test-'))
  server = await openServer(readConfig({ DATA_DIR: dataDir }), { supervise: true })
  db = connect(server.url, { max: 1 })
  await migrate(db)
  await fillFixture(server.url)
  key = await createKey(db, 'demo', { name: 'test', scopes: SCOPES, expires_at: null })
  service = await startService({ DATA_DIR: dataDir })
})
afterEach(async () => {
  await kill(service)
  await db.destroy()
  await server.release()
  await rm(dataDir, { recursive: true })
})

const post = (custom_event_name: string) =>
  fetch(`${service.address}/projects/demo/events`, {
    method: 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json', 'idempotency-key': custom_event_name },
    body: JSON.stringify(customEvent({ custom_event_name })),
  })

const storedNames = async () => {
  const rows = await db.selectFrom('events').select('custom_event_name').orderBy('custom_event_name').execute()
  return rows.map(({ custom_event_name }) => custom_event_name)
}

test('an event that got a 200 survives kill -9 of the service during other requests', async () => {
  expect((await post('recorded')).status).toBe(200)
  const others = Array.from({ length: 20 }, async (_, i) => {
    const response = await post(`other-${i}`)
    if (response.status !== 200) throw new Error(`got ${response.status}`)
    return `other-${i}`
  })
  await Promise.any(others)
  await kill(service)
  const recorded = (await Promise.allSettled(others)).flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  expect(await storedNames()).toEqual(expect.arrayContaining(['recorded', ...recorded]))
  expect(new Set(await storedNames()).size).toBe((await storedNames()).length)

  service = await startService({ DATA_DIR: dataDir })
  expect((await post('after')).status).toBe(200)
})

test('an event that got a 200 survives kill -9 of PostgreSQL, and the service recovers by itself', async () => {
  const pidFile = path.join(dataDir, 'postgres/postmaster.pid')
  for (const round of ['first', 'second']) {
    const pid = Number.parseInt(await readFile(pidFile, 'utf8'), 10)
    expect((await post(`${round}-before`)).status).toBe(200)
    process.kill(pid, 'SIGKILL')

    const statuses: number[] = []
    const name = `${round}-after`
    while (statuses.at(-1) !== 200) statuses.push((await post(name)).status)
    expect(statuses.filter((status) => status !== 503)).toEqual([200])
  }
  // The last 200 may be from a backend that outlived its postmaster, so the restart may still be under way.
  expect(await vi.waitFor(storedNames, { timeout: 20_000 })).toEqual([
    'first-after',
    'first-before',
    'second-after',
    'second-before',
  ])
})
