import { METHODS } from 'node:http'
import compress from '@fastify/compress'
import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import glue from 'fastify-openapi-glue'
import { SMALL_PAGE_bytes, SMALL_VALUE_bytes } from '../database/large-rows.ts'
import type { Database } from '../database/pool.ts'
import type { ReadReplicas } from '../database/replicas.ts'
import { UNKNOWN_POSITION, type WalPosition } from '../database/wal-position.ts'
import { SCOPES, type Scope } from '../domain/api-key.ts'
import { Page, WholeList } from '../domain/cursor.ts'
import { ApiError, invalidRequest, methodNotAllowed, routeNotFound } from '../domain/errors.ts'
import type { Authenticator } from './auth.ts'
import { admitBatch, batchBody, serializeBatch } from './batch.ts'
import { MAX_VALUES_PER_ITEM, missingBody, NDJSON } from './body.ts'
import { evaluateIfNoneMatch, serializeOnce } from './conditional.ts'
import type { ApiDocument, Operation } from './document.ts'
import type { Batch, Handler, Handlers, OperationId, OperationRequest, Replayable, Written } from './operations.ts'
import type { ReadGate } from './read-gate.ts'
import {
  admitRead,
  decorateReads,
  rowsOf,
  serializeRead,
  serializeUnlessDone,
  startSending,
  wholeBody,
} from './reads.ts'
import { batchOf, type Schema, validatorCompiler } from './validation.ts'

interface RoutesOptions<Context> {
  document: ApiDocument
  handlers: Handlers<Context>
  context: Context
  /** Standby servers that reads may be sent to. */
  replicas?: ReadReplicas | undefined
  authenticator: Authenticator
  gate: ReadGate
  /** The largest body of an import; the document says the default. */
  maxImport_bytes: number
  /** Path prefix of every route, `''` for none. */
  basePath: string
}

/**
 * How lists are compressed: from the size on that the document says, in bytes, and always in the threads of zlib, since the event
 * loop is for others meanwhile.
 */
const COMPRESSION = { encodings: ['gzip' as const], threshold: 1024, syncThreshold: 0 }

/**
 * Registers a route for every operation of the document, with its key check, validation and handler, and a 405 for every
 * other method on the same paths.
 *
 * @throws Error when document and handlers do not name the same operations, or an operation requires no scope
 */
