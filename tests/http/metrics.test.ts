import { channel } from 'node:diagnostics_channel'
import { readFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { PassThrough } from 'node:stream'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import fastify from 'fastify'
import { Registry } from 'prom-client'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { QUERY_CHANNEL } from '../../src/database/timed-query.ts'
import { errorHandler } from '../../src/http/error-handler.ts'
import { logRequests } from '../../src/http/logging.ts'
import {
  createRegistry,
  measureAvailability,
  measureDatabase,
  measurePools,
  measureQueries,
  measureReads,
  measureRecording,
  measureReplicas,
  measureRequests,
} from '../../src/http/metrics.ts'
import { refuseUnknownRoutes } from '../../src/http/not-found.ts'
import { ReadGate } from '../../src/http/read-gate.ts'
import { measureWorkers } from '../../src/http/worker-metrics.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { EVENT } from './requests.ts'

/** The bounds of histograms of times, and of numbers of events. */
const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, '+Inf']
const EVENTS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, '+Inf']

const OPERATIONS = new URL('../../docs/operations.md', import.meta.url)

const registry = createRegistry({ version: '1.2.3', document: '4.5.6', commit: 'abc' })
const app = fastify()
logRequests(app, Number.POSITIVE_INFINITY)
refuseUnknownRoutes(app)
app.setErrorHandler(errorHandler)
measureRequests(app, registry)
app.get('/list', { schema: { operationId: 'listThings' } as object }, async () => [])
app.get('/free', async () => 'free')
app.get('/broken', { schema: { operationId: 'breakThings' } as object }, async () => {
  throw new Error('a defect')
})
const elapsed_ms: number[] = []
app.addHook('onResponse', async (_, reply) => void elapsed_ms.push(reply.elapsedTime))
afterAll(() => app.close())

/** The series of the histogram, without their values. */
async function series(): Promise<string[]> {
  const body = await registry.metrics()
  return [...body.matchAll(/^(flowtrail_request_duration_seconds\S*) /gm)].map(([, name = '']) => name)
}

test('the metrics of the process are collected once for all registries', () => {
  const gc = 'nodejs_gc_duration_seconds'
  const other = createRegistry({ version: '1.2.3', document: '4.5.6', commit: 'abc' })
  expect(other.getSingleMetric(gc)).toBe(registry.getSingleMetric(gc))
  expect(registry.getSingleMetric(gc)).toBeDefined()
})

test('an app that was closed is not kept in memory', async () => {
  setFlagsFromString('--expose-gc')
  const collectGarbage: () => void = runInNewContext('gc')
  const closeOne = async () => {
    const { app, close } = await createTestApp({ twins: false })
    await close()
    return new WeakRef(app)
  }
  const closed = await closeOne()
  const isKept = () => {
    collectGarbage()
    return closed.deref() !== undefined
  }
  await expect.poll(isKept).toBe(false)
})

test('a batch is measured in events and in seconds', async () => {
  const own = new Registry()
  const observer = measureRecording(own, () => {})
  observer.onBatch({
    kind: 'single-project',
    waits_ms: [2_500, 500],
    duration_ms: 1_500,
    outcomes: ['recorded', 'failed'],
  })
  const text = await own.metrics()
  const boundsOf = (name: string) =>
    [...text.matchAll(new RegExp(`^${name}_bucket.*le="([^"]*)"`, 'gm'))].map(([, le]) => le)
  expect(boundsOf('flowtrail_batch_events')).toEqual(EVENTS.map(String))
  expect(boundsOf('flowtrail_batch_duration_seconds')).toEqual(SECONDS.map(String))
  expect(boundsOf('flowtrail_queue_wait_seconds')).toEqual(SECONDS.map(String))
  expect(text).toContain('flowtrail_batch_events_sum{kind="single-project"} 2\n')
  expect(text).toContain('flowtrail_batch_duration_seconds_sum{kind="single-project"} 1.5\n')
  expect(text).toContain('flowtrail_queue_wait_seconds_sum 3\n')
})

