import { type Attributes, type Span, SpanKind } from '@opentelemetry/api'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { PROBES } from '../http/logging.ts'
import { operationOf } from '../http/operation-of.ts'
import { onRequestEnd, type RequestEnd } from '../http/request-end.ts'
import { callerSpan } from '../http/trace-context.ts'
import type { Spans } from './spans.ts'

/** Those of the semantic conventions; a client may send others. */
const METHODS = new Set(['CONNECT', 'DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT', 'QUERY', 'TRACE'])

/**
 * Makes a span of each request of the app but those of monitors, in the trace of its caller if it names one, and a span in
 * it of its validation. Register it after {@link logRequests} and before what queries.
 */
export function traceRequests(app: FastifyInstance, spans: Spans): void {
  const requests = new WeakMap<FastifyRequest, { span: Span; validation?: Span }>()

  app.addHook('onRequest', (request, _reply, done) => {
    const { url: route } = request.routeOptions
    if (PROBES.test(route ?? '')) return done()
    const method = METHODS.has(request.method) ? request.method : '_OTHER'
    const attributes = {
      'http.request.method': method,
      // A proxy may pass on what a client sends for it.
      'url.scheme': request.protocol === 'https' ? 'https' : 'http',
      ...(route && { 'http.route': route }),
    }
    const name = [method === '_OTHER' ? 'HTTP' : method, route].filter(Boolean).join(' ')
    const span = spans.start(name, { kind: SpanKind.SERVER, attributes }, callerSpan(request.headers))
    request.facts.traceId = span.spanContext().traceId
    if (!span.isRecording()) return done()
    requests.set(request, { span })
    spans.run(span, done)
  })

  app.addHook('preValidation', (request, _reply, done) => {
    const traced = requests.get(request)
    if (traced) traced.validation = spans.start('validate', {}, traced.span)
    done()
  })
  const endValidation = (request: FastifyRequest, attributes?: Attributes) => {
    const traced = requests.get(request)
    if (traced?.validation?.isRecording()) spans.end(traced.validation, attributes)
  }
  app.addHook('preHandler', (request, _reply, done) => {
    endValidation(request)
    done()
  })
  // Of what is invalid, the response comes next.
  app.addHook('onSend', (request, _reply, _payload, done) => {
    endValidation(request, { 'error.type': request.facts.errorCode })
    done()
  })

  onRequestEnd(app, (request, reply, end) => {
    const span = requests.get(request)?.span
    if (span) spans.end(span, attributesOf(request, reply, end))
  })
}

/** As in the log, there is nothing that a client may have filled with personal data, such as the path. */
function attributesOf(request: FastifyRequest, reply: FastifyReply, end: RequestEnd): Attributes {
  const { keyId, projectId, errorCode } = request.facts
  const { statusCode, raw } = reply
  return {
    'http.response.status_code': raw.headersSent ? statusCode : undefined,
    // By the conventions, a refusal is no error of the server's.
    'error.type': end === 'sent' && statusCode >= 500 ? String(statusCode) : undefined,
    'flowtrail.operation': operationOf(request),
    'flowtrail.request_id': request.id,
    'flowtrail.project_id': projectId,
    'flowtrail.key_id': keyId,
    'flowtrail.error_code': errorCode,
    'flowtrail.cut_off': end === 'cut' || undefined,
  }
}