export async function registerRoutes<Context extends { db: Database }>(
  app: FastifyInstance,
  options: RoutesOptions<Context>,
): Promise<void> {
  const { document, handlers, basePath } = options
  const operations = operationsOf(document)
  assertComplete(operations, Object.keys(handlers))
  app.setValidatorCompiler(validatorCompiler)
  // Faster than compiled serializers for long lists, and needs no compilation at startup. The trade: nothing drops a field
  // that the document lacks; the tests' check of every response does (ADR 0010).
  app.setSerializerCompiler(serializeUnlessDone(JSON.stringify))
  app.addHook('onRoute', refuseUndocumentedQuery)
  app.addHook('onRoute', prepareBatch(options.gate))
  decorateReads(app)
  await app.register(compress, { global: false })
  await app.register(glue, {
    specification: document,
    prefix: basePath,
    operationResolver: (operationId: string, method: string) => {
      const operation = operations.get(operationId)
      if (!operation) throw new Error(`openapi.yaml has no operation ${operationId}`)
      // Glue adds the method, the URL and the schema. HEAD shares GET's route: the HEAD route that Fastify would derive
      // has a hook that measures the body, and fails on a 304, which has none.
      return {
        ...routeOf(options, operationId as OperationId, operation),
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

/** The scope that the document requires. @throws Error without one, since every key would have access */
function scopeOf(operationId: string, operation: Operation): Scope {
  const scope = SCOPES.find((known) => known === operation['x-required-scope'])
  if (!scope) throw new Error(`${operationId} needs an x-required-scope out of ${SCOPES.join(', ')}`)
  return scope
}

const hooksOf = <Hook>(hooks: Hook | Hook[] | undefined): Hook[] => [hooks ?? []].flat() as Hook[]

/** A batch may have as many fields and items as its items need, and a response that is as large as a read's. */
const prepareBatch =
  (gate: ReadGate) =>
  (route: RouteOptions): void => {
    const body = route.schema?.body as { content: Record<string, { schema: Schema }> } | undefined
    const [name, batch] = batchOf(body?.content['application/json']?.schema ?? {}) ?? []
    if (!name) return
    route.config = { ...route.config, maxBodyValues: MAX_VALUES_PER_ITEM * Number(batch?.maxItems) }
    Object.assign(route, {
      preHandler: [admitBatch(gate, name), ...hooksOf(route.preHandler)],
      preSerialization: [serializeBatch, ...hooksOf(route.preSerialization)],
      onSend: [startSending, ...hooksOf(route.onSend)],
    })
  }

/** Glue makes no schema for an operation without query parameters, so that it would accept any. */
function refuseUndocumentedQuery({ schema }: RouteOptions): void {
  if (schema && 'operationId' in schema) schema.querystring ??= { type: 'object', properties: {} }
}

function routeOf<Context extends { db: Database }, K extends OperationId>(
  options: RoutesOptions<Context>,
  operationId: K,
  operation: Operation,
) {
  const handler = options.handlers[operationId] as Handler<K, Context>
  const isRead = scopeOf(operationId, operation) === 'read'
  const isConditional = '304' in operation.responses
  const { content = {}, 'x-max-bytes': documented_bytes } = operation.requestBody ?? {}
  const isImport = NDJSON in content
  const maxBytes = isImport ? options.maxImport_bytes : documented_bytes
  const usual_bytes = isConditional ? SMALL_VALUE_bytes : SMALL_PAGE_bytes
  const vary = isConditional ? 'X-Api-Key' : 'X-Api-Key, accept-encoding'
  return {
    onRequest: [refuseEmptySegments, options.authenticator.require(scopeOf(operationId, operation))],
    ...(operation.requestBody?.required && { preValidation: [requireBody, options.authenticator.confirmLate] }),
    ...(maxBytes !== undefined && { bodyLimit: maxBytes }),
    ...(isImport && { config: { mediaType: NDJSON } }),
    ...(isRead && { preSerialization: serializeRead, onSend: startSending, compress: COMPRESSION }),
    ...(isConditional && {
      serializerCompiler: serializeUnlessDone(serializeOnce),
      onSend: [startSending, evaluateIfNoneMatch],
      // A strong entity tag is that of one representation.
      compress: false,
    }),
    handler: async (request: FastifyRequest, reply: FastifyReply) => {
      const { params, query, headers, body } = request
      const confirmKey = () => options.authenticator.confirm(request)
      const lease = isRead ? await admitRead(options.gate, request, reply, usual_bytes) : undefined
      const bodyBy = async (context: Context) => {
        const result = await handler(
          { path: params, query, headers, body, lease, confirmKey } as OperationRequest<K>,
          context,
        )
        return isRead
          ? bodyOfRead(result, request, reply)
          : bodyOfWrite(result as Written<unknown> | Batch<unknown>, request, reply, options.replicas)
      }
      const context = isRead ? contextOfRead(options, request, FOR_COPIES.has(operationId)) : options.context
      // The headers below are not for an error.
      const payload = await bodyBy(context).catch((error: unknown) => {
        // What a replica does not have may be too new for it.
        const isMissing = error instanceof ApiError && error.status === 404
        if (isMissing && context.db !== options.context.db) return bodyBy(options.context)
        throw error
      })
      if (isRead) reply.header('cache-control', 'private, no-cache').header('vary', varyOn(reply, vary))
      else reply.header('cache-control', 'no-store')
      return payload
    },
  }
}

/**
 * The reads by which copies are kept. A copy that applies an erasure, and then reads an older state of another server, would keep
 * what was erased for ever; so these are of the primary server.
 */
const FOR_COPIES: ReadonlySet<OperationId> = new Set<OperationId>([
  'listErasures',
  'listProjectEvents',
  'listEntries',
  'listEntryPageViews',
])

/** The context of a read: with the database that it is sent to. */
function contextOfRead<Context extends { db: Database }>(
  { context, replicas }: RoutesOptions<Context>,
  { params, headers }: FastifyRequest,
  isForCopies: boolean,
): Context {
  const position = positionOf(headers['consistency-token'])
  if (!replicas || isForCopies) return context
  const { projectId } = params as { projectId: string }
  return { ...context, db: replicas.databaseFor(projectId, position) }
}

const TOKEN = /^\d{1,16}$/
const FOREIGN_TOKEN = 'is not a token of this API; send the Consistency-Token of an earlier response, unchanged'

/** What a read has to have. The document has it as prose alone: as a parameter it would change each method of generated clients. */
function positionOf(token: string | string[] | undefined): WalPosition | undefined {
  if (token === undefined) return undefined
  if (TOKEN.test(String(token))) return Number(token)
  throw invalidRequest([{ pointer: '/headers/Consistency-Token', message: FOREIGN_TOKEN }])
}

/** The body of the response to a read. Whatever else the result holds is sent in headers. */
function bodyOfRead(result: unknown, request: FastifyRequest, reply: FastifyReply): unknown {
  if (result instanceof Page) return rowsOf(request, result)
  if (result instanceof WholeList) return wholeBody(request, reply, result)
  return result
}

/** The body of the response to a write, which is noted for later reads. */
function bodyOfWrite(
  result: (Written<unknown> & Partial<Replayable<unknown>>) | Batch<unknown>,
  request: FastifyRequest,
  reply: FastifyReply,
  replicas: ReadReplicas | undefined,
): unknown {
  const isBatch = 'settled' in result
  const written = isBatch ? result.settled.flatMap((one) => (one.status === 'fulfilled' ? one.value : [])) : [result]
  if (replicas) noteWrites(replicas, written, request, reply)
  if (isBatch) return batchBody(result, request, reply)
  if (result.replayed) reply.header('idempotent-replayed', 'true')
  return result.body
}

/** Has later reads of this process find what was written, and tells the client what those of another one have to have. */
function noteWrites(
  replicas: ReadReplicas,
  written: readonly Written<unknown>[],
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  const { projectId } = request.params as { projectId: string }
  if (written.length === 0) return
  const last = Math.max(...written.map(({ position = UNKNOWN_POSITION }) => position))
  replicas.noteWrite(projectId, last)
  reply.header('consistency-token', String(last))
}

/** The Vary header with one more name; CORS may have set it already. */
function varyOn(reply: FastifyReply, name: string): string {
  const present = reply.getHeader('vary')
  return present === undefined ? name : `${present}, ${name}`
}

/** The router matches an empty segment as a parameter; the document has no such path. */
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
  const allowed = documented.flatMap((method) => (method === 'get' ? ['GET', 'HEAD'] : [method.toUpperCase()]))
  // CONNECT never reaches a route: Node closes such connections itself.
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
