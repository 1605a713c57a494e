import { createHook } from 'node:async_hooks'
import { sql } from 'kysely'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { leastEventId } from '../../src/queries/idempotency.ts'
import { IdempotencyPruner, type PrunerOptions, type PruningRun } from '../../src/recording/idempotency-pruner.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { holdLock } from '../support/waiting.ts'
import { customEvent, fillFixture, post } from './fixture.ts'

const DAY_ms = 24 * 60 * 60 * 1_000
const RETENTION_ms = 7 * DAY_ms
const LONG_ms = 600_000

let api: TestApp
let otherKey: string
/** As the server has one for pruning alone. */
let db: Database
beforeAll(async () => {
  // The project demo is the first one, without twins.
  api = await createTestApp({ fill: fillFixture, twins: false })
  otherKey = await createKey(api.db, 'other', { name: 'other', scopes: SCOPES, expires_at: null })
  db = connect(api.databaseUrl, { max: 1, statementTimeout_ms: 10_000 })
})
afterAll(async () => {
  await db.destroy()
  await api.close()
})
beforeEach(async () => {
  await api.db.deleteFrom('idempotency_keys').execute()
})

/** Records events, each with its key, and gives them these ids. */
async function recordWithIds(ids: readonly string[], project = 'demo', { call, db, key } = api): Promise<void> {
  const events = ids.map((id) => ({ ...customEvent(), idempotency_key: id }))
  const path = `/projects/${project}/events/batch`
  await call({ method: 'POST', path, key: project === 'demo' ? key : otherKey, body: { events } })
  await giveIds(ids, project, db)
}

/** Gives the events that were recorded under these keys the ids that the keys are. */
async function giveIds(keys: readonly string[], project = 'demo', on = api.db): Promise<void> {
  await sql`
    WITH renamed AS (
      UPDATE events e SET event_id = k.idempotency_key FROM idempotency_keys k
      WHERE k.project_id = ${project} AND k.idempotency_key = ANY(${keys})
        AND e.project_id = k.project_id AND e.event_id = k.event_id
    )
    UPDATE idempotency_keys SET event_id = idempotency_key
    WHERE project_id = ${project} AND idempotency_key = ANY(${keys})`.execute(on)
}

/** Ids of events that were recorded that many milliseconds ago, which must differ. */
const idsOf = (...ages_ms: number[]) => ages_ms.map((age_ms) => leastEventId(Date.now() - age_ms))

let seconds = 0
/** Ids of old events, each of them a second later than the one before. */
const oldIds = (count: number) =>
  idsOf(...Array.from({ length: count }, () => RETENTION_ms + DAY_ms - ++seconds * 1_000))

/** The keys that are stored, the oldest first. */
async function keysOf(project = 'demo'): Promise<string[]> {
  const rows = await api.db
    .selectFrom('idempotency_keys')
    .select('idempotency_key')
    .where('project_id', '=', project)
    .orderBy('event_id')
    .execute()
  return rows.map(({ idempotency_key }) => idempotency_key)
}

/** Starts pruning, until the test ends. */
function startPruning(options: Partial<PrunerOptions> = {}, on = db) {
  const runs: PruningRun[] = []
  const pruner = new IdempotencyPruner(on, { retention_days: 7, interval_ms: LONG_ms, ...options }, (run) =>
    runs.push(run),
  )
  onTestFinished(() => pruner.close())
  const ended = async (count = 1) => {
    await expect.poll(() => runs.length, { timeout: 30_000 }).toBeGreaterThanOrEqual(count)
    return runs
  }
  return { pruner, ended }
}

async function deletedByOneRun(options?: Partial<PrunerOptions>): Promise<number | undefined> {
  const { pruner, ended } = startPruning(options)
  const [run] = await ended()
  await pruner.close()
  expect(run?.error).toBeUndefined()
  return run?.deleted
}

test('the least id of an event at a time is less than any other one of that time', () => {
  expect(leastEventId(0x0123456789ab)).toBe('01234567-89ab-7000-8000-000000000000')
})

/** How many rows each statement has deleted that has deleted any. */
const deletedByStatement = (results: { value: unknown }[]) =>
  results.flatMap(({ value }) => {
    const { command, rowCount } = value as pg.QueryResult
    return command === 'DELETE' && rowCount ? [rowCount] : []
  })

