import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { components } from '../../../generated/api.ts'
import { isUnavailable } from '../../../src/database/failures.ts'
import { connect, withServer } from '../../../src/database/open.ts'
import { createPool } from '../../../src/database/pool.ts'
import { contact, entry, fillFixture } from '../../recording/fixture.ts'
import { embeddedUrl, postmasterPid, signalPostgres } from '../../support/embedded-postgres.ts'
import { kill, type Service, startService } from '../../support/service.ts'
import { load } from '../../transfer/fixture.ts'
import { createLedgerKey, LEDGER_PROJECT, Ledger } from './ledger.ts'
import { randomNumbers, report, SEED, size, TRIAL_OPTIONS } from './trial.ts'

type ProjectEvent = components['schemas']['ProjectEvent']

// Two services on their embedded PostgreSQL. Clients post to both and import, and others follow the feed, while the services
// and PostgreSQL are killed.

const FAULTS = size(6, 300)
/** How many events are acknowledged between two faults, besides those that show that everything goes on. */
const EVENTS = size(100, 500)
const FOLLOWERS = 20
const IMPORTED = 30
const RETRY_ms = 50

let dataDir: string
let pool: pg.Pool
/** For strikes: the only connection that they leave alone. */
let admin: pg.Pool
let key: string
let services: [Service, Service]
const cleanup = new AsyncDisposableStack()
beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'flowtrail-trial-'))
  cleanup.defer(() => rm(dataDir, { recursive: true }))
  // Its last user stops it.
  cleanup.defer(() => withServer({ databaseUrl: undefined, dataDir }, async () => {}))
  services = [] as never
  for (const i of [0, 1] as const) {
    services[i] = await start()
    cleanup.defer(() => kill(services[i]))
  }
  const url = await embeddedUrl(dataDir)
  await fillFixture(url)
  pool = createPool(url, { max: 1 })
  admin = createPool(url, { max: 1 })
  cleanup.defer(async () => void (await Promise.all([pool.end(), admin.end()])))
  const db = connect(url, { max: 1 })
  key = await createLedgerKey(db)
  await db.destroy()
  await load(pool, [
    { ...contact('imported', { key: 'email', value: '"imported"' }), project_id: LEDGER_PROJECT },
    { ...entry('imported', 'imported', 'quiz', '2026-01-10T00:00:00Z'), project_id: LEDGER_PROJECT },
  ])
})
afterAll(() => cleanup.disposeAsync())

const start = () => startService({ DATA_DIR: dataDir })

async function restart(...which: (0 | 1)[]): Promise<void> {
  const restartOne = async (i: 0 | 1) => {
    await kill(services[i])
    services[i] = await start()
  }
  await Promise.all(which.map(restartOne))
}

const BACKENDS = `FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'
  AND pid <> pg_backend_pid()`

type Strike = (random: () => number) => Promise<unknown>

const STRIKES: Record<string, Strike> = {
  'one service': (random) => restart(random() < 0.5 ? 0 : 1),
  'both services': () => restart(0, 1),
  connections: async (random) => {
    for (let i = 0; i < 5; i += 1) {
      await admin.query(`SELECT pg_terminate_backend(pid) ${BACKENDS}`)
      await setTimeout(random() * 20)
    }
  },
  // The postmaster then ends all others, and recovers.
  'a backend': async () => {
    const { rows } = await admin.query<{ pid: number }>(`SELECT pid ${BACKENDS} ORDER BY random() LIMIT 1`)
    for (const { pid } of rows) process.kill(pid, 'SIGKILL')
  },
  PostgreSQL: async () => {
    const pid = await postmasterPid(dataDir)
    await signalPostgres(dataDir, 'SIGKILL')
    await expect.poll(() => postmasterPid(dataDir).catch(() => pid), { timeout: 60_000 }).not.toBe(pid)
  },
  'one service and PostgreSQL': async (random) => {
    await signalPostgres(dataDir, 'SIGKILL')
    await restart(random() < 0.5 ? 0 : 1)
  },
}

/** What requests for the feed got. */
const responses: Record<string, number> = {}

/** A page from one service or the other; undefined if it cannot serve now. */
async function readPage(service: number, query: Record<string, string | number>) {
  const search = new URLSearchParams(
    Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]),
  )
  const url = `${services[service % 2]?.address}/projects/${LEDGER_PROJECT}/events?direction=ASC&${search}`
  const response = await fetch(url, { headers: { 'x-api-key': key } })
    .then(async (response) => ({ status: response.status, headers: response.headers, body: await response.text() }))
    .catch(() => undefined)
  const status = response?.status ?? 'no response'
  responses[status] = (responses[status] ?? 0) + 1
  if (response?.status === 503) expect(response.headers.get('retry-after')).toMatch(/^[1-9]\d*$/)
  else if (response) expect(response.status, response.body).toBe(200)
  if (response?.status !== 200) return undefined
  const { headers, body } = response
  return {
    events: JSON.parse(body) as ProjectEvent[],
    cursor: headers.get('next-cursor') ?? '',
    link: headers.get('link'),
  }
}

/** The feed as whoever saw an event first saw it: each event as JSON. */
const feed: string[] = []
const END = 'the end'

/** How many events each follower has seen. */
const seen = Array.from({ length: FOLLOWERS }, () => 0)

/** Whether the last event is committed. */
let isComplete = false