test('requests are counted by their operation, or as other, in buckets of seconds', async () => {
  for (const url of ['/list', '/free', '/nothing']) await app.inject(url)
  await app.inject({ method: 'POST', url: '/list' })
  const labels = 'operation="listThings",method="GET",status="200",error_code=""'
  const all = await series()
  expect(all.filter((name) => name.includes(labels))).toEqual([
    ...SECONDS.map((le) => `flowtrail_request_duration_seconds_bucket{le="${le}",${labels}}`),
    `flowtrail_request_duration_seconds_sum{${labels}}`,
    `flowtrail_request_duration_seconds_count{${labels}}`,
  ])
  const counted = all.flatMap((name) => /_count\{(.*)\}/.exec(name)?.[1] ?? [])
  expect(counted).toEqual([
    labels,
    'operation="other",method="GET",status="200",error_code=""',
    'operation="other",method="GET",status="404",error_code="route_not_found"',
    'operation="other",method="POST",status="404",error_code="route_not_found"',
  ])
})

test('the release and the process have their metrics, too', async () => {
  const body = await registry.metrics()
  expect(body).toContain('flowtrail_build_info{version="1.2.3",document="4.5.6",commit="abc",node="v')
  for (const name of ['process_resident_memory_bytes', 'nodejs_eventloop_lag_seconds']) expect(body).toContain(name)
})

describe('of several workers', () => {
  const aggregators = (of: Registry) =>
    Object.fromEntries(of.getMetricsAsArray().map(({ name, aggregator }) => [name, aggregator]))

  test('the oldest counts, and the one whose event loop lags most', () => {
    const { process_start_time_seconds, nodejs_eventloop_lag_min_seconds, ...others } = aggregators(registry)
    expect([process_start_time_seconds, nodejs_eventloop_lag_min_seconds]).toEqual(['min', 'min'])
    const lags = Object.entries(others).filter(([name]) => name.startsWith('nodejs_eventloop_lag_'))
    expect(lags).toHaveLength(7)
    expect(new Set(lags.map(([, aggregator]) => aggregator))).toEqual(new Set(['max']))
  })

  test('the worst view of the database and of replicas counts, and reads are added up', () => {
    const own = new Registry()
    measureReplicas(own, undefined)
    measureAvailability(own, async () => {})
    measureDatabase(own, async () => 0)
    expect(aggregators(own)).toEqual({
      flowtrail_replica_usable: 'min',
      flowtrail_replica_lag_seconds: 'max',
      flowtrail_server_reads_total: 'sum',
      flowtrail_replica_fallbacks_total: 'sum',
      flowtrail_database_up: 'min',
      flowtrail_database_size_bytes: 'max',
    })
  })
})

test('a defect is counted by its operation', async () => {
  expect((await app.inject('/broken')).statusCode).toBe(500)
  expect(await registry.metrics()).toContain('\nflowtrail_defects_total{operation="breakThings"} 1\n')
})

test('a duration is in seconds', async () => {
  await app.inject('/list')
  const body = await registry.metrics()
  const sums = [...body.matchAll(/^flowtrail_request_duration_seconds_sum\S* (\S+)$/gm)].map(([, sum]) => Number(sum))
  const total_s = sums.reduce((total, sum) => total + sum, 0)
  const elapsed = elapsed_ms.reduce((total, one) => total + one, 0)
  expect(total_s * 1000).toBeCloseTo(elapsed, 6)
})

