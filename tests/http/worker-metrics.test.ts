import { Counter, Gauge, Histogram, Registry } from 'prom-client'
import { expect, test } from 'vitest'
import { createRegistry, measureDatabase } from '../../src/http/metrics.ts'
import { measureWorkers, WorkerMetrics } from '../../src/http/worker-metrics.ts'

/** The values in a text of metrics, by series. */
const seriesOf = (text: string) =>
  Object.fromEntries(
    text
      .split('\n')
      .filter((line) => line && !line.startsWith('#'))
      .map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  )

/** What a worker says that has made so many requests. */
function worker(requests: number, label = 'a') {
  const registry = new Registry()
  const registers = [registry]
  new Counter({ name: 'c_total', help: 'c', labelNames: ['of'], registers }).inc({ of: label }, requests)
  new Gauge({ name: 'g', help: 'g', registers }).set(requests)
  const histogram = new Histogram({ name: 'h', help: 'h', buckets: [1, 2], registers })
  for (let i = 0; i < requests; i += 1) histogram.observe(1.5)
  return registry.getMetricsAsJSON()
}

test('the metrics of workers are added up, and the counters of those that have ended remain', async () => {
  const metrics = new WorkerMetrics(new Registry())
  metrics.update(1, await worker(1))
  metrics.update(2, await worker(2, 'b'))
  const histogram = { 'h_bucket{le="1"}': 0, 'h_bucket{le="2"}': 3, 'h_bucket{le="+Inf"}': 3, h_sum: 4.5, h_count: 3 }
  const both = { 'c_total{of="a"}': 1, 'c_total{of="b"}': 2, g: 3, ...histogram }
  expect(seriesOf(await metrics.text())).toEqual(both)
  metrics.end(2)
  expect(seriesOf(await metrics.text())).toEqual({ ...both, g: 1 })
  metrics.update(2, await worker(4, 'b'))
  metrics.end(2)
  metrics.end(2)
  expect(seriesOf(await metrics.text())).toMatchObject({ 'c_total{of="a"}': 1, 'c_total{of="b"}': 6, g: 1, h_count: 7 })
})

test('what is one of all processes is not added up', async () => {
  const release = { version: '1.2.3', document: '4.5.6', commit: 'abc' }
  const own = createRegistry(release)
  const metrics = new WorkerMetrics(own)
  const series = async () => seriesOf(await metrics.text())
  const alone = await series()
  for (const number of [1, 2]) {
    const registry = createRegistry(release)
    measureDatabase(registry, async () => number * 100)
    // The first collection asks for the size.
    await registry.metrics()
    const said = structuredClone(await registry.getMetricsAsJSON())
    for (const { name, values } of said) {
      if (name === 'process_start_time_seconds') for (const value of values) value.value += 10
      if (/^nodejs_eventloop_lag_/.test(name)) for (const value of values) value.value = number
    }
    metrics.update(number, said)
  }
  const all = await series()
  expect(Object.entries(all).filter(([name]) => /^flowtrail_build_info|^nodejs_version_info/.test(name))).toEqual([
    [expect.stringContaining('nodejs_version_info'), 1],
    [expect.stringContaining('version="1.2.3"'), 1],
  ])
  expect(all.flowtrail_database_size_bytes).toBe(200)
  expect(all.process_start_time_seconds).toBe(alone.process_start_time_seconds)
  expect(all.nodejs_eventloop_lag_p99_seconds).toBe(2)
  expect(all.process_resident_memory_bytes).toBeGreaterThan((alone.process_resident_memory_bytes ?? 0) * 2)
})

test('the workers are counted by their state, and those that were replaced', async () => {
  const registry = new Registry()
  const workers = { states: { serving: 3, missing: 1 }, replaced: 2 }
  measureWorkers(registry, workers)
  const read = async () => seriesOf(await registry.metrics())
  const states = { 'flowtrail_workers{state="serving"}': 3, 'flowtrail_workers{state="missing"}': 1 }
  expect(await read()).toEqual({ ...states, flowtrail_workers_replaced_total: 2 })
  workers.replaced = 5
  expect(await read()).toEqual({ ...states, flowtrail_workers_replaced_total: 5 })
})
