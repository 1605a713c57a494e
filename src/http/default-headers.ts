import type { FastifyInstance } from 'fastify'

/**
 * What browsers must not do with a response: guess its media type, run or frame it, embed it in pages of others (scripts
 * of CORS_ORIGINS can read it all the same), or tell other sites its URL. Constant, and cheaper by far than
 * @fastify/helmet, which makes its functions anew for every request.
 */
const SECURITY_HEADERS = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'x-frame-options': 'DENY',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
}
const ONE_YEAR_s = 365 * 24 * 60 * 60

/** Sends `X-Request-Id` and what protects browsers with every response. Routes may override them. */
export function sendDefaultHeaders(app: FastifyInstance, publicUrl?: string): void {
  // Of the host alone, since its subdomains may belong to other services.
  const transport = publicUrl?.startsWith('https:') && { 'strict-transport-security': `max-age=${ONE_YEAR_s}` }
  const headers = { ...SECURITY_HEADERS, ...transport }
  app.addHook('onRequest', (request, reply, done) => {
    reply.headers(headers).header('x-request-id', request.id)
    done()
  })
}