test('the next run comes after an hour', async () => {
  const timers_ms: unknown[] = []
  const hook = createHook({
    init: (_id, type, _trigger, timer) => {
      if (type === 'Timeout') timers_ms.push((timer as { _idleTimeout: number })._idleTimeout)
    },
  })
  hook.enable()
  onTestFinished(() => void hook.disable())
  const runs: PruningRun[] = []
  const pruner = new IdempotencyPruner(db, { retention_days: 7 }, (run) => runs.push(run))
  onTestFinished(() => pruner.close())
  await expect.poll(() => timers_ms, { timeout: 30_000 }).toContain(60 * 60 * 1_000)
  expect(runs).toHaveLength(1)
})

test('a statement deletes at most a thousand', async () => {
  await recordWithIds(oldIds(1_000))
  await recordWithIds(oldIds(1))
  const query = vi.spyOn(pg.Client.prototype, 'query')
  onTestFinished(() => query.mockRestore())
  expect(await deletedByOneRun()).toBe(1_001)
  expect(deletedByStatement(query.mock.settledResults)).toEqual([1_000, 1])
})

describe('a run', () => {
  test('deletes what is older than the days, to the millisecond, and in all projects', async () => {
    // Behind the clock of the database, which may be some milliseconds off.
    const now_ms = Date.now() - 60_000
    vi.useFakeTimers({ toFake: ['Date'], now: now_ms })
    onTestFinished(() => void vi.useRealTimers())
    const cutoff_ms = now_ms - RETENTION_ms
    const lastToGo = leastEventId(cutoff_ms - 1).replace('7000-8000-000000000000', '7fff-bfff-ffffffffffff')
    const firstToStay = leastEventId(cutoff_ms)
    const [ancient, young] = idsOf(3_650 * DAY_ms, 0) as [string, string]
    await recordWithIds([ancient, lastToGo, firstToStay, young])
    await recordWithIds([lastToGo, young], 'other')
    expect(await deletedByOneRun()).toBe(3)
    expect([await keysOf(), await keysOf('other')]).toEqual([[firstToStay, young], [young]])
  })

  test('deletes nothing that is young by the clock of the database, however far its own is ahead', async () => {
    const [young] = idsOf(DAY_ms) as [string]
    await recordWithIds([young, ...oldIds(1)])
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3_650 * DAY_ms })
    onTestFinished(() => void vi.useRealTimers())
    expect(await deletedByOneRun()).toBe(1)
    expect(await keysOf()).toEqual([young])
  })

  test('deletes in short transactions', async () => {
    const ids = oldIds(25)
    await recordWithIds(ids)
    await recordWithIds(oldIds(10), 'other')
    const query = vi.spyOn(pg.Client.prototype, 'query')
    onTestFinished(() => query.mockRestore())
    expect(await deletedByOneRun({ chunkSize: 10 })).toBe(35)
    expect(deletedByStatement(query.mock.settledResults)).toEqual([10, 10, 5, 10])
    // Each begins where the one before ended: PostgreSQL would read what that deleted again.
    const deletions = query.mock.calls.filter(([text]) => String(text).startsWith('delete'))
    expect(deletions.slice(0, 3).map(([, values]) => values)).toEqual(
      ['', ids[9], ids[19]].map((after) => expect.arrayContaining(['demo', after])),
    )
    // Each is a transaction.
    expect(query.mock.calls.map(([statement]) => String(statement).toLowerCase())).not.toContain('begin')
    expect([await keysOf(), await keysOf('other')]).toEqual([[], []])
  })

  test('leaves out the rows that others have locked, until the next one', async () => {
    const ids = oldIds(5)
    await recordWithIds(ids)
    const locked = ids.slice(0, 2)
    const obstacle = await holdLock(
      api.databaseUrl,
      `SELECT FROM idempotency_keys WHERE project_id = 'demo' AND idempotency_key IN ('${locked.join("', '")}') FOR UPDATE`,
    )
    expect(await deletedByOneRun({ chunkSize: 1 })).toBe(3)
    expect(await keysOf()).toEqual(locked)
    await obstacle.release()
    expect(await deletedByOneRun()).toBe(2)
  })

  test('shares the work with those of other processes: each key is deleted once', async () => {
    await recordWithIds([...oldIds(300), ...idsOf(0)])
    const processes = Array.from({ length: 4 }, () => connect(api.databaseUrl, { max: 1 }))
    onTestFinished(async () => void (await Promise.all(processes.map((process) => process.destroy()))))
    const runs = processes.map(async (process) => {
      const { pruner, ended } = startPruning({ chunkSize: 7 }, process)
      await ended()
      await pruner.close()
      return pruner.deleted
    })
    expect((await Promise.all(runs)).reduce((sum, deleted) => sum + deleted)).toBe(300)
    expect(await keysOf()).toHaveLength(1)
  })

  test('follows another after a while', async () => {
    const { ended } = startPruning({ interval_ms: 5 })
    await ended()
    await recordWithIds(oldIds(1))
    await expect.poll(() => keysOf()).toEqual([])
  })

  test('is followed by a rest of the whole interval, and reports how long it took', async () => {
    const interval_ms = 50
    const start_ms = performance.now()
    const { ended } = startPruning({ interval_ms })
    const runs = await ended(3)
    const duration_ms = performance.now() - start_ms
    for (const run of runs) expect(run.duration_ms).toBeGreaterThan(0)
    const sum_ms = runs.reduce((sum, run) => sum + run.duration_ms, 0)
    // A timer may be early by less than a millisecond.
    expect(sum_ms + (runs.length - 1) * (interval_ms - 1)).toBeLessThanOrEqual(duration_ms)
  })

  test('rests after a statement four times as long as that took', async () => {
    await recordWithIds(oldIds(2))
    const obstacle = await holdLock(api.databaseUrl, 'LOCK TABLE idempotency_keys IN SHARE MODE')
    const { ended } = startPruning({ chunkSize: 1 })
    await obstacle.waiting(1)
    const start_ms = performance.now()
    await obstacle.query('SELECT pg_sleep(0.2)')
    const least_ms = performance.now() - start_ms
    await obstacle.release()
    const [run] = await ended()
    // A timer may be early by less than a millisecond.
    expect(run?.duration_ms).toBeGreaterThan(5 * least_ms - 3)
  })

  test('that the database ends is reported, and the next one goes on', async () => {
    await recordWithIds(oldIds(3))
    const obstacle = await holdLock(api.databaseUrl, 'LOCK TABLE idempotency_keys IN SHARE MODE')
    const { ended } = startPruning({ interval_ms: 5 })
    const [pid] = await obstacle.waiting(1)
    await obstacle.query(`SELECT pg_terminate_backend(${pid})`)
    const [failed] = await ended()
    expect(failed).toMatchObject({ deleted: 0, error: expect.objectContaining({ code: '57P01' }) })
    await obstacle.release()
    await expect.poll(() => keysOf()).toEqual([])
  })

  test('goes on with the other projects when one fails, after a rest, and says so', async () => {
    const ids = oldIds(3)
    await recordWithIds(ids)
    await recordWithIds(oldIds(2), 'other')
    const obstacle = await holdLock(api.databaseUrl, 'LOCK TABLE idempotency_keys IN SHARE MODE')
    const { ended } = startPruning()
    const [pid] = await obstacle.waiting(1)
    const start_ms = performance.now()
    await obstacle.query('SELECT pg_sleep(0.1)')
    const least_ms = performance.now() - start_ms
    await obstacle.query(`SELECT pg_cancel_backend(${pid})`)
    await obstacle.release()
    const [run] = await ended()
    // A timer may be early by less than a millisecond.
    expect(run?.duration_ms).toBeGreaterThan(5 * least_ms - 3)
    expect(run).toMatchObject({ deleted: 2, error: expect.objectContaining({ code: '57014' }) })
    expect([await keysOf(), await keysOf('other')]).toEqual([ids, []])
  })

  test('ends after the statement under way when it is closed', async () => {
    const ids = oldIds(3)
    await recordWithIds(ids)
    const obstacle = await holdLock(api.databaseUrl, 'LOCK TABLE idempotency_keys IN SHARE MODE')
    const { pruner } = startPruning({ chunkSize: 1 })
    await obstacle.waiting(1)
    let isClosed = false
    const closed = pruner.close().then(() => {
      isClosed = true
    })
    await obstacle.waiting(1)
    const wasClosed = isClosed
    await obstacle.release()
    await closed
    expect(wasClosed).toBe(false)
    expect(pruner.deleted).toBe(1)
    expect(await keysOf()).toEqual(ids.slice(1))
  })
})

