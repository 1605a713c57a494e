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
async function use(authenticator: Authenticator, text = key): Promise<void> {
  const request = {
    ip: '127.0.0.1',
    params: { projectId: 'p' },
    headers: { 'x-api-key': text },
    facts: {},
  } as unknown as FastifyRequest
  await authenticator.require('read')(request, {} as FastifyReply)
}

const fail = (error: unknown) => {
  throw error
}

const lastUse = async (text = key) => (await findKeyById(db, parseKey(text)?.key_id ?? ''))?.last_used_at

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
      for (const text of [key, other, key, other]) await use(authenticator, text)
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

test('it has settled when the uses of all keys are stored, also those that wait for an earlier write', async () => {
  const authenticator = new Authenticator(db, undefined, fail)
  const others = await Promise.all(
    Array.from({ length: 101 }, () => createKey(db, 'p', { name: '', scopes: SCOPES, expires_at: null })),
  )
  const held = Promise.withResolvers<void>()
  const { query } = pg.Client.prototype
  let writes = 0
  const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (this: pg.Client, ...args: unknown[]) {
    const run = () => Reflect.apply(query, this, args)
    if (!/^update/.test(String(args[0]))) return run()
    writes += 1
    return writes === 1 ? held.promise.then(run) : run()
  })
  onTestFinished(() => spy.mockRestore())
  await use(authenticator)
  const first = authenticator.settle()
  await expect.poll(() => writes).toBe(1)
  for (const other of others) await use(authenticator, other)
  const settled = authenticator.settle().then(() => 'settled')
  expect(await Promise.race([settled, nextTurn('waits')])).toBe('waits')
  held.resolve()
  await Promise.all([first, settled])
  expect(writes).toBe(writesOf(1) + writesOf(100) + writesOf(1))
  for (const text of [key, ...others]) expect(await lastUse(text)).toEqual(expect.any(String))
})

test('a use that cannot be stored is reported, and fails no request', async () => {
  const readOnly = connect(withSettings(database.url, { default_transaction_read_only: 'on' }))
  await detectDistribution(readOnly)
  const reported: unknown[] = []
  const authenticator = new Authenticator(readOnly, undefined, (error) => reported.push(error))
  await use(authenticator)
  await authenticator.settle()
  expect(reported).toMatchObject([{ code: '25006' }])
  await readOnly.destroy()
})
