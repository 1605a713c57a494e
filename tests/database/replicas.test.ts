import { setImmediate, setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { Replicas } from '../../src/database/replicas.ts'
import { UNKNOWN_POSITION } from '../../src/database/wal-position.ts'
import { stopClock } from '../recording/fixture.ts'
import { onServer } from '../support/global-setup.ts'
import { isLate, type SimulatedServers, simulateServers } from './simulated-servers.ts'

// Which reads a replica gets by what the servers say; tests/database/standbys.test.ts has real ones.

const LAGS = 'it is more than a second behind'

let servers: SimulatedServers
let primary: Database
let replicas: Replicas
/** By which states grow old; it is stopped, so that tests may take their time. */
let clock: ReturnType<typeof stopClock>
/** What was said of the replica, one after the other. */
const said: (string | undefined)[] = []
/** How often each server was asked for its state, and has responded or failed. */
const questions = new Map<pg.Pool, number>()
const responses = new Map<pg.Pool, number>()
/** The servers that the questions do not reach, until when. */
const withheld = new Map<string, Promise<void>>()

beforeAll(async () => {
  servers = await simulateServers('primary', 'standby')
})
afterAll(() => servers.drop())

beforeEach(async () => {
  await servers.reset()
  await servers.say('primary', { is_standby: false })
  said.length = 0
  clock = stopClock()
  watchStates()
  const db = connect(servers.url('primary'), { max: 2 })
  onTestFinished(() => db.destroy())
  primary = db
  replicas = open()
  await expect.poll(lag).toBe(0)
})

function open(): Replicas {
  const onChange = (_: string, problem: string | undefined) => said.push(problem)
  const primaryServer = { url: servers.url('primary'), db: primary }
  const opened = new Replicas(primaryServer, [servers.url('standby')], { max: 1, onChange })
  // A second time is refused.
  onTestFinished(() => opened.close().catch(() => {}))
  opened.start()
  return opened
}

/** Begins anew, with the questions to a server withheld. @returns what lets them pass */
async function reopenWithout(server: string): Promise<() => void> {
  await replicas.close()
  said.length = 0
  for (const counts of [questions, responses]) counts.clear()
  const goOn = withhold(server)
  replicas = open()
  return goOn
}

function watchStates(): void {
  for (const seen of [questions, responses, withheld]) seen.clear()
  const { query } = pg.Pool.prototype as unknown as { query: (text: string) => Promise<unknown> }
  const spy = vi.spyOn(pg.Pool.prototype, 'query').mockImplementation(async function (this: pg.Pool, text: string) {
    const isState = text.includes('pg_control_system')
    if (isState) questions.set(this, (questions.get(this) ?? 0) + 1)
    for (const [server, end] of withheld) if (isState && this.options.connectionString?.includes(server)) await end
    try {
      return await query.call(this, text)
    } finally {
      if (isState) responses.set(this, (responses.get(this) ?? 0) + 1)
    }
  } as never)
  onTestFinished(() => spy.mockRestore())
}

/** Withholds the questions to servers. @returns what lets them pass */
function withhold(...servers: string[]): () => void {
  const { promise, resolve } = Promise.withResolvers<void>()
  onTestFinished(() => resolve())
  for (const server of servers) withheld.set(server, promise)
  return () => {
    withheld.clear()
    resolve()
  }
}

/** What was said of the replica, but for a response that came too late, as it may on a busy machine. */
const changes = () =>
  said.filter((problem) => !isLate(problem)).filter((problem, i, all) => i === 0 || problem !== all[i - 1])
const lag = () => replicas.usage[0]?.lag_s
const total = (counts: Map<unknown, number>) => counts.values().reduce((sum, count) => sum + count, 0)
const awaited = () => total(questions) - total(responses)

/** Waits for longer than passes between two questions. */
const untilNextQuestion = () => sleep(300)

/** Waits until both servers have been asked again, and what they said has been taken into account. */
async function askedAgain(): Promise<void> {
  const before = new Map(responses)
  // The first response may be to an earlier question.
  const isAskedAgain = () => responses.entries().every(([server, count]) => count >= (before.get(server) ?? 0) + 2)
  await expect.poll(isAskedAgain).toBe(true)
  await setImmediate()
}

/** Where a read is run. */
async function read(projectId = 'p', least?: number): Promise<string | undefined> {
  const { rows } = await sql<{ server: string }>`SELECT current_setting('simulated.server') AS server`.execute(
    replicas.databaseFor(projectId, least),
  )
  return rows[0]?.server
}

test('a replica that has exactly what a project is known to have, by its writes or to the caller, serves it', async () => {
  replicas.noteWrite('p', 0x100)
  await expect.poll(() => read()).toBe('standby')
  await expect.poll(() => read('p', 0x100)).toBe('standby')
  expect(await read('p', 0x101)).toBe('primary')
  replicas.noteWrite('p', 0x101)
  expect(await read()).toBe('primary')
  await expect.poll(() => read('another')).toBe('standby')
})

test('one that was confirmed at the time of a write may lack it, one that was confirmed later has it', async () => {
  replicas.noteWrite('p', UNKNOWN_POSITION)
  await askedAgain()
  expect(await read()).toBe('primary')
  clock.advance(1)
  await expect.poll(lag).toBe(0)
  await expect.poll(() => read()).toBe('standby')
})

test('what a project is known to have is remembered as long as a replica that lacks it is read from', async () => {
  await servers.say('primary', { position: '0/101' })
  replicas.noteWrite('p', 0x101)
  await askedAgain()
  clock.advance(999)
  await askedAgain()
  expect(await read()).toBe('primary')
  await expect.poll(() => read('another')).toBe('standby')
})

test('it is as far behind as the time since the primary server was there', async () => {
  await servers.say('primary', { position: '0/101' })
  await askedAgain()
  clock.advance(100)
  await askedAgain()
  await expect.poll(lag).toBe(0.1)
  clock.advance(400)
  await expect.poll(lag).toBe(0.5)
  expect(changes()).toEqual([undefined])
  clock.advance(500)
  await expect.poll(changes).toEqual([undefined, LAGS])
  expect(await read()).toBe('primary')
  await servers.say('standby', { position: '0/101' })
  await expect.poll(changes).toEqual([undefined, LAGS, undefined])
  await expect.poll(lag).toBe(0)
})

test('a replica is compared anew with a primary server that has taken the place of another', async () => {
  await servers.say('primary', { started: 'now', position: '0/FF' })
  await expect
    .poll(changes)
    .toEqual([undefined, 'it has replayed what the primary server has not written, as after a failover'])
  expect(await read()).toBe('primary')
})

test('the position of an earlier primary server does not count, and a second passes until a replica is said to lag', async () => {
  for (let i = 0; i < 3; i += 1) {
    clock.advance(500)
    await expect.poll(lag).toBe(0)
  }
  await servers.say('primary', { started: 'now', position: '0/101' })
  await expect.poll(() => replicas.usage[0]?.isUsable).toBe(false)
  await askedAgain()
  expect(replicas.usage[0]?.isUsable).toBe(false)
  clock.advance(999)
  await askedAgain()
  expect(changes()).toEqual([undefined])
  clock.advance(1)
  await expect.poll(changes).toEqual([undefined, LAGS])
})

test('no replica is read from a second after the primary server was last heard of', async () => {
  await servers.say('primary', { error: '57P03' })
  await askedAgain()
  clock.advance(1_000)
  await expect.poll(changes).toEqual([undefined, LAGS])
  await askedAgain()
  expect(changes()).toEqual([undefined, LAGS])
  clock.advance(1)
  const unknown = expect.stringMatching(/^the position of the primary server is unknown: simulated/)
  await expect.poll(changes).toEqual([undefined, LAGS, unknown])
  expect(await read()).toBe('primary')
})

test('nothing is said of a replica before there is anything to compare it with', async () => {
  const goOn = await reopenWithout('primary')
  await expect.poll(() => total(responses)).toBeGreaterThan(1)
  await setImmediate()
  expect(said).toEqual([])
  goOn()
  await expect.poll(changes).toEqual([undefined])
})

test('nothing is said of a replica that was being asked when they were closed', async () => {
  const goOn = await reopenWithout('standby')
  await expect.poll(() => total(responses)).toBeGreaterThan(0)
  const closing = replicas.close()
  await Promise.race([closing, untilNextQuestion()])
  goOn()
  await closing
  await untilNextQuestion()
  expect(changes()).toEqual([])
})

test('a server that has not responded yet is not asked again', async () => {
  withhold('primary', 'standby')
  await expect.poll(awaited).toBe(2)
  await untilNextQuestion()
  expect(awaited()).toBe(2)
})

test('servers are asked no more than some five times a second', async () => {
  const [before, start_ms] = [total(responses), Date.now()]
  await sleep(1_000)
  const eachPerSecond = (total(responses) - before) / 2 / ((Date.now() - start_ms) / 1_000)
  expect(eachPerSecond).toBeLessThan(7)
})

test('no connection is left once they are closed, and nothing is asked any more', async () => {
  await expect.poll(() => read()).toBe('standby')
  await primary.destroy()
  const end = vi.spyOn(pg.Pool.prototype, 'end')
  onTestFinished(() => end.mockRestore())
  await replicas.close()
  // The one that is read from, and those on which the servers are asked.
  expect(end.mock.settledResults).toEqual(Array(3).fill({ type: 'fulfilled', value: undefined }))
  const before = total(responses)
  const others = `SELECT 1 / (count(*) = 1)::int FROM pg_stat_activity WHERE datname = current_database()`
  // Idle connections are closed by themselves after ten seconds.
  await vi.waitFor(() => onServer(servers.url('nobody'), others), { timeout: 5_000 })
  await untilNextQuestion()
  expect(total(responses)).toBe(before)
})