describe('a repeated request', () => {
  const repeat = async (key: string, body: object) => post(api, body, { 'idempotency-key': key })

  test('with a key that was deleted records another event, which is replayed from then on; with one that was kept it is replayed', async () => {
    const [[old], [young]] = [oldIds(1), idsOf(RETENTION_ms - DAY_ms)] as [[string], [string]]
    const body = customEvent()
    const first = await repeat(old, body)
    await repeat(young, body)
    await giveIds([old, young])
    expect(await deletedByOneRun()).toBe(1)
    const again = await repeat(old, body)
    expect(again.statusCode).toBe(200)
    expect(again.headers).not.toHaveProperty('idempotent-replayed')
    expect(again.json().event_id).not.toBe(first.json().event_id)
    expect((await repeat(young, body)).headers['idempotent-replayed']).toBe('true')
    expect(await deletedByOneRun()).toBe(0)
    expect((await repeat(old, body)).body).toBe(again.body)
  })

  test('is free to have another event once its key was deleted', async () => {
    const [old] = oldIds(1) as [string]
    await recordWithIds([old])
    expect((await repeat(old, customEvent())).statusCode).toBe(422)
    await deletedByOneRun()
    expect((await repeat(old, customEvent())).statusCode).toBe(200)
  })

  test('does not wait for a deletion of its key, and is replayed until that is committed', async () => {
    const body = customEvent()
    const first = await repeat('meanwhile', body)
    const deletion = await holdLock(api.databaseUrl, "DELETE FROM idempotency_keys WHERE idempotency_key = 'meanwhile'")
    const meanwhile = await repeat('meanwhile', body)
    expect([meanwhile.body, meanwhile.headers['idempotent-replayed']]).toEqual([first.body, 'true'])
    await deletion.query('COMMIT')
    await deletion.release()
    const after = await repeat('meanwhile', body)
    expect(after.statusCode).toBe(200)
    expect(after.headers).not.toHaveProperty('idempotent-replayed')
  })
})

