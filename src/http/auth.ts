import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Database } from '../database/pool.ts'
import { isAccepted, parseKey, type Scope } from '../domain/api-key.ts'
import { insufficientScope, unauthorized } from '../domain/errors.ts'
import { idIssue } from '../domain/text.ts'
import { findKey, findKeysFingerprint } from '../queries/api-keys.ts'
import { ApiKeyCache } from './api-key-cache.ts'
import { KeyUses } from './key-uses.ts'
import type { Peers } from './peers.ts'
import type { RateLimiter } from './rate-limit.ts'
import { RefusalLimiter } from './refusal-limit.ts'

/** After how long a key is checked again. What is known of keys may itself be a second old (ADR 0007). */
const LATE_ms = 500

type Credentials = ReturnType<typeof credentialsOf>
type KeyRow = NonNullable<Awaited<ReturnType<typeof findKey>>>

/** Authenticates requests by API key, limits their rate and checks their scope. */
export class Authenticator {
  readonly #db: Database
  readonly #limiter: RateLimiter | undefined
  readonly cache: ApiKeyCache<KeyRow>
  readonly #refusals: RefusalLimiter
  readonly #uses: KeyUses

  /** @param onError called when uses of keys could not be written, which fails no request */
  constructor(db: Database, limiter: RateLimiter | undefined, onError: (error: unknown) => void, peers?: Peers) {
    this.#db = db
    this.cache = new ApiKeyCache(() => findKeysFingerprint(db))
    this.#refusals = new RefusalLimiter(peers)
    this.#limiter = limiter
    this.#uses = new KeyUses(db, onError)
  }

  /**
   * An onRequest hook that accepts only keys of the project in the path that have this scope, within their rate limit.
   * The hook throws ApiError unauthorized (or rate_limited, if that has been the response to the address too often),
   * rate_limited or insufficient_scope, in this order.
   */
  require(scope: Scope): (request: FastifyRequest, reply: FastifyReply) => Promise<void> {
    return async (request, reply) => {
      const credentials = credentialsOf(request)
      const { projectId, key, name } = credentials
      request.facts.keyId = key.key_id
      const find = () => this.#find(credentials)
      const stored = await (this.cache.knows(name) ? find() : this.#refusals.lookUp(request.ip, async () => find()))
      if (!stored) throw unauthorized()
      if (!isAccepted(key, stored, new Date())) throw this.#refusals.refuse(request.ip)

      request.facts.projectId = projectId
      this.#uses.record(name, projectId, key.key_id)
      await this.#limiter?.consume(key.key_id, reply)
      if (!stored.scopes.includes(scope)) throw insufficientScope(scope)
    }
  }

  /** Checks the key of a request that was accepted a while ago. @throws ApiError unauthorized */
  async confirm(request: FastifyRequest): Promise<void> {
    const credentials = credentialsOf(request)
    const stored = await this.#find(credentials)
    if (!stored || !isAccepted(credentials.key, stored, new Date())) throw unauthorized()
  }

  /**
   * A hook that checks the key again of a request that took long to arrive, in which the key may have been revoked. It throws
   * ApiError unauthorized.
   */
  readonly confirmLate = async (request: FastifyRequest, { elapsedTime: elapsed_ms }: FastifyReply): Promise<void> => {
    if (elapsed_ms >= LATE_ms) await this.confirm(request)
  }

  /** Resolves when every use of a key so far is written. */
  settle(): Promise<void> {
    return this.#uses.write()
  }

  #find({ projectId, key, name }: Credentials) {
    return this.cache.get(name, () => findKey(this.#db, projectId, key.key_id))
  }
}

/** @throws ApiError unauthorized when the request cannot have access, whatever is stored */
function credentialsOf(request: FastifyRequest) {
  const { projectId } = request.params as { projectId: string }
  const header = request.headers['x-api-key']
  const key = typeof header === 'string' ? parseKey(header) : undefined
  if (!key || idIssue(projectId) !== undefined) throw unauthorized()
  return { projectId, key, name: `${projectId}\0${key.key_id}` }
}
