import type { ServerResponse } from 'node:http'
import { PassThrough } from 'node:stream'
import { setTimeout } from 'node:timers/promises'
import fastify from 'fastify'
import { Registry } from 'prom-client'
import { afterAll, expect, test, vi } from 'vitest'
import { measureReads, measureRequests, serveProbes } from '../../src/http/probes.ts'
import { ReadGate } from '../../src/http/read-gate.ts'

const app = fastify()
let isReady = true
serveProbes(app, {
  basePath: '/flow',
  registry: measureRequests(app),
  ready: async () => Promise[isReady ? 'resolve' : 'reject'](new Error('down')),
})
app.get('/list', { schema: { operationId: 'listThings' } as object }, async () => [])
app.get('/free', async () => 'free')
const elapsed_ms: number[] = []
app.addHook('onResponse', async (_, reply) => void elapsed_ms.push(reply.elapsedTime))
afterAll(() => app.close())

/** The series of the histogram, without their values. */
async function series(prefix = ''): Promise<string[]> {
  const { body, headers } = await app.inject(`${prefix}/metrics`)
  expect(headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8')
  return [...body.matchAll(/^(flowtrail_request_duration_seconds\S*) /gm)].map(([, name = '']) => name)
}

test('requests are counted by their operation, or as other, in buckets of seconds', async () => {
  for (const url of ['/list', '/free', '/nothing']) await app.inject(url)
  await app.inject({ method: 'POST', url: '/list' })
  const labels = 'operation="listThings",method="GET",status="200"'
  const all = await series()
  expect(all.filter((name) => name.includes(labels))).toEqual([
    ...[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, '+Inf'].map(
      (le) => `flowtrail_request_duration_seconds_bucket{le="${le}",${labels}}`,
    ),
    `flowtrail_request_duration_seconds_sum{${labels}}`,
    `flowtrail_request_duration_seconds_count{${labels}}`,
  ])
  const counted = all.flatMap((name) => /_count\{(.*)\}/.exec(name)?.[1] ?? [])
  expect(counted).toEqual([
    labels,
    'operation="other",method="GET",status="200"',
    'operation="other",method="GET",status="404"',
    'operation="other",method="POST",status="404"',
  ])
})

test('the process has its metrics, too', async () => {
  const { body } = await app.inject('/metrics')
  for (const name of ['process_resident_memory_bytes', 'nodejs_eventloop_lag_seconds']) expect(body).toContain(name)
})

test('reads are counted by what became of them, and what they hold is measured', async () => {
  const gate = new ReadGate()
  const registry = new Registry()
  measureReads(registry, gate)
  const read = async () => {
    const response = new PassThrough() as unknown as ServerResponse
    return { lease: await gate.admit('demo', 1_000, response), response }
  }
  const [first, second] = [await read(), await read()]
  second.lease.send(70)
  const lines = async () => (await registry.metrics()).split('\n').filter((line) => line && !line.startsWith('#'))
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

test('a duration is in seconds', async () => {
  const { body } = await app.inject('/metrics')
  const sums = [...body.matchAll(/^flowtrail_request_duration_seconds_sum\S* (\S+)$/gm)].map(([, sum]) => Number(sum))
  const total_s = sums.reduce((total, sum) => total + sum, 0)
  // Without that of this request.
  const elapsed = elapsed_ms.slice(0, -1).reduce((total, one) => total + one, 0)
  expect(total_s * 1000).toBeCloseTo(elapsed, 6)
})

test.each(['', '/flow'])('the probes below "%s" tell life from readiness', async (prefix) => {
  isReady = true
  for (const probe of ['livez', 'readyz']) {
    const { statusCode, body } = await app.inject(`${prefix}/${probe}`)
    expect([statusCode, JSON.parse(body)]).toEqual([200, { status: 'ok' }])
  }
  expect(await series(prefix)).not.toEqual([])
  isReady = false
  expect((await app.inject(`${prefix}/livez`)).statusCode).toBe(200)
  expect((await app.inject(`${prefix}/readyz`)).statusCode).toBe(500)
})

test('a database that takes a while is ready, and one that does not respond is not', async () => {
  const probes = fastify()
  let respond = () => {}
  const ready = vi.fn(
    () =>
      new Promise<void>((resolve) => {
        respond = resolve
      }),
  )
  serveProbes(probes, { basePath: '', registry: new Registry(), ready })
  const slow = probes.inject('/readyz')
  await vi.waitUntil(() => ready.mock.calls.length === 1)
  await setTimeout(50)
  respond()
  expect((await slow).statusCode).toBe(200)
  expect((await probes.inject('/readyz')).statusCode).toBe(503)
  await probes.close()
})