describe('a service', () => {
  const lines: { level: number; msg: string; deleted?: number }[] = []
  const linesAbout = () => lines.filter(({ msg }) => msg.includes('old Idempotency-Keys'))
  let pruned: TestApp
  beforeAll(async () => {
    // Without twins the project demo is the first one of a run: what is deleted of it, no failure comes before.
    pruned = await createTestApp({
      fill: fillFixture,
      twins: false,
      pruning: { retention_days: 7, interval_ms: 5 },
      logger: { level: 'info', stream: { write: (line) => void lines.push(JSON.parse(line)) } },
    })
  })
  afterAll(() => pruned.close())
  beforeEach(() => void lines.splice(0))

  test('counts the keys that it deletes, and logs a line for each run that deletes any', async () => {
    const deletedTotal = async () => {
      const { body } = await pruned.app.inject('/metrics')
      return /^flowtrail_idempotency_keys_deleted_total (\d+)$/m.exec(body)?.[1]
    }
    expect(await deletedTotal()).toBe('0')
    await recordWithIds(oldIds(3), 'demo', pruned)
    await expect.poll(deletedTotal).toBe('3')
    // The line of the first run after it would be there, too.
    await recordWithIds(oldIds(2), 'demo', pruned)
    await expect
      .poll(linesAbout)
      .toEqual(
        [3, 2].map((deleted) => expect.objectContaining({ level: 30, deleted, duration_ms: expect.any(Number) })),
      )
  })

  test('logs a line when the database fails, with what to do, and serves on', async () => {
    await sql`ALTER TABLE idempotency_keys RENAME TO elsewhere`.execute(pruned.db)
    await expect.poll(linesAbout).not.toEqual([])
    await sql`ALTER TABLE elsewhere RENAME TO idempotency_keys`.execute(pruned.db)
    expect(linesAbout()[0]).toMatchObject({ level: 40, deleted: 0, msg: expect.stringContaining('in an hour') })
    await recordWithIds(oldIds(1), 'demo', pruned)
    await expect.poll(() => linesAbout().at(-1)).toMatchObject({ level: 30, deleted: 1 })
  })
})
