import { randomUUIDv7 } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'

const ACCEPTED_REQUEST_ID = /^[\w.~+/=:@-]{1,128}$/

export const newRequestId = (): string => randomUUIDv7()

/** The client's own `X-Request-Id` if it is safe to log and to echo, else a new one. */
export function requestId({ headers }: { headers: IncomingHttpHeaders }): string {
  const sent = headers['x-request-id']
  return typeof sent === 'string' && ACCEPTED_REQUEST_ID.test(sent) ? sent : newRequestId()
}
