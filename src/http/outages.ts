import type { FastifyInstance, FastifyRequest } from 'fastify'
import { isOutage } from '../database/failures.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** Called with the error of each request that fails because the database is away. */
    onOutage?: (error: unknown) => void
  }
}

const CHECK_INTERVAL_ms = 1_000

/**
 * Logs when the database goes away and when it is back, instead of every request that fails meanwhile.
 * @param ping rejects when the database is unavailable
 */
export function reportOutages(app: FastifyInstance, ping: () => Promise<void>): void {
  let outage: { start_ms: number; failures: number } | undefined
  let timer: NodeJS.Timeout
  const check = async () => {
    try {
      await ping()
    } catch {
      timer.refresh()
      return
    }
    const { start_ms, failures } = outage as NonNullable<typeof outage>
    outage = undefined
    const duration_s = Math.round((performance.now() - start_ms) / 100) / 10
    app.log.info({ duration_s, failed_requests: failures }, 'the database is available again')
  }
  app.decorate('onOutage', (error) => {
    if (outage) {
      outage.failures += 1
      return
    }
    outage = { start_ms: performance.now(), failures: 1 }
    app.log.error(
      { err: error },
      'the database is unavailable: requests get a 503 until it is back. Check that PostgreSQL runs and that DATABASE_URL is right',
    )
    timer = setTimeout(check, CHECK_INTERVAL_ms).unref()
  })
  app.addHook('onClose', async () => clearTimeout(timer))
}

/** Logs why a request failed that its client did not make fail. */
export function logFailure({ log, server }: FastifyRequest, error: unknown, message: string, details?: object): void {
  if (server.onOutage && isOutage(error)) server.onOutage(error)
  else log.error({ err: error, ...details }, message)
}
