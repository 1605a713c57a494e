import type { FastifyReply } from 'fastify'
import { RateLimiterMemory } from 'rate-limiter-flexible'
import { rateLimited } from '../domain/errors.ts'

const WINDOW_s = 60

/** The requests of a key in its current minute. */
export interface RequestCount {
  requests: number
  /** Until the minute is over. */
  rest_ms: number
}

/** Counts one more request of a key. */
export type CountRequest = (keyId: string) => Promise<RequestCount>

/** Makes what counts requests in this process. */
export function requestCounter(): CountRequest {
  const counter = new RateLimiterMemory({ points: 0, duration: WINDOW_s })
  return async (keyId) => {
    const { consumedPoints, msBeforeNext } = await counter.penalty(keyId)
    return { requests: consumedPoints, rest_ms: msBeforeNext }
  }
}

/** Limits how many requests each key may make a minute. */
export class RateLimiter {
  readonly #perMinute: number
  readonly #count: CountRequest

  /** @param count counts requests elsewhere than in this process */
  constructor(perMinute: number, count = requestCounter()) {
    this.#perMinute = perMinute
    this.#count = count
  }

  /**
   * Counts one request of the key and sends its remaining quota in headers (draft-ietf-httpapi-ratelimit-headers).
   * @throws ApiError rate_limited when the quota is used up
   */
  async consume(keyId: string, reply: FastifyReply): Promise<void> {
    const { requests, rest_ms } = await this.#count(keyId)
    const reset_s = Math.max(1, Math.ceil(rest_ms / 1000))
    reply.header('ratelimit-policy', `"default";q=${this.#perMinute};w=${WINDOW_s}`)
    reply.header('ratelimit', `"default";r=${Math.max(0, this.#perMinute - requests)};t=${reset_s}`)
    if (requests > this.#perMinute) throw rateLimited(this.#perMinute, reset_s)
  }
}
