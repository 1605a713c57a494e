import { setImmediate, setTimeout } from 'node:timers/promises'
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { openWritePool } from '../../src/database/open.ts'
import { NO_OBSERVER } from '../../src/recording/observer.ts'
import type { Recorder } from '../../src/recording/recorder.ts'
import type { TestApp } from '../support/app.ts'
import { holdLock, holdProject } from '../support/waiting.ts'
import {
  createRecordingApp,
  holdTurn,
  parsedEvent,
  recorderOn,
  recordLocked,
  stopClock,
  watchStatements,
} from './fixture.ts'

// How a recorder takes turns with those of other processes, in whose place the tests hold locks (ADR 0031).

/** As it takes turns after it has seen contention. */
const CONTENTION_ms = 1_000
const MAX_CONTENTION_ms = 10_000
const STUCK_LOCK_ms = 2_000

let api: TestApp
beforeAll(async () => {
  api = await createRecordingApp()
})
afterAll(() => api.close())

let advance: (by_ms: number) => void
let recorder: Recorder
beforeEach(() => {
  ;({ advance } = stopClock())
  recorder = createRecorder()
})

function createRecorder(observer = NO_OBSERVER, tuning = {}): Recorder {
  const pool = openWritePool(api.databaseUrl, { max: 4 })
  onTestFinished(() => pool.end())
  return recorderOn(pool, { lockTimeout_ms: 10_000, turnTimeout_ms: 10_000, ...tuning }, observer)
}

const record = (projectId = 'demo') => recorder.record(projectId, parsedEvent())

/** Lets the recorder find a project locked. */
const contend = () => recordLocked(recorder, api.databaseUrl, 'other')

async function expectTurn(): Promise<void> {
  const turn = await holdTurn(api.databaseUrl)
  const recorded = record()
  await turn.waiting(1)
  await turn.release()
  await recorded
}

async function expectNoTurn(): Promise<void> {
  const turn = await holdTurn(api.databaseUrl)
  const { lockTimeouts } = watchStatements()
  const before = lockTimeouts()
  await record()
  expect(lockTimeouts() - before).toBe(0)
  await turn.release()
}

test('a turn leaves the lock timeout of its session as it was', async () => {
  const pool = openWritePool(api.databaseUrl, { max: 2 })
  recorder = recorderOn(pool, { lockTimeout_ms: 10_000, turnTimeout_ms: 9_000 })
  await contend()
  await expectTurn()
  const clients = [await pool.connect(), await pool.connect()]
  const settings = await Promise.all(clients.map((client) => client.query('SHOW lock_timeout')))
  for (const client of clients) client.release()
  await pool.end()
  expect(settings.map(({ rows }) => rows)).toEqual([[{ lock_timeout: '0' }], [{ lock_timeout: '0' }]])
})

test('a recorder that is alone waits for nobody', async () => {
  await record()
  await expectNoTurn()
})

test('one that finds a project locked takes turns for a second', async () => {
  await contend()
  advance(CONTENTION_ms - 1)
  await expectTurn()
})

test('one that nobody kept waiting meanwhile takes none any more', async () => {
  await contend()
  advance(CONTENTION_ms - 1)
  await record()
  advance(1)
  await expectNoTurn()
})

test('one that is kept waiting takes turns for another second', async () => {
  await contend()
  advance(CONTENTION_ms - 1)
  await expectTurn()
  advance(CONTENTION_ms - 1)
  await expectTurn()
  advance(CONTENTION_ms)
  await expectNoTurn()
})

test('one that is kept waiting, and finds no project locked, takes turns for ten seconds', async () => {
  await contend()
  for (let now_ms = 0; now_ms + 900 < MAX_CONTENTION_ms; now_ms += 900) {
    advance(900)
    await expectTurn()
  }
  advance(100)
  await expectNoTurn()
  await contend()
  await expectTurn()
})

test('a project that is locked in its turn prolongs nothing', async () => {
  await contend()
  advance(CONTENTION_ms - 1)
  await contend()
  advance(1)
  await expectNoTurn()
})

