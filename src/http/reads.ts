import { Readable } from 'node:stream'
import type {
  FastifyInstance,
  FastifyReply,
  FastifyRequest,
  onSendHookHandler,
  preSerializationHookHandler,
} from 'fastify'
import { MAX_PAGE_bytes, SMALL_ROW_bytes } from '../database/large-rows.ts'
import type { Page, WholeList } from '../domain/cursor.ts'
import { ApiError } from '../domain/errors.ts'
import { logFailure } from './outages.ts'
import type { Lease, ReadGate } from './read-gate.ts'
import { BodyStream, isLarge, type Serialized, serializeLarge, serializePart, serializeRows } from './response-body.ts'

const JSON_TYPE = 'application/json; charset=utf-8'

declare module 'fastify' {
  interface FastifyRequest {
    /** What the read uses, once it is admitted, or the response to a batch. */
    lease: Lease | undefined
    /** The page whose rows are the payload. */
    page: Page<unknown> | undefined
  }
}

/** Declares what a request holds of its read. */
export function decorateReads(app: FastifyInstance): void {
  app.decorateRequest('lease', undefined)
  app.decorateRequest('page', undefined)
}

/**
 * Waits until a read may begin.
 *
 * @param usual_bytes how much one without a limit reads
 * @throws ApiError service_unavailable
 */
export async function admitRead(
  gate: ReadGate,
  request: FastifyRequest,
  reply: FastifyReply,
  usual_bytes: number,
): Promise<Lease> {
  const { projectId } = request.params as { projectId: string }
  const { limit, wait } = request.query as { limit?: number; wait?: number }
  if (wait) {
    // It begins when there is something to read.
    request.lease = gate.lease(projectId, reply.raw)
    return request.lease
  }
  // One that finds larger values asks for more.
  const bytes = limit === undefined ? usual_bytes : limit * SMALL_ROW_bytes
  const admission = gate.admit(projectId, bytes, reply.raw)
  const lease = admission instanceof Promise ? await admission : admission
  request.lease = lease
  return lease
}

/** The payload of a page: its rows. {@link serializeRead} adds the headers that lead to the next one. */
export function rowsOf(request: FastifyRequest, page: Page<unknown>): unknown[] {
  request.page = page
  return page.rows
}

/** The payload of a list without pages: its rows if they are few, else a stream of what is read as the client takes it. */
export async function wholeBody(request: FastifyRequest, reply: FastifyReply, list: WholeList<object>) {
  const { lease, method } = request
  const page = await list.read()
  const { more } = page.continuationAfter(page.rows.length)
  const isSmall = !more && !lease?.isExtended
  // For a client that is gone, serializeRead makes nothing of the rows.
  if (isSmall || reply.raw.destroyed) return page.rows
  reply.type(JSON_TYPE)
  const { body, cursor } = await startPart(page, request, '[')
  // A response to HEAD has headers alone, for which nothing more needs to be read.
  const first = { body, cursor: method === 'HEAD' ? undefined : cursor }
  return Readable.from(partsOf(list, first, request), { objectMode: false })
}

/** A part of a long list on its way to the client. */
interface ListPart {
  body: BodyStream
  /** Where the next part begins, if there is one. */
  cursor: string | undefined
}

/** The parts of a long list from the first on. The next one is read when the client has taken the one before, which may take long. */
async function* partsOf(
  list: WholeList<object>,
  first: ListPart,
  request: FastifyRequest,
): AsyncGenerator<Buffer, void> {
  let last = first
  for (let part: ListPart | undefined = first; part; part = await nextPart(list, part, request)) {
    yield* part.body
    last = part
  }
  // Nothing is read any more, also when the last part was empty.
  request.lease?.send(last.body.unsent_bytes)
  yield Buffer.from(']')
}

