import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { isUnavailable } from '../database/failures.ts'
import {
  ApiError,
  internalError,
  malformedRequest,
  payloadTooLarge,
  serviceUnavailable,
  unsupportedMediaType,
} from '../domain/errors.ts'
import { MAX_BODY_bytes } from './body.ts'

/** Fastify's own errors, in the service's words. */
const TRANSLATIONS: Record<string, () => ApiError> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: unsupportedMediaType,
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: () => malformedRequest('The body is not as long as Content-Length says.'),
  // Of the request's own connection; the database's is an outage.
  ECONNRESET: () => malformedRequest('The connection broke within the body.'),
  FST_ERR_CTP_BODY_TOO_LARGE: () => payloadTooLarge(MAX_BODY_bytes),
}

/** What an error is to the caller: itself, an outage, or a fault of ours. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error
  if (isUnavailable(error)) return serviceUnavailable()
  const code = (error as Partial<FastifyError>)?.code
  return TRANSLATIONS[code ?? '']?.() ?? internalError()
}

/** Answers with the error's envelope, headers and status; logs what is not the caller's fault. */
export function errorHandler(error: unknown, request: FastifyRequest, reply: FastifyReply): void {
  const answer = toApiError(error)
  if (answer.status >= 500 && answer !== error) request.log.error({ err: error }, 'request failed')
  const { projectId } = (request.params ?? {}) as { projectId?: string }
  // Fastify would close the connection after every body that is refused. Node reads past such a body, so that even a
  // caller who is still sending it gets the answer, and may go on.
  if (reply.hasHeader('connection')) reply.removeHeader('connection')
  reply
    .code(answer.status)
    .headers({ 'cache-control': 'no-store', ...answer.parts.headers })
    .type('application/json; charset=utf-8')
    // The envelope is right by construction; the document's schema must not turn a refusal into a 500.
    .serializer(JSON.stringify)
    .send(answer.envelope(projectId))
}
