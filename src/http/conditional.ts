import { hash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { BodyStream } from './response-body.ts'

const bodies = new WeakMap<object, Buffer>()

/** Serializes a result, and one that several requests share only once (ADR 0016). */
export function serializeOnce(result: object): Buffer {
  const body = bodies.get(result) ?? Buffer.from(JSON.stringify(result))
  bodies.set(result, body)
  return body
}

const etags = new WeakMap<Buffer, string>()

/** The strong entity tag of a body, computed once for each (docs/semantics.md#conditional-reads). */
function etagOf(body: Buffer): string {
  const etag = etags.get(body) ?? `"${hash('sha256', body, 'base64url')}"`
  etags.set(body, etag)
  return etag
}

/** The members of a list, of which a tag may contain a comma, so that it cannot be split there. */
const ENTITY_TAGS = /(?<=^|,)\s*(?:(?:W\/)?("[^"]*")|(\*))\s*(?=,|$)/g

/** Whether one member of an If-None-Match is this tag, compared weakly, or `*` (RFC 9110, 13.1.2). */
function matches(header: string, etag: string): boolean {
  return [...header.matchAll(ENTITY_TAGS)].some(([, tag, any]) => any === '*' || tag === etag)
}

/** An onSend hook: sends the ETag of a resource, and 304 instead of a body that the client has already. */
export async function evaluateIfNoneMatch(request: FastifyRequest, reply: FastifyReply, payload: unknown) {
  const isStream = payload instanceof BodyStream
  if (reply.statusCode !== 200 || !(isStream || Buffer.isBuffer(payload))) return payload
  const etag = isStream ? String(payload.etag) : etagOf(payload)
  reply.header('etag', etag)
  const header = request.headers['if-none-match']
  if (header === undefined || !matches(header, etag)) return payload
  reply.code(304).removeHeader('content-type').removeHeader('content-length')
  return null
}
