import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest'
import { migrate } from '../../../db/migrate.ts'
import { createKey } from '../../../src/cli/keys.ts'
import { parseMetrics, sum } from '../../../src/cli/scrape.ts'
import { connect } from '../../../src/database/open.ts'
import { createPool, type Database } from '../../../src/database/pool.ts'
import { fillFixture } from '../../recording/fixture.ts'
import { onServer } from '../../support/global-setup.ts'
import { kill, type Service, startService } from '../../support/service.ts'
import { freeze, type Standby, startTcpPostgres, type TcpPostgres } from '../../support/tcp-postgres.ts'
import { randomNumbers, report, SEED, size, TRIAL_OPTIONS } from './trial.ts'

// Three servers that read from two standby servers (ADR 0032).

const PAIRS = size(2_000, 100_000)
const CONNECTIONS = 32
const PROJECT = 'demo'

let postgres: TcpPostgres
let standbys: [Standby, Standby]
let services: Service[]
let db: Database
let key: string
const urlOf = (server: Pick<TcpPostgres, 'url'>) => server.url('admin', 'flowtrail')
const on = (server: Pick<TcpPostgres, 'url'>, statement: string) => onServer(urlOf(server), statement)

const cleanup = new AsyncDisposableStack()
beforeAll(async () => {
  postgres = await startTcpPostgres({}, 2)
  cleanup.defer(postgres.stop)
  standbys = postgres.standbys as [Standby, Standby]
  await onServer(postgres.url('admin', 'postgres'), 'CREATE DATABASE flowtrail')
  db = connect(urlOf(postgres), { max: 1 })
  cleanup.defer(() => db.destroy())
  await migrate(db)
  await fillFixture(urlOf(postgres))
  key = await createKey(db, PROJECT, { name: 'trial', scopes: ['read', 'events:write'], expires_at: null })
  const settings = {
    DATABASE_URL: urlOf(postgres),
    DATABASE_REPLICA_URLS: standbys.map(urlOf).join(),
    LOG_LEVEL: 'info',
  }
  services = []
  for (let i = 0; i < 3; i += 1) {
    const service = await startService(settings)
    cleanup.defer(() => kill(service))
    services.push(service)
  }
}, 120_000)
afterAll(() => cleanup.disposeAsync())
beforeEach(async () => {
  for (const service of services) await untilUsable(service, ...standbys)
})

const nameOf = ({ port }: Standby) => `localhost:${port}/flowtrail`
const metricsOf = async ({ address }: Service) =>
  parseMetrics(await (await fetch(`${address}/metrics`)).text(), performance.now())

const isUsable = async (service: Service, standby: Standby) =>
  sum(await metricsOf(service), 'flowtrail_replica_usable', { replica: nameOf(standby) }) === 1
const untilUsable = async (service: Service, ...all: Standby[]) => {
  for (const standby of all) await expect.poll(() => isUsable(service, standby)).toBe(true)
}

/** The reads that all services have sent to replicas, and to the primary server. */
async function countReads(): Promise<{ replicas: number; primary: number }> {
  const all = await Promise.all(services.map(metricsOf))
  const primary = all.map((metrics) => sum(metrics, 'flowtrail_server_reads_total', { server: 'primary' }))
  const reads = all.map((metrics) => sum(metrics, 'flowtrail_server_reads_total'))
  const total = (counts: number[]) => counts.reduce((a, b) => a + b, 0)
  return { primary: total(primary), replicas: total(reads) - total(primary) }
}

interface Posted {
  event_id: string
  entry_id: string
  token: string
}

/** Records an event of a contact. */
async function post({ address }: Service, contact: string): Promise<Posted> {
  const response = await fetch(`${address}/projects/${PROJECT}/events`, {
    method: 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json' },
    body: JSON.stringify({
      module_id: 'quiz',
      timestamp: new Date().toISOString(),
      custom_event_name: 'tried',
      custom_event_props: '{}',
      identifiers: [{ key: 'contact', value: JSON.stringify(contact) }],
    }),
  })
  const body = await response.json()
  expect([response.status, body]).toEqual([200, expect.anything()])
  const { event_id, entry_id } = body as Posted
  return { event_id, entry_id, token: response.headers.get('consistency-token') as string }
}

/** Whether a read finds the event. */
async function finds({ address }: Service, { event_id, entry_id }: Posted, token?: string): Promise<boolean> {
  const response = await fetch(`${address}/projects/${PROJECT}/entries/${entry_id}/events?limit=1000&direction=DESC`, {
    headers: { 'x-api-key': key, ...(token !== undefined && { 'consistency-token': token }) },
  })
  const text = await response.text()
  // Even an entry that no replica has yet.
  expect([response.status, text]).toEqual([200, text])
  return text.includes(event_id)
}

/** Stops and resumes the replay of the standby servers by chance until the signal aborts. */
async function disturb(random: () => number, signal: AbortSignal): Promise<void> {
  const isPaused = new Set<Standby>()
  while (!signal.aborted) {
    const standby = standbys[random() < 0.5 ? 0 : 1]
    const wasPaused = isPaused.delete(standby)
    await on(standby, wasPaused ? 'SELECT pg_wal_replay_resume()' : 'SELECT pg_wal_replay_pause()')
    if (!wasPaused) isPaused.add(standby)
    await sleep(random() * (wasPaused ? 1_000 : 300), undefined, { signal }).catch(() => {})
  }
  for (const standby of isPaused) await on(standby, 'SELECT pg_wal_replay_resume()')
}