test('reads are counted by what became of them, and what they hold is measured', async () => {
  const gate = new ReadGate()
  const own = new Registry()
  measureReads(own, gate)
  const read = async () => {
    const response = new PassThrough() as unknown as ServerResponse
    return { lease: await gate.admit('demo', 1_000, response), response }
  }
  const [first, second] = [await read(), await read()]
  second.lease.send(70)
  const lines = async () => (await own.metrics()).split('\n').filter((line) => line && !line.startsWith('#'))
  const expected = (underWay: number, unsent: number) => [
    'flowtrail_reads_total{outcome="admitted"} 2',
    'flowtrail_reads_total{outcome="refused"} 0',
    'flowtrail_reads_total{outcome="cancelled"} 0',
    'flowtrail_stalled_clients_total 0',
    `flowtrail_reads_under_way ${underWay}`,
    'flowtrail_reads_waiting 0',
    `flowtrail_unsent_bytes ${unsent}`,
  ]
  expect(await lines()).toEqual(expected(1, 70))
  gate.counts.cut = 2
  for (let scrape = 0; scrape < 2; scrape += 1) expect(await lines()).toContain('flowtrail_stalled_clients_total 2')
  gate.counts.cut = 0
  for (const { lease, response } of [first, second]) {
    lease.send(0)
    response.destroy()
  }
  expect(await lines()).toEqual(expected(0, 0))
  gate.close()
})

/** The series of a registry with their values, without comments. */
const linesOf = async (of: Registry) => (await of.metrics()).split('\n').filter((line) => line && !line.startsWith('#'))

test('connections are counted by pool and state', async () => {
  const own = new Registry()
  const pool = { totalCount: 4, idleCount: 1, waitingCount: 7 }
  measurePools(own, { write: pool })
  expect(await linesOf(own)).toEqual([
    'flowtrail_database_connections{pool="write",state="idle"} 1',
    'flowtrail_database_connections{pool="write",state="used"} 3',
    'flowtrail_database_connection_waits{pool="write"} 7',
  ])
})

test('statements are timed until the app closes', async () => {
  const own = new Registry()
  const other = fastify()
  measureQueries(own, other)
  const sum = async () => (await linesOf(own)).find((line) => line.startsWith('flowtrail_query_duration_seconds_sum'))
  const bounds = async () => (await own.metrics()).match(/(?<=^flowtrail_query_duration_seconds_bucket.*le=")[^"]*/gm)
  const publish = () => channel(QUERY_CHANNEL).publish({ query: 'findThing', duration_ms: 250 })
  publish()
  await other.close()
  publish()
  expect(await sum()).toBe('flowtrail_query_duration_seconds_sum{query="findThing"} 0.25')
  expect(await bounds()).toEqual(SECONDS.map(String))
})

test('events that a recorder refuses are counted', async () => {
  const own = new Registry()
  measureRecording(own, () => {}).onOverload(3)
  expect(await linesOf(own)).toContain('flowtrail_events_total{outcome="service_unavailable"} 3')
})

test('retries are counted', async () => {
  const own = new Registry()
  const observer = measureRecording(own, () => {})
  observer.onRetry()
  observer.onRetry()
  expect(await linesOf(own)).toContain('flowtrail_batch_retries_total 2')
})

describe('whether the database responds', () => {
  afterEach(() => void vi.useRealTimers())

  test('is asked at each collection without waiting for it, and left out while it is unknown', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    const own = new Registry()
    let respond = () => {}
    const ping = vi.fn(async () => {})
    measureAvailability(own, ping)
    expect(await linesOf(own)).toEqual([])
    expect(await linesOf(own)).toEqual(['flowtrail_database_up 1'])
    ping.mockRejectedValueOnce(new Error('away'))
    await linesOf(own)
    expect(await linesOf(own)).toEqual(['flowtrail_database_up 0'])
    expect(await linesOf(own)).toEqual(['flowtrail_database_up 1'])
    // Frozen: the last response counts for two seconds.
    ping.mockImplementation(
      () =>
        new Promise((resolve) => {
          respond = resolve
        }),
    )
    await linesOf(own)
    vi.advanceTimersByTime(1_999)
    expect(await linesOf(own)).toEqual(['flowtrail_database_up 1'])
    vi.advanceTimersByTime(1)
    expect(await linesOf(own)).toEqual(['flowtrail_database_up 0'])
    respond()
    await Promise.resolve()
    expect(await linesOf(own)).toEqual(['flowtrail_database_up 1'])
  })
})

