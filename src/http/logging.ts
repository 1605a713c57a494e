import { type FastifyInstance, type FastifyReply, type FastifyRequest, LogController } from 'fastify'
import type { ErrorCode } from '../domain/errors.ts'
import { operationOf } from './operation-of.ts'
import { onRequestEnd } from './request-end.ts'
import { callerSpan } from './trace-context.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** What is known of the request for its line in the log. */
    facts: Facts
  }
}

interface Facts {
  /** The public part of a well-formed key, accepted or not. */
  keyId?: string
  /** That of an accepted key; any other could be any text. */
  projectId?: string
  errorCode?: ErrorCode
  /** The id of its trace, if it is traced; otherwise that of its caller's is looked up. */
  traceId?: string
  /** What its connection had sent before. */
  bytesBefore: number
}

/** Paths that monitors request all the time. */
export const PROBES = /\/(livez|readyz|metrics)$/

/** What Fastify itself logs: nothing of requests, but with every line about one its id. */
export const logController = new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' })

/**
 * Logs a line for each request at its end: at `info`; `warn` for a slow one and for 503; `error` for a defect; `debug` for
 * a probe, and when any arrives. It has nothing that a client may have filled with personal data: neither address, path,
 * query nor headers, but for its `X-Request-Id`. Register it after what makes requests of a connection wait for each other.
 *
 * @param slow_ms how long a request may take, besides the time that it asks to wait for events
 */
export function logRequests(app: FastifyInstance, slow_ms: number): void {
  app.decorateRequest('facts')
  app.addHook('onRequest', (request, _reply, done) => {
    request.facts = { bytesBefore: request.socket.bytesWritten }
    request.log.debug('request received')
    done()
  })
  onRequestEnd(app, (request, reply, end) => {
    if (end === 'cut') {
      request.log.info(lineOf(request, reply), 'request cut off')
      return
    }
    // A number once it is valid; what was refused before has not waited.
    const { wait } = (request.query ?? {}) as { wait?: unknown }
    const wait_ms = typeof wait === 'number' ? wait * 1_000 : 0
    const isSlow = reply.elapsedTime - wait_ms >= slow_ms
    request.log[levelOf(request, reply, isSlow)](lineOf(request, reply), isSlow ? 'slow request' : 'request')
  })
}

function lineOf(request: FastifyRequest, { elapsedTime, statusCode, raw }: FastifyReply) {
  const { keyId, projectId, errorCode, traceId, bytesBefore } = request.facts
  return {
    operation: operationOf(request),
    method: request.method,
    project_id: projectId,
    key_id: keyId,
    status: raw.headersSent ? statusCode : undefined,
    error_code: errorCode,
    duration_ms: Math.round(elapsedTime * 10) / 10,
    bytes: request.socket.bytesWritten - bytesBefore,
    trace_id: traceId ?? callerSpan(request.headers)?.traceId,
  }
}

function levelOf(request: FastifyRequest, { statusCode }: FastifyReply, isSlow: boolean) {
  if (PROBES.test(request.routeOptions.url ?? '')) return 'debug'
  if (statusCode >= 500 && statusCode !== 503) return 'error'
  return isSlow || statusCode === 503 ? 'warn' : 'info'
}
