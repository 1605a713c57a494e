import { METHODS } from 'node:http'
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import glue from 'fastify-openapi-glue'
import { SCOPES, type Scope } from '../domain/api-key.ts'
import { Page } from '../domain/cursor.ts'
import { methodNotAllowed, routeNotFound } from '../domain/errors.ts'
import type { Authenticator } from './auth.ts'
import { missingBody } from './body.ts'
import { sendConditionally, writeOnce } from './conditional.ts'
import type { ApiDocument, Operation } from './document.ts'
import type { Handler, Handlers, OperationId, OperationRequest, Replayable } from './operations.ts'
import { validatorCompiler } from './validation.ts'

interface Binding<Context> {
  document: ApiDocument
  handlers: Handlers<Context>
  context: Context
  authenticator: Authenticator
  /** Path that everything is under, `''` for none. */
  basePath: string
}

/**
 * Makes a route of every operation of the document, with its key check, validation and handler, and of every other
 * method on the same paths a 405.
 *
 * @throws Error when document and handlers do not name the same operations, or an operation is open to all
 */
export async function registerRoutes<Context>(app: FastifyInstance, binding: Binding<Context>): Promise<void> {
  const { document, handlers, basePath } = binding
  const operations = operationsOf(document)
  assertComplete(operations, Object.keys(handlers))
  app.setValidatorCompiler(validatorCompiler)
  app.addHook('onRoute', refuseQueryWhereNone)
  await app.register(glue, {
    specification: document,
    prefix: basePath,
    operationResolver: (operationId: string, method: string) => {
      const operation = operations.get(operationId)
      if (!operation) throw new Error(`openapi.yaml has no operation ${operationId}`)
      // Glue adds the method, the URL and the schema. HEAD shares GET's route: Fastify's own twin for it, a route with a
      // hook more, fails where a 304 leaves no body to measure.
      return {
        ...routeOf(binding, operationId as OperationId, operation),
        ...(method === 'GET' && { method: ['GET', 'HEAD'] }),
      } as unknown as RouteOptions
    },
  })
  for (const [path, item] of Object.entries(document.paths)) refuseOtherMethods(app, basePath + path, Object.keys(item))
}

function operationsOf(document: ApiDocument): Map<string, Operation> {
  const all = Object.values(document.paths).flatMap((item) => Object.values(item))
  return new Map(all.map((operation) => [operation.operationId, operation]))
}

function assertComplete(operations: Map<string, Operation>, handlers: string[]): void {
  const unhandled = [...operations.keys()].filter((id) => !handlers.includes(id))
  const undocumented = handlers.filter((id) => !operations.has(id))
  if (unhandled.length + undocumented.length > 0) {
    throw new Error(`operations without handler: [${unhandled}]; handlers without operation: [${undocumented}]`)
  }
  for (const [id, operation] of operations) scopeOf(id, operation)
}

/** The scope that the document demands. A route without one would be open to every key, so it is refused. */
function scopeOf(operationId: string, operation: Operation): Scope {
  const scope = SCOPES.find((known) => known === operation['x-required-scope'])
  if (!scope) throw new Error(`${operationId} needs an x-required-scope out of ${SCOPES.join(', ')}`)
  return scope
}

/** Where the document gives an operation no query parameters, glue makes no schema and any query would pass. */
function refuseQueryWhereNone({ schema }: RouteOptions): void {
  if (schema && 'operationId' in schema) schema.querystring ??= { type: 'object', properties: {} }
}

function routeOf<Context, K extends OperationId>(binding: Binding<Context>, operationId: K, operation: Operation) {
  const handler = binding.handlers[operationId] as Handler<K, Context>
  const isRead = scopeOf(operationId, operation) === 'read'
  return {
    onRequest: [refuseEmptySegments, binding.authenticator.require(scopeOf(operationId, operation))],
    ...(operation.requestBody?.required && { preValidation: requireBody }),
    ...('304' in operation.responses && { serializerCompiler: writeOnce, onSend: sendConditionally }),
    // As quick as what is compiled of the schema, which leaves several times as much garbage of a long list.
    ...('Next-Cursor' in (operation.responses['200']?.headers ?? {}) && { serializerCompiler: () => JSON.stringify }),
    handler: async (request: FastifyRequest, reply: FastifyReply) => {
      const { params, query, headers, body } = request
      const result = await handler({ path: params, query, headers, body } as OperationRequest<K>, binding.context)
      if (isRead) reply.header('cache-control', 'private, no-cache').header('vary', varyOn(reply, 'X-Api-Key'))
      else reply.header('cache-control', 'no-store')
      return bodyOf(result, request, reply)
    },
  }
}

/** Puts what the result says beside its body into headers. */
function bodyOf(result: unknown, request: FastifyRequest, reply: FastifyReply): unknown {
  if (result instanceof Page) {
    if (result.next !== undefined) {
      reply.header('next-cursor', result.next)
      reply.header('link', `<${nextPath(request, result.next)}>; rel="next"`)
    }
    return result.rows
  }
  if (isReplayable(result)) {
    if (result.replayed) reply.header('idempotent-replayed', 'true')
    return result.body
  }
  return result
}

function isReplayable(result: unknown): result is Replayable<unknown> {
  return typeof result === 'object' && result !== null && 'replayed' in result
}

/** The path and query of the next page: this request's, with the cursor put in. */
function nextPath(request: FastifyRequest, cursor: string): string {
  const params = request.params as Record<string, string>
  const path = (request.routeOptions.url ?? '').replace(/:(\w+)/g, (_, name) => encodeURIComponent(params[name] ?? ''))
  const sent = new URLSearchParams(request.originalUrl.split('?')[1] ?? '')
  sent.set('cursor', cursor)
  sent.sort()
  return `${path}?${sent}`
}

function varyOn(reply: FastifyReply, name: string): string {
  const before = reply.getHeader('vary')
  return before === undefined ? name : `${before}, ${name}`
}

/** The router takes an empty segment for a parameter; to the contract there is no such path. */
async function refuseEmptySegments(request: FastifyRequest): Promise<void> {
  if (Object.values(request.params as Record<string, string>).includes('')) {
    request.params = {}
    throw routeNotFound()
  }
}

/** Glue does not enforce `requestBody.required`. */
async function requireBody(request: FastifyRequest): Promise<void> {
  if (request.body === undefined) throw missingBody()
}

function refuseOtherMethods(app: FastifyInstance, path: string, documented: string[]): void {
  const allowed = documented.map((method) => method.toUpperCase())
  if (allowed.includes('GET')) allowed.push('HEAD')
  // CONNECT never reaches a route: Node ends such connections itself.
  const refused = METHODS.filter((method) => !allowed.includes(method) && method !== 'CONNECT')
  for (const method of refused) if (!app.supportedMethods.includes(method)) app.addHttpMethod(method)
  app.route({
    method: refused,
    url: path.replace(/\{(\w+)\}/g, ':$1'),
    onRequest: async (request) => {
      await refuseEmptySegments(request)
      throw methodNotAllowed(allowed)
    },
    handler: () => undefined,
  })
}
