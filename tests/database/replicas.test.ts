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
import { type SimulatedServers, simulateServers } from './simulated-servers.ts'

// Which reads a replica gets by what the servers say; tests/database/standbys.test.ts has real ones.

const LAGS = 'it is more than a second behind'

let servers: SimulatedServers
let primary: Database
let replicas: Replicas
/** By which states grow old; it is stopped, so that tests may take their time. */
let clock: ReturnType<typeof stopClock>
/** What was said of the replica, one after the other. */
const said: (string | undefined)[] = []
/** How many responses to the question for its state each server has given. */
const responses = new Map<pg.Pool, number>()

beforeAll(async () => {
  servers = await simulateServers('primary', 'standby')
})
afterAll(() => servers.drop())

beforeEach(async () => {
  await servers.reset()
  await servers.say('primary', { is_standby: false })
  said.length = 0
  clock = stopClock()
  watchResponses()
  const db = connect(servers.url('primary'), { max: 2 })
  onTestFinished(() => db.destroy())
  primary = db
  replicas = open()
  await expect.poll(lag).toBe(0)
})

function open(): Replicas {
  const onChange = (_: string, problem: string | undefined) => {
    // A response may come too late on a busy machine; the next one counts.
    if (!problem?.includes('timeout') && (said.length === 0 || problem !== said.at(-1))) said.push(problem)
  }
  const primaryServer = { url: servers.url('primary'), db: primary }
  const opened = new Replicas(primaryServer, [servers.url('standby')], { max: 1, onChange })
  // A second time is refused.
  onTestFinished(() => opened.close().catch(() => {}))
  opened.start()
  return opened
}

function watchResponses(): void {
  responses.clear()
  const { query } = pg.Pool.prototype as unknown as { query: (text: string) => Promise<unknown> }
  const spy = vi.spyOn(pg.Pool.prototype, 'query').mockImplementation(async function (this: pg.Pool, text: string) {
    const response = await query.call(this, text)
    if (text.includes('pg_control_system')) responses.set(this, (responses.get(this) ?? 0) + 1)
    return response
  } as never)
  onTestFinished(() => spy.mockRestore())
}

const lag = () => replicas.usage[0]?.lag_s
const total = () => responses.values().reduce((sum, count) => sum + count, 0)

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

test('a replica that has exactly what a project or a caller is known to have serves it', async () => {
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
  expect(said).toEqual([undefined])
  clock.advance(500)
  await expect.poll(() => said).toEqual([undefined, LAGS])
  expect(await read()).toBe('primary')
  await servers.say('standby', { position: '0/101' })
  await expect.poll(() => said).toEqual([undefined, LAGS, undefined])
  await expect.poll(lag).toBe(0)
})

test('a replica is compared anew with a primary server that has taken the place of another', async () => {
  await servers.say('primary', { started: 'now', position: '0/FF' })
  await expect
    .poll(() => said)
    .toEqual([undefined, 'it has replayed what the primary server has not written, as after a failover'])
  expect(await read()).toBe('primary')
})

test('where the one before was does not count, and a second passes until a replica is said to lag', async () => {
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
  expect(said).toEqual([undefined])
  clock.advance(1)
  await expect.poll(() => said).toEqual([undefined, LAGS])
})

test('servers are asked some five times a second', async () => {
  const [before, start_ms] = [total(), Date.now()]
  await sleep(1_000)
  const eachPerSecond = (total() - before) / 2 / ((Date.now() - start_ms) / 1_000)
  expect(eachPerSecond).toBeLessThan(7)
})

test('no connection is left once they are closed, and nothing is asked any more', async () => {
  await primary.destroy()
  await replicas.close()
  const before = total()
  const others = `SELECT 1 / (count(*) = 1)::int FROM pg_stat_activity WHERE datname = current_database()`
  await vi.waitFor(() => onServer(servers.url('nobody'), others), { timeout: 5_000 })
  // Longer than between two questions.
  await sleep(300)
  expect(total()).toBe(before)
})
