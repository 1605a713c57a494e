import pg from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { createPool } from '../../src/database/pool.ts'
import { asPooler, usesPooler } from '../../src/database/pooler-client.ts'
import { createTestApp } from '../support/app.ts'
import { createTestDatabase, type TestDatabase, withSettings } from '../support/database.ts'
import { createDatabaseProxy } from '../support/database-proxy.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database.drop())

test.each([
  ['postgres://u@h/d', false],
  ['postgres://u@h/d?pgbouncer=true', true],
  ['postgres://u@h/d?options=-cjit%3Doff&pgbouncer=true', true],
  ['postgres://u@h/d?pgbouncer=no', false],
  ['postgres://u@h/d?nopgbouncer=true', false],
])('%s leads through a pooler: %s', (url, expected) => {
  expect(usesPooler(url)).toBe(expected)
  if (expected) expect(asPooler(url)).toBe(url)
})

test('a connection string says so after its other parameters, or as its only one', () => {
  expect(asPooler('postgres://u@h/d')).toBe('postgres://u@h/d?pgbouncer=true')
  expect(asPooler('postgres://u@h/d?sslmode=disable')).toBe('postgres://u@h/d?sslmode=disable&pgbouncer=true')
})

describe.each([true, false])('with pipelining: %s, a client of a pooler', (pipeline) => {
  let pool: pg.Pool
  beforeAll(() => {
    const url = withSettings(database.url, {
      timezone: 'Asia/Tokyo',
      default_transaction_isolation: 'serializable',
    })
    pool = createPool(asPooler(url), { max: 1, pipeline, statementTimeout_ms: 1_234 })
  })
  afterAll(() => pool.end())

  const SHOW = `SELECT current_setting('timezone') AS timezone, current_setting('statement_timeout') AS timeout,
    current_setting('transaction_isolation') AS isolation`
  const OURS = { timezone: 'UTC', timeout: '1234ms', isolation: 'read committed' }

  /** What is left in the session, as another client of the pooler would see it. */
  async function expectNothingLeft() {
    const client = await pool.connect()
    const query = pg.Client.prototype.query as (sql: string) => Promise<pg.QueryResult>
    const plain = (sql: string) => query.call(client, sql)
    expect((await plain(SHOW)).rows).toEqual([{ timezone: 'Asia/Tokyo', timeout: '0', isolation: 'serializable' }])
    expect((await plain('SELECT FROM pg_prepared_statements')).rows).toEqual([])
    client.release()
  }

  test('has the settings in each statement, and leaves none in the session', async () => {
    expect((await pool.query(SHOW)).rows).toEqual([OURS])
    expect((await pool.query({ name: 'show', text: `${SHOW} WHERE $1`, values: [true] })).rows).toEqual([OURS])
    expect((await pool.query(`${SHOW} WHERE $1`, [true])).rows).toEqual([OURS])
    await expectNothingLeft()
  })

  test.each([
    ['BEGIN', 'COMMIT', 'read committed'],
    ['begin', 'rollback', 'read committed'],
    ['start transaction isolation level repeatable read', 'commit', 'repeatable read'],
  ])('has them in a transaction from %s to %s, also after a savepoint', async (begin, end, isolation) => {
    const client = await pool.connect()
    await client.query(begin)
    await client.query('SAVEPOINT a')
    await client.query('ROLLBACK TO SAVEPOINT a')
    const first = await client.query(`${SHOW}, pg_current_xact_id()::text AS id`)
    const second = await client.query({ text: 'SELECT pg_current_xact_id()::text AS id', name: 'id' })
    expect(first.rows).toEqual([{ ...OURS, isolation, id: second.rows[0].id }])
    await client.query(end)
    client.release()
    await expectNothingLeft()
  })

  test('has them in a statement after a transaction, and in one that only speaks of a beginning', async () => {
    const client = await pool.connect()
    await client.query('BEGIN')
    await client.query('COMMIT')
    expect((await client.query(SHOW)).rows).toEqual([OURS])
    expect((await client.query(`${SHOW}, 'we begin' AS text`)).rows).toEqual([{ ...OURS, text: 'we begin' }])
    client.release()
    await expectNothingLeft()
  })

  test('calls back, with parameters and without', async () => {
    const client = await pool.connect()
    const rows = (send: (done: (error: Error, result: pg.QueryResult) => void) => void) =>
      new Promise((resolve, reject) => send((error, result) => (error ? reject(error) : resolve(result.rows))))
    expect(await rows((done) => client.query('SELECT 1 AS n', done))).toEqual([{ n: 1 }])
    expect(await rows((done) => client.query('SELECT $1::integer AS n', [2], done))).toEqual([{ n: 2 }])
    client.release()
  })

  test('does not take the warnings of one statement for those of others under way', async () => {
    const client = await pool.connect()
    const listeners = client.listenerCount('notice')
    const results = Array.from({ length: 20 }, () => client.query('SELECT'))
    // Pipelined statements are sent by now.
    expect(client.listenerCount('notice')).toBe(listeners)
    await Promise.all(results)
    client.release()
  })

  test('takes no snapshot when a transaction begins', async () => {
    const [client, other] = [await pool.connect(), createPool(database.url, { max: 1 })]
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
    const name = `written-meanwhile-${pipeline}`
    await other.query('INSERT INTO projects VALUES ($1, $1)', [name])
    expect((await client.query('SELECT FROM projects WHERE project_id = $1', [name])).rowCount).toBe(1)
    await client.query('COMMIT')
    client.release()
    await other.end()
  })

  test('rejects with the error of the statement, and can be used again', async () => {
    await expect(pool.query('SELECT nowhere')).rejects.toMatchObject({ code: '42703' })
    expect((await pool.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }])
    await expectNothingLeft()
  })

  test('rejects with the error of the commit', async () => {
    const client = await pool.connect()
    await client.query('BEGIN')
    await client.query('CREATE TEMPORARY TABLE once (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)')
    await client.query('COMMIT')
    await expect(client.query('INSERT INTO once VALUES (1), (1)')).rejects.toMatchObject({ code: '23505' })
    await client.query('DROP TABLE once')
    client.release()
  })
})

