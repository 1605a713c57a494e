import { setImmediate } from 'node:timers/promises'
import pg from 'pg'
import { describe, expect, inject, onTestFinished, test, vi } from 'vitest'
import { socketOf } from '../../src/database/client.ts'
import {
  connectionBreaker,
  createPool,
  IDLE_TRANSACTION_TIMEOUT_ms,
  type PoolOptions,
  securityOf,
} from '../../src/database/pool.ts'
import { asPooler } from '../../src/database/pooler-client.ts'
import { withSettings } from '../support/database.ts'
import { createDatabaseProxy } from '../support/database-proxy.ts'

const server = inject('databaseServer')

/** A pool that is closed when the test has ended. */
function open(url: string, options?: PoolOptions): pg.Pool {
  const pool = createPool(url, options)
  onTestFinished(() => pool.end())
  return pool
}

/** Takes a connection until the test has ended. */
async function take(pool: pg.Pool): Promise<pg.PoolClient> {
  const client = await pool.connect()
  onTestFinished(() => client.release(true))
  return client
}

async function show(pool: pg.Pool, setting: string): Promise<string> {
  const { rows } = await pool.query('SELECT current_setting($1) AS value', [setting])
  return rows[0].value
}

describe('PostgreSQL', () => {
  test('ends what takes longer than a pool allows it', async () => {
    const pool = open(server, {
      statementTimeout_ms: 1_100,
      lockTimeout_ms: 1_200,
      idleTransactionTimeout_ms: IDLE_TRANSACTION_TIMEOUT_ms,
    })
    expect(await show(pool, 'statement_timeout')).toBe('1100ms')
    expect(await show(pool, 'lock_timeout')).toBe('1200ms')
    expect(await show(pool, 'idle_in_transaction_session_timeout')).toBe('1min')
  })

  test('tells of warnings, whatever the settings of the role are', async () => {
    const client = await take(open(withSettings(server, { client_min_messages: 'error' })))
    const warnings: unknown[] = []
    client.on('notice', ({ message }) => warnings.push(message))
    await client.query("DO $$ BEGIN RAISE WARNING 'a node is away'; END $$")
    expect(warnings).toEqual(['a node is away'])
  })

  test('looks each second for the client of a statement that has no time limit, only', async () => {
    const url = withSettings(server, { client_connection_check_interval: '7s' })
    expect(await show(open(url), 'client_connection_check_interval')).toBe('1s')
    expect(await show(open(url, { statementTimeout_ms: 60_000 }), 'client_connection_check_interval')).toBe('7s')
  })

  describe('that cannot look for clients', () => {
    /** Alters what is sent, so that PostgreSQL refuses it. */
    function alterSettings(from: string, to: string) {
      const { query } = pg.Client.prototype as unknown as { query: (...values: unknown[]) => never }
      const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (this: pg.Client, ...sent) {
        const [text, ...others] = sent as unknown[]
        return query.call(this, typeof text === 'string' ? text.replace(from, to) : text, ...others)
      })
      onTestFinished(() => spy.mockRestore())
    }

    test('on its platform is used without that', async () => {
      alterSettings("check_interval = '1s'", "check_interval = '1 moon'")
      expect((await open(server).query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }])
    })

    test('for another reason is not used', async () => {
      alterSettings('client_connection_check_interval', 'client_connection_check')
      await expect(open(server).query('SELECT')).rejects.toMatchObject({ code: '42704' })
    })
  })
})

describe.each([
  ['PostgreSQL', (url: string) => url],
  ['a pooler', asPooler],
])('a new connection to %s', (_, as) => {
  test('is used once it has been admitted', async () => {
    const admitted: pg.ClientBase[] = []
    const onConnect = async (client: pg.ClientBase) => {
      await setImmediate()
      admitted.push(client)
    }
    const client = await take(open(as(server), { onConnect }))
    expect(admitted.map((one) => one === client)).toEqual([true])
  })

  test('that is refused is let go of, though the server is silent', async () => {
    const proxy = await createDatabaseProxy(server)
    onTestFinished(() => proxy.close())
    const onConnect = async () => {
      proxy.freeze()
      throw new Error('not admitted')
    }
    await expect(open(as(proxy.reach(server)), { onConnect }).query('SELECT')).rejects.toThrow('not admitted')
  })

  test('is kept when the time has passed that it may take to be made', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] })
    onTestFinished(() => void vi.useRealTimers())
    const client = await take(open(as(server), { connectionTimeout_ms: 1_000 }))
    vi.advanceTimersByTime(1_001)
    expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }])
  })
})

describe('an interruption', () => {
  /** A connection on which a transaction is under way, and its id. */
  async function begin(pool: pg.Pool) {
    const client = await take(pool)
    await client.query('BEGIN')
    const { rows } = await client.query('SELECT pg_current_xact_id()::text AS id')
    return { client, id: rows[0].id }
  }
  const statusOf = async (id: string) => {
    const { rows } = await open(server).query('SELECT pg_xact_status($1::xid8) AS status', [id])
    return rows[0].status
  }

  test('undoes the transactions under way', async () => {
    const controller = new AbortController()
    const { client, id } = await begin(open(server, { signal: controller.signal }))
    controller.abort()
    await expect(client.query('COMMIT')).rejects.toThrow('Connection terminated')
    await expect.poll(() => statusOf(id)).toBe('aborted')
  })

  test('also ends what begins afterwards, on a connection that is there or a new one', async () => {
    const controller = new AbortController()
    const pool = open(server, { max: 1, signal: controller.signal })
    await pool.query('SELECT')
    controller.abort()
    expect(pool.idleCount).toBe(1)
    await expect(pool.query('SELECT')).rejects.toThrow('Connection terminated')
    expect(pool.totalCount).toBe(0)
    await expect(pool.query('SELECT')).rejects.toThrow('Connection terminated')
  })

  test('of what is under way keeps the connections that are not in use', async () => {
    const pool = open(server, { max: 2 })
    const abandon = connectionBreaker(pool)
    const [{ client }, resting] = await Promise.all([begin(pool), pool.connect()])
    resting.release()
    abandon()
    await expect(client.query('COMMIT')).rejects.toThrow('Connection terminated')
    const next = await take(pool)
    expect(next === resting).toBe(true)
    expect((await next.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }])
  })
})

test.each([
  [undefined, 'local'],
  ['127.0.0.1', 'local'],
  ['127.1.2.3', 'local'],
  ['::ffff:127.0.0.1', 'local'],
  ['::1', 'local'],
  ['10.127.0.1', 'none'],
  ['192.0.2.1', 'none'],
  ['::ffff:192.0.2.1', 'none'],
  ['::1:2', 'none'],
  ['2001:db8::1', 'none'],
])('without TLS, a connection to %s is secured: %s', (remoteAddress, expected) => {
  const client = new pg.Client()
  Object.defineProperty(socketOf(client), 'remoteAddress', { value: remoteAddress })
  expect(securityOf(client)).toBe(expected)
})
