import { sql, type UpdateObject } from 'kysely'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { DB } from '../../generated/database.ts'
import { detectDistribution, isDistributed, markDistributed } from '../../src/database/distribution.ts'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { type IsoTimestamp, toIsoTimestamp } from '../../src/domain/timestamp.ts'
import {
  findKeyById,
  findKeysFingerprint,
  insertKey,
  lockKey,
  selectKeys,
  updateKeyExpiry,
  updateKeyRevoked,
  updateKeysUsed,
} from '../../src/queries/api-keys.ts'
import { insertProject } from '../../src/queries/projects.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { databaseUrl } from '../support/global-setup.ts'
import { holdLock } from '../support/waiting.ts'

// Two projects hold keys of the same ids: each query concerns only the key that is meant.

const minute = (count: number): IsoTimestamp => toIsoTimestamp(new Date(Date.UTC(2026, 0, 1, 0, count)))

/** The only one of its id. */
const UNIQUE = {
  project_id: 'a',
  key_id: 'unique',
  name: 'the only one',
  scopes: ['read'],
  created_at: minute(1),
  expires_at: minute(9),
}
const KEYS = [
  UNIQUE,
  { ...UNIQUE, key_id: 'first', created_at: minute(2) },
  { ...UNIQUE, key_id: 'second', created_at: minute(2) },
  { ...UNIQUE, project_id: 'b', key_id: 'second', created_at: minute(0) },
  { ...UNIQUE, project_id: 'b', key_id: 'first', created_at: minute(3) },
]
const use = (on: Database, project_id: string, key_id: string, minute: IsoTimestamp) =>
  updateKeysUsed(on, [{ project_id, key_id, minute }])
const UNUSED = { last_used_at: null, revoked_at: null }

let database: TestDatabase
let db: Database
let distributed: Database
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url)
  await detectDistribution(db)
  distributed = connect(database.url)
  markDistributed(distributed)
  for (const projectId of ['b', 'a']) await insertProject(db, projectId, '')
})
beforeEach(async () => {
  await db.deleteFrom('api_keys').execute()
  for (const { project_id, ...key } of KEYS.toReversed()) {
    await insertKey(db, project_id, { ...key, secret_hash: Buffer.alloc(32) })
  }
})
afterAll(async () => {
  await db.destroy()
  await distributed.destroy()
  await database.drop()
})

/** What is stored of the keys in one column, in the order of KEYS. */
async function stored<Column extends 'last_used_at' | 'revoked_at' | 'expires_at'>(column: Column) {
  const rows = await selectKeys(db, undefined)
  return rows.map((row) => row[column])
}

test('keys are listed in the order of project, creation and id', async () => {
  expect(await selectKeys(db, undefined)).toEqual(KEYS.map((key) => ({ ...key, ...UNUSED })))
  expect(await selectKeys(db, 'b')).toEqual(KEYS.slice(3).map((key) => ({ ...key, ...UNUSED })))
  expect(await selectKeys(db, '')).toEqual([])
})

test('a key is found by its id', async () => {
  expect(await findKeyById(db, 'unique')).toEqual({ ...UNIQUE, ...UNUSED })
  expect(await findKeyById(db, 'none')).toBeUndefined()
})

test.each<[string, UpdateObject<DB, 'api_keys'>]>([
  ['it is revoked', { revoked_at: minute(5) }],
  ['its expiry moves', { expires_at: minute(10) }],
  ['its expiry is removed', { expires_at: null }],
  ['it gets a scope', { scopes: ['read', 'events:write'] }],
  ['it loses all scopes', { scopes: [] }],
  ['its secret is replaced', { secret_hash: Buffer.alloc(32, 1) }],
  ['its id changes', { key_id: 'third' }],
])('the fingerprint of all keys changes with a key when %s, and back', async (_, change) => {
  const before = await findKeysFingerprint(db)
  const all = () => db.updateTable('api_keys').where('project_id', '=', 'b')
  await all().set(change).where('key_id', '=', 'first').execute()
  expect(await findKeysFingerprint(db)).not.toBe(before)
  const { scopes, expires_at } = UNIQUE
  const secret_hash = Buffer.alloc(32)
  await all()
    .set({ key_id: 'first', scopes, expires_at, secret_hash, revoked_at: null })
    .where('key_id', '<>', 'second')
    .execute()
  expect(await findKeysFingerprint(db)).toBe(before)
})

