import { setImmediate } from 'node:timers/promises'
import { Kysely, sql } from 'kysely'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, inject, onTestFinished, test, vi } from 'vitest'
import { isUnavailable } from '../../src/database/failures.ts'
import { connect, connectShared } from '../../src/database/open.ts'
import { PipelinedDialect } from '../../src/database/pipelined-dialect.ts'
import { createPool, type Database } from '../../src/database/pool.ts'
import { type Parameter, prepare, type QueryKind } from '../../src/database/prepared.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { createDatabaseProxy } from '../support/database-proxy.ts'
import { databaseUrl, onServer } from '../support/global-setup.ts'
import { holdLock } from '../support/waiting.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database.drop())

const opened: Database[] = []
afterEach(async () => {
  for (const db of opened.splice(0)) await db.destroy()
})
function open(options: Parameters<typeof connectShared>[1] = {}, url = database.url): Database {
  const db = connectShared(url, { max: 1, ...options })
  opened.push(db)
  return db
}

const echo = prepare((db, value: Parameter<string>) => db.selectNoFrom(sql<string>`${value}::text`.as('value')))
const divide = prepare((db, by: Parameter<number>) => db.selectNoFrom(sql<number>`1 / ${by}::int`.as('quotient')))
const backend = prepare((db) => db.selectNoFrom(sql<number>`pg_backend_pid()`.as('pid')))
const locked = prepare((db, lock: Parameter<number>) =>
  db.selectNoFrom(sql<string>`pg_advisory_xact_lock(${lock})`.as('lock')),
)

const values = (db: Database, texts: string[]) =>
  Promise.all(texts.map(async (text) => (await echo(db, text))[0]?.value))

test('each query gets its own result, however many are sent at once on one connection', async () => {
  const db = open()
  const texts = Array.from({ length: 500 }, (_, i) => `value ${i}`)
  expect(await values(db, texts)).toEqual(texts)
})

test('a query that fails in the middle fails alone', async () => {
  const db = open()
  const outcomes = await Promise.allSettled([echo(db, 'before'), divide(db, 0), echo(db, 'between'), divide(db, 1)])
  expect(outcomes).toMatchObject([
    { value: [{ value: 'before' }] },
    { reason: { code: '22012' } },
    { value: [{ value: 'between' }] },
    { value: [{ quotient: 1 }] },
  ])
})

test('a query is sent before the result of the one ahead of it, and stays behind it', async () => {
  const db = open()
  const obstacle = await holdLock(database.url, 'SELECT pg_advisory_xact_lock(1)')
  const order: string[] = []
  const slow = locked(db, 1).then(() => order.push('slow'))
  const quick = echo(db, 'x').then(() => order.push('quick'))
  await obstacle.waiting(1)
  expect(order).toEqual([])
  await obstacle.release()
  await Promise.all([slow, quick])
  expect(order).toEqual(['slow', 'quick'])
})

test('a query goes to the connection with the fewest under way, past a slow one', async () => {
  const db = open({ max: 3 })
  const obstacle = await holdLock(database.url, 'SELECT pg_advisory_xact_lock(2)')
  const slow = locked(db, 2)
  await obstacle.waiting(1)
  for (let i = 0; i < 5; i += 1) expect(await values(db, [`past ${i}`])).toEqual([`past ${i}`])
  await obstacle.release()
  await slow
})

test('queries at once are spread over the connections', async () => {
  const db = open({ max: 4 })
  const rows = await Promise.all(Array.from({ length: 9 }, () => backend(db)))
  // The first connection is for look-ups.
  expect(new Set(rows.map(([row]) => row?.pid)).size).toBe(3)
})

