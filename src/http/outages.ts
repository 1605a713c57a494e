import type { FastifyInstance, FastifyRequest } from 'fastify'
import { adviceForOutage } from '../database/advice.ts'
import { isOutage, isUnavailable } from '../database/failures.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** Called with the error of each request that fails because the database is away. */
    onOutage?: (error: unknown) => void
    /** Called with each request that failed, or of which a part did, because of a defect. */
    onDefect?: (request: FastifyRequest) => void
  }
}

const CHECK_INTERVAL_ms = 1_000
/** Reads may succeed while nothing can be written, so that no request may have failed for a while, either. */
const QUIET_ms = 5_000

/**
 * Logs when the database goes away and when it is back, instead of every request that fails meanwhile.
 *
 * @param apps that share the outage
 * @param ping rejects when the database is unavailable
 */
export function reportOutages(apps: readonly FastifyInstance[], ping: () => Promise<void>): void {
  const [app] = apps as [FastifyInstance]
  let outage: { start_ms: number; last_ms: number; failures: number } | undefined
  let timer: NodeJS.Timeout
  const check = async (current: NonNullable<typeof outage>) => {
    const isAway = await ping().then(
      () => false,
      () => true,
    )
    const now_ms = performance.now()
    if (isAway) current.last_ms = now_ms
    if (now_ms - current.last_ms < QUIET_ms) {
      timer.refresh()
      return
    }
    outage = undefined
    const { start_ms, last_ms, failures } = current
    const duration_s = Math.round((last_ms - start_ms) / 100) / 10
    app.log.info({ duration_s, failed_requests: failures }, 'the database is available again')
  }
  const onOutage = (error: unknown) => {
    const now_ms = performance.now()
    if (outage) {
      outage.failures += 1
      outage.last_ms = now_ms
      return
    }
    outage = { start_ms: now_ms, last_ms: now_ms, failures: 1 }
    const advice = adviceForOutage(error)
    app.log.error({ err: error }, `the database is unavailable: requests get a 503 until it is back. ${advice}`)
    timer = setTimeout(check, CHECK_INTERVAL_ms, outage).unref()
  }
  for (const each of apps) each.decorate('onOutage', onOutage)
  app.addHook('onClose', async () => clearTimeout(timer))
}

/** Logs why a request failed, or a part of it, that its client did not make fail, and reports defects to be counted. */
export function logFailure(request: FastifyRequest, error: unknown, message: string, details?: object): void {
  const { log, server } = request
  if (!isUnavailable(error)) server.onDefect?.(request)
  if (server.onOutage && isOutage(error)) server.onOutage(error)
  else log[isUnavailable(error) ? 'warn' : 'error']({ err: error, ...details }, message)
}
