/**
 * A recorder is as free after tens of thousands of posts that were not recorded as at its start: none counts as pending,
 * no batch holds a slot or a connection, and none is queued. All tests use one recorder, so that what one leaks the
 * others lack.
 */
import { request } from 'node:http'
import { setImmediate } from 'node:timers/promises'
import { sql } from 'kysely'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { buildApp } from '../../src/app.ts'
import { detectDistribution } from '../../src/database/distribution.ts'
import { connectShared, openWritePool } from '../../src/database/open.ts'
import { toApiError } from '../../src/http/error-handler.ts'
import { Recorder } from '../../src/recording/recorder.ts'
import { PLAIN_CONFIG, type TestApp } from '../support/app.ts'
import { isOnCitus } from '../support/citus.ts'
import { searchedLogger } from '../support/log-keys.ts'
import { type HeldLock, holdLock, holdProject } from '../support/waiting.ts'
import {
  createRecordingApp,
  customEvent,
  freshValue,
  parsedEvent,
  recorderOn,
  rowCounts,
  stopClock,
  waitersFor,
  watchStatements,
} from './fixture.ts'

const PROJECTS = ['demo', 'other', 'third']
const LIMITS = { maxQueuedEvents: 512, maxBatchSize: 64, lockTimeout_ms: 20, maxQueueWait_ms: 600_000 }
/** Two batches of each kind at a time. */
const POOL = { max: 4 }
/** As many posts at once as fit the queue: half of it for each of two projects. */
const WAVE = LIMITS.maxQueuedEvents

let api: TestApp
let pool: pg.Pool
let recorder: Recorder
beforeAll(async () => {
  api = await createRecordingApp()
  pool = openWritePool(api.databaseUrl, POOL)
  recorder = recorderOn(pool, LIMITS)
})
afterAll(async () => {
  await pool.end()
  await api.close()
})

const ABSENT = () => parsedEvent({ module_id: 'absent' })

/** Posts an event this often, in turn to two projects. */
const posts = (count: number, event = parsedEvent(), key?: string) =>
  Array.from({ length: count }, (_, i) => recorder.record(i % 2 ? 'demo' : 'other', event, key))

/** How many posts had each outcome: `recorded`, or the code of the error. */
async function outcomesOf(posts: Promise<unknown>[]): Promise<Record<string, number>> {
  const outcomes = await Promise.all(
    posts.map((one) =>
      one.then(
        () => 'recorded',
        (error) => toApiError(error).errorCode,
      ),
    ),
  )
  const counts: Record<string, number> = {}
  for (const outcome of outcomes) counts[outcome] = (counts[outcome] ?? 0) + 1
  return counts
}

/** Resolves once a session waits for this lock. */
const waitedFor = (obstacle: HeldLock) => expect.poll(() => waitersFor(obstacle), { interval: 2 }).toBe(1)

/** Releases the lock at the latest when the test ends, so that one that fails leaves nothing locked. */
async function untilFinished(lock: Promise<HeldLock>): Promise<HeldLock> {
  const obstacle = await lock
  onTestFinished(() => obstacle.release())
  return obstacle
}
const hold = (projectId: string) => untilFinished(holdProject(api.databaseUrl, projectId))

/** The connections that batches have or wait for. */
const connectionsInUse = () => pool.totalCount - pool.idleCount + pool.waitingCount

async function expectToBeFree(): Promise<void> {
  expect(recorder.pending).toEqual({ events: 0, projects: 0 })
  expect(connectionsInUse(), 'connections not given back').toBe(0)
  const { transactions } = watchStatements()
  await recorder.record('demo', parsedEvent())
  expect(transactions(), 'transactions of a post').toBe(1)
  await expectRoom()
  await expectSlots()
  expect(connectionsInUse()).toBe(0)
}

/** A session that waited no longer when it was ended has broken a connection that no batch had; the next one would notice. */
async function discardBroken(): Promise<void> {
  const connections = await Promise.all(Array.from({ length: POOL.max }, () => pool.connect()))
  for (const connection of connections) {
    await connection.query('SELECT').then(
      () => connection.release(),
      (error: Error) => connection.release(error),
    )
  }
}

/** The queue holds as many events as it should, to the last one. */
async function expectRoom(): Promise<void> {
  const obstacles = [await hold('demo'), await hold('other')]
  const accepted = outcomesOf(posts(WAVE))
  expect(await outcomesOf([recorder.record('third', ABSENT())])).toEqual({ service_unavailable: 1 })
  for (const obstacle of obstacles) await obstacle.release()
  expect(await accepted, 'posts that fit the queue').toEqual({ recorded: WAVE })
}

/** Later than any contention with others; each time further, since the clock goes back when a test ends. */
let ahead_ms = 0