/** Follows the feed to its end, from one service or the other. Every follower must see the same. */
async function follow(i: number): Promise<void> {
  const settings = { wait: [30, 5, 1, 0][i % 4] as number, limit: [10, 100, 1000][i % 3] as number }
  const keepsCursor = Math.floor(i / 4) % 2 === 0
  let place: Record<string, string | number> = { after: 0 }
  let position = 0
  let service = i
  let name: string | undefined
  while (name !== END) {
    const wasComplete = isComplete
    const page = await readPage(service, { ...settings, ...place })
    if (!page) service += 1
    if (!page || (page.events.length === 0 && settings.wait === 0)) await setTimeout(RETRY_ms)
    if (!page) continue
    if (wasComplete) expect(page.events, `what is left for follower ${i}`).not.toEqual([])
    for (const event of page.events) {
      expect(event.position).toBeGreaterThan(position)
      ;({ position, custom_event_name: name } = event)
      const n = seen[i] as number
      const text = JSON.stringify(event)
      feed[n] ??= text
      expect(text, `event ${n} of follower ${i}`).toBe(feed[n])
      seen[i] = n + 1
    }
    place = keepsCursor ? { cursor: page.cursor } : { after: position }
  }
}

/** The whole feed, read anew. */
async function walk(): Promise<ProjectEvent[]> {
  const events: ProjectEvent[] = []
  for (let place = {}; ; ) {
    const page = await readPage(0, { limit: 1000, ...place })
    if (!page) expect.unreachable('a service that nobody disturbs does not respond')
    events.push(...page.events)
    if (!page.link) return events
    place = { cursor: page.cursor }
  }
}

const imports = { events: 0, failed: 0 }

/** Imports events, again until that succeeds. */
async function importEvents(names: string[]): Promise<void> {
  const event = { type: 'event', project_id: LEDGER_PROJECT, entry_id: 'imported', timestamp: '2026-01-11T00:00:00Z' }
  const custom = { event_type: 'custom_event:triggered', custom_event_props: '{}' }
  const lines = names.map((name) => ({ ...event, ...custom, event_id: name, custom_event_name: name }))
  for (;;) {
    try {
      await load(pool, lines, {})
      imports.events += names.length
      return
    } catch (error) {
      if (!isUnavailable(error)) throw error
      imports.failed += 1
      await setTimeout(RETRY_ms)
    }
  }
}

test(
  'every follower sees every acknowledged event once, in order, however often services and PostgreSQL are killed',
  TRIAL_OPTIONS,
  async () => {
    const random = randomNumbers(SEED)
    let posts = 0
    let isOver = false
    const address = () => services[posts++ % 2]?.address as string
    // Not faster than those follow who take ten events at a time.
    const ledger = new Ledger({ address, key, concurrency: 8, rest_ms: 40 })
    const more = (count: number) => {
      const { acknowledged } = ledger
      return ledger.until(() => isOver || ledger.acknowledged >= acknowledged + count)
    }
    const importNowAndThen = async () => {
      for (let i = 0; !isOver; i += 1) {
        await importEvents(Array.from({ length: IMPORTED }, (_, n) => `import ${i}, ${n}`))
        await more(random() * EVENTS)
      }
    }
    const strikes: Record<string, number> = {}
    let slowestRecovery_ms = 0
    const strike = async () => {
      for (let i = 0; i < FAULTS && !isOver; i += 1) {
        await more(EVENTS)
        // Any moment.
        await setTimeout(random() * 50)
        const [name, strikeOnce] = Object.entries(STRIKES)[i % Object.keys(STRIKES).length] as [string, Strike]
        const start_ms = performance.now()
        await strikeOnce(random)
        strikes[name] = (strikes[name] ?? 0) + 1
        const before = [...seen]
        await more(FOLLOWERS)
        const haveGoneOn = () => seen.every((count, i) => count > (before[i] as number))
        await expect.poll(() => isOver || haveGoneOn(), { timeout: 60_000 }).toBe(true)
        slowestRecovery_ms = Math.max(slowestRecovery_ms, performance.now() - start_ms)
      }
    }
    /** The first to end or fail ends all, so that nothing goes on after the test. */
    const untilOver = (work: Promise<unknown>) =>
      work.finally(() => {
        isOver = true
      })
    const following = seen.map((_, i) => untilOver(follow(i)))
    const writing = [ledger.sendWhile(() => !isOver), importNowAndThen(), strike()].map(untilOver)
    const written = Promise.allSettled(writing).then(async (results) => {
      await importEvents([END])
      isComplete = true
      return results
    })
    for (const result of [...(await Promise.allSettled(following)), ...(await written)]) {
      if (result.status === 'rejected') throw result.reason
    }

    const walked = await walk()
    report({ SEED, strikes, slowestRecovery_ms, events: walked.length, imports, posts: ledger.responses, responses })
    expect(feed).toEqual(walked.map((event) => JSON.stringify(event)))
    expect(seen).toEqual(seen.map(() => walked.length))
    expect(walked.length).toBe(ledger.acknowledged + imports.events)
    const walkedByName = new Map(walked.map((event) => [event.custom_event_name, event]))
    for (const result of ledger.results) expect(walkedByName.get(result.custom_event_name)).toMatchObject(result)
    // Else it would show nothing.
    for (const counts of [responses, ledger.responses]) {
      expect(counts).toMatchObject({ 503: expect.any(Number), 'no response': expect.any(Number) })
    }
  },
)
