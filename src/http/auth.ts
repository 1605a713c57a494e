import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Database } from '../database/pool.ts'
import { isAccepted, parseKey, type Scope } from '../domain/api-key.ts'
import { insufficientScope, unauthorized } from '../domain/errors.ts'
import { idIssue } from '../domain/text.ts'
import { findKey, updateKeyUsed } from '../queries/api-keys.ts'
import { KnownKeys } from './api-key-cache.ts'
import type { RateLimiter } from './rate-limit.ts'

const MINUTE_ms = 60_000

type FoundKey = NonNullable<Awaited<ReturnType<typeof findKey>>>

/** Checks keys against what the database said less than a second ago. */
export class Authenticator {
  readonly #db: Database
  readonly #limiter: RateLimiter | undefined
  readonly #onError: (error: unknown) => void
  readonly #keys = new KnownKeys<FoundKey>()
  /** Keys whose use in this minute is noted already; begun anew each minute, which bounds it. */
  #noted = new Set<string>()
  #minute = 0
  readonly #writes = new Set<Promise<void>>()

  /** @param onError told when noting a key's use failed, which fails no request */
  constructor(db: Database, limiter: RateLimiter | undefined, onError: (error: unknown) => void) {
    this.#db = db
    this.#limiter = limiter
    this.#onError = onError
  }

  /**
   * A hook that lets pass only keys of the project in the path with this scope, within their rate.
   * The hook throws ApiError unauthorized, rate_limited or insufficient_scope, in this order.
   */
  require(scope: Scope): (request: FastifyRequest, reply: FastifyReply) => Promise<void> {
    return async (request, reply) => {
      const { projectId } = request.params as { projectId: string }
      const header = request.headers['x-api-key']
      const key = typeof header === 'string' ? parseKey(header) : undefined
      if (!key || idIssue(projectId) !== undefined) throw unauthorized()

      const ask = () => findKey(this.#db, projectId, key.key_id)
      const stored = await this.#keys.find(`${projectId}\0${key.key_id}`, ask)
      if (!stored || !isAccepted(key, stored, new Date())) throw unauthorized()

      this.#noteUse(projectId, key.key_id)
      await this.#limiter?.consume(key.key_id, reply)
      if (!stored.scopes.includes(scope)) throw insufficientScope(scope)
    }
  }

  /** Resolves when every use noted so far is written. */
  async settle(): Promise<void> {
    await Promise.all(this.#writes)
  }

  #noteUse(projectId: string, keyId: string): void {
    const minute = Math.floor(Date.now() / MINUTE_ms)
    if (minute !== this.#minute) {
      this.#minute = minute
      this.#noted = new Set()
    }
    if (this.#noted.has(keyId)) return
    this.#noted.add(keyId)
    const write = updateKeyUsed(this.#db, projectId, keyId, new Date(minute * MINUTE_ms).toISOString())
      .catch(this.#onError)
      .finally(() => this.#writes.delete(write))
    this.#writes.add(write)
  }
}
