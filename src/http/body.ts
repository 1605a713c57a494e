import type { FastifyInstance, FastifyRequest } from 'fastify'
import { malformedRequest, unsupportedMediaType } from '../domain/errors.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** More than the fields and items of any valid body. */
    maxBodyValues?: number
  }
}

/** The largest body that is read unless the operation says otherwise (docs/semantics.md#errors). */
export const MAX_BODY_bytes = 256 * 1024

/**
 * More than the fields and items of any valid body. Each takes time to parse, to validate and to report: 26,000 would keep
 * all other requests waiting for a tenth of a second.
 */
export const MAX_VALUES = 200

/** The same for each item of a batch on average: a valid one has 37. */
export const MAX_VALUES_PER_ITEM = 50

const JSON_UTF8 = /^application\/json\s*(;\s*(charset\s*=\s*"?utf-?8"?\s*)?)?$/i
const utf8 = new TextDecoder('utf-8', { fatal: true })

/** Accepts JSON in UTF-8 as the only request body. */
export function acceptJsonOnly(app: FastifyInstance): void {
  deferContinue(app)
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, async (request: FastifyRequest, bytes: Buffer) =>
    parseJson(bytes, request.routeOptions.config.maxBodyValues ?? MAX_VALUES),
  )
  app.addHook('preParsing', async (request, reply) => {
    if (request.method === 'GET' || request.method === 'HEAD') return
    const { 'content-type': type, 'content-encoding': encoding } = request.headers
    const isRepeated = Number(request.raw.headersDistinct?.['content-type']?.length) > 1
    if (encoding !== undefined || isRepeated || (type !== undefined && !JSON_UTF8.test(type))) {
      throw unsupportedMediaType()
    }
    // Only now, after the key check.
    if (request.headers.expect === '100-continue') reply.raw.writeContinue()
  })
}

/**
 * Hands requests with an `Expect` header to the app like all others. Node would send `100 Continue` before the key is
 * checked, inviting anyone to send a body, and would refuse other expectations without the error envelope.
 */
function deferContinue(app: FastifyInstance): void {
  for (const event of ['checkContinue', 'checkExpectation']) {
    app.server.on(event, (request, response) => app.server.emit('request', request, response))
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
  if (hasManyValues(bytes, maxValues)) {
    throw tooManyValues(maxValues)
  }
  try {
    return JSON.parse(text)
  } catch (error) {
    throw malformedRequest(`The body is not valid JSON${whereFrom((error as SyntaxError).message)}.`)
  }
}

const [QUOTE, BACKSLASH, COMMA, ARRAY, OBJECT] = Buffer.from('"\\,[{')

/** Whether JSON has more values: each follows a comma or is the first of its array or object. */
function hasManyValues(json: Buffer, max: number): boolean {
  let values = 0
  let isInString = false
  for (let i = 0; i < json.length && values <= max; i += 1) {
    const byte = json[i]
    if (byte === QUOTE) isInString = !isInString
    else if (isInString) i += byte === BACKSLASH ? 1 : 0
    else if (byte === COMMA || byte === ARRAY || byte === OBJECT) values += 1
  }
  return values > max
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
  malformedRequest(`The body has more than ${max} fields and items, which no valid one has.`)

export const missingBody = () => malformedRequest('A JSON body is required; the request has none.')
