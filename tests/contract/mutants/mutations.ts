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

/** Makes a right server wrong in one way, from outside: by hooks that are added before it makes its routes. */
export type Mutation = (app: FastifyInstance, db: Database) => void

export type Row = Record<string, unknown>
type Exchange = { request: FastifyRequest; reply: FastifyReply }

/** Changes each record of an operation's successes on the wire, past the serializer, which hides faults. */
export const answering = (operationId: OperationId, change: (row: Row) => unknown): Mutation =>
  sendingBody(({ request, reply }, body) => {
    if (operationOf(request.routeOptions) !== operationId || reply.statusCode !== 200) return body
    return Array.isArray(body) ? body.map(change) : change(body as Row)
  })

/** Changes the envelope of refusals. */
export const refusing = (change: (envelope: Row, exchange: Exchange) => unknown): Mutation =>
  sendingBody((exchange, body) => (exchange.reply.statusCode < 400 ? body : change(body as Row, exchange)))

/** Changes the body of every answer that has one. */
export const sendingBody =
  (change: (exchange: Exchange, body: unknown, db: Database) => unknown): Mutation =>
  (app, db) =>
    app.addHook('onSend', async (request, reply, payload) => {
      const isBytes = Buffer.isBuffer(payload)
      if (!isBytes && typeof payload !== 'string') return payload
      if (operationOf(request.routeOptions) === undefined) return payload
      const changed = JSON.stringify(await change({ request, reply }, JSON.parse(String(payload)), db))
      return isBytes ? Buffer.from(changed) : changed
    })

/** Changes the head of every answer of a route after all that is right has been said in it. */
export const sendingHead = (change: (exchange: Exchange) => void): Mutation =>
  sendingLast((exchange, payload) => {
    change(exchange)
    return payload
  })

/** Changes every answer of a route just before it leaves. */
export const sendingLast =
  (change: (exchange: Exchange, payload: unknown) => unknown): Mutation =>
  (app) =>
    app.addHook('onRoute', (route) => {
      const last: onSendAsyncHookHandler = async (request, reply, payload) => change({ request, reply }, payload)
      route.onSend = [...[route.onSend ?? []].flat(), last]
    })

/** Changes what the server takes the request to be. @param at the body is there before validation only */
export const receiving = (
  change: (request: FastifyRequest) => void,
  at: 'onRequest' | 'preValidation' = 'onRequest',
): Mutation => {
  const hook = async (request: FastifyRequest) => change(request)
  return (app) => (at === 'onRequest' ? app.addHook('onRequest', hook) : app.addHook('preValidation', hook))
}

/** Puts another check of keys in the place of the server's own, which it may call. */
export const checkingKeys = (
  check: (own: () => Promise<unknown>, exchange: Exchange, db: Database) => Promise<unknown>,
): Mutation =>
  changingOperations((route, db) => {
    const hooks = [route.onRequest ?? []].flat() as onRequestAsyncHookHandler[]
    const own = hooks.at(-1) as onRequestAsyncHookHandler
    route.onRequest = [
      ...hooks.slice(0, -1),
      async function (request, reply) {
        await check(() => own.call(this, request, reply) as Promise<unknown>, { request, reply }, db)
      },
    ]
  })

/** Puts another handler in the place of each operation's own, which it may call. */
export const handling = (
  handle: (own: () => Promise<unknown>, exchange: Exchange, db: Database) => Promise<unknown>,
): Mutation =>
  changingOperations((route, db) => {
    const own = route.handler
    route.handler = async function (request, reply) {
      return handle(() => own.call(this, request, reply) as Promise<unknown>, { request, reply }, db)
    }
  })

const changingOperations =
  (change: (route: RouteOptions, db: Database) => void): Mutation =>
  (app, db) =>
    app.addHook('onRoute', (route) => {
      if (operationOf(route) !== undefined) change(route, db)
    })

/** The operationId of a route of the document. */
export const operationOf = ({ schema }: { schema?: object }): string | undefined =>
  schema && 'operationId' in schema ? String(schema.operationId) : undefined

/** Does something else where the server refuses with this code. */
export const insteadOf =
  (code: ErrorCode, act: (exchange: Exchange, own: () => Promise<unknown>, db: Database) => unknown) =>
  async (own: () => Promise<unknown>, exchange: Exchange, db: Database): Promise<unknown> => {
    try {
      return await own()
    } catch (error) {
      if (!(error instanceof ApiError) || error.errorCode !== code) throw error
      return act(exchange, own, db)
    }
  }
