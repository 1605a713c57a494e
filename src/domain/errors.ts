/** An invalid part of a request: a JSON pointer below /body, /query, /path or /headers, and what is wrong with it. */
export interface ValidationIssue {
  pointer: string
  message: string
}

/** Every error code with its status, the same as in the document (a test compares). */
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
  record_conflict: 409,
  payload_too_large: 413,
  unsupported_media_type: 415,
  idempotency_key_reused: 422,
  rate_limited: 429,
  internal_error: 500,
  service_unavailable: 503,
} as const

export type ErrorCode = keyof typeof STATUS_OF

interface ApiErrorOptions {
  issues?: ValidationIssue[]
  /** Ids of the resource that the error is about, sent beside `error` in the envelope. */
  resource?: Record<string, unknown>
  headers?: Record<string, string>
  /** Instead of that of the code. */
  status?: number
}

/** An error that is sent to the client as it is. Anything else that is thrown becomes a 500 or a 503. */
export class ApiError extends Error {
  readonly errorCode: ErrorCode
  readonly status: number
  readonly options: ApiErrorOptions

  constructor(errorCode: ErrorCode, message: string, options: ApiErrorOptions = {}) {
    super(message)
    this.errorCode = errorCode
    this.status = options.status ?? STATUS_OF[errorCode]
    this.options = options
  }

  /** The same error with other pointers. @param move the pointer to the same part of another request */
  withPointers(move: (pointer: string) => string): ApiError {
    const issues = this.options.issues?.map(({ pointer, message }) => ({ pointer: move(pointer), message }))
    return new ApiError(this.errorCode, this.message, { ...this.options, ...(issues && { issues }) })
  }

  /** The body of the response. @param projectId of the path, once a route that names a project has matched */
  envelope(projectId: string | undefined) {
    const { issues, resource } = this.options
    return {
      error: { code: this.errorCode, message: this.message, ...(issues && { details: issues }) },
      ...(projectId !== undefined && { projectId }),
      ...resource,
    }
  }
}

const MAX_LISTED_ISSUES = 20

/** Lists up to twenty issues, and counts them all. @param issues at least one */
export function invalidRequest(issues: ValidationIssue[]): ApiError {
  const [first, ...more] = issues
  const rest = more.length === 1 ? '1 more issue' : `${more.length} more issues`
  const message = `The request is not valid: ${first?.pointer} ${first?.message}`
  return new ApiError('invalid_request', more.length > 0 ? `${message}; ${rest}, see details` : message, {
    issues: issues.slice(0, MAX_LISTED_ISSUES),
  })
}

/** For a request that is invalid as a whole, so that no pointer can be given. */
export const malformedRequest = (message: string, status: number = STATUS_OF.invalid_request) =>
  new ApiError('invalid_request', message, { status })

export const invalidEncoding = () =>
  malformedRequest(
    'The path and query must be percent-encoded UTF-8. Encode a literal % as %25, and all non-ASCII characters.',
  )

/** The same response whatever is wrong with the key or the project, so that projects cannot be probed. */
export const unauthorized = () =>
  new ApiError('unauthorized', 'Access to the project with the given key is not authorized.', {
    headers: { 'www-authenticate': 'ApiKey realm="flowtrail"' },
  })

export const insufficientScope = (scope: string) =>
  new ApiError('insufficient_scope', `This key does not have the scope "${scope}", which this operation requires.`)

export const moduleDoesNotExist = (moduleId: string) =>
  new ApiError('module_does_not_exist', `The project has no module ${JSON.stringify(moduleId)}.`, {
    resource: { moduleId },
  })

export const moduleVersionDoesNotExist = (moduleId: string, versionNumber: number) =>
  new ApiError(
    'module_version_does_not_exist',
    `The module ${JSON.stringify(moduleId)} has no version ${versionNumber}.`,
    { resource: { moduleId, versionNumber } },
  )

export const entryNotFound = (entryId: string) =>
  new ApiError('entry_not_found', `The entry ${JSON.stringify(entryId)} does not exist or may not be accessed.`, {
    resource: { entryId },
  })

export const routeNotFound = () =>
  new ApiError(
    'route_not_found',
    'No such path. All paths are documented at /docs and in /openapi.yaml, below the URL of the API.',
  )

export const methodNotAllowed = (allowed: readonly string[]) =>
  new ApiError('method_not_allowed', `Method not allowed; this path supports ${allowed.join(', ')}.`, {
    headers: { allow: allowed.join(', ') },
  })

export const identifierConflict = (issues: ValidationIssue[]) =>
  new ApiError(
    'identifier_conflict',
    'The identifiers belong to different contacts; nothing was recorded. Send only identifiers of one contact.',
    { issues },
  )

export const recordConflict = (issue: ValidationIssue) =>
  new ApiError(
    'record_conflict',
    `A record contradicts what is stored, or another line; nothing was imported: ${issue.pointer} ${issue.message}`,
    { issues: [issue] },
  )

export const payloadTooLarge = (limit_bytes: number) =>
  new ApiError('payload_too_large', `The body exceeds the limit of ${limit_bytes} bytes.`)

const FORMATS = { 'application/json': 'JSON', 'application/x-ndjson': 'NDJSON' } as const

/** The media types of request bodies. */
export type MediaType = keyof typeof FORMATS

export const unsupportedMediaType = (expected: MediaType = 'application/json') =>
  new ApiError(
    'unsupported_media_type',
    `Send the body as UTF-8 ${FORMATS[expected]} with the header Content-Type: ${expected} and without Content-Encoding or a Transfer-Encoding other than chunked.`,
  )

export const idempotencyKeyReused = () =>
  new ApiError(
    'idempotency_key_reused',
    'This Idempotency-Key was used for another event; nothing was recorded. Use a new key for a new event.',
    { issues: [{ pointer: '/headers/Idempotency-Key', message: 'was used for another event' }] },
  )

export function rateLimited(perMinute: number, retryAfter_s: number): ApiError {
  const limit = `${perMinute} ${perMinute === 1 ? 'request' : 'requests'} per minute`
  const message = `Rate limit of ${limit} exceeded; retry after Retry-After seconds.`
  return new ApiError('rate_limited', message, { headers: { 'retry-after': String(retryAfter_s) } })
}

/** A client address has sent too many keys that give no access. The same response whatever is wrong with the key. */
export const tooManyRefusedKeys = (perMinute: number, retryAfter_s: number) =>
  new ApiError(
    'rate_limited',
    'Too many requests with keys that give no access came from this address. Check key and project, and retry after Retry-After seconds.',
    {
      headers: {
        'retry-after': String(retryAfter_s),
        'ratelimit-policy': `"refused-keys";q=${perMinute};w=60`,
        ratelimit: `"refused-keys";r=0;t=${retryAfter_s}`,
      },
    },
  )

export const internalError = () =>
  new ApiError('internal_error', "Internal error. It is logged under this request's X-Request-Id.")

/** The database is unavailable, or the service is overloaded or stopping. */
export const serviceUnavailable = () =>
  new ApiError('service_unavailable', 'Service unavailable; retry after Retry-After seconds.', {
    headers: { 'retry-after': '1' },
  })
