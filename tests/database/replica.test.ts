import { once } from 'node:events'
import { type AddressInfo, createServer, type Server } from 'node:net'
import { sql } from 'kysely'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { Replica, type ReplicaOptions } from '../../src/database/replica.ts'
import type { ServerState } from '../../src/database/wal-position.ts'
import { stopClock } from '../recording/fixture.ts'
import { holdLock } from '../support/waiting.ts'
import { allowLateStates } from './late-states.ts'
import { isLate, type SimulatedServers, simulateServers } from './simulated-servers.ts'

// What one replica does with what its server says; tests/database/standbys.test.ts has real ones.

let servers: SimulatedServers
let primary: Database
let replica: Replica
/** By which a replica is confirmed for a second; it is stopped, so that tests may take their time. */
let clock: ReturnType<typeof stopClock>
/** Queries that were told of, by their errors. */
const reported: unknown[] = []

function open(options: ReplicaOptions = {}, url = servers.url('standby')): Replica {
  const opened = new Replica(url, primary, {
    max: 1,
    onFallback: (_, error) => reported.push(error),
    ...options,
  })
  onTestFinished(() => opened.close())
  return opened
}

beforeAll(async () => {
  servers = await simulateServers('standby')
  await servers.run('CREATE TABLE locked ()')
})
afterAll(() => servers.drop())

beforeEach(async () => {
  await servers.reset()
  allowLateStates()
  reported.length = 0
  clock = stopClock()
  const db = connect(servers.url('primary'), { max: 2 })
  onTestFinished(() => db.destroy())
  primary = db
  replica = open()
})

/** Takes what is known of the replica for confirmed now. */
function confirm(): void {
  replica.confirmed_ms = performance.now()
}

/** Asks for the replica's state, and again as long as the response comes too late, as it may on a busy machine. */
async function ask(): Promise<void> {
  do await replica.ask()
  while (replica.state === undefined && isLate(String(replica.failure)))
}

/** Has the replica's state known and confirmed. */
async function learn(): Promise<void> {
  await ask()
  confirm()
}

/** Where a read is run. */
async function read(): Promise<{ server: string; pid: number }> {
  const { rows } = await sql<{ server: string; pid: number }>`
    SELECT current_setting('simulated.server') AS server, pg_backend_pid() AS pid`.execute(replica.db)
  return rows[0] as { server: string; pid: number }
}

/** A read that takes a minute on the standby. */
const LONG_READ = sql<{ server: string }>`
  SELECT current_setting('simulated.server') AS server
  FROM pg_sleep(CASE WHEN current_setting('simulated.server') = 'standby' THEN 60 ELSE 0 END)`

async function readForLong() {
  const { pid } = await read()
  const reading = LONG_READ.execute(replica.db)
  const isUnderWay = async () => {
    const { rows } = await sql`SELECT FROM pg_stat_activity WHERE pid = ${pid} AND wait_event = 'PgSleep'`.execute(
      primary,
    )
    return rows.length === 1
  }
  await expect.poll(isUnderWay).toBe(true)
  return {
    pid,
    /** Where it has ended. */
    end: async () => (await reading).rows[0]?.server,
  }
}

test('nothing is known of a replica at first, and nothing is read from it', async () => {
  const nothing = { reads: 0, queriesUnderWay: 0, fallbacks: 0, isUsable: false }
  expect(replica).toMatchObject({ ...nothing, position: Number.NEGATIVE_INFINITY })
  expect((await read()).server).toBe('primary')
  await ask()
  expect(replica).toMatchObject({ ...nothing, position: 0x100 })
  expect((await read()).server).toBe('primary')
})

test('it is read from for less than a second after it was confirmed', async () => {
  await learn()
  expect((await read()).server).toBe('standby')
  clock.advance(999)
  expect((await read()).server).toBe('standby')
  clock.advance(1)
  expect((await read()).server).toBe('primary')
})

test('sessions are asked for once whether they are kept', async () => {
  const { mock, mockRestore } = vi.spyOn(pg.Client.prototype, 'query')
  onTestFinished(() => mockRestore())
  for (let i = 0; i < 2; i += 1) await ask()
  const statements = mock.calls.map(([statement]) => (statement as { text?: string }).text)
  expect(statements.filter((text) => text === 'SELECT pg_backend_pid() AS pid')).toHaveLength(1)
})

test('of a server that was started again, nothing of before counts', async () => {
  await learn()
  replica.compare(replica.state as ServerState, 0)
  expect(replica.isAhead).toBe(true)
  const reading = await readForLong()
  await servers.say('standby', { started: 'now' })
  await ask()
  expect(replica).toMatchObject({ isAhead: undefined, isUsable: false })
  expect(await reading.end()).toBe('primary')
})

test('of a server that replays once more what it had, nothing is read', async () => {
  await learn()
  const reading = await readForLong()
  await servers.say('standby', { position: '0/FF' })
  await ask()
  expect(replica).toMatchObject({ isUsable: false, position: 0xff })
  expect(await reading.end()).toBe('primary')
})

test('connections are kept as long as it goes on', async () => {
  await learn()
  const { pid } = await read()
  await learn()
  expect(await read()).toEqual({ server: 'standby', pid })
  await servers.say('standby', { position: '0/101' })
  await learn()
  expect(await read()).toEqual({ server: 'standby', pid })
})

