/** One part of a request at fault: a JSON pointer below /body, /query, /path or /headers, and how to mend it. */
export interface Detail {
  pointer: string
  message: string
}

/** Every error code with its status: the one place that knows them. The document names the same (a test compares). */
export const STATUS_OF = {
  invalid_request: 400,
  unauthorized: 401,
  insufficient_scope: 403,
  module_does_not_exist: 404,
  module_version_does_not_exist: 404,
  entry_not_found: 404,
  route_not_found: 404,
  method_not_allowed: 405,
  identifier_conflict: 409,
  payload_too_large: 413,
  unsupported_media_type: 415,
  idempotency_key_reused: 422,
  rate_limited: 429,
  internal_error: 500,
  service_unavailable: 503,
} as const

export type ErrorCode = keyof typeof STATUS_OF

interface Parts {
  details?: Detail[]
  /** Fields beside `error` in the envelope: which resource the error is about. */
  context?: Record<string, unknown>
  headers?: Record<string, string>
}

/** An error that is answered as it is. Everything else that is thrown becomes a 500 or a 503. */
export class ApiError extends Error {
  readonly errorCode: ErrorCode
  readonly status: number
  readonly parts: Parts

  constructor(errorCode: ErrorCode, message: string, parts: Parts = {}) {
    super(message)
    this.errorCode = errorCode
    this.status = STATUS_OF[errorCode]
    this.parts = parts
  }

  /** The body of the answer. `projectId` is given once a route that names a project has matched. */
  envelope(projectId: string | undefined) {
    const { details, context } = this.parts
    return {
      error: { code: this.errorCode, message: this.message, ...(details && { details }) },
      ...(projectId !== undefined && { projectId }),
      ...context,
    }
  }
}

const MAX_DETAILS = 20

/** The request is not as documented; every fault is listed, up to twenty. @param details at least one */
export function invalidRequest(details: Detail[]): ApiError {
  const [first, ...more] = details
  const rest = more.length === 1 ? 'there is 1 more fault' : `there are ${more.length} more faults`
  const message = `The request is not valid: ${first?.pointer} ${first?.message}`
  return new ApiError('invalid_request', more.length > 0 ? `${message}; ${rest}, see details` : message, {
    details: details.slice(0, MAX_DETAILS),
  })
}

/** The request as a whole is at fault, so that no pointer can be given. */
export const malformedRequest = (message: string) => new ApiError('invalid_request', message)

export const invalidEncoding = () =>
  malformedRequest(
    'The path and query must be percent-encoded UTF-8. Write a literal % as %25 and encode all but ASCII.',
  )

/** One answer whatever is wrong with the key or the project, so that projects cannot be probed. */
export const unauthorized = () =>
  new ApiError('unauthorized', 'Access to the project with the given key is not authorized.', {
    headers: { 'www-authenticate': 'ApiKey realm="flowtrail"' },
  })

export const insufficientScope = (scope: string) =>
  new ApiError('insufficient_scope', `This key does not have the scope "${scope}", which this operation needs.`)

export const moduleDoesNotExist = (moduleId: string) =>
  new ApiError('module_does_not_exist', `The project has no module ${JSON.stringify(moduleId)}.`, {
    context: { moduleId },
  })

export const moduleVersionDoesNotExist = (moduleId: string, versionNumber: number) =>
  new ApiError(
    'module_version_does_not_exist',
    `The module ${JSON.stringify(moduleId)} has no version ${versionNumber}.`,
    { context: { moduleId, versionNumber } },
  )

export const entryNotFound = (entryId: string) =>
  new ApiError('entry_not_found', `The project has no entry ${JSON.stringify(entryId)}.`, { context: { entryId } })

export const routeNotFound = () =>
  new ApiError(
    'route_not_found',
    'There is nothing at this path. The API document, openapi.yaml, describes every path there is.',
  )

export const methodNotAllowed = (allowed: readonly string[]) =>
  new ApiError('method_not_allowed', `This path takes ${allowed.join(', ')} only.`, {
    headers: { allow: allowed.join(', ') },
  })

export const identifierConflict = (details: Detail[]) =>
  new ApiError(
    'identifier_conflict',
    'The identifiers belong to different contacts; nothing was recorded. Send only identifiers of one contact.',
    { details },
  )

export const payloadTooLarge = (limit_bytes: number) =>
  new ApiError('payload_too_large', `The body is larger than ${limit_bytes} bytes, the most that is accepted.`)

export const unsupportedMediaType = () =>
  new ApiError(
    'unsupported_media_type',
    'Send the body as UTF-8 JSON with the header Content-Type: application/json and without Content-Encoding.',
  )

export const idempotencyKeyReused = () =>
  new ApiError(
    'idempotency_key_reused',
    'This Idempotency-Key was used for another event; nothing was recorded. Use a new key for a new event.',
    { details: [{ pointer: '/headers/Idempotency-Key', message: 'was used for another event' }] },
  )

export const rateLimited = (perMinute: number, retryAfter_s: number) =>
  new ApiError('rate_limited', `This key may make ${perMinute} requests a minute. Wait as long as Retry-After says.`, {
    headers: { 'retry-after': String(retryAfter_s) },
  })

export const internalError = () =>
  new ApiError('internal_error', "The service failed to answer. The fault is logged under this request's X-Request-Id.")

/** The database is away, or the service is overloaded or stopping. */
export const serviceUnavailable = () =>
  new ApiError(
    'service_unavailable',
    'The service cannot answer just now. Try again after the seconds that Retry-After says.',
    { headers: { 'retry-after': '1' } },
  )