test.each([2, 4])(
  'of %i connections, one is for look-ups, and one of more than two is avoided by lists while it reads a large value',
  async (max) => {
    const db = open({ max })
    const lockedBy = (kind: QueryKind) =>
      prepare((db, lock: Parameter<number>) => db.selectNoFrom(sql`pg_advisory_xact_lock(${lock})`.as('lock')), {
        kind,
      })
    const of = (kind: QueryKind) => prepare((db) => db.selectNoFrom(sql<number>`pg_backend_pid()`.as('pid')), { kind })
    const pidsOf = async (kind: QueryKind, count: number) =>
      new Set((await Promise.all(Array.from({ length: count }, () => of(kind)(db)))).map(([row]) => row?.pid))

    const [lookUps, lists, large] = [await pidsOf('look-up', 9), await pidsOf('list', 9), await pidsOf('large', 9)]
    expect([lookUps.size, lists.size, large.size]).toEqual([1, max - 1, 1])
    expect(lists).not.toContain([...lookUps][0])
    expect(lists).toContain([...large][0])

    // A large value would wait for a list.
    if (max > 2) expect(await pidsOf('list', 1)).not.toEqual(large)

    const obstacle = await holdLock(database.url, 'SELECT pg_advisory_xact_lock(4)')
    const slow = []
    for (let i = 0; i < 2; i += 1) {
      slow.push(lockedBy('large')(db, 4))
      expect(await obstacle.waiting(1)).toEqual([...large])
      expect(await pidsOf('look-up', 9)).toEqual(lookUps)
      if (max > 2) expect(await pidsOf('list', 9)).toEqual(lists.difference(large))
    }
    await obstacle.release()
    await Promise.all(slow)
    // A large value that failed is not under way any more, either.
    await expect(prepare((db) => db.selectNoFrom(sql`1 / 0`.as('x')), { kind: 'large' })(db)).rejects.toThrow('zero')
    expect(await pidsOf('list', 9)).toEqual(lists)
  },
)

test('a statement is prepared once on a connection, under a name', async () => {
  const db = open()
  await values(db, ['a', 'b', 'c'])
  const { rows } = await sql<{ statement: string }>`SELECT statement FROM pg_prepared_statements`.execute(db)
  expect(rows).toEqual([{ statement: 'select $1::text as "value"' }])
})

test('when the connection breaks, all queries under way fail, and the next query opens a new one', async () => {
  const db = open()
  const obstacle = await holdLock(database.url, 'SELECT pg_advisory_xact_lock(3)')
  const waiting = Promise.allSettled([locked(db, 3), ...Array.from({ length: 20 }, () => echo(db, 'lost'))])
  const [pid] = await obstacle.waiting(1)
  await obstacle.query(`SELECT pg_terminate_backend(${pid})`)
  const outcomes = await waiting
  expect(outcomes.map((outcome) => outcome.status === 'rejected' && isUnavailable(outcome.reason))).toEqual(
    Array(21).fill(true),
  )
  await obstacle.release()
  expect((await backend(db))[0]?.pid).not.toBe(pid)
})

/** Opens connections of which the first ends just before it is handed out. */
function openWithLostConnection(max: number) {
  const onConnect = vi.fn<(client: pg.ClientBase) => Promise<void>>(async () => {})
  onConnect.mockImplementationOnce(async (client) => void (client as pg.Client).end())
  const pool = createPool(database.url, { max, pipeline: true, statementTimeout_ms: 1_000, onConnect })
  const db: Database = new Kysely({ dialect: new PipelinedDialect(pool) })
  opened.push(db)
  return { db, onConnect }
}

test('a connection that ended just before it was handed out is replaced', async () => {
  const { db, onConnect } = openWithLostConnection(1)
  await expect(echo(db, 'lost')).rejects.toSatisfy(isUnavailable)
  await expect.poll(() => values(db, ['next']).catch(() => [])).toEqual(['next'])
  expect(onConnect).toHaveBeenCalledTimes(2)
})

test('so is one for look-ups, whose first statement sets how they are planned', async () => {
  const { db } = openWithLostConnection(2)
  const lookUp = prepare((on) => on.selectNoFrom(sql<number>`1`.as('one')), { kind: 'look-up' })
  await expect(lookUp(db)).rejects.toSatisfy(isUnavailable)
  await expect.poll(() => lookUp(db).catch(() => [])).toEqual([{ one: 1 }])
})

test('a statement that takes too long fails, and those behind it do not', async () => {
  const db = open({ statementTimeout_ms: 500 })
  const outcomes = await Promise.allSettled([
    sql`SELECT pg_sleep(10)`.execute(db),
    ...['a', 'b'].map((value) => echo(db, value)),
  ])
  expect(outcomes).toMatchObject([
    { reason: { code: '57014' } },
    { value: [{ value: 'a' }] },
    { value: [{ value: 'b' }] },
  ])
})

test('a query that does not get a lock keeps its connection if no other is under way on it', async () => {
  const db = open({ lockTimeout_ms: 100 })
  const before = await backend(db)
  const obstacle = await holdLock(database.url, 'SELECT pg_advisory_xact_lock(8)')
  await expect(sql`SELECT pg_advisory_xact_lock(8)`.execute(db)).rejects.toMatchObject({ code: '55P03' })
  expect(await backend(db)).toEqual(before)
  await obstacle.release()
})