test('a batch takes its events when its turn has come', async () => {
  await contend()
  const turn = await holdTurn(api.databaseUrl)
  const { transactions } = watchStatements()
  const recorded = [record()]
  await turn.waiting(1)
  recorded.push(record(), record('third'))
  await setImmediate()
  await turn.release()
  await Promise.all(recorded)
  expect(transactions()).toBe(1)
})

test('the wait for a turn is of no request, and a trace leaves it out', async () => {
  const observer = { ...NO_OBSERVER, detached: <Result>(work: () => Result): Result => work() }
  const detached = vi.spyOn(observer, 'detached')
  recorder = createRecorder(observer)
  await contend()
  expect(detached).not.toHaveBeenCalled()
  await record()
  expect(detached).toHaveBeenCalledOnce()
})

test('a turn ends when all that waited for it have waited too long', async () => {
  recorder = createRecorder(NO_OBSERVER, { maxQueueWait_ms: 500 })
  await contend()
  const turn = await holdTurn(api.databaseUrl)
  const refused = expect(record()).rejects.toMatchObject({ errorCode: 'service_unavailable' })
  await turn.waiting(1)
  advance(501)
  await turn.release()
  await refused
  // Another process gets it: at once, not when the idle transaction times out after ten seconds.
  await Promise.race([holdTurn(api.databaseUrl), setTimeout(5_000).then(() => expect.fail('the turn goes on'))])
})

test('a turn lasts until the events are committed', async () => {
  await contend()
  const table = await holdLock(api.databaseUrl, 'LOCK TABLE events IN EXCLUSIVE MODE')
  const recorded = record()
  await table.waiting(1)
  const { rows } = await table.query(`SELECT granted FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
  expect(rows).toEqual([{ granted: true }])
  await table.release()
  await recorded
})

test('a batch that has its turn waits for another lock longer than for the turn', async () => {
  recorder = createRecorder(NO_OBSERVER, { turnTimeout_ms: 100 })
  await contend()
  const table = await holdLock(api.databaseUrl, 'LOCK TABLE events IN EXCLUSIVE MODE')
  const { lockTimeouts } = watchStatements()
  const recorded = record()
  const waits = `SELECT FROM pg_locks WHERE NOT granted AND relation = 'events'::regclass
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND waitstart < clock_timestamp() - interval '0.2 s'`
  await expect.poll(() => table.query(waits)).toMatchObject({ rowCount: 1 })
  await table.release()
  await recorded
  expect(lockTimeouts()).toBe(0)
})

test('a project that was found locked waits for no turn', async () => {
  await contend()
  const project = await holdProject(api.databaseUrl, 'other')
  const table = await holdLock(api.databaseUrl, 'LOCK TABLE events IN EXCLUSIVE MODE')
  // A batch in its turn finds one of its projects locked, and meanwhile another process waits for the turn.
  const recorded = [record(), record('other')]
  await table.waiting(1)
  const turning = holdTurn(api.databaseUrl)
  await table.waiting(2)
  recorded.push(record())
  await setImmediate()
  await table.release()
  const turn = await turning
  await turn.waiting(2)
  await project.release()
  await recorded[1]
  await turn.release()
  await Promise.all(recorded)
})

test('a connection that breaks while it waits for its turn delays its batch, which goes without, and no other', async () => {
  await contend()
  const turn = await holdTurn(api.databaseUrl)
  const recorded = record()
  const [pid] = await turn.waiting(1)
  await turn.query(`SELECT pg_terminate_backend(${pid})`)
  expect(await recorded).toMatchObject({ replayed: false })
  const next = record()
  await turn.waiting(1)
  await turn.release()
  await next
})

test('a lock that is not given back delays one batch, and the next one only later', async () => {
  recorder = createRecorder(NO_OBSERVER, { turnTimeout_ms: 100 })
  await contend()
  const turn = await holdTurn(api.databaseUrl)
  const { lockTimeouts } = watchStatements()
  await record()
  await record()
  expect(lockTimeouts()).toBe(1)
  await turn.release()
  advance(STUCK_LOCK_ms - 1)
  await contend()
  await expectNoTurn()
  advance(1)
  const again = await holdTurn(api.databaseUrl)
  const before = lockTimeouts()
  await record()
  expect(lockTimeouts() - before).toBe(1)
  await again.release()
})
