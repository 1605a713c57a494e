import type { FastifyReply, FastifyRequest, preHandlerAsyncHookHandler, preSerializationHookHandler } from 'fastify'
import { ApiError, serviceUnavailable } from '../domain/errors.ts'
import { toApiError } from './error-handler.ts'
import type { Batch } from './operations.ts'
import { logFailure } from './outages.ts'
import type { ReadGate } from './read-gate.ts'
import { serializeResults } from './response-body.ts'

/** The usual length of a result. Those of invalid events may have several thousand, or twice the length of the event. */
const RESULT_bytes = 512

/**
 * Makes a preHandler hook that reserves memory for the response to a batch before any of it is recorded.
 *
 * @param name of the field with the items, of which the body is valid
 * @throws (the hook) ApiError service_unavailable while clients leave too much unread
 */
export const admitBatch =
  (gate: ReadGate, name: string): preHandlerAsyncHookHandler =>
  async (request, reply) => {
    const { projectId } = request.params as { projectId: string }
    const { length } = (request.body as Record<string, unknown[]>)[name] as unknown[]
    request.lease = gate.leaseResponse(projectId, length * RESULT_bytes, reply.raw)
  }

/** A preSerialization hook for the response to a batch. */
export const serializeBatch: preSerializationHookHandler<unknown> = (_request, _reply, payload, done) => {
  // An error has none.
  const { results } = payload as { results?: object[] }
  if (!results) done(null, payload)
  else serializeResults(results).then((body) => done(null, body), done)
}

/**
 * The body of a batch's response: a result for each item, with the status and the error that it would get alone.
 *
 * @throws ApiError service_unavailable if no item is known to be recorded, and one might be
 */
export function batchBody(
  { settled }: Batch<unknown>,
  request: FastifyRequest,
  reply: FastifyReply,
): { results: object[] } {
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