test('a query behind the one that failed to prepare it counts as an outage too, and the next succeeds', async () => {
  const db = open({ statementTimeout_ms: 500 })
  const list = prepare((db, id: Parameter<string>) =>
    db.selectFrom('projects').select('name').where('project_id', '=', id),
  )
  await echo(db, 'warm')
  const obstacle = await holdLock(database.url, 'LOCK TABLE projects')
  const outcomes = await Promise.allSettled(Array.from({ length: 4 }, () => list(db, 'a')))
  expect(outcomes.map((outcome) => outcome.status === 'rejected' && isUnavailable(outcome.reason))).toEqual(
    Array(4).fill(true),
  )
  await obstacle.release()
  expect(await list(db, 'a')).toEqual([])
})

test('queries are prepared anew once the type of a column has changed, again and again', async () => {
  const db = open()
  const titles = prepare(
    (db, id: Parameter<string>) => db.selectFrom('modules').select('title').where('project_id', '=', id),
    { name: 'titles' },
  )
  for (const type of ['varchar(300)', 'text', 'varchar(200)']) {
    await titles(db, 'demo')
    await onServer(database.url, `ALTER TABLE modules ALTER title TYPE ${type}`)
    const readers = Array.from({ length: 5 }, () => titles(db, 'demo'))
    expect(await Promise.all(readers)).toEqual(Array(5).fill([]))
  }
  // Once for all of them.
  const { rows } = await sql<{ name: string }>`SELECT name FROM pg_prepared_statements`.execute(db)
  expect(rows.map(({ name }) => name.split('_').at(-1)).sort()).toEqual(['0', '1', '2', '3'])
})

describe('with a lock timeout', () => {
  const options = { max: 3, lockTimeout_ms: 100, statementTimeout_ms: 60_000 }
  const lockedLookUp = prepare(
    (db, lock: Parameter<number>) => db.selectNoFrom(sql<string>`pg_advisory_xact_lock_shared(${lock})`.as('lock')),
    { name: 'lockedLookUp', kind: 'look-up' },
  )
  const lookUp = prepare((db, value: Parameter<string>) => db.selectNoFrom(sql<string>`${value}::text`.as('value')), {
    name: 'lookUp',
    kind: 'look-up',
  })
  const largeValue = prepare((db) => db.selectNoFrom(sql<string>`'large'`.as('value')), {
    name: 'largeValue',
    kind: 'large',
  })

  test('queries that wait for a lock wait on, and do not keep others waiting', async () => {
    const db = open(options)
    const obstacle = await holdLock(database.url, 'SELECT pg_advisory_xact_lock(5)')
    const waiting = Array.from({ length: 9 }, () => lockedLookUp(db, 5))
    const behind = Array.from({ length: 9 }, (_, i) => lookUp(db, `behind ${i}`))
    expect((await Promise.all(behind)).flat()).toMatchObject(behind.map((_, i) => ({ value: `behind ${i}` })))
    await obstacle.waiting(1)
    // They are known to wait now.
    waiting.push(lockedLookUp(db, 5))
    expect(await lookUp(db, 'later')).toEqual([{ value: 'later' }])
    expect(await largeValue(db)).toEqual([{ value: 'large' }])
    await obstacle.release()
    expect(await Promise.all(waiting)).toHaveLength(10)
  })

  test('so do those that rely on what the first of them was to prepare', async () => {
    const db = open(options)
    const modules = prepare((db) => db.selectFrom('modules').select('module_id'), { name: 'modules', kind: 'look-up' })
    await lookUp(db, 'connected')
    const obstacle = await holdLock(database.url, 'LOCK TABLE modules')
    const waiting = Array.from({ length: 9 }, () => modules(db))
    await obstacle.waiting(1)
    // All fail before the event loop turns: the first for its lock, and the others since it has prepared nothing.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3 * options.lockTimeout_ms)
    await lookUp(db, 'behind')
    await obstacle.release()
    expect(await Promise.all(waiting)).toEqual(Array(9).fill([]))
  })

  test('they fail together when their time is over, with the lock timeout', async () => {
    const db = open({ ...options, statementTimeout_ms: 500 })
    const obstacle = await holdLock(database.url, 'SELECT pg_advisory_xact_lock(6)')
    const outcomes = await Promise.allSettled(Array.from({ length: 50 }, () => lockedLookUp(db, 6)))
    expect(new Set(outcomes.map((outcome) => outcome.status === 'rejected' && outcome.reason.code))).toEqual(
      new Set(['55P03']),
    )
    expect(await lookUp(db, 'after')).toEqual([{ value: 'after' }])
    await obstacle.release()
  })

  test('what is not known to read is not sent again', async () => {
    const db = open({ ...options, max: 1 })
    const obstacle = await holdLock(database.url, 'SELECT pg_advisory_xact_lock(7)')
    // What is sent at once after it failed has a new connection.
    let next: Promise<unknown> | undefined
    const locked = sql`SELECT pg_advisory_xact_lock(7)`.execute(db).finally(() => {
      next = sql`SELECT 1 AS one`.execute(db)
    })
    const outcomes = await Promise.allSettled([locked, sql`SELECT pg_sleep(30)`.execute(db)])
    expect(outcomes).toMatchObject([{ reason: { code: '55P03' } }, { reason: { code: '55P03' } }])
    expect(await next).toMatchObject({ rows: [{ one: 1 }] })
    await obstacle.release()
  })
})

