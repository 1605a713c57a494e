import type { FastifyReply } from 'fastify'
import { RateLimiterMemory, RateLimiterRes } from 'rate-limiter-flexible'
import { rateLimited } from '../domain/errors.ts'

const WINDOW_s = 60

/** Limits how many requests each key may make a minute, counted in this process. */
export class RateLimiter {
  readonly #perMinute: number
  readonly #counter: RateLimiterMemory

  constructor(perMinute: number) {
    this.#perMinute = perMinute
    this.#counter = new RateLimiterMemory({ points: perMinute, duration: WINDOW_s })
  }

  /**
   * Counts one request of the key and sends its remaining quota in headers (draft-ietf-httpapi-ratelimit-headers).
   * @throws ApiError rate_limited when the quota is used up
   */
  async consume(keyId: string, reply: FastifyReply): Promise<void> {
    const { state, exceeded } = await this.#counter.consume(keyId).then(
      (state) => ({ state, exceeded: false }),
      (refusal: unknown) => {
        if (!(refusal instanceof RateLimiterRes)) throw refusal
        return { state: refusal, exceeded: true }
      },
    )
    const reset_s = Math.max(1, Math.ceil(state.msBeforeNext / 1000))
    reply.header('ratelimit-policy', `"default";q=${this.#perMinute};w=${WINDOW_s}`)
    reply.header('ratelimit', `"default";r=${state.remainingPoints};t=${reset_s}`)
    if (exceeded) throw rateLimited(this.#perMinute, reset_s)
  }
}
