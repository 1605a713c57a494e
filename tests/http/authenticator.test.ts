import { AsyncLocalStorage } from 'node:async_hooks'
import { setImmediate as nextTurn } from 'node:timers/promises'
import type { FastifyReply, FastifyRequest } from 'fastify'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { detectDistribution, isDistributed } from '../../src/database/distribution.ts'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { parseKey, SCOPES } from '../../src/domain/api-key.ts'
import { Authenticator } from '../../src/http/auth.ts'
import { findKeyById } from '../../src/queries/api-keys.ts'
import { insertProject } from '../../src/queries/projects.ts'
import { createTestDatabase, type TestDatabase, withSettings } from '../support/database.ts'

// How the use of keys is recorded: once a minute, in the background, and complete once `settle` resolves.

let database: TestDatabase
let db: Database
let key: string
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url)
  await detectDistribution(db)
  await insertProject(db, 'p', '')
})
beforeEach(async () => {
  key = await createKey(db, 'p', { name: '', scopes: SCOPES, expires_at: null })
})
afterAll(async () => {
  await db.destroy()
  await database.drop()
})

/** A request with the key passes the check. */
async function use(authenticator: Authenticator, text = key, projectId = 'p'): Promise<void> {
  const request = {
    ip: '127.0.0.1',
    params: { projectId },
    headers: { 'x-api-key': text },
    facts: {},
  } as unknown as FastifyRequest
  await authenticator.require('read')(request, {} as FastifyReply)
}

const fail = (error: unknown) => {
  throw error
}

const keyIdOf = (text: string) => parseKey(text)?.key_id ?? ''

const lastUse = async (text = key) => (await findKeyById(db, keyIdOf(text)))?.last_used_at

const newKeys = (count: number) =>
  Promise.all(Array.from({ length: count }, () => createKey(db, 'p', { name: '', scopes: SCOPES, expires_at: null })))

/** Counts the statements that write uses, of which the first waits until it is released. */
function holdFirstWrite() {
  const { promise, resolve: release } = Promise.withResolvers<void>()
  const writes = { count: 0, release }
  const { query } = pg.Client.prototype
  const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (this: pg.Client, ...args: unknown[]) {
    const run = () => Reflect.apply(query, this, args)
    if (!/^update/.test(String(args[0]))) return run()
    writes.count += 1
    return writes.count === 1 ? promise.then(run) : run()
  })
  onTestFinished(() => spy.mockRestore())
  return writes
}

/** How many statements write the uses of so many keys, up to a hundred, at once. */
const writesOf = (keys: number) => (isDistributed(db) ? keys : 1)

test('a use is stored, to the minute, once it has settled', async () => {
  const authenticator = new Authenticator(db, undefined, fail)
  const before = Math.floor(Date.now() / 60_000)
  await use(authenticator)
  await authenticator.settle()
  const after = Math.floor(Date.now() / 60_000)
  const stored = Date.parse((await lastUse()) ?? '') / 60_000
  expect([before, after]).toContain(stored)
})

test('a use is stored soon, without a wait for others', async () => {
  await use(new Authenticator(db, undefined, fail))
  await expect.poll(() => lastUse()).toEqual(expect.any(String))
})

test('a use is written in the context of no request', async () => {
  const context = new AsyncLocalStorage<string>()
  const authenticator = new Authenticator(db, undefined, fail)
  const { query } = pg.Client.prototype
  const contexts: unknown[] = []
  const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (this: pg.Client, ...args: unknown[]) {
    if (/^update/.test(String(args[0]))) contexts.push(context.getStore())
    return Reflect.apply(query, this, args)
  })
  onTestFinished(() => spy.mockRestore())
  await context.run('a request', () => use(authenticator))
  await expect.poll(() => contexts).toEqual([undefined])
})