test('the time that a query waits for those ahead of it does not count', async () => {
  const db = open({ queryTimeout_ms: 4_000 })
  await echo(db, 'warm')
  const slow = Array.from({ length: 2 }, () => sql`SELECT pg_sleep(2.1)`.execute(db))
  expect(await values(db, ['behind'])).toEqual(['behind'])
  await Promise.all(slow)
})

test('on a server that never replies a query fails in time, and the next has a new connection', async () => {
  const proxy = await createDatabaseProxy(inject('databaseServer'))
  const db = open({ queryTimeout_ms: 2_000 }, proxy.reach(database.url))
  await echo(db, 'before')
  proxy.freeze()
  const outcomes = await Promise.allSettled([echo(db, 'a'), echo(db, 'b')])
  expect(outcomes.map((outcome) => outcome.status === 'rejected' && isUnavailable(outcome.reason))).toEqual([
    true,
    true,
  ])
  proxy.restore()
  expect(await values(db, ['after'])).toEqual(['after'])
  await db.destroy()
  opened.splice(0)
  await proxy.close()
})

test('a transaction is refused, since other queries would be in it', async () => {
  const db = open()
  await expect(db.transaction().execute(async (trx) => sql`SELECT 1`.execute(trx))).rejects.toThrow(
    'a transaction needs a connection of its own',
  )
})

test('destroy waits for the queries under way', async () => {
  const db = connectShared(database.url, { max: 1 })
  await echo(db, 'warm')
  const answers = values(db, ['a', 'b', 'c'])
  await setImmediate()
  await db.destroy()
  expect(await answers).toEqual(['a', 'b', 'c'])
})

test('an idle connection stays open, however long', async () => {
  const db = open({ queryTimeout_ms: 2_000 })
  const [first] = await Promise.all([backend(db), echo(db, 'at once')])
  const other = connect(database.url)
  opened.push(other)
  await sql`SELECT pg_sleep(2.2)`.execute(other)
  expect(await backend(db)).toEqual(first)
})

test('after a failure to connect, the next query tries again', async () => {
  const name = `${new URL(database.url).pathname.slice(1)}_later`
  const db = open({}, databaseUrl(database.url, name))
  await expect(echo(db, 'too early')).rejects.toMatchObject({ code: '3D000' })
  await onServer(inject('databaseServer'), `CREATE DATABASE ${name}`)
  expect(await values(db, ['now'])).toEqual(['now'])
  await db.destroy()
  opened.splice(0)
  await onServer(inject('databaseServer'), `DROP DATABASE ${name}`)
})

test('destroy ends the pool, also while a connection fails', async () => {
  const end = vi.spyOn(pg.Pool.prototype, 'end')
  onTestFinished(() => end.mockRestore())
  const ended = { type: 'fulfilled', value: undefined }
  const live = connectShared(database.url, { max: 2 })
  await echo(live, 'a')
  await live.destroy()
  expect(end.mock.settledResults).toEqual([ended])

  const failing = connectShared(databaseUrl(database.url, 'not_there'), { max: 2 })
  const failures = Promise.allSettled([echo(failing, 'a'), echo(failing, 'b')])
  await setImmediate()
  await failing.destroy()
  expect(end.mock.settledResults).toEqual([ended, ended])
  expect((await failures).map(({ status }) => status)).toEqual(['rejected', 'rejected'])
})
