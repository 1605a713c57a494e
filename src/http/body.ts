import type { IncomingMessage } from 'node:http'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { type MediaType, malformedRequest, payloadTooLarge, unsupportedMediaType } from '../domain/errors.ts'
import { hasManyValues } from '../domain/json-values.ts'
import { type Limit, Usage } from '../domain/usage.ts'
import { hasTimedOut, requestTimeout } from './client-errors.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** More than the fields and items of any valid body. */
    maxBodyValues?: number
    /** Of the body; JSON without it. */
    mediaType?: MediaType
  }
}

export const NDJSON = 'application/x-ndjson'

/** The largest body that is read unless the operation says otherwise (docs/semantics.md#errors). */
export const MAX_BODY_bytes = 256 * 1024

/**
 * More than the fields and items of any valid body. Each takes time to parse, to validate and to report: 26,000 would keep
 * all other requests waiting for a tenth of a second.
 */
export const MAX_VALUES = 200

/** The same for each item of a batch on average: a valid one has 37. */
export const MAX_VALUES_PER_ITEM = 50

/** How many parts of any length a body may have (more if it is of lines), and how long the rest must be on average. */
const SMALL_PARTS = 1_000
const SMALL_PARTS_OF_LINES = 10_000
const MIN_PART_bytes = 64
/** So many parts are joined: a Buffer of one byte takes hundreds. */
const JOINED_PARTS = 128

/** How much of incomplete JSON bodies is kept: a client may take half a minute to send one. */
const ARRIVING_bytes = { all: 128 * 1024 * 1024, project: 64 * 1024 * 1024 }

const UTF8_PARAMETER = /^\s*(;\s*(charset\s*=\s*"?utf-?8"?\s*)?)?$/i
const utf8 = new TextDecoder('utf-8', { fatal: true })

/** Whether a Content-Type is this media type in UTF-8. */
function isOf(mediaType: MediaType, type: string): boolean {
  const [given, parameter] = [type.slice(0, mediaType.length), type.slice(mediaType.length)]
  return given.toLowerCase() === mediaType && UTF8_PARAMETER.test(parameter)
}

/**
 * Accepts as request bodies JSON in UTF-8 only, and lines of JSON for the operations that take them.
 * @param arriving_bytes how much of incomplete bodies of JSON is kept
 */
export function acceptJsonOnly(app: FastifyInstance, arriving_bytes: Limit = ARRIVING_bytes): void {
  deferContinue(app)
  const arriving = new Usage(arriving_bytes)
  app.addContentTypeParser(
    'application/json',
    async ({ routeOptions, params }: FastifyRequest, payload: IncomingMessage) => {
      const { projectId } = params as { projectId: string }
      const bytes = await wholeOf(payload, routeOptions.bodyLimit, arriving, projectId)
      return parseJson(bytes, routeOptions.config.maxBodyValues ?? MAX_VALUES)
    },
  )
  app.addContentTypeParser(NDJSON, async ({ routeOptions }: FastifyRequest, payload: IncomingMessage) =>
    partsOf(payload, routeOptions.bodyLimit),
  )
  app.addHook('preParsing', async (request, reply) => {
    if (request.method === 'GET' || request.method === 'HEAD') return
    const {
      'content-type': type,
      'content-encoding': encoding,
      'transfer-encoding': transfer = 'chunked',
    } = request.headers
    const isCompressed = encoding !== undefined || transfer.toLowerCase() !== 'chunked'
    const isRepeated = Number(request.raw.headersDistinct?.['content-type']?.length) > 1
    const { bodyLimit, config } = request.routeOptions
    const { mediaType = 'application/json' } = config
    if (isCompressed || isRepeated || (type === undefined ? mediaType === NDJSON : !isOf(mediaType, type))) {
      throw unsupportedMediaType(mediaType)
    }
    if (Number(request.headers['content-length']) > bodyLimit) throw payloadTooLarge(bodyLimit)
    // Only now, after the key check.
    if (expectsContinue(request.raw)) reply.raw.writeContinue()
  })
}

/** Whether a client waits for `100 Continue` (RFC 9110, section 10.1.1); one of HTTP/1.0 would not understand it. */
const expectsContinue = ({ headers, httpVersion }: IncomingMessage) =>
  httpVersion !== '1.0' && headers.expect?.toLowerCase() === '100-continue'

/**
 * Hands requests with an `Expect` header to the app like all others. Node would send `100 Continue` before the key is
 * checked, inviting anyone to send a body, and would refuse other expectations without the error envelope.
 */