describe('the size of the database', () => {
  afterEach(() => void vi.useRealTimers())

  test('is asked for once a minute without waiting for it, and left out while it is unknown', async () => {
    vi.useFakeTimers({ toFake: ['performance'] })
    const own = new Registry()
    const size = vi.fn(async () => 70)
    measureDatabase(own, size)
    expect(await linesOf(own)).toEqual([])
    for (let scrape = 0; scrape < 2; scrape += 1)
      expect(await linesOf(own)).toEqual(['flowtrail_database_size_bytes 70'])
    expect(size).toHaveBeenCalledTimes(1)
    size.mockRejectedValueOnce(new Error('away'))
    vi.advanceTimersByTime(60_000)
    await linesOf(own)
    expect(await linesOf(own)).toEqual([])
    vi.advanceTimersByTime(60_000)
    await linesOf(own)
    expect(await linesOf(own)).toEqual(['flowtrail_database_size_bytes 70'])
  })
})

describe('of a service', () => {
  let api: TestApp
  beforeAll(async () => {
    api = await createTestApp()
  })
  afterAll(() => api.close())

  async function metrics(): Promise<(name: string) => number> {
    const { body } = await api.app.inject('/metrics')
    const lines = body.split('\n')
    return (name) => Number(lines.find((line) => line.startsWith(`${name} `))?.slice(name.length + 1) ?? 0)
  }

  /** How much the metrics grow by the work. */
  async function growth(names: readonly string[], work: () => Promise<unknown>): Promise<Record<string, number>> {
    const before = await metrics()
    await work()
    const after = await metrics()
    return Object.fromEntries(names.map((name) => [name, after(name) - before(name)]))
  }

  const BATCH = 'flowtrail_batch_events'
  const MULTI = '{kind="multi-project"}'
  test('a batch is counted with its events and what they begin, and each event by its outcome', async () => {
    const known = { ...EVENT, idempotency_key: 'k1' }
    const anew = { ...known, identifiers: [{ key: 'email', value: '"new@example.com"' }], idempotency_key: 'k2' }
    const unknown = { ...known, module_id: 'nope', idempotency_key: 'k3' }
    const reused = { ...known, custom_event_name: 'other' }
    const events = [known, anew, unknown, known, reused]
    const send = () => api.call({ method: 'POST', path: '/projects/demo/events/batch', body: { events } })
    const expected = {
      'flowtrail_events_total{outcome="recorded"}': 2,
      'flowtrail_events_total{outcome="replayed"}': 1,
      'flowtrail_events_total{outcome="module_does_not_exist"}': 1,
      'flowtrail_events_total{outcome="idempotency_key_reused"}': 1,
      'flowtrail_rows_recorded_total{table="events"}': 2,
      'flowtrail_rows_recorded_total{table="contacts"}': 1,
      'flowtrail_rows_recorded_total{table="entries"}': 1,
      [`${BATCH}_sum${MULTI}`]: 5,
      flowtrail_queue_wait_seconds_count: 5,
    }
    // On a busy machine, the first event may be recorded before the others are read.
    const counts = [`${BATCH}_count${MULTI}`, `flowtrail_batch_duration_seconds_count${MULTI}`] as const
    const grown = await growth([...Object.keys(expected), ...counts], send)
    expect(grown).toMatchObject(expected)
    expect(grown[counts[0]]).toBeGreaterThan(0)
    expect(grown[counts[1]]).toBe(grown[counts[0]])
    const value = await metrics()
    expect([value('flowtrail_pending_events'), value('flowtrail_pending_projects')]).toEqual([0, 0])
    const duration_s = value(`flowtrail_batch_duration_seconds_sum${MULTI}`)
    expect(duration_s).toBeGreaterThan(0.0005)
    expect(duration_s).toBeLessThan(10)
  })

  test('records of an import are counted by what it did with them', async () => {
    const name = (outcome: string) => `flowtrail_import_records_total{outcome="${outcome}"}`
    const group = { type: 'group', group_id: 'metrics', name: 'Metrics' }
    const importGroup = (fields: object) =>
      api.call({
        ...{ method: 'POST', path: '/projects/demo/records', body: JSON.stringify({ ...group, ...fields }) },
        headers: { 'content-type': 'application/x-ndjson' },
      })
    const outcomes = ['added', 'changed', 'unchanged'].map(name)
    const counts = async (fields: object) => Object.values(await growth(outcomes, () => importGroup(fields)))
    expect(await counts({})).toEqual([1, 0, 0])
    expect(await counts({ name: 'Other' })).toEqual([0, 1, 0])
    expect(await counts({ name: 'Other' })).toEqual([0, 0, 1])
  })

  test('a key is a miss and then hits, and a refusal has its error code', async () => {
    const [hit, miss] = ['hit', 'miss'].map((result) => `flowtrail_key_lookups_total{result="${result}"}`) as [
      string,
      string,
    ]
    const list = () => api.call({ path: '/projects/demo/modules' })
    await list()
    const { [hit]: hits = 0, [miss]: misses = 0 } = await growth([hit, miss], async () => {
      for (let i = 0; i < 20; i += 1) await list()
    })
    expect(hits + misses).toBe(20)
    expect(hits).toBeGreaterThanOrEqual(15)
    const refused =
      'flowtrail_request_duration_seconds_count{operation="getModule",method="GET",status="404",error_code="module_does_not_exist"}'
    expect(await growth([refused], () => api.call({ path: '/projects/demo/modules/nope' }))).toEqual({ [refused]: 1 })
  })

  test('statements are timed by the name of their query', async () => {
    const count = (query: string) => `flowtrail_query_duration_seconds_count{query="${query}"}`
    const other = await createTestApp()
    const names = ['listModules', 'listEntries', 'lockFreeProjects', 'insert_events', 'BEGIN', 'COMMIT']
    const use = async () => {
      for (const path of ['modules', 'entries']) await other.call({ path: `/projects/demo/${path}` })
      await other.call({ method: 'POST', path: '/projects/demo/events', body: EVENT })
    }
    // All apps of a process count all statements.
    expect(await growth(names.map(count), use)).toEqual(Object.fromEntries(names.map((name) => [count(name), 1])))
    const { body } = await other.app.inject('/metrics')
    expect(body).toContain('query="findKey"')
    expect(body).not.toMatch(/query="(\w+_\d+|unnamed|query)"/)
    await other.close()
  })

  test('docs/operations.md lists every metric with its labels', async () => {
    await api.call({ path: '/projects/demo/modules/nope' })
    const documented = new Map<string, string[]>()
    for (const line of (await readFile(OPERATIONS, 'utf8')).split('\n')) {
      const [, names = '', labels = ''] = line.split('|')
      for (const [, name = ''] of line.startsWith('| `') ? names.matchAll(/`(flowtrail_\w+)`/g) : []) {
        documented.set(
          name,
          [...labels.matchAll(/`(\w+)`/g)].map(([, label = '']) => label),
        )
      }
    }
    const supervisor = new Registry()
    measureWorkers(supervisor, { states: { serving: 2, missing: 0 }, replaced: 0 })
    const body = `${(await api.app.inject('/metrics')).body}\n${await supervisor.metrics()}`
    const names = [...body.matchAll(/^# TYPE (flowtrail_\w+) /gm)].map(([, name = '']) => name)
    expect(names.toSorted()).toEqual([...documented.keys()].toSorted())
    for (const name of names) {
      const [, , series = ''] = new RegExp(`^${name}(_count)?(\\{.*\\})? `, 'm').exec(body) ?? []
      const labels = [...series.matchAll(/(\w+)="/g)].map(([, label = '']) => label)
      if (series) expect(labels.toSorted(), name).toEqual(documented.get(name)?.toSorted())
    }
  })

  test('defects are counted from 0 on, so that the first is an increase', async () => {
    const { body } = await api.app.inject('/metrics')
    for (const operation of ['listModules', 'recordCustomEvents', 'other'])
      expect(body).toContain(`\nflowtrail_defects_total{operation="${operation}"} 0\n`)
  })

  test('the database has its size', async () => {
    await expect.poll(async () => (await metrics())('flowtrail_database_size_bytes')).toBeGreaterThan(1_000_000)
  })
})
