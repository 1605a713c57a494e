import { timingSafeEqual } from 'node:crypto'
import type { RequestHandler } from 'express'
import type pg from 'pg'
import { hashSecret, parseKey, type Scope } from '../../../src/domain/api-key.ts'
import { insufficientScope, unauthorized } from '../../../src/domain/errors.ts'
import { idIssue } from '../../../src/domain/text.ts'

const KEY = `
  SELECT secret_hash, scopes, coalesce(last_used_at < date_trunc('minute', now()), true) AS is_use_news FROM api_keys
  WHERE project_id = $1 AND key_id = $2 AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())`

const NOTE_USE = `
  UPDATE api_keys SET last_used_at = date_trunc('minute', now())
  WHERE project_id = $1 AND key_id = $2 AND coalesce(last_used_at < date_trunc('minute', now()), true)`

/** Looks up the key of each request in the database, and accepts those of the project in the path. */
export function checkKey(pool: pg.Pool): RequestHandler<{ projectId: string }> {
  return async (request, response, next) => {
    const { projectId } = request.params
    response.locals.projectId = projectId
    const key = parseKey(request.get('X-Api-Key') ?? '')
    if (!key || idIssue(projectId) !== undefined) throw unauthorized()

    const [stored] = (await pool.query(KEY, [projectId, key.key_id])).rows
    if (!stored || !timingSafeEqual(hashSecret(key.secret), stored.secret_hash)) throw unauthorized()

    if (stored.is_use_news) await pool.query(NOTE_USE, [projectId, key.key_id])
    const scope: Scope = request.method === 'POST' ? 'events:write' : 'read'
    if (!stored.scopes.includes(scope)) throw insufficientScope(scope)
    next()
  }
}