test('a minute of many uses has one write for all keys', async () => {
  const authenticator = new Authenticator(db, undefined, fail)
  const other = await createKey(db, 'p', { name: '', scopes: SCOPES, expires_at: null })
  const query = vi.spyOn(pg.Client.prototype, 'query')
  const writes = () => query.mock.calls.filter(([sql]) => /^update/.test(String(sql))).length
  vi.useFakeTimers({ toFake: ['Date'] })
  try {
    for (const [time, expected] of [
      ['2036-01-01T10:00:00.000Z', 1],
      ['2036-01-01T10:00:59.999Z', 1],
      ['2036-01-01T10:01:00.000Z', 2],
    ] as const) {
      vi.setSystemTime(time)
      // At once, since a use that takes longer would come after the first write.
      await Promise.all([key, other, key, other].map((text) => use(authenticator, text)))
      await authenticator.settle()
      expect(writes()).toBe(expected * writesOf(2))
    }
  } finally {
    vi.useRealTimers()
    query.mockRestore()
  }
  expect(await lastUse()).toBe('2036-01-01T10:01:00.000Z')
  expect(await lastUse(other)).toBe('2036-01-01T10:01:00.000Z')
})

test('a key that was used in two minutes before a write has the later one', async () => {
  const authenticator = new Authenticator(db, undefined, fail)
  vi.useFakeTimers({ toFake: ['Date'] })
  onTestFinished(() => void vi.useRealTimers())
  for (const time of ['2036-01-01T10:00:59.999Z', '2036-01-01T10:01:00.000Z']) {
    vi.setSystemTime(time)
    await use(authenticator)
  }
  await authenticator.settle()
  expect(await lastUse()).toBe('2036-01-01T10:01:00.000Z')
})

test('a key that is used again in the next minute, while its use is written, has the later one', async () => {
  const authenticator = new Authenticator(db, undefined, fail)
  const writes = holdFirstWrite()
  vi.useFakeTimers({ toFake: ['Date'] })
  onTestFinished(() => void vi.useRealTimers())
  vi.setSystemTime('2036-01-01T10:00:59.999Z')
  await use(authenticator)
  const first = authenticator.settle()
  await expect.poll(() => writes.count).toBe(1)
  vi.setSystemTime('2036-01-01T10:01:00.000Z')
  await use(authenticator)
  writes.release()
  await Promise.all([first, authenticator.settle()])
  expect(await lastUse()).toBe('2036-01-01T10:01:00.000Z')
})

test('the uses of keys of the same id in two projects are both stored', async () => {
  await insertProject(db, 'q', '')
  const ofP = db.selectFrom('api_keys').selectAll().where('key_id', '=', keyIdOf(key))
  await db
    .insertInto('api_keys')
    .values({ ...(await ofP.executeTakeFirstOrThrow()), project_id: 'q' })
    .execute()
  const authenticator = new Authenticator(db, undefined, fail)
  for (const projectId of ['p', 'q']) await use(authenticator, key, projectId)
  await authenticator.settle()
  const rows = await db.selectFrom('api_keys').select('last_used_at').where('key_id', '=', keyIdOf(key)).execute()
  expect(rows).toEqual(Array(2).fill({ last_used_at: expect.any(String) }))
})

test('it has settled when the uses of all keys are stored, also those that wait for an earlier write', async () => {
  const authenticator = new Authenticator(db, undefined, fail)
  const others = await newKeys(101)
  const writes = holdFirstWrite()
  await use(authenticator)
  const first = authenticator.settle()
  await expect.poll(() => writes.count).toBe(1)
  for (const other of others) await use(authenticator, other)
  const settled = authenticator.settle().then(() => 'settled')
  expect(await Promise.race([settled, nextTurn('waits')])).toBe('waits')
  writes.release()
  await Promise.all([first, settled])
  expect(writes.count).toBe(writesOf(1) + writesOf(100) + writesOf(1))
  for (const text of [key, ...others]) expect(await lastUse(text)).toEqual(expect.any(String))
})

test('uses that cannot be stored are reported once, and fail no request', async () => {
  const readOnly = connect(withSettings(database.url, { default_transaction_read_only: 'on' }))
  onTestFinished(() => readOnly.destroy())
  await detectDistribution(readOnly)
  const reported: unknown[] = []
  const authenticator = new Authenticator(readOnly, undefined, (error) => reported.push(error))
  const keys = await newKeys(101)
  await Promise.all(keys.map((text) => use(authenticator, text)))
  await authenticator.settle()
  expect(reported).toMatchObject([{ code: '25006' }])
  // It goes on.
  await use(authenticator)
  await authenticator.settle()
  expect(reported).toHaveLength(2)
})