test.each([
  ['an outage', '57P03', 0],
  ['a lock timeout', '55P03', 1_000],
  ['what does not pass by itself', '42501', 15_000],
])('after %s it is asked again, but not too soon', async (_, code, rest_ms) => {
  await learn()
  const reading = await readForLong()
  await servers.say('standby', { error: code })
  await ask()
  const failed = { state: undefined, failure: expect.objectContaining({ code }), isUsable: false }
  expect(replica).toMatchObject(failed)
  expect(await reading.end()).toBe('primary')
  await servers.say('standby', { error: null })
  if (rest_ms > 0) {
    clock.advance(rest_ms - 1)
    await ask()
    expect(replica).toMatchObject(failed)
    clock.advance(1)
  }
  await ask()
  expect(replica.position).toBe(0x100)
})

test('what it has said before a query failed does not count after it', async () => {
  await learn()
  const reading = await readForLong()
  const obstacle = await holdLock(servers.url('primary'), 'LOCK TABLE said')
  onTestFinished(() => obstacle.release())
  // It fails in time, too, if the rest takes too long for it.
  const asking = replica.ask()
  await sql`SELECT pg_terminate_backend(${reading.pid})`.execute(primary)
  expect(await reading.end()).toBe('primary')
  expect(replica).toMatchObject({
    state: undefined,
    isUsable: false,
    failure: expect.objectContaining({ code: '57P01' }),
  })
  await obstacle.release()
  await asking
  expect(replica.state).toBeUndefined()
  await ask()
  expect(replica.position).toBe(0x100)
})

test('a query that fails there is run on the primary server, and told of once a minute', async () => {
  await learn()
  const { pid } = await read()
  const refused = sql<{ server: string }>`SELECT current_setting('simulated.server') AS server
    WHERE CASE current_setting('simulated.server') WHEN 'standby' THEN 1 / (random() * 0)::int = 1 ELSE true END`
  for (const [passed_ms, reports] of [
    [0, 1],
    [59_999, 1],
    [1, 2],
  ] as const) {
    clock.advance(passed_ms)
    await learn()
    expect((await refused.execute(replica.db)).rows).toEqual([{ server: 'primary' }])
    expect(reported).toEqual(Array(reports).fill(expect.objectContaining({ code: '22012' })))
  }
  expect(replica).toMatchObject({ fallbacks: 3, queriesUnderWay: 0 })
  expect(await read()).toEqual({ server: 'standby', pid })
})

test('a query that waits for a lock is run on the primary server after half a second, as are those behind it', async () => {
  await learn()
  const { rows } = await sql`SHOW lock_timeout`.execute(replica.db)
  expect(rows).toEqual([{ lock_timeout: '500ms' }])
  const obstacle = await holdLock(servers.url('primary'), 'LOCK TABLE locked')
  onTestFinished(() => obstacle.release())
  const onPrimary = vi.spyOn(primary, 'executeQuery').mockImplementation(async () => {
    await obstacle.release()
    return { rows: ['primary'] }
  })
  onTestFinished(() => onPrimary.mockRestore())
  const reading = Array.from({ length: 3 }, () => sql`SELECT FROM locked`.execute(replica.db))
  expect(await Promise.all(reading)).toEqual(Array(3).fill({ rows: ['primary'] }))
  expect(reported).toEqual([expect.objectContaining({ code: '55P03' })])
  expect(replica).toMatchObject({ fallbacks: 3, isUsable: false, state: undefined })
})

test('a query whose server falls silent is run on the primary server after the read timeout', async () => {
  replica = open({ queryTimeout_ms: 500 })
  await learn()
  expect((await LONG_READ.execute(replica.db)).rows).toEqual([{ server: 'primary' }])
})

test('a read finds out that its connection leads to another server', async () => {
  await learn()
  await servers.say('standby', { started: 'now' })
  expect((await read()).server).toBe('primary')
  expect(replica).toMatchObject({
    isUsable: false,
    failure: { message: expect.stringMatching(/^it is another server/) },
  })
})

test('a restart that a read finds is not the reported failure while the state is unknown', async () => {
  await learn()
  await servers.say('standby', { error: '57P03' })
  await ask()
  await servers.say('standby', { started: 'now', error: null })
  confirm()
  expect((await read()).server).toBe('primary')
  expect(replica).toMatchObject({ failure: expect.objectContaining({ code: '57P03' }) })
  await learn()
  expect((await read()).server).toBe('standby')
})

describe('of a server that accepts connections but never responds', () => {
  /** Waits until it has accepted one, and lets as long pass as it may take to respond. */
  async function untilAccepted(server: Server): Promise<void> {
    await once(server, 'connection')
    vi.advanceTimersByTime(600)
  }

  async function startSilentServer(): Promise<{ server: Server; url: string }> {
    const server = createServer((socket) => socket.on('error', () => {})).listen(0, '127.0.0.1')
    await once(server, 'listening')
    onTestFinished(() => void server.close())
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    onTestFinished(() => void vi.useRealTimers())
    return { server, url: `postgres://nobody@127.0.0.1:${(server.address() as AddressInfo).port}/nothing` }
  }

  test('asking for the state fails after 0.6 seconds', async () => {
    const { server, url } = await startSilentServer()
    replica = open({}, url)
    await Promise.all([replica.ask(), untilAccepted(server)])
    expect(replica.failure).toMatchObject({ message: 'Connection terminated due to connection timeout' })
  })

  test('a read is run on the primary server after 0.6 seconds', async () => {
    const { server, url } = await startSilentServer()
    replica = open({}, url)
    confirm()
    expect(await Promise.all([read(), untilAccepted(server)])).toMatchObject([{ server: 'primary' }, undefined])
  })
})