/** Reads the next part of a list whose response has begun, so that it breaks off when that fails. */
async function nextPart(
  list: WholeList<object>,
  { body, cursor }: ListPart,
  request: FastifyRequest,
): Promise<ListPart | undefined> {
  if (cursor === undefined) return undefined
  try {
    const page = await list.read(cursor)
    if (page.rows.length > 0) return await startPart(page, request, ',', body.unsent_bytes)
  } catch (error) {
    const { lease } = request
    if (!(error instanceof ApiError)) logFailure(request, error, 'list failed while it was sent')
    // Else it failed because its client is gone.
    else if (!lease?.isClosed) request.facts.errorCode = error.errorCode
    lease?.send(0)
    throw error
  }
}

/** Serializes a part, with which nothing more is read for the time being. @param unsent_bytes of the part before */
async function startPart(
  page: Page<object>,
  request: FastifyRequest,
  opening: '[' | ',',
  unsent_bytes = 0,
): Promise<ListPart> {
  const { lease } = request
  const { body, rows } = await serializePart(page.rows, !lease?.isExtended, MAX_PAGE_bytes, opening)
  trackSending(body, lease, unsent_bytes)
  return { body, cursor: page.continuationAfter(rows).cursor }
}

function trackSending(body: BodyStream, lease: Lease | undefined, unsent_bytes = 0): void {
  body.onPart = (bytes) => lease?.sent(bytes)
  lease?.send(body.bytes + unsent_bytes)
}

/** A preSerialization hook for lists and large results. It ends a page that becomes too large. */
export const serializeRead: preSerializationHookHandler<unknown> = (request, reply, payload, done) => {
  const result = payload as object
  if (reply.statusCode !== 200) done(null, payload)
  // Nobody is there to read it.
  else if (reply.raw.destroyed) done(null, '')
  else if (Array.isArray(result)) {
    const finish = ({ body, rows }: Serialized) => {
      const { cursor, more } = page?.continuationAfter(rows) ?? {}
      // The request lives until all is sent, which may take long.
      request.page = undefined
      if (cursor !== undefined) {
        reply.header('next-cursor', cursor)
        if (more) reply.header('link', `<${nextPath(request, cursor)}>; rel="next"`)
      }
      done(null, body)
    }
    const { page, lease } = request
    const areSmall = !lease?.isExtended
    const serialized = serializeRows(result, areSmall, page ? MAX_PAGE_bytes : Number.POSITIVE_INFINITY)
    if (serialized instanceof Promise) serialized.then(finish, done)
    else finish(serialized)
  } else if (isLarge(result)) serializeLarge(result).then((body) => done(null, body), done)
  else done(null, payload)
}

/** A serializer of what {@link serializeRead} has left. */
export const serializeUnlessDone = (serialize: (result: object) => string | Buffer) => () => (payload: unknown) =>
  (typeof payload === 'string' || payload instanceof BodyStream ? payload : serialize(payload as object)) as string

/** An onSend hook: nothing more is read, and the body is on the way to the client. That of {@link wholeBody} has begun already. */
export const startSending: onSendHookHandler<unknown> = (request, reply, payload, done) => {
  const { lease } = request
  // To Fastify a stream that cannot be sent has failed, even if nobody is there to read it.
  const body = payload instanceof BodyStream && reply.raw.destroyed ? '' : payload
  if (body instanceof BodyStream) {
    reply.header('content-length', body.bytes)
    trackSending(body, lease)
  } else if (!(body instanceof Readable)) lease?.send(Buffer.byteLength((body as string | Buffer | null) ?? ''))
  done(null, body)
}

/** The path and query of the next page: this request's, with the cursor set. */
function nextPath(request: FastifyRequest, cursor: string): string {
  const params = request.params as Record<string, string>
  const path = (request.routeOptions.url ?? '').replace(/:(\w+)/g, (_, name) => encodeURIComponent(params[name] ?? ''))
  const sent = new URLSearchParams(request.originalUrl.split('?')[1] ?? '')
  sent.set('cursor', cursor)
  // The cursor says where the page begins.
  sent.delete('after')
  sent.sort()
  return `${path}?${sent}`
}
