import { appendFileSync, mkdirSync } from 'node:fs'
import type { OutgoingHttpHeaders } from 'node:http'
import path from 'node:path'
import type { FastifyInstance, FastifyRequest } from 'fastify'

/** A request that the service got and what it answered. */
export interface Exchange {
  /** None where the service found no operation of the document: a 404 of the path, a 405, a preflight. */
  operationId: string | undefined
  method: string
  /** Without BASE_PATH. */
  url: string
  headers: OutgoingHttpHeaders
  /** JSON text. None, too, when the service refused the request before it read the body, or could not read it. */
  body: string | undefined
  /** There was a body that is not here. */
  unread: boolean
  status: number
  responseHeaders: OutgoingHttpHeaders
  responseBody: string
}

/** Appends every exchange of the API that the app has to a file of this process in the directory RECORD_EXCHANGES, if set. */
export function recordExchanges(app: FastifyInstance): void {
  const { RECORD_EXCHANGES } = process.env
  if (!RECORD_EXCHANGES) return
  mkdirSync(RECORD_EXCHANGES, { recursive: true })
  const file = path.join(RECORD_EXCHANGES, `${process.pid}.ndjson`)
  const bodies = new WeakMap<FastifyRequest, string | undefined>()
  const answers = new WeakMap<FastifyRequest, string>()
  let basePath = ''

  app.addHook('onRoute', ({ url }) => {
    if (url.includes('/projects/')) basePath = url.slice(0, url.indexOf('/projects/'))
  })
  app.addHook('preValidation', async (request) => {
    if (request.body !== undefined) bodies.set(request, toJson(request.body))
  })
  app.addHook('onSend', async (request, _, payload) => {
    // Outside of BASE_PATH, and on the pages for people and probes, there is nothing of the API.
    const isOfApi = request.is404 || request.routeOptions.url?.includes('/projects/')
    if (isOfApi && request.originalUrl.startsWith(basePath)) answers.set(request, String(payload ?? ''))
    return payload
  })
  app.addHook('onResponse', async (request, reply) => {
    const answer = answers.get(request)
    if (answer === undefined) return
    const { method, originalUrl, params, routeOptions } = request
    const { headers } = request.raw
    const { operationId } = (routeOptions.schema ?? {}) as { operationId?: string }
    // The router finds an operation for a path with an empty segment too, which is no path of the document.
    const isOperation = operationId !== undefined && Object.keys(params ?? {}).length > 0
    const body = bodies.get(request)
    const exchange: Exchange = {
      operationId: isOperation ? operationId : undefined,
      method,
      url: originalUrl.slice(basePath.length),
      headers,
      body,
      unread: body === undefined && (headers['transfer-encoding'] ?? headers['content-length'] ?? '0') !== '0',
      status: reply.statusCode,
      responseHeaders: reply.getHeaders() as OutgoingHttpHeaders,
      // The hook of the route takes the body from a 304 after it was looked at here.
      responseBody: reply.statusCode === 304 ? '' : answer,
    }
    appendFileSync(file, `${JSON.stringify(exchange)}\n`)
  })
}

/** None for what is nested too deep to be written back. */
function toJson(value: unknown): string | undefined {
  try {
    return JSON.stringify(value)
  } catch {
    return undefined
  }
}
