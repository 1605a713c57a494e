import { createHash } from 'node:crypto'
import type { ErrorRequestHandler, Request, Response } from 'express'
import { isUnavailable } from '../../../src/database/failures.ts'
import type { Page } from '../../../src/domain/cursor.ts'
import {
  ApiError,
  internalError,
  invalidRequest,
  malformedRequest,
  methodNotAllowed,
  payloadTooLarge,
  routeNotFound,
  serviceUnavailable,
  unsupportedMediaType,
} from '../../../src/domain/errors.ts'

const READ_HEADERS = { 'Cache-Control': 'private, no-cache', Vary: 'X-Api-Key' }

/** Sends a single resource, or 304 when the caller has it, which Express decides by the entity tag. */
export function sendResource(response: Response, resource: object): void {
  const text = JSON.stringify(resource)
  const etag = `"${createHash('sha256').update(text).digest('base64url')}"`
  response
    .set({ ...READ_HEADERS, ETag: etag })
    .type('json')
    .send(text)
}

/** Sends a page of a list with the link to the next one. */
export function sendPage(request: Request, response: Response, page: Page<object>) {
  // No load of the bench asks for compression.
  response.set({ ...READ_HEADERS, Vary: 'X-Api-Key, accept-encoding' })
  const { cursor, more } = page.continuationAfter(page.rows.length)
  if (cursor !== undefined) response.set('Next-Cursor', cursor)
  if (cursor !== undefined && more) {
    const [path, query] = request.originalUrl.split('?')
    const parameters = new URLSearchParams(query)
    parameters.set('cursor', cursor)
    parameters.delete('after')
    parameters.sort()
    response.set('Link', `<${path}?${parameters}>; rel="next"`)
  }
  response.json(page.rows)
}

/** What express-openapi-validator and the body parser throw. */
interface HttpError {
  status?: number
  message?: string
  errors?: { path: string; message: string }[]
  headers?: Record<string, string>
}

const MAX_BODY_bytes = 256 * 1024

function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error
  if (isUnavailable(error)) return serviceUnavailable()
  const { status, message = '', errors = [], headers = {} } = error as HttpError
  if (status === 400 && errors.length > 0) {
    return invalidRequest(errors.map(({ path, message }) => ({ pointer: path.replace('/params/', '/path/'), message })))
  }
  if (status === 400) return malformedRequest(message)
  if (status === 404) return routeNotFound()
  // Express handles HEAD wherever it handles GET.
  if (status === 405) return methodNotAllowed((headers.Allow ?? '').replace('GET', 'GET, HEAD').split(', '))
  if (status === 413) return payloadTooLarge(MAX_BODY_bytes)
  if (status === 415) return unsupportedMediaType()
  return internalError()
}

/** Sends the envelope of whatever was thrown. */
export const sendError: ErrorRequestHandler = (error, _request, response, _next) => {
  const apiError = toApiError(error)
  if (apiError.status === 500) console.error(error)
  response
    .status(apiError.status)
    .set({ 'Cache-Control': 'no-store', ...apiError.options.headers })
    .json(apiError.envelope(apiError.errorCode === 'route_not_found' ? undefined : response.locals.projectId))
}
