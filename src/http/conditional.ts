import { createHash } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'

/** A tag may hold a comma, so a list of them is not simply split. */
const ENTITY_TAGS = /(?:W\/)?("[^"]*")|\*/g

/** Whether one member of an If-None-Match is this tag, compared weakly, or `*` (RFC 9110, 13.1.2). */
function matches(header: string, etag: string): boolean {
  return [...header.matchAll(ENTITY_TAGS)].some(([member, tag]) => member === '*' || tag === etag)
}

/** An onSend hook: gives a resource a strong entity tag, and answers 304 when the caller has it already. */
export async function sendConditionally(request: FastifyRequest, reply: FastifyReply, payload: unknown) {
  if (reply.statusCode !== 200 || typeof payload !== 'string') return payload
  const etag = `"${createHash('sha256').update(payload).digest('base64url')}"`
  reply.header('etag', etag)
  const header = request.headers['if-none-match']
  if (header === undefined || !matches(header, etag)) return payload
  reply.code(304).removeHeader('content-type').removeHeader('content-length')
  return null
}
