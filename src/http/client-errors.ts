import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { FastifyInstance, onRequestHookHandler } from 'fastify'
import { type ApiError, invalidEncoding, malformedRequest } from '../domain/errors.ts'
import { closeAfterClient, LINGER_ms } from './linger.ts'
import { newRequestId } from './request-id.ts'

/** How long a client may take to send a whole request. */
export const REQUEST_TIMEOUT_ms = 30_000

export const requestTimeout = () =>
  malformedRequest(`The request was not complete within ${REQUEST_TIMEOUT_ms / 1000} seconds.`)

const invalidHttp = () => malformedRequest('This is not a valid HTTP/1.1 request.')

/** What Node's HTTP parser rejects, by the code of its error. */
const PARSER_ERRORS: Record<string, () => ApiError> = {
  HPE_INVALID_URL: invalidEncoding,
  HPE_HEADER_OVERFLOW: () =>
    malformedRequest('The request line and headers exceed 16 KiB; shorten the path, the query or the headers.'),
  ERR_HTTP_REQUEST_TIMEOUT: requestTimeout,
}

/** A connection, with the response that is due next on it and the request that arrives, as Node keeps them. */
type Connection = Socket & {
  _httpMessage?:
    | (Pick<ServerResponse, 'headersSent' | 'shouldKeepAlive'> & {
        req: Pick<IncomingMessage, 'complete'>
        /** Whether the connection is closed after it, as its headers say. */
        _last: boolean
      })
    | null
  parser?: { incoming: Pick<IncomingMessage, 'complete'> | null } | null
}

/**
 * Whether nothing may be sent on a connection: within the response to an earlier request, or before it, its client would take it
 * for that one, and after the response to the one that still arrives, which was refused early, for that to its next.
 */
function isSpokenFor({ _httpMessage: due, parser }: Connection): boolean {
  if (due) return due.headersSent || due.req.complete
  return parser?.incoming?.complete === false
}

/** Connections on which a request was followed by what is no HTTP, such as more body than its length says. */
const garbled = new WeakSet<Socket>()

/**
 * Whether an error is only of what follows a request that has arrived. The response to that is sent nevertheless, as the last one
 * on the connection; what arrives meanwhile is discarded.
 */
function isBehindRequest({ code }: { code?: string }, socket: Connection): boolean {
  const { _httpMessage: due, writable } = socket
  // A client that closes its side within its next request is gone.
  const isGarbage = code?.startsWith('HPE_') && code !== 'HPE_INVALID_EOF_STATE'
  if (due?.req.complete && writable && isGarbage && !garbled.has(socket)) {
    garbled.add(socket)
    due.shouldKeepAlive = false
    // The headers can no longer say so.
    if (due.headersSent) due._last = true
    closeAfterClient(socket)
  }
  return garbled.has(socket) && code !== 'ECONNRESET'
}

const timedOut = new WeakSet<Socket>()

/** Whether the client was told that its request on this connection is refused, since it was not complete in time. */
export const hasTimedOut = (socket: Socket): boolean => timedOut.has(socket)

/**
 * Sends the error envelope on the raw socket, since a request that Node cannot parse never reaches a route; or closes the
 * connection where nothing may be sent.
 */
export function clientErrorHandler(
  this: Pick<FastifyInstance, 'log'>,
  error: Error & { code?: string },
  socket: Connection,
): void {
  if (isBehindRequest(error, socket)) return
  if (!socket.writable || error.code === 'ECONNRESET' || isSpokenFor(socket)) {
    socket.destroy()
    return
  }
  const apiError = (PARSER_ERRORS[error.code ?? ''] ?? invalidHttp)()
  const body = JSON.stringify(apiError.envelope(undefined))
  const request_id = newRequestId()
  this.log.info(
    { request_id, operation: 'other', status: 400, error_code: apiError.errorCode },
    'request not understood',
  )
  socket.end(
    `HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=utf-8\r\nCache-Control: no-store\r\n` +
      `X-Request-Id: ${request_id}\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  )
  if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') {
    // Until the client closes it too, the connection is open for the rest of the request, which nobody would stop any more.
    timedOut.add(socket)
    setTimeout(() => socket.destroy(), LINGER_ms).unref()
  }
}

/**
 * An onRequest hook that refuses with invalid_request an HTTP/1.1 request without Host, and any with several (RFC 9112,
 * section 3.2). For servers that do not require it themselves, since Node would respond without the error envelope, and
 * takes the first of several.
 */
export const requireHost: onRequestHookHandler = ({ raw, headers }, _reply, done) => {
  const isRepeated = Number(raw.headersDistinct?.host?.length) > 1
  const isMissing = headers.host === undefined && raw.httpVersion === '1.1'
  done(isRepeated || isMissing ? malformedRequest('Send exactly one Host header.') : undefined)
}
