import { randomUUIDv7 } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import cors from '@fastify/cors'
import fastify, { type FastifyInstance, type FastifyRequest, type FastifyServerOptions } from 'fastify'
import type pg from 'pg'
import type { Config } from './config.ts'
import type { Database } from './database/pool.ts'
import { type ApiError, badEncoding, routeNotFound, serviceUnavailable, unreadableRequest } from './domain/errors.ts'
import { handlers } from './handlers/index.ts'
import { Authenticator } from './http/auth.ts'
import { acceptJsonOnly } from './http/body.ts'
import { serveDocs } from './http/docs.ts'
import { readDocument } from './http/document.ts'
import { errorHandler } from './http/error-handler.ts'
import { serveProbes } from './http/probes.ts'
import { MALFORMED, parseQueryString } from './http/query-string.ts'
import { RateLimiter } from './http/rate-limit.ts'
import { bindOperations } from './http/routes.ts'
import { ping } from './queries/projects.ts'
import { Recorder } from './recording/recorder.ts'

/** What the app is made of. */
export interface AppParts {
  config: Config['http']
  /** For reading and for checking keys. */
  db: Database
  /** For recording, in pipeline mode; connections of its own, so that writers never keep readers from theirs. */
  writePool: pg.Pool
  recorder?: Partial<Config['recorder']>
  logger: FastifyServerOptions['logger']
  demoKeyFile?: string
  /** Called before any route is made: the place to listen in on routes and answers. */
  extend?: (app: FastifyInstance) => void
}

const REQUEST_TIMEOUT_ms = 30_000
/** Longer than any path that Node lets in, so that no id is too long for the router. */
const MAX_PARAM_LENGTH = 64 * 1024

const SANE_REQUEST_ID = /^[\w.~+/=:@-]{1,128}$/

/** Stands for a path that cannot be decoded. No request has it: there is no NUL in HTTP. */
const UNREADABLE = '/\0'

const CORS_ALLOWED = ['X-Api-Key', 'Content-Type', 'Idempotency-Key', 'If-None-Match', 'X-Request-Id']
const CORS_EXPOSED = [
  'Link',
  'Next-Cursor',
  'ETag',
  'X-Request-Id',
  'Retry-After',
  'RateLimit',
  'RateLimit-Policy',
  'Idempotent-Replayed',
]

/** The caller's own request id when it is a sane one, else a new one. */
function requestId(request: { headers: IncomingMessage['headers'] }): string {
  const sent = request.headers['x-request-id']
  return typeof sent === 'string' && SANE_REQUEST_ID.test(sent) ? sent : randomUUIDv7()
}