/** Of each kind, as many batches run at a time as at the start. */
async function expectSlots(): Promise<void> {
  const halfOfPool = POOL.max / 2
  ahead_ms += 1e9
  const { advance, goOn } = stopClock()
  advance(ahead_ms)
  const toEachProject = async () => {
    const recorded: Promise<unknown>[] = []
    for (const projectId of PROJECTS) {
      recorded.push(recorder.record(projectId, parsedEvent()))
      // In the next turn, so that it does not share a batch.
      await setImmediate()
    }
    return outcomesOf(recorded)
  }

  const table = await untilFinished(holdLock(api.databaseUrl, 'LOCK TABLE events IN EXCLUSIVE MODE'))
  const recorded = toEachProject()
  await table.waiting(halfOfPool)
  await setImmediate()
  expect(connectionsInUse(), 'multi-project batches at a time').toBe(halfOfPool)
  await table.release()
  expect(await recorded).toEqual({ recorded: PROJECTS.length })

  goOn()
  const obstacles = await Promise.all(PROJECTS.map(hold))
  const delayed = toEachProject()
  // Once each had its turn, only single-project batches run.
  for (const obstacle of obstacles) await waitedFor(obstacle)
  const { lockTimeouts } = watchStatements()
  let mostInUse = 0
  while (lockTimeouts() < 2 * PROJECTS.length) {
    mostInUse = Math.max(mostInUse, connectionsInUse())
    await setImmediate()
  }
  expect(mostInUse, 'single-project batches at a time').toBe(halfOfPool)
  for (const obstacle of obstacles) await obstacle.release()
  expect(await delayed).toEqual({ recorded: PROJECTS.length })
}

describe('after posts that are refused, the recorder is free:', () => {
  const refused = async (count: number, code: string, event: ReturnType<typeof parsedEvent>, key?: string) => {
    for (let sent = 0; sent < count; sent += WAVE) {
      expect(await outcomesOf(posts(WAVE, event, key))).toEqual({ [code]: WAVE })
    }
  }

  test('10,000 of an unknown module', async () => {
    await refused(10_000, 'module_does_not_exist', ABSENT())
    await expectToBeFree()
  })

  test('300 of as many projects that were deleted', async () => {
    const ofDeleted = Array.from({ length: 300 }, (_, i) => recorder.record(`deleted-${i}`, parsedEvent()))
    expect(await outcomesOf(ofDeleted)).toEqual({ module_does_not_exist: 300 })
    await expectToBeFree()
  })

  test('5,000 whose identifiers conflict', async () => {
    const identifiers = ['a', 'b'].map((key) => ({ key, value: freshValue() }))
    for (const identifier of identifiers) {
      for (const projectId of ['demo', 'other'])
        await recorder.record(projectId, parsedEvent({ identifiers: [identifier] }))
    }
    await refused(5_000, 'identifier_conflict', parsedEvent({ identifiers }))
    await expectToBeFree()
  })

  test('5,000 under an Idempotency-Key of another event', async () => {
    for (const projectId of ['demo', 'other']) await recorder.record(projectId, parsedEvent(), 'taken')
    await refused(5_000, 'idempotency_key_reused', parsedEvent(), 'taken')
    await expectToBeFree()
  })

  test('10,000 that the full queue refuses', async () => {
    const outcomes = await outcomesOf(posts(10_000, ABSENT()))
    expect(outcomes).toEqual({ module_does_not_exist: WAVE, service_unavailable: 10_000 - WAVE })
    await expectToBeFree()
  })
})

