import cors from '@fastify/cors'
import type { FastifyInstance } from 'fastify'

const METHODS = ['GET', 'HEAD', 'POST']
const REQUEST_HEADERS = [
  'X-Api-Key',
  'Content-Type',
  'Idempotency-Key',
  'If-None-Match',
  'Consistency-Token',
  'X-Request-Id',
]
const RESPONSE_HEADERS = [
  'Link',
  'Next-Cursor',
  'ETag',
  'X-Request-Id',
  'Retry-After',
  'RateLimit',
  'RateLimit-Policy',
  'Idempotent-Replayed',
  'Consistency-Token',
]
const PREFLIGHT_MAX_AGE_s = 600

/** Lets scripts of these origins (`*` for all) call the API. With none, responses carry no CORS headers at all. */
export async function allowOrigins(app: FastifyInstance, origins: string[]): Promise<void> {
  if (origins.length === 0) return
  await app.register(cors, {
    delegator: (request, done) => {
      // Any other OPTIONS request is a method like the others, hence a 405.
      const isPreflight = Boolean(request.headers.origin && request.headers['access-control-request-method'])
      done(null, {
        origin: origins,
        preflight: isPreflight,
        methods: METHODS,
        allowedHeaders: REQUEST_HEADERS,
        exposedHeaders: RESPONSE_HEADERS,
        maxAge: PREFLIGHT_MAX_AGE_s,
      })
    },
  })
}
