import pg from 'pg'
import { afterEach, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { openServer } from '../../src/database/open.ts'
import { createPool } from '../../src/database/pool.ts'
import { keepsSessions } from '../../src/database/sessions.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

let database: TestDatabase
let sessions: pg.Client[]
beforeEach(async () => {
  database = await createTestDatabase('template0')
  sessions = [1, 2, 3].map(() => new pg.Client(database.url))
  await Promise.all(sessions.map((session) => session.connect()))
})
afterEach(async () => {
  await Promise.all(sessions.map((session) => session.end()))
  await database.drop()
})

/**
 * A pooler whose connections announce a process of its own, as PgBouncer does.
 * @param pick the session that runs a connection's query: both are counted from 0, queries over all connections
 */
function pooler(pick: (connection: number, query: number) => number) {
  let [connections, queries] = [0, 0]
  const released = vi.fn()
  const connect = async () => {
    const connection = connections++
    const query = (sql: string) => sessions[pick(connection, queries++)]?.query(sql)
    return { processID: -1, query, release: released } as unknown as pg.PoolClient
  }
  return { pool: { connect } as pg.Pool, opened: () => connections, released }
}

test('sessions are kept by direct connections, of which one is enough to see it', async () => {
  const pool = createPool(database.url, { max: 1 })
  expect(await keepsSessions(pool)).toBe(true)
  expect([pool.totalCount, pool.idleCount]).toEqual([1, 1])
  await pool.end()
})

describe('a pooler', () => {
  test.each<[string, boolean, (connection: number, query: number) => number]>([
    ['in session mode', true, (connection) => connection],
    ['that runs every transaction in the session used last', false, () => 0],
    ['that takes turns between two sessions', false, (_, query) => query % 2],
    ['that takes turns between three sessions', false, (_, query) => query % 3],
    ['that is so busy that it changes sessions only sometimes', false, (it, query) => (query < 30 ? it : 2)],
    ['that moves only the second connection', false, (it, query) => (it === 1 && query > 15 ? 0 : it)],
  ])('%s keeps sessions: %s', async (_, expected, pick) => {
    const { pool, opened, released } = pooler(pick)
    expect(await keepsSessions(pool)).toBe(expected)
    expect(opened()).toBe(2)
    expect(released).toHaveBeenCalledTimes(2)
  })
})

test('a DATABASE_URL that leads through a pooler in transaction mode is refused, with advice', async () => {
  const location = { databaseUrl: database.url, dataDir: '' }
  expect(await openServer(location)).toMatchObject({ url: database.url })
  const connect = vi.spyOn(pg.Pool.prototype, 'connect').mockImplementation(pooler(() => 0).pool.connect)
  const end = vi.spyOn(pg.Pool.prototype, 'end')
  onTestFinished(() => {
    connect.mockRestore()
    end.mockRestore()
  })
  await expect(openServer(location)).rejects.toThrow(
    /^DATABASE_URL leads through a pooler in transaction mode, .* Add pgbouncer=true to DATABASE_URL, connect .* directly, or /,
  )
  expect(end).toHaveBeenCalledOnce()
})
