import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { isUnavailable } from '../database/failures.ts'
import {
  ApiError,
  internalError,
  malformedRequest,
  routeNotFound,
  serviceUnavailable,
  unsupportedMediaType,
} from '../domain/errors.ts'
import { closeAfterClient } from './linger.ts'
import { logFailure } from './outages.ts'

/** The error to send: itself, a client error, 503 for an outage, or 500. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error
  if (isUnavailable(error)) return serviceUnavailable()
  const { code = '', statusCode = 500, message = '' } = (error ?? {}) as Partial<FastifyError>
  // A body without Content-Type.
  if (code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') return unsupportedMediaType()
  // 403 is for files of the docs page that are outside of its folder.
  if (statusCode === 404 || statusCode === 403) return routeNotFound()
  // Of the framework and its plugins, such as a range of a file of the docs page.
  return statusCode >= 400 && statusCode < 500 ? malformedRequest(`${message}.`, statusCode) : internalError()
}

/** Sends the error's envelope, headers and status. Logs what the client did not cause. */
export function errorHandler(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const apiError = toApiError(error)
  if (request.facts) request.facts.errorCode = apiError.errorCode
  if (apiError.status >= 500 && apiError !== error) logFailure(request, error, 'request failed')
  const { projectId } = request.params as { projectId?: string }
  // Fastify closes the connection after a refused body. Node discards such a body, so that even a client that is still
  // sending it gets the response and can keep using the connection.
  if (reply.hasHeader('connection')) reply.removeHeader('connection')
  // A client that wants it closed is to have the response nevertheless.
  if (!request.raw.complete && !reply.raw.shouldKeepAlive) closeAfterClient(request.raw.socket, request.raw)
  // The key may have been revoked after it had been accepted.
  if (apiError.status === 401) reply.removeHeader('ratelimit').removeHeader('ratelimit-policy')
  // For @fastify/compress: only lists vary on the encoding.
  request.headers['x-no-compression'] = ''
  reply
    .code(apiError.status)
    .headers({ 'cache-control': 'no-store', ...apiError.options.headers })
    .type('application/json; charset=utf-8')
    // Regardless of the route's serializer: the envelope must never fail to serialize.
    .serializer(JSON.stringify)
    .send(apiError.envelope(projectId))
}