test('the fingerprint of all keys changes when some are revoked at once, or removed', async () => {
  const seen = [await findKeysFingerprint(db)]
  await db
    .updateTable('api_keys')
    .set({ revoked_at: minute(5) })
    .where('key_id', '=', 'first')
    .execute()
  seen.push(await findKeysFingerprint(db))
  await db.deleteFrom('api_keys').where('key_id', '=', 'second').execute()
  seen.push(await findKeysFingerprint(db))
  await db.deleteFrom('api_keys').execute()
  seen.push(await findKeysFingerprint(db))
  expect(new Set(seen).size).toBe(4)
})

test.each<[string, UpdateObject<DB, 'api_keys'>, UpdateObject<DB, 'api_keys'>]>([
  ['a revocation', { revoked_at: minute(5) }, { revoked_at: null }],
  ['an expiry', { expires_at: minute(10) }, { expires_at: null }],
  ['scopes', { scopes: ['events:write'] }, { scopes: ['read'] }],
  ['a secret', { secret_hash: Buffer.alloc(32, 1) }, { secret_hash: Buffer.alloc(32) }],
])('the fingerprint of all keys changes when %s is that of another key', async (_, one, other) => {
  // Several, since sums of 64 bits tell some apart that are only added up.
  const seen: string[] = []
  for (const [first, second] of [
    [one, other],
    [other, one],
  ] as const) {
    for (const [key_id, change] of [
      ['first', first],
      ['second', second],
    ] as const) {
      await db.updateTable('api_keys').where('project_id', '=', 'a').where('key_id', '=', key_id).set(change).execute()
    }
    seen.push(await findKeysFingerprint(db))
  }
  expect(seen[1]).not.toBe(seen[0])
})

test('the fingerprint of all keys does not change with their use', async () => {
  const before = await findKeysFingerprint(db)
  await use(db, 'a', 'first', minute(5))
  expect(await findKeysFingerprint(db)).toBe(before)
})

test('a key of an id that the project has already is not stored', async () => {
  const { project_id, ...key } = UNIQUE
  const insert = insertKey(db, project_id, { ...key, name: 'another', secret_hash: Buffer.alloc(32) })
  await expect(insert).rejects.toThrow('violates unique constraint')
})

test('only the key that is meant is revoked, and only once', async () => {
  await updateKeyRevoked(db, 'a', 'first', minute(5))
  await updateKeyRevoked(db, 'a', 'first', minute(6))
  expect(await stored('revoked_at')).toEqual([null, minute(5), null, null, null])
})

test('only the key that is meant expires', async () => {
  await updateKeyExpiry(db, 'b', 'first', minute(5))
  expect(await stored('expires_at')).toEqual([minute(9), minute(9), minute(9), minute(9), minute(5)])
})

const keyOf = (projectId: string, keyId: string) => `project_id = '${projectId}' AND key_id = '${keyId}'`

test('only the key that is meant is locked, once no other transaction has it', async () => {
  const lock = await holdLock(database.url, `SELECT FROM api_keys WHERE NOT (${keyOf('a', 'first')}) FOR NO KEY UPDATE`)
  const impatient = connect(database.url, { lockTimeout_ms: 1 })
  const lockFirst = () => impatient.transaction().execute((trx) => lockKey(trx, 'a', 'first'))
  await lockFirst()
  await lock.query(`SELECT FROM api_keys WHERE ${keyOf('a', 'first')} FOR NO KEY UPDATE`)
  await expect(lockFirst()).rejects.toThrow('lock timeout')
  await lock.release()
  await impatient.destroy()
})

