import type { FastifyInstance } from 'fastify'
import { unreadableRequest, unsupportedMediaType } from '../domain/errors.ts'

/** The largest body that is read (decisions, "Errors"). */
export const MAX_BODY_bytes = 256 * 1024

const JSON_UTF8 = /^application\/json\s*(;\s*(charset\s*=\s*"?utf-?8"?\s*)?)?$/i
const utf8 = new TextDecoder('utf-8', { fatal: true })

/** Takes JSON in UTF-8 as the only body there is, and says what is wrong with any other. */
export function acceptJsonOnly(app: FastifyInstance): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(
    'application/json',
    { parseAs: 'buffer', bodyLimit: MAX_BODY_bytes },
    async (_: unknown, bytes: Buffer) => parseJson(bytes),
  )
  app.addHook('preParsing', async (request, reply) => {
    if (request.method === 'GET' || request.method === 'HEAD') return
    const { 'content-type': type, 'content-encoding': encoding } = request.headers
    const isRepeated = (request.raw.headersDistinct?.['content-type']?.length ?? 0) > 1
    if (encoding !== undefined || isRepeated || (type !== undefined && !JSON_UTF8.test(type))) {
      throw unsupportedMediaType()
    }
    // Not before: a caller without a right key is not to be invited to send a body.
    if (request.headers.expect === '100-continue') reply.raw.writeContinue()
  })
}

function parseJson(bytes: Buffer): unknown {
  let text: string
  try {
    text = utf8.decode(bytes)
  } catch {
    throw unreadableRequest('The body is not valid UTF-8; encode it so.')
  }
  if (text === '') throw missingBody()
  try {
    return JSON.parse(text)
  } catch (error) {
    throw unreadableRequest(`The body is not valid JSON${whereFrom((error as SyntaxError).message)}.`)
  }
}

/** Where JSON.parse stopped, out of what it says; nothing when it says it in a way that is not known here. */
function whereFrom(message: string): string {
  const { position, token } =
    /(?:at (?<position>position \d+)|^Unexpected token '(?<token>.)')/su.exec(message)?.groups ?? {}
  if (position !== undefined) return ` (at ${position})`
  if (token !== undefined) return `: unexpected token ${JSON.stringify(token)}`
  return message === 'Unexpected end of JSON input' ? ': it ends too early' : ''
}

export const missingBody = () => unreadableRequest('A JSON body is needed; the request has none.')
