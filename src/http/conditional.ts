import { hash } from 'node:crypto'
import { type RouteDefinition, SerializerSelector } from '@fastify/fast-json-stringify-compiler'
import type { FastifyReply, FastifyRequest } from 'fastify'

const serializers = SerializerSelector()({}, {})

/** For Fastify: writes an answer as its schema says, once if many requests share it (see database/batch-loader.ts). */
export const writeOnce = (route: RouteDefinition) => {
  const write = serializers(route)
  const written = new WeakMap<object, Buffer>()
  return (answer: object) => {
    const bytes = written.get(answer) ?? Buffer.from(write(answer))
    written.set(answer, bytes)
    return bytes
  }
}

const tags = new WeakMap<Buffer, string>()

/** The strong entity tag of a body, made once for each that was written (decisions, "Conditional reads"). */
function tagOf(body: Buffer): string {
  const tag = tags.get(body) ?? `"${hash('sha256', body, 'base64url')}"`
  tags.set(body, tag)
  return tag
}

/** A tag may hold a comma, so a list of them is not simply split. */
const ENTITY_TAGS = /(?:W\/)?("[^"]*")|\*/g

/** Whether one member of an If-None-Match is this tag, compared weakly, or `*` (RFC 9110, 13.1.2). */
function matches(header: string, etag: string): boolean {
  return [...header.matchAll(ENTITY_TAGS)].some(([member, tag]) => member === '*' || tag === etag)
}

/** An onSend hook: gives a resource its entity tag, and answers 304 when the caller has it already. */
export async function sendConditionally(request: FastifyRequest, reply: FastifyReply, payload: unknown) {
  if (reply.statusCode !== 200 || !Buffer.isBuffer(payload)) return payload
  const etag = tagOf(payload)
  reply.header('etag', etag)
  const header = request.headers['if-none-match']
  if (header === undefined || !matches(header, etag)) return payload
  reply.code(304).removeHeader('content-type').removeHeader('content-length')
  return null
}