// A Citus cluster gets other statements, which do the same on one server.
describe.each([
  ['one server', () => db],
  ['a cluster', () => distributed],
])('on %s', (_, on) => {
  test('the last use is recorded of the key that is meant, and never set back', async () => {
    await use(on(), 'a', 'first', minute(6))
    expect(await stored('last_used_at')).toEqual([null, minute(6), null, null, null])
    await use(on(), 'a', 'first', minute(5))
    expect(await stored('last_used_at')).toEqual([null, minute(6), null, null, null])
    await use(on(), 'b', 'first', minute(5))
    await use(on(), 'a', 'first', minute(7))
    expect(await stored('last_used_at')).toEqual([null, minute(7), null, null, minute(5)])
  })

  test('the last uses of several keys are recorded at once, except of those that are locked or were used later', async () => {
    await use(on(), 'b', 'second', minute(6))
    const lock = await holdLock(database.url, `SELECT FROM api_keys WHERE ${keyOf('a', 'second')} FOR NO KEY UPDATE`)
    await updateKeysUsed(on(), [
      { project_id: 'a', key_id: 'first', minute: minute(5) },
      { project_id: 'a', key_id: 'second', minute: minute(5) },
      { project_id: 'b', key_id: 'second', minute: minute(5) },
      { project_id: 'b', key_id: 'first', minute: minute(7) },
      { project_id: 'b', key_id: 'unknown', minute: minute(7) },
    ])
    await lock.release()
    expect(await stored('last_used_at')).toEqual([null, minute(5), null, minute(6), minute(7)])
  })

  test('a use in the minute that is stored writes nothing', async () => {
    const version = async () =>
      (await sql`SELECT xmin, ctid FROM api_keys WHERE ${sql.raw(keyOf('a', 'first'))}`.execute(db)).rows
    await use(on(), 'a', 'first', minute(6))
    const before = await version()
    await use(on(), 'a', 'first', minute(6))
    expect(await version()).toEqual(before)
  })

  test('the last use is committed without waiting for disks or standby servers', async () => {
    const settings = await on()
      .transaction()
      .execute(async (trx) => {
        if (isDistributed(on())) markDistributed(trx)
        const read = async () => (await sql`SHOW synchronous_commit`.execute(trx)).rows
        const before = await read()
        await use(trx, 'a', 'first', minute(6))
        return [before, await read()]
      })
    expect(settings).toEqual([[{ synchronous_commit: 'on' }], [{ synchronous_commit: 'off' }]])
  })

  test('the last use is not recorded of a key that is locked, without waiting', async () => {
    const lock = await holdLock(database.url, `SELECT FROM api_keys WHERE key_id = 'first' FOR NO KEY UPDATE`)
    await use(on(), 'a', 'first', minute(6))
    await lock.release()
    expect(await stored('last_used_at')).toEqual([null, null, null, null, null])
  })
})

test.each([
  ['insertKey', (on: Database) => insertKey(on, 'a', { ...UNIQUE, secret_hash: Buffer.alloc(32) })],
  ['updateKeyRevoked', (on: Database) => updateKeyRevoked(on, 'a', 'first', minute(5))],
  ['updateKeyExpiry', (on: Database) => updateKeyExpiry(on, 'a', 'first', minute(5))],
  ['updateKeysUsed', (on: Database) => use(on, 'a', 'first', minute(5))],
  [
    'updateKeysUsed on a cluster',
    (on: Database) => {
      markDistributed(on)
      return use(on, 'a', 'first', minute(5))
    },
  ],
])('%s rejects when the database does', async (_, write) => {
  const none = connect(databaseUrl(database.url, 'not_there'))
  await expect(write(none)).rejects.toThrow('does not exist')
  await none.destroy()
})