test(
  'a read after a write finds it: of the same server, and of another one with its token',
  TRIAL_OPTIONS,
  async () => {
    const random = randomNumbers(SEED)
    const before = await countReads()
    const stop = new AbortController()
    const disturbing = disturb(random, stop.signal)
    const counts = { pairs: 0, stale: 0 }
    const any = () => services[Math.floor(random() * services.length)] as Service
    const work = async () => {
      let contact = randomUUID()
      while (counts.pairs < PAIRS) {
        counts.pairs += 1
        // An entry with few events, now and then a new one.
        if (random() < 0.05) contact = randomUUID()
        const writer = any()
        const posted = await post(writer, contact)
        // At once, or when a replica may have it.
        if (random() < 0.5) await sleep(random() * 600)
        const isSame = random() < 0.3
        const found = isSame ? await finds(writer, posted) : await finds(any(), posted, posted.token)
        if (!found) counts.stale += 1
      }
    }
    await Promise.all(Array.from({ length: CONNECTIONS }, work))
    stop.abort()
    await disturbing
    const after = await countReads()
    const reads = { replicas: after.replicas - before.replicas, primary: after.primary - before.primary }
    report({ seed: SEED, ...counts, reads })
    expect(counts.stale).toBe(0)
    // Both have taken part.
    expect(reads.replicas).toBeGreaterThan(0)
    expect(reads.primary).toBeGreaterThan(0)
  },
)

/** Stops the replay of both standby servers until the test ends. */
async function pauseAll(): Promise<void> {
  onTestFinished(resumeAll)
  for (const standby of standbys) await on(standby, 'SELECT pg_wal_replay_pause()')
}

async function resumeAll(): Promise<void> {
  for (const standby of standbys) await on(standby, 'SELECT pg_wal_replay_resume()')
}

test('the token matters: without it, another server does not find the write while replicas are behind', async () => {
  const [writer, reader] = services as [Service, Service]
  const contact = randomUUID()
  const { event_id } = await post(writer, contact)
  const pools = standbys.map((standby) => createPool(urlOf(standby), { max: 1 }))
  onTestFinished(async () => void (await Promise.all(pools.map((pool) => pool.end()))))
  const find = { text: 'SELECT 1 FROM events WHERE event_id = $1', values: [event_id] }
  for (const pool of pools) await expect.poll(async () => (await pool.query(find)).rowCount).toBe(1)
  /** On a busy machine the reader may have left the replicas before it reads. */
  const postUnseen = async () => {
    for (let tries = 1; ; tries += 1) {
      await untilUsable(reader, ...standbys)
      await pauseAll()
      const posted = await post(writer, contact)
      const isFound = await finds(reader, posted)
      if (tries === 5) expect(isFound).toBe(false)
      if (!isFound) return posted
      await resumeAll()
    }
  }
  const posted = await postUnseen()
  expect(await finds(reader, posted, posted.token)).toBe(true)
  expect(await finds(writer, posted)).toBe(true)
  // A second later nobody reads from them.
  await expect.poll(() => finds(reader, posted)).toBe(true)
})

test('a revoked key is refused, though no replica knows of it', async () => {
  const own = await createKey(db, PROJECT, { name: 'revoked', scopes: ['read'], expires_at: null })
  const read = async ({ address }: Service) =>
    (await fetch(`${address}/projects/${PROJECT}/modules`, { headers: { 'x-api-key': own } })).status
  expect(await Promise.all(services.map(read))).toEqual([200, 200, 200])
  await pauseAll()
  await on(postgres, `UPDATE api_keys SET revoked_at = now() WHERE key_id = '${own.slice(3, 15)}'`)
  for (const service of services) await expect.poll(() => read(service)).toBe(401)
})

test('no read fails while a replica freezes, ends and comes back, or is promoted', TRIAL_OPTIONS, async () => {
  const [first, second] = standbys
  const statuses: Record<string, number> = {}
  let slowest_ms = 0
  const stop = new AbortController()
  const read = async ({ address }: Service) => {
    while (!stop.signal.aborted) {
      const start_ms = performance.now()
      const response = await fetch(`${address}/projects/${PROJECT}/modules`, {
        headers: { 'x-api-key': key },
      })
      await response.text()
      statuses[response.status] = (statuses[response.status] ?? 0) + 1
      slowest_ms = Math.max(slowest_ms, performance.now() - start_ms)
    }
  }
  const reading = Promise.all([...services, ...services].map(read))
  onTestFinished(() => stop.abort())
  const untilLeft = async (standby: Standby) => {
    const start_ms = performance.now()
    for (const service of services) await expect.poll(() => isUsable(service, standby), { interval: 20 }).toBe(false)
    return performance.now() - start_ms
  }
  const thaw = await freeze(first)
  onTestFinished(thaw)
  const frozen_ms = await untilLeft(first)
  await thaw()
  for (const service of services) await untilUsable(service, first)

  first.process.kill('SIGKILL')
  const ended_ms = await untilLeft(first)
  await first.restart()
  for (const service of services) await untilUsable(service, first)

  await on(second, 'SELECT pg_promote()')
  const promoted_ms = await untilLeft(second)
  stop.abort()
  await reading
  report({ statuses, slowest_ms, frozen_ms, ended_ms, promoted_ms })
  expect(Object.keys(statuses)).toEqual(['200'])
  for (const service of services) {
    expect(service.stdout()).toContain(
      'no reads are sent to the replica: it is no standby server; it may have been promoted',
    )
  }
})