test('a client of a pooler waits for a silent connection once', async () => {
  const proxy = await createDatabaseProxy(database.url)
  onTestFinished(() => proxy.close())
  proxy.freezeAt('BEGIN')
  const pool = createPool(asPooler(proxy.reach(database.url)), { max: 1, queryTimeout_ms: 50 })
  const query = vi.spyOn(pg.Client.prototype, 'query')
  onTestFinished(() => query.mockRestore())
  await expect(pool.query('SELECT')).rejects.toThrow('Query read timeout')
  expect(query).toHaveBeenCalledTimes(1)
  await pool.end()
})

test('a service has all its operations through such clients', async () => {
  const { call, close } = await createTestApp({ reach: asPooler })
  const contact = { type: 'contact', contact_id: 'c', created_at: '2026-01-02T00:00:00Z', identifiers: [] }
  const headers = { 'content-type': 'application/x-ndjson' }
  for (const added of [1, 0]) {
    const response = await call({
      method: 'POST',
      path: '/projects/demo/records',
      body: JSON.stringify(contact),
      headers,
    })
    expect([response.statusCode, response.json().added]).toEqual([200, added])
  }
  const event = {
    ...{ module_id: 'skin-quiz', timestamp: '2026-03-01T09:41:12.345Z', custom_event_name: 'pooled' },
    identifiers: [{ key: 'contact_id', value: '"c"' }],
  }
  expect((await call({ method: 'POST', path: '/projects/demo/events', body: event })).json().contact_id).toBe('c')
  const page = await call({ path: '/projects/demo/events?limit=1' })
  expect(page.json()).toMatchObject([{ custom_event_name: 'pooled' }])
  await close()
})
