import type { IncomingHttpHeaders } from 'node:http'

/** W3C Trace Context, section 3.2. Versions after 00 may have more at the end. */
const TRACEPARENT = /^(?!ff|00.{54})[\da-f]{2}-(?!0{32})([\da-f]{32})-(?!0{16})([\da-f]{16})-([\da-f]{2})(-|$)/

/** The caller's span, by the ids and the flags of its `traceparent` header. */
export interface CallerSpan {
  traceId: string
  spanId: string
  traceFlags: number
}

/** The span in which the caller has sent the request, if it names one and the header is well-formed. */
export function callerSpan({ traceparent }: IncomingHttpHeaders): CallerSpan | undefined {
  const [, traceId, spanId, flags] = (typeof traceparent === 'string' && TRACEPARENT.exec(traceparent)) || []
  return traceId && spanId && flags ? { traceId, spanId, traceFlags: Number.parseInt(flags, 16) } : undefined
}