function deferContinue(app: FastifyInstance): void {
  for (const event of ['checkContinue', 'checkExpectation']) {
    app.server.on(event, (request, response) => app.server.emit('request', request, response))
  }
}

/**
 * @returns what checks each part of a body
 * @throws (the function that is returned) ApiError payload_too_large; invalid_request for a body that is sent in chunks of a few
 * bytes, each of which takes the time and memory of a large one
 */
function partCheck(limit_bytes: number, smallParts: number): (part: Buffer) => void {
  let [bytes, count] = [0, 0]
  return ({ length }) => {
    bytes += length
    count += 1
    if (bytes > limit_bytes) throw payloadTooLarge(limit_bytes)
    if (count > smallParts + bytes / MIN_PART_bytes) {
      throw malformedRequest('The body is sent in chunks of a few bytes each; send larger chunks.')
    }
  }
}

/** @throws ApiError invalid_request for a body that is complete only after its client was told that its time is up */
function requireInTime({ socket }: IncomingMessage): void {
  if (hasTimedOut(socket)) throw requestTimeout()
}

const cutOff = () => malformedRequest('The body is cut off.')

/**
 * A body as a whole; by events, since iterators take 4 % of the time of a recording more.
 *
 * @param arriving gets what has arrived of bodies, until they are complete
 * @throws ApiError as `partCheck` and `requireInTime` do; invalid_request for a body that is cut off; service_unavailable when
 * too much is arriving
 */
async function wholeOf(
  payload: IncomingMessage,
  limit_bytes: number,
  arriving: Usage,
  projectId: string,
): Promise<Buffer> {
  const check = partCheck(limit_bytes, SMALL_PARTS)
  const joined: Buffer[] = []
  const parts: Buffer[] = []
  let kept_bytes = 0
  await new Promise<void>((resolve, reject) => {
    const onData = (part: Buffer) => {
      try {
        check(part)
        arriving.take(projectId, part.length)
        kept_bytes += part.length
        parts.push(part)
        if (parts.length === JOINED_PARTS) joined.push(Buffer.concat(parts.splice(0)))
      } catch (error) {
        // The rest is discarded.
        payload.off('data', onData)
        joined.length = parts.length = 0
        reject(error)
      }
    }
    payload.on('data', onData)
    payload.once('error', () => reject(cutOff()))
    payload.once('end', resolve)
  }).finally(() => arriving.add(projectId, -kept_bytes))
  requireInTime(payload)
  return Buffer.concat([...joined, ...parts])
}

/**
 * The parts of a body as they arrive. What is not read is discarded, so that the connection can be used again.
 *
 * @throws ApiError as `partCheck` and `requireInTime` do; invalid_request for a body that is cut off
 */
async function* partsOf(payload: IncomingMessage, limit_bytes: number): AsyncGenerator<Buffer> {
  const check = partCheck(limit_bytes, SMALL_PARTS_OF_LINES)
  const parts: AsyncIterator<Buffer> = payload.iterator({ destroyOnReturn: false })
  try {
    for (;;) {
      const { value, done } = await parts.next().catch(() => {
        throw cutOff()
      })
      if (done) {
        requireInTime(payload)
        return
      }
      check(value)
      yield value
    }
  } finally {
    await parts.return?.()
    payload.resume()
  }
}

function parseJson(bytes: Buffer, maxValues: number): unknown {
  let text: string
  try {
    text = utf8.decode(bytes)
  } catch {
    throw malformedRequest('The body is not valid UTF-8; encode it as UTF-8.')
  }
  if (text === '') throw missingBody()
  if (hasManyValues(text, maxValues)) {
    throw tooManyValues(maxValues)
  }
  try {
    return JSON.parse(text)
  } catch (error) {
    throw malformedRequest(`The body is not valid JSON${whereFrom((error as SyntaxError).message)}.`)
  }
}

/** Where JSON.parse stopped, taken from its error message; nothing if that is worded in an unknown way. */
function whereFrom(message: string): string {
  const { position, token } =
    /(?:at (?<position>position \d+)|^Unexpected token '(?<token>.)')/su.exec(message)?.groups ?? {}
  if (position !== undefined) return ` (at ${position})`
  if (token !== undefined) return `: unexpected token ${JSON.stringify(token)}`
  return message === 'Unexpected end of JSON input' ? ': unexpected end of input' : ''
}

export const tooManyValues = (max: number) =>
  malformedRequest(`The body must have at most ${max} fields and items in all.`)

export const missingBody = () => malformedRequest('A JSON body is required; the request has none.')