/** What a log line says of a request: no header and no query, which may hold keys and personal data. */
const logRequest = ({ method, originalUrl, ip }: FastifyRequest) => ({ method, path: originalUrl.split(/[?#]/)[0], ip })

/**
 * Puts the service together, without listening. `close()` waits for requests under way and for what they left to do,
 * and leaves the databases open.
 */
export async function buildApp(parts: AppParts): Promise<FastifyInstance> {
  const { config, db } = parts
  const { basePath } = config
  const app = fastify({
    logger: loggerOf(parts.logger),
    genReqId: requestId,
    requestTimeout: REQUEST_TIMEOUT_ms,
    trustProxy: config.trustProxy,
    // While stopping, requests on open connections get the envelope's 503 from the hook below, not Fastify's own.
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH, querystringParser: parseQueryString },
    // The router answers a path that it cannot decode past all hooks; led elsewhere, such a request meets them too.
    rewriteUrl: ({ url = '/' }) => (isDecodable(url) ? url : UNREADABLE),
    clientErrorHandler: refuseBrokenHttp,
    // Node would answer a request without Host by itself, without envelope; the hook below does.
    http: { requireHostHeader: false },
  })

  // Node would invite a body before the key is checked (see body.ts), and refuse other expectations by itself.
  for (const event of ['checkContinue', 'checkExpectation']) {
    app.server.on(event, (request, response) => app.server.emit('request', request, response))
  }

  let stopping = false
  app.addHook('preClose', async () => {
    stopping = true
  })
  app.addHook('onSend', async (_, reply) => {
    // A connection that was busy when the service began to stop would be kept alive, and so would the service.
    if (stopping) reply.header('connection', 'close')
  })
  app.addHook('onRequest', async (_, reply) => {
    reply.headers({ 'x-request-id': reply.request.id, 'x-content-type-options': 'nosniff' })
  })
  if (config.corsOrigins.length > 0) await allowOrigins(app, config.corsOrigins)
  app.addHook('onRequest', async (request) => {
    if (request.raw.httpVersion === '1.1' && request.headers.host === undefined) throw notHttp()
    refuseBadEncoding(request)
    if (request.is404) throw routeNotFound()
    if (stopping) throw serviceUnavailable()
  })
  app.setErrorHandler(errorHandler)
  app.setNotFoundHandler(() => {
    throw routeNotFound()
  })
  acceptJsonOnly(app)
  parts.extend?.(app)

  const limiter = config.rateLimitPerMinute === undefined ? undefined : new RateLimiter(config.rateLimitPerMinute)
  const authenticator = new Authenticator(db, limiter, (error) => app.log.warn({ err: error }, 'key use not noted'))
  app.addHook('onClose', () => authenticator.settle())

  const document = await readDocument(basePath)
  serveProbes(app, { basePath, ready: () => ping(db) })
  await serveDocs(app, { document, basePath, demoKeyFile: parts.demoKeyFile })
  const context = { db, recorder: new Recorder(parts.writePool, parts.recorder) }
  await bindOperations(app, { document: document.json, handlers, context, authenticator, basePath })
  await app.ready()
  return app
}

function loggerOf(logger: FastifyServerOptions['logger']): FastifyServerOptions['logger'] {
  return typeof logger === 'object' ? { ...logger, serializers: { req: logRequest as never } } : logger
}

async function allowOrigins(app: FastifyInstance, origins: string[]): Promise<void> {
  await app.register(cors, {
    delegator: (request, done) => {
      const isPreflight = request.headers.origin !== undefined && 'access-control-request-method' in request.headers
      done(null, {
        origin: origins,
        preflight: isPreflight,
        methods: ['GET', 'HEAD', 'POST'],
        allowedHeaders: CORS_ALLOWED,
        exposedHeaders: CORS_EXPOSED,
        maxAge: 600,
      })
    },
  })
}

/** Whether a request target's path can be percent-decoded; its query is left to the parser of queries. */
function isDecodable(url: string): boolean {
  try {
    decodeURIComponent(url.split('?', 1)[0] ?? '')
    return true
  } catch {
    return false
  }
}

/** @throws ApiError invalid_request when the URL is not percent-encoded UTF-8, or has a #, which begins no query */
function refuseBadEncoding({ url, originalUrl, query }: FastifyRequest): void {
  const malformed = (query as { [MALFORMED]?: string })[MALFORMED]
  if (url === UNREADABLE || malformed !== undefined || originalUrl.includes('#')) throw badEncoding()
}

const notHttp = () => unreadableRequest('This is not a valid HTTP/1.1 request.')

/** What Node's parser refuses, in the service's words. */
const BROKEN_HTTP: Record<string, () => ApiError> = {
  HPE_INVALID_URL: badEncoding,
  HPE_HEADER_OVERFLOW: () =>
    unreadableRequest('The head of the request is larger than 16 KiB; shorten the path, the query or the headers.'),
  ERR_HTTP_REQUEST_TIMEOUT: () =>
    unreadableRequest(`The request was not complete within ${REQUEST_TIMEOUT_ms / 1000} seconds.`),
}

/** Answers what is not HTTP, or has too long a head, on the bare socket, where no request exists yet. */
function refuseBrokenHttp(error: Error & { code?: string }, socket: Socket): void {
  if (!socket.writable || error.code === 'ECONNRESET') {
    socket.destroy()
    return
  }
  const body = JSON.stringify((BROKEN_HTTP[error.code ?? ''] ?? notHttp)().envelope(undefined))
  socket.end(
    `HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=utf-8\r\nCache-Control: no-store\r\n` +
      `X-Request-Id: ${randomUUIDv7()}\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  )
}
