import type { FastifyInstance } from 'fastify'
import { prometheusContentType } from 'prom-client'
import { serviceUnavailable } from '../domain/errors.ts'

interface Probes {
  basePath: string
  /** Aborts when the server is about to stop. It is not ready from then on, though it still serves. */
  stopping?: AbortSignal
  /** In the text format of Prometheus. */
  metrics: () => Promise<string>
  /** Rejects when the database is unavailable. */
  ready: () => Promise<void>
}

/** How long the database may take to show that it is available, in milliseconds. */
const READY_TIMEOUT_ms = 2_000

/** Serves /livez, /readyz and /metrics, at the root and under the base path. */
export function serveProbes(app: FastifyInstance, { basePath, stopping, metrics, ready }: Probes): void {
  for (const prefix of new Set(['', basePath])) {
    app.get(`${prefix}/livez`, async () => ({ status: 'ok' }))
    app.get(`${prefix}/readyz`, async () => {
      if (stopping?.aborted) throw serviceUnavailable()
      const isReady = await Promise.race([ready().then(() => true), timeout()])
      if (!isReady) {
        app.onOutage?.(new Error(`The database has not responded for ${READY_TIMEOUT_ms / 1_000} seconds`))
        throw serviceUnavailable()
      }
      return { status: 'ok' }
    })
    app.get(`${prefix}/metrics`, async (_, reply) => reply.type(prometheusContentType).send(await metrics()))
  }
}

const timeout = () => new Promise<false>((resolve) => setTimeout(resolve, READY_TIMEOUT_ms, false).unref())
