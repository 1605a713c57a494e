import { randomUUID } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'

const ACCEPTED_REQUEST_ID = /^[\w.~+/=:@-]{1,128}$/

export const newRequestId = (): string => randomUUID()

/** The beginning of an API key, which must not get into the log. */
const API_KEY = /ft_[0-9A-Za-z]{12}_/

/** The client's own `X-Request-Id` if it is safe to log and to echo, else a new one. */
export function requestId({ headers }: { headers: IncomingHttpHeaders }): string {
  const sent = headers['x-request-id']
  const isSafe = typeof sent === 'string' && ACCEPTED_REQUEST_ID.test(sent) && !API_KEY.test(sent)
  return isSafe ? sent : newRequestId()
}
