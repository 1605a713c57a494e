import type { FastifyRequest, FastifyServerOptions } from 'fastify'

type Logger = FastifyServerOptions['logger']

/** What a log line holds of a request: neither headers nor the query, which may hold keys and personal data. */
const serializeRequest = ({ method, originalUrl, ip }: FastifyRequest) => ({
  method,
  path: originalUrl.split(/[?#]/)[0],
  ip,
})

/** The logger's options, with requests logged without anything confidential. */
export function withRequestSerializer(logger: Logger): Logger {
  return typeof logger === 'object' ? { ...logger, serializers: { req: serializeRequest as never } } : logger
}
