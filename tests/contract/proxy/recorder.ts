import { appendFileSync, mkdirSync } from 'node:fs'
import type { OutgoingHttpHeaders } from 'node:http'
import path from 'node:path'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { tapPayload, tapped } from '../../support/tap.ts'

/** A request to the service and its response. */
export interface Exchange {
  /** Absent when no operation of the document matched: an unknown path, a 405, a preflight. */
  operationId: string | undefined
  method: string
  /** Without BASE_PATH. */
  url: string
  headers: OutgoingHttpHeaders
  /** JSON text. Absent when there was none, or when the service rejected the request without parsing it. */
  body: string | undefined
  /** There was a body that the recorder does not have. */
  unread: boolean
  status: number
  responseHeaders: OutgoingHttpHeaders
  responseBody: string
}

/** Longer ones take Prism minutes, and are like the shorter ones. */
const MAX_LENGTH = 1_000_000

/** Appends every exchange of the API that the app has to a file of this process in the directory RECORD_EXCHANGES, if set. */
export function recordExchanges(app: FastifyInstance): void {
  const { RECORD_EXCHANGES } = process.env
  if (!RECORD_EXCHANGES) return
  mkdirSync(RECORD_EXCHANGES, { recursive: true })
  const file = path.join(RECORD_EXCHANGES, `${process.pid}.ndjson`)
  const bodies = new WeakMap<FastifyRequest, string | undefined>()
  const responseBodies = new WeakMap<FastifyRequest, string>()
  let basePath = ''

  app.addHook('onRoute', ({ url }) => {
    if (url.includes('/projects/')) basePath = url.slice(0, url.indexOf('/projects/'))
  })
  app.addHook('preValidation', async (request) => {
    if (isParts(request.body)) request.body = tapped(request.body, (text) => bodies.set(request, text), MAX_LENGTH)
    else if (request.body !== undefined) bodies.set(request, toJson(request.body))
  })
  app.addHook('onSend', async (request, _, payload) => {
    // Documentation, probes and what is outside of BASE_PATH are not part of the API.
    const isOfApi = request.is404 || request.routeOptions.url?.includes('/projects/')
    if (!isOfApi || !request.originalUrl.startsWith(basePath)) return payload
    return tapPayload(payload, (text) => responseBodies.set(request, text), MAX_LENGTH)
  })
  app.addHook('onResponse', async (request, reply) => {
    const responseBody = responseBodies.get(request)
    if (responseBody === undefined || responseBody.length > MAX_LENGTH) return
    const { method, originalUrl, params, routeOptions } = request
    const { headers } = request.raw
    const { operationId } = (routeOptions.schema ?? {}) as { operationId?: string }
    // The router also matches paths with an empty segment, which the document does not have.
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
      // The hook of the route removes the body of a 304 after this one has seen it.
      responseBody: reply.statusCode === 304 ? '' : responseBody,
    }
    appendFileSync(file, `${JSON.stringify(exchange)}\n`)
  })
}

/** Whether a body is read as it arrives. */
const isParts = (body: unknown): body is AsyncIterable<Buffer> =>
  typeof body === 'object' && body !== null && Symbol.asyncIterator in body

/** `undefined` for what is nested too deeply to be serialized. */
function toJson(value: unknown): string | undefined {
  try {
    return JSON.stringify(value)
  } catch {
    return undefined
  }
}
