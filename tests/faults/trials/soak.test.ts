import { readdirSync } from 'node:fs'
import { setTimeout } from 'node:timers/promises'
import { sql } from 'kysely'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { createKey } from '../../../src/cli/keys.ts'
import { connect as connectDatabase } from '../../../src/database/open.ts'
import type { Database } from '../../../src/database/pool.ts'
import { SCOPES } from '../../../src/domain/api-key.ts'
import { EVENT } from '../../http/requests.ts'
import { EXAMPLES, importFile, importInto } from '../../support/app.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { exampleCall, operationIds } from '../../support/example-call.ts'
import { kill, readMetrics, runFlowtrail, type Service, startService } from '../../support/service.ts'
import { size } from './trial.ts'

// All operations at once for a while, with clients that hang up and requests that are refused, beside the demo's live
// visitors: what the service holds does not grow. Its first third warms it up; the other two are compared with each other.

const DURATION_s = size(20, 600)
const CLIENTS = 16
/** The project of the live visitors. */
const VISITED = 'visited'
/** How much more the last third may hold than the one before, of its least: garbage comes and goes. */
const MAX_GROWTH = 1.3
/** Below it no ratio counts. The process itself goes on taking memory for garbage while it warms up, its heap does not. */
const MAX_GROWTH_MiB = { heap_MiB: 16, rss_MiB: 96 }
/** The connections of the service's pools by default: for reads, writes and imports. */
const POOLED = 3 + 4 + 8
const TIMEOUT_ms = size(180_000, 1_200_000)

let database: TestDatabase
let db: Database
let service: Service
let key: string
beforeAll(async () => {
  database = await createTestDatabase()
  await importFile(database.url, EXAMPLES)
  await importInto(database.url, [{ type: 'project', project_id: VISITED }])
  db = connectDatabase(database.url, { max: 1 })
  key = await createKey(db, 'demo', { name: 'test', scopes: SCOPES, expires_at: null })
  service = await startService({ DATABASE_URL: database.url })
})
afterAll(async () => {
  await kill(service)
  await db.destroy()
  await database.drop()
})

/** Which operations had which status. */
const seen = new Set<string>()

/** Each operation's example request, and some that are refused or whose client does not wait for the response. */
async function act(i: number): Promise<void> {
  const operationId = operationIds[i % operationIds.length] as (typeof operationIds)[number]
  // Primes, so that every operation has its share.
  const { method = 'GET', path, body, headers } = exampleCall(operationId)
  const isRefused = i % 23 === 0
  const hangsUp = i % 7 === 0
  const value = JSON.stringify(`${i}@example.com`)
  const event = { ...EVENT, identifiers: [{ key: 'email', value }] }
  const isBatch = operationId === 'recordCustomEvents'
  const sentBody = isBatch ? { events: Array(10).fill({ ...event, idempotency_key: `batch-${i}` }) } : event
  const isImport = operationId === 'importRecords'
  const json = JSON.stringify({ ...sentBody, unknown: isRefused ? i : undefined })
  const cancel = new AbortController()
  const sent = fetch(service.address + path, {
    method,
    headers: {
      'x-api-key': isRefused && method === 'GET' ? `ft_${i}` : key,
      ...(body !== undefined && {
        ...headers,
        ...(operationId === 'recordCustomEvent' && { 'idempotency-key': String(i) }),
      }),
    },
    ...(body !== undefined && { body: isImport ? `${body}${isRefused ? '{}' : ''}` : json }),
    signal: cancel.signal,
  })
  if (hangsUp) setImmediate(() => cancel.abort())
  const response = await sent
    .then(
      async (response) => ({ status: response.status, body: await response.text() }),
      (error: Error) => {
        if (error.name !== 'AbortError') throw error
      },
    )
    .catch((error: Error) => {
      if (error.name !== 'AbortError') throw error
    })
  if (!response) return
  // More imports than may run at once.
  if (isImport && response.status === 503) return
  expect(response.status, response.body).toBe(isRefused ? (body === undefined ? 401 : 400) : 200)
  seen.add(`${operationId} ${response.status}`)
}

interface Sample {
  heap_MiB: number
  rss_MiB: number
  descriptors: number
  connections: number
}

async function sample(): Promise<Sample> {
  const metric = await readMetrics(service)
  const { rows } = await sql<{ count: number }>`SELECT count(*)::integer AS count FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()`.execute(db)
  return {
    heap_MiB: metric('nodejs_heap_size_used_bytes') / 2 ** 20,
    rss_MiB: metric('process_resident_memory_bytes') / 2 ** 20,
    descriptors: readdirSync(`/proc/${service.child.pid}/fd`).length,
    connections: rows[0]?.count ?? Number.NaN,
  }
}

const leastOf = (samples: Sample[]): Sample => {
  const least = (name: keyof Sample) => Math.min(...samples.map((one) => one[name]))
  return {
    heap_MiB: Math.round(least('heap_MiB')),
    rss_MiB: Math.round(least('rss_MiB')),
    descriptors: least('descriptors'),
    connections: least('connections'),
  }
}

async function letVisitorsCome() {
  const FLOWTRAIL_KEY = await createKey(db, VISITED, { name: 'visitors', scopes: SCOPES, expires_at: null })
  const where = ['--project', VISITED, '--url', service.address]
  const visitors = runFlowtrail(['demo', '--live', ...where, '--rate', '10', '--speed', '20'], { FLOWTRAIL_KEY })
  onTestFinished(() => void visitors.child.kill())
  return visitors
}

test('memory, descriptors and connections do not grow under mixed load', { timeout: TIMEOUT_ms }, async () => {
  const samples: Sample[] = []
  const end_ms = performance.now() + DURATION_s * 1_000
  let requests = 0
  const client = async () => {
    while (performance.now() < end_ms) await act(requests++)
  }
  const visitors = await letVisitorsCome()
  const observe = async () => {
    for (; performance.now() < end_ms; await setTimeout(100)) samples.push(await sample())
  }
  await Promise.all([observe(), ...Array.from({ length: CLIENTS }, client)])
  visitors.child.kill('SIGINT')
  expect([await visitors.exit, visitors.stderr()]).toEqual([0, ''])
  const said = visitors.stdout().trim().split('\n').at(-1)
  expect(said).toMatch(/^[1-9]\d* visitors, [1-9]\d* records, [1-9]\d* custom events$/)

  expect(seen.size, 'operations, each served and refused').toBe(2 * operationIds.length)

  const third = Math.floor(samples.length / 3)
  const [warm, last] = [leastOf(samples.slice(third, 2 * third)), leastOf(samples.slice(2 * third))]
  console.log(
    `soak: ${requests} requests in ${DURATION_s} s, and ${said}; least of the second third ${JSON.stringify(warm)}, of the last ${JSON.stringify(last)}`,
  )
  for (const name of ['heap_MiB', 'rss_MiB'] as const) {
    expect(last[name], name).toBeLessThanOrEqual(Math.max(MAX_GROWTH * warm[name], warm[name] + MAX_GROWTH_MiB[name]))
  }
  // Each client may be connecting anew.
  expect(last.descriptors).toBeLessThanOrEqual(warm.descriptors + CLIENTS)
  // A pool may open its last connection at any time.
  expect(last.connections).toBeLessThanOrEqual(Math.max(warm.connections, POOLED))
})
