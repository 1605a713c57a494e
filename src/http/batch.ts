import type { FastifyReply, FastifyRequest } from 'fastify'
import { ApiError, serviceUnavailable } from '../domain/errors.ts'
import { toApiError } from './error-handler.ts'
import type { Batch } from './operations.ts'
import { logFailure } from './outages.ts'

/**
 * The body of a batch's response: a result for each item, with the status and the error that it would get alone.
 *
 * @throws ApiError service_unavailable if no item is known to be recorded, and one might be
 */
export function batchBody({ settled }: Batch<unknown>, request: FastifyRequest, reply: FastifyReply): object {
  const { projectId } = request.params as { projectId: string }
  const results = settled.map((result) => {
    if (result.status === 'fulfilled') {
      const { body, replayed } = result.value
      return { status: 200, event: body, replayed }
    }
    const error = toApiError(result.reason)
    return { status: error.status, ...error.envelope(projectId) }
  })
  logUnexpected(settled, request)
  const has = (status: number) => results.some((result) => result.status === status)
  if (has(503)) {
    const unavailable = serviceUnavailable()
    if (!has(200)) throw unavailable
    reply.headers(unavailable.options.headers ?? {})
  }
  return { results }
}

/** Logs what the client did not cause: an outage and a defect once each, however many items they failed. */
function logUnexpected(settled: Batch<unknown>['settled'], request: FastifyRequest): void {
  const reasons: unknown[] = settled.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []))
  const unexpected = reasons.filter((reason) => !(reason instanceof ApiError))
  for (const alike of Map.groupBy(unexpected, (reason) => toApiError(reason).status).values()) {
    logFailure(request, alike[0], 'events of a batch failed', { events: alike.length })
  }
}
