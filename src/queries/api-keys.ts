import { sql } from 'kysely'
import { batchLoader } from '../database/batch-loader.ts'
import { isDistributed } from '../database/distribution.ts'
import { inputTable, text, timestamptz } from '../database/input-table.ts'
import type { Database } from '../database/pool.ts'
import { columnsOf, type Parameter, prepare } from '../database/prepared.ts'
import type { IsoTimestamp } from '../domain/timestamp.ts'

/** What a request's key is checked against. */
export const findKey = batchLoader(
  (db, projectIds: Parameter<string[]>, keyIds: Parameter<string[]>) =>
    db
      .selectFrom(inputTable({ project_id: text(projectIds), key_id: text(keyIds) }))
      .innerJoin('api_keys as k', (join) =>
        join.onRef('k.project_id', '=', 'input.project_id').onRef('k.key_id', '=', 'input.key_id'),
      )
      .select(['input.ordinal', 'k.secret_hash', 'k.scopes', 'k.expires_at', 'k.revoked_at']),
  { name: 'findKey' },
)

const selectFingerprint = prepare(
  (db) =>
    db.selectFrom('api_keys').select(
      // Seeded by the key, since sums of hashes alone stay the same when two keys exchange what they have.
      sql<string>`concat_ws(' ', count(*), sum(hash_record_extended(
          (secret_hash, scopes, expires_at, revoked_at),
          hashtextextended(key_id, hashtextextended(project_id, 0)))))`.as('fingerprint'),
    ),
  { name: 'selectKeysFingerprint' },
)

/** A text that differs once any key is added, removed, or changed in what decides whether it is accepted and for what. */
export async function findKeysFingerprint(db: Database): Promise<string> {
  const [row] = await selectFingerprint(db)
  return row?.fingerprint ?? ''
}

/** What the operator sees of a key. */
const KEY_COLUMNS = [
  'project_id',
  'key_id',
  'name',
  'scopes',
  'created_at',
  'expires_at',
  'last_used_at',
  'revoked_at',
] as const

/** A key by its public id alone, as the operator knows it. */
export function findKeyById(db: Database, keyId: string) {
  return db.selectFrom('api_keys').select(KEY_COLUMNS).where('key_id', '=', keyId).executeTakeFirst()
}

export function selectKeys(db: Database, projectId: string | undefined) {
  return db
    .selectFrom('api_keys')
    .select(KEY_COLUMNS)
    .$if(projectId !== undefined, (query) => query.where('project_id', '=', projectId ?? ''))
    .orderBy('project_id')
    .orderBy('created_at')
    .orderBy('key_id')
    .execute()
}

/** A key as stored: its secret only as a hash. */
export interface NewKey {
  key_id: string
  secret_hash: Buffer
  name: string
  scopes: string[]
  created_at: IsoTimestamp
  expires_at: IsoTimestamp | null
}

export async function insertKey(db: Database, projectId: string, key: NewKey): Promise<void> {
  await db
    .insertInto('api_keys')
    .values({ project_id: projectId, ...key })
    .execute()
}

/** Waits for the transactions that change the key, and keeps others from it until the end of this one. */
export async function lockKey(trx: Database, projectId: string, keyId: string): Promise<void> {
  await trx
    .selectFrom('api_keys')
    .select('key_id')
    .where('project_id', '=', projectId)
    .where('key_id', '=', keyId)
    .forNoKeyUpdate()
    .execute()
}

export async function updateKeyRevoked(
  db: Database,
  projectId: string,
  keyId: string,
  now: IsoTimestamp,
): Promise<void> {
  await db
    .updateTable('api_keys')
    .set({ revoked_at: now })
    .where('project_id', '=', projectId)
    .where('key_id', '=', keyId)
    .where('revoked_at', 'is', null)
    .execute()
}

export async function updateKeyExpiry(
  db: Database,
  projectId: string,
  keyId: string,
  expiresAt: IsoTimestamp,
): Promise<void> {
  await db
    .updateTable('api_keys')
    .set({ expires_at: expiresAt })
    .where('project_id', '=', projectId)
    .where('key_id', '=', keyId)
    .execute()
}

/** Commits the statement without waiting for disks or standby servers: true for each row. */
const COMMITS_ASYNCHRONOUSLY = sql<boolean>`set_config('synchronous_commit', 'off', true) IS NOT NULL`

const updateLastUsed = prepare(
  (db, projectIds: Parameter<string[]>, keyIds: Parameter<string[]>, minutes: Parameter<IsoTimestamp[]>) => {
    const uses = inputTable({ project_id: text(projectIds), key_id: text(keyIds), minute: timestamptz(minutes) })
    const notLocked = db
      .selectFrom(uses)
      .innerJoin('api_keys as k', (join) =>
        join.onRef('k.project_id', '=', 'input.project_id').onRef('k.key_id', '=', 'input.key_id'),
      )
      .select(['k.project_id', 'k.key_id', 'input.minute'])
      .where((eb) => eb.or([eb('k.last_used_at', 'is', null), eb('k.last_used_at', '<', eb.ref('input.minute'))]))
      .where(COMMITS_ASYNCHRONOUSLY)
      .forNoKeyUpdate('k')
      .skipLocked()
    return db
      .updateTable('api_keys')
      .from(notLocked.as('free'))
      .set((eb) => ({ last_used_at: eb.ref('free.minute') }))
      .whereRef('api_keys.project_id', '=', 'free.project_id')
      .whereRef('api_keys.key_id', '=', 'free.key_id')
  },
  { name: 'updateLastUsed' },
)

/** As {@link updateLastUsed}, of one key: Citus refuses the set_config() of the other when it runs it (ADR 0033). */
const updateLastUsedOfOne = prepare(
  (db, projectId: Parameter<string>, keyId: Parameter<string>, minute: Parameter<IsoTimestamp>) => {
    const notLocked = db
      .selectFrom('api_keys')
      .select('key_id')
      .where('project_id', '=', projectId)
      .where('key_id', '=', keyId)
      .where((eb) => eb.or([eb('last_used_at', 'is', null), eb('last_used_at', '<', minute)]))
      .where(COMMITS_ASYNCHRONOUSLY)
      .forNoKeyUpdate()
      .skipLocked()
    return db
      .updateTable('api_keys')
      .set({ last_used_at: minute })
      .where('project_id', '=', projectId)
      .where('key_id', 'in', notLocked)
  },
  { name: 'updateLastUsed' },
)

/** The use of a key in a minute, which is written as its beginning. */
export interface KeyUse {
  project_id: string
  key_id: string
  minute: IsoTimestamp
}

/**
 * Sets the minute in which each of the keys was last used, unless a later one is stored. A key that another transaction has
 * locked is skipped, and the commit waits for nothing: on a shared connection, reads would have to wait behind it.
 *
 * @param uses of each key one at most
 */
export async function updateKeysUsed(db: Database, uses: readonly KeyUse[]): Promise<void> {
  if (!isDistributed(db)) await updateLastUsed(db, ...columnsOf(uses, 'project_id', 'key_id', 'minute'))
  else for (const use of uses) await updateLastUsedOfOne(db, use.project_id, use.key_id, use.minute)
}
