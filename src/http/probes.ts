import type { FastifyInstance, FastifyRequest } from 'fastify'
import { collectDefaultMetrics, Histogram, Registry } from 'prom-client'
import { serviceUnavailable } from '../domain/errors.ts'

interface Probes {
  basePath: string
  /** Aborts when the server is about to stop. It is not ready from then on, though it still serves. */
  stopping?: AbortSignal
  registry: Registry
  /** Rejects when the database is unavailable. */
  ready: () => Promise<void>
}

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

/** Serves /livez, /readyz and /metrics, at the root and under the base path. */
export function serveProbes(app: FastifyInstance, { basePath, stopping, registry, ready }: Probes): void {
  for (const prefix of new Set(['', basePath])) {
    app.get(`${prefix}/livez`, async () => ({ status: 'ok' }))
    app.get(`${prefix}/readyz`, async () => {
      if (stopping?.aborted) throw serviceUnavailable()
      await ready()
      return { status: 'ok' }
    })
    app.get(`${prefix}/metrics`, async (_, reply) => reply.type(registry.contentType).send(await registry.metrics()))
  }
}

/** The operationId, or `other` for all requests outside of the document, so that the number of series is bounded. */
function operationOf({ routeOptions }: FastifyRequest): string {
  const schema = routeOptions.schema
  return schema && 'operationId' in schema ? String(schema.operationId) : 'other'
}
