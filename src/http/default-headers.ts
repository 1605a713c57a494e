import type { FastifyInstance } from 'fastify'

/** Sends `X-Request-Id`, and forbids browsers to guess the media type, with every response. */
export function sendDefaultHeaders(app: FastifyInstance): void {
  app.addHook('onRequest', (request, reply, done) => {
    reply.headers({ 'x-request-id': request.id, 'x-content-type-options': 'nosniff' })
    done()
  })
}
