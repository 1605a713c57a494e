import { setTimeout } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import { serviceUnavailable } from '../domain/errors.ts'
import { operationOf } from './operation-of.ts'
import type { ReadGate } from './read-gate.ts'

interface Probes {
  basePath: string
  /** Aborts when the server is about to stop. It is not ready from then on, though it still serves. */
  stopping?: AbortSignal
  registry: Registry
  /** Rejects when the database is unavailable. */
  ready: () => Promise<void>
}

/** How long the database may take to show that it is available, in milliseconds. */
const READY_TIMEOUT_ms = 2_000

const BUCKETS_s = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

/** Measures the app's requests by their operation. The registry has the metrics of the process, too. */
export function measureRequests(app: FastifyInstance): Registry {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const durations = new Histogram({
    name: 'flowtrail_request_duration_seconds',
    help: 'Time from the head of a request to the end of its response, in seconds.',
    labelNames: ['operation', 'method', 'status'],
    buckets: BUCKETS_s,
    registers: [registry],
  })
  app.addHook('onResponse', (request, reply, done) => {
    const labels = { operation: operationOf(request), method: request.method, status: reply.statusCode }
    durations.observe(labels, reply.elapsedTime / 1000)
    done()
  })
  return registry
}

/** Registers the metrics of what the gate does. */
export function measureReads(registry: Registry, gate: ReadGate): void {
  const registers = [registry]
  new Counter({
    name: 'flowtrail_reads_total',
    help: 'Reads that were admitted, refused, or cancelled by their client while they waited; reads of large values twice.',
    labelNames: ['outcome'],
    registers,
    collect() {
      this.reset()
      const { admitted, refused, cancelled } = gate.counts
      for (const [outcome, count] of Object.entries({ admitted, refused, cancelled })) this.inc({ outcome }, count)
    },
  })
  new Counter({
    name: 'flowtrail_stalled_clients_total',
    help: 'Clients that were disconnected because they did not read their response.',
    registers,
    collect() {
      this.reset()
      this.inc(gate.counts.cut)
    },
  })
  const gauge = gaugesOf(registry)
  gauge('flowtrail_reads_under_way', 'Reads whose response is not ready yet.', () => gate.usage.reads)
  gauge('flowtrail_reads_waiting', 'Reads that wait to be admitted.', () => gate.usage.waiting)
  gauge('flowtrail_unsent_bytes', 'Bytes of responses that clients have not taken yet.', () => gate.usage.unsent_bytes)
}

/** Registers the metrics of the requests that wait for events. */
export function measureFollowers(registry: Registry, followers: { count: number }): void {
  gaugesOf(registry)('flowtrail_feed_followers', 'Requests that wait for events.', () => followers.count)
}

const gaugesOf = (registry: Registry) => (name: string, help: string, value: () => number) =>
  new Gauge({
    name,
    help,
    registers: [registry],
    collect() {
      this.set(value())
    },
  })

/** Serves /livez, /readyz and /metrics, at the root and under the base path. */
export function serveProbes(app: FastifyInstance, { basePath, stopping, registry, ready }: Probes): void {
  for (const prefix of new Set(['', basePath])) {
    app.get(`${prefix}/livez`, async () => ({ status: 'ok' }))
    app.get(`${prefix}/readyz`, async () => {
      if (stopping?.aborted) throw serviceUnavailable()
      await Promise.race([ready(), timeout()])
      return { status: 'ok' }
    })
    app.get(`${prefix}/metrics`, async (_, reply) => reply.type(registry.contentType).send(await registry.metrics()))
  }
}

async function timeout(): Promise<never> {
  await setTimeout(READY_TIMEOUT_ms, undefined, { ref: false })
  throw serviceUnavailable()
}
