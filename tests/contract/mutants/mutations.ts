import type {
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  onRequestAsyncHookHandler,
  onSendAsyncHookHandler,
  RouteOptions,
} from 'fastify'
import type { Database } from '../../../src/database/pool.ts'
import { ApiError, type ErrorCode } from '../../../src/domain/errors.ts'
import type { OperationId } from '../../../src/http/operations.ts'

/** Breaks a server in one way, from outside: through hooks that are added before the server registers its routes. */
export type Mutation = (app: FastifyInstance, db: Database) => void

export type Row = Record<string, unknown>
type Exchange = { request: FastifyRequest; reply: FastifyReply }

/** Changes each record in the successful responses of an operation, after serialization. */
export const mapRecords = (operationId: OperationId, change: (row: Row) => unknown): Mutation =>
  mapBody(({ request, reply }, body) => {
    if (operationOf(request.routeOptions) !== operationId || reply.statusCode !== 200) return body
    return Array.isArray(body) ? body.map(change) : change(body as Row)
  })

/** Changes the envelope of error responses. */
export const mapErrors = (change: (envelope: Row, exchange: Exchange) => unknown): Mutation =>
  mapBody((exchange, body) => (exchange.reply.statusCode < 400 ? body : change(body as Row, exchange)))

/** Changes the body of every response that has one. */
export const mapBody =
  (change: (exchange: Exchange, body: unknown, db: Database) => unknown): Mutation =>
  (app, db) =>
    app.addHook('onSend', async (request, reply, payload) => {
      const isBytes = Buffer.isBuffer(payload)
      if (!isBytes && typeof payload !== 'string') return payload
      if (operationOf(request.routeOptions) === undefined) return payload
      const changed = JSON.stringify(await change({ request, reply }, JSON.parse(String(payload)), db))
      return isBytes ? Buffer.from(changed) : changed
    })

/** Changes status and headers of every response of a route, after the server has set them. */
export const changeHead = (change: (exchange: Exchange) => void): Mutation =>
  mapPayload((exchange, payload) => {
    change(exchange)
    return payload
  })

/** Changes the payload of every response of a route just before it is sent. */
export const mapPayload =
  (change: (exchange: Exchange, payload: unknown) => unknown): Mutation =>
  (app) =>
    app.addHook('onRoute', (route) => {
      const last: onSendAsyncHookHandler = async (request, reply, payload) => change({ request, reply }, payload)
      route.onSend = [...[route.onSend ?? []].flat(), last]
    })

/**
 * Changes the request before the server processes it.
 * @param at the body exists only from `preValidation` on; at `preHandler` the request is valid and has its defaults
 */
export const changeRequest = (
  change: (request: FastifyRequest) => void,
  at: 'onRequest' | 'preValidation' | 'preHandler' = 'onRequest',
): Mutation => {
  const hook = async (request: FastifyRequest) => change(request)
  return (app) => app.addHook(at as 'onRequest', hook)
}

/** Replaces the server's API key check by another, which may call it. */
export const wrapKeyCheck = (
  check: (own: () => Promise<unknown>, exchange: Exchange, db: Database) => Promise<unknown>,
): Mutation =>
  changeRoutes((route, db) => {
    const hooks = [route.onRequest ?? []].flat() as onRequestAsyncHookHandler[]
    const own = hooks.at(-1) as onRequestAsyncHookHandler
    route.onRequest = [
      ...hooks.slice(0, -1),
      async function (request, reply) {
        await check(() => own.call(this, request, reply) as Promise<unknown>, { request, reply }, db)
      },
    ]
  })

/** Replaces the handler of each operation by another, which may call it. */
export const wrapHandler = (
  handle: (own: () => Promise<unknown>, exchange: Exchange, db: Database) => Promise<unknown>,
): Mutation =>
  changeRoutes((route, db) => {
    const own = route.handler
    route.handler = async function (request, reply) {
      return handle(() => own.call(this, request, reply) as Promise<unknown>, { request, reply }, db)
    }
  })

const changeRoutes =
  (change: (route: RouteOptions, db: Database) => void): Mutation =>
  (app, db) =>
    app.addHook('onRoute', (route) => {
      if (operationOf(route) !== undefined) change(route, db)
    })

/** The operationId of a route, if it is in the contract. */
export const operationOf = ({ schema }: { schema?: object }): string | undefined =>
  schema && 'operationId' in schema ? String(schema.operationId) : undefined

/** Does something else where the server responds with this error code. */
export const onError =
  (code: ErrorCode, act: (exchange: Exchange, own: () => Promise<unknown>, db: Database) => unknown) =>
  async (own: () => Promise<unknown>, exchange: Exchange, db: Database): Promise<unknown> => {
    try {
      return await own()
    } catch (error) {
      if (!(error instanceof ApiError) || error.errorCode !== code) throw error
      return act(exchange, own, db)
    }
  }