describe('after posts that fail, the recorder is free:', () => {
  // On a cluster others than the sessions of the recorder wait for the lock.
  test.skipIf(isOnCitus).each([
    ['statement is cancelled', 'pg_cancel_backend'],
    ['connection is broken', 'pg_terminate_backend'],
  ])('1,000 whose %s', async (_, end) => {
    for (let sent = 0; sent < 1_000; sent += WAVE) {
      const obstacles = [await hold('demo'), await hold('other')]
      let settled = false
      const outcomes = outcomesOf(posts(WAVE)).finally(() => {
        settled = true
      })
      while (!settled) {
        for (const { query } of obstacles) {
          await query(`SELECT ${end}(pid) FROM pg_locks
            WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))`)
        }
      }
      for (const obstacle of obstacles) await obstacle.release()
      expect(await outcomes).toEqual({ service_unavailable: WAVE })
    }
    await discardBroken()
    await expectToBeFree()
  })

  // By a trigger, which Citus refuses.
  test.skipIf(isOnCitus)('500 that PostgreSQL refuses one by one', async () => {
    await sql
      .raw(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.custom_event_name = 'faulty' THEN RAISE EXCEPTION USING ERRCODE = '22012'; END IF; RETURN NEW;
      END $$; CREATE TRIGGER refuse BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION refuse()`)
      .execute(api.db)
    onTestFinished(async () => {
      await sql.raw('DROP TRIGGER refuse ON events; DROP FUNCTION refuse').execute(api.db)
    })
    const faulty = posts(WAVE, parsedEvent({ custom_event_name: 'faulty' }))
    expect(await outcomesOf(faulty)).toEqual({ internal_error: WAVE })
    await expectToBeFree()
  })
})

test('after 2,000 posts whose project was locked for several lock timeouts, all are recorded and the recorder is free', async () => {
  const { lockTimeouts } = watchStatements()
  for (let sent = 0; sent < 2_000; sent += WAVE) {
    const obstacles = [await hold('demo'), await hold('other')]
    const before = lockTimeouts()
    const outcomes = outcomesOf(posts(WAVE))
    await expect.poll(() => lockTimeouts() - before, { interval: 2 }).toBeGreaterThanOrEqual(4)
    for (const obstacle of obstacles) await obstacle.release()
    expect(await outcomes).toEqual({ recorded: WAVE })
  }
  await expectToBeFree()
})

test('after 500 posts whose clients hung up, all are recorded and the next ones are served', async () => {
  const writePool = openWritePool(api.databaseUrl, POOL)
  const importPool = openWritePool(api.databaseUrl, POOL)
  const readDb = connectShared(api.databaseUrl, { max: 2 })
  await detectDistribution(readDb)
  const app = await buildApp({
    config: PLAIN_CONFIG,
    db: readDb,
    writePool,
    importPool,
    recorder: LIMITS,
    logger: searchedLogger(),
  })
  onTestFinished(async () => {
    await app.close()
    await readDb.destroy()
    await writePool.end()
    await importPool.end()
  })
  const address = await app.listen({ host: '127.0.0.1', port: 0 })
  const headers = { 'x-api-key': api.key, 'content-type': 'application/json' }
  const recorded = vi.spyOn(Recorder.prototype, 'record')
  onTestFinished(() => recorded.mockRestore())

  const half = WAVE / 2
  for (let wave = 1; wave <= 2; wave += 1) {
    recorded.mockClear()
    const obstacle = await hold('demo')
    const abandoned = Array.from({ length: half }, () => {
      const post = request(`${address}/projects/demo/events`, { method: 'POST', headers, agent: false })
      post.on('error', () => {})
      post.end(JSON.stringify(customEvent()))
      return post
    })
    await expect.poll(() => recorded.mock.calls.length, { interval: 2 }).toBe(half)
    for (const one of abandoned) one.destroy()
    await obstacle.release()
    expect(await outcomesOf(recorded.mock.results.map(({ value }) => value))).toEqual({ recorded: half })
    const next = Array.from({ length: half }, () =>
      app.inject({ method: 'POST', url: '/projects/demo/events', headers, body: customEvent() }),
    )
    expect((await Promise.all(next)).map(({ statusCode }) => statusCode)).toEqual(Array(half).fill(200))
    expect(writePool.idleCount).toBe(writePool.totalCount)
  }
})

// The last, since after them the recorder takes turns (ADR 0031) until the clock is where it was for them.
describe('after posts that waited for too long, the recorder is free:', () => {
  /** What lets every event that waits now wait for too long. */
  function expiry() {
    const { advance } = stopClock()
    return () => advance(LIMITS.maxQueueWait_ms + 1)
  }

  test('10,000 in batches that are late as a whole', async () => {
    const expire = expiry()
    const before = await rowCounts(api)
    for (let sent = 0; sent < 10_000; sent += WAVE) {
      const late = posts(WAVE)
      expire()
      expect(await outcomesOf(late)).toEqual({ service_unavailable: WAVE })
    }
    expect(await rowCounts(api)).toEqual(before)
    await expectToBeFree()
  })

  test('1,000 in batches that are late in part', async () => {
    const expire = expiry()
    for (let sent = 0; sent < 1_000; sent += WAVE / 2) {
      const late = posts(WAVE / 4)
      expire()
      const [first, second] = [outcomesOf(late), outcomesOf(posts(WAVE / 4))]
      expect(await first).toEqual({ service_unavailable: WAVE / 4 })
      expect(await second).toEqual({ recorded: WAVE / 4 })
    }
    await expectToBeFree()
  })

  test('1,000 that were behind a lock', async () => {
    const expire = expiry()
    const { lockTimeouts } = watchStatements()
    for (let sent = 0; sent < 1_000; sent += WAVE / 2) {
      const obstacle = await hold('demo')
      const late = Array.from({ length: WAVE / 2 }, () => recorder.record('demo', parsedEvent()))
      await waitedFor(obstacle)
      expire()
      expect(await outcomesOf(late)).toEqual({ service_unavailable: WAVE / 2 })
      await obstacle.release()
    }
    expect(lockTimeouts()).toBeGreaterThanOrEqual(4)
    await expectToBeFree()
  })
})
