import type { onRequestHookHandler } from 'fastify'
import { invalidEncoding } from '../domain/errors.ts'
import { MALFORMED } from './query-string.ts'

/** Replaces a path that cannot be decoded. No client can send it: HTTP does not allow NUL. */
const UNDECODABLE = '/\0'

/**
 * Fastify's `rewriteUrl`: the router responds to a path that it cannot decode before any hook runs. Rewritten to one that
 * it can decode, such a request reaches the hooks, `refuseInvalidEncoding` among them.
 */
export const rewriteUndecodable = ({ url = '/' }: { url?: string }): string => (isDecodable(url) ? url : UNDECODABLE)

/** Whether a request target's path can be percent-decoded; its query is checked by the query parser. */
function isDecodable(url: string): boolean {
  try {
    decodeURIComponent(url.split('?')[0] as string)
    return true
  } catch {
    return false
  }
}

/** An onRequest hook that refuses, with invalid_request, a URL that is not percent-encoded UTF-8 or has a fragment. */
export const refuseInvalidEncoding: onRequestHookHandler = ({ url, originalUrl, query }, _reply, done) => {
  const malformed = (query as { [MALFORMED]?: string })[MALFORMED]
  done(url === UNDECODABLE || malformed !== undefined || originalUrl.includes('#') ? invalidEncoding() : undefined)
}
