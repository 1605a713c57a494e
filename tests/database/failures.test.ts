import { type AddressInfo, createServer, type Socket } from 'node:net'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { isCancelled, isLockTimeout, isOutage, isRetryable, isUnavailable } from '../../src/database/failures.ts'
import { createPool } from '../../src/database/pool.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { databaseUrl } from '../support/global-setup.ts'

let database: TestDatabase
let client: pg.Client
beforeAll(async () => {
  database = await createTestDatabase()
  client = new pg.Client(database.url)
  await client.connect()
})
afterAll(async () => {
  await client.end()
  await database.drop()
})

/** An error of PostgreSQL with this SQLSTATE. */
const raise = (sqlstate: string) =>
  client.query(`DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '${sqlstate}'; END $$`).catch((error: unknown) => error)

describe('an error of PostgreSQL', () => {
  test.each([
    ['40001', 'serialization failure', { unavailable: true, retryable: true }],
    ['40P01', 'deadlock', { unavailable: true, retryable: true }],
    ['55P03', 'lock not available', { unavailable: true, retryable: false }],
    ['57014', 'statement timeout', { unavailable: true, retryable: false }],
    ['57P01', 'shutdown', { unavailable: true, retryable: false }],
    ['57P03', 'starting up', { unavailable: true, retryable: false }],
    ['53300', 'too many connections', { unavailable: true, retryable: false }],
    ['53100', 'disk full', { unavailable: true, retryable: false }],
    ['58030', 'input/output error', { unavailable: true, retryable: false }],
    ['08006', 'connection failure', { unavailable: true, retryable: false }],
    ['28P01', 'wrong password', { unavailable: true, retryable: false }],
    ['3D000', 'no such database', { unavailable: true, retryable: false }],
    ['25006', 'read-only', { unavailable: true, retryable: false }],
    ['25P03', 'idle in transaction too long', { unavailable: true, retryable: false }],
    ['25P04', 'transaction too long', { unavailable: true, retryable: false }],
    ['26000', 'no such prepared statement', { unavailable: true, retryable: false }],
    ['42P05', 'duplicate prepared statement', { unavailable: true, retryable: false }],
    ['23505', 'unique violation', { unavailable: false, retryable: false }],
    ['22P02', 'bad text', { unavailable: false, retryable: false }],
    ['42P01', 'no such table', { unavailable: false, retryable: false }],
    ['25P02', 'transaction aborted before', { unavailable: false, retryable: false }],
    ['XX000', 'internal error', { unavailable: false, retryable: false }],
  ])('%s, %s, is %o', async (sqlstate, _, expected) => {
    const error = await raise(sqlstate)
    expect(error).toMatchObject({ code: sqlstate })
    expect({ unavailable: isUnavailable(error), retryable: isRetryable(error) }).toEqual(expected)
  })
})

const PREDICATES = [isUnavailable, isOutage, isCancelled, isLockTimeout, isRetryable]

test.each<[string | undefined, string, string[]]>([
  ['ReportResultError', 'SSL SYSCALL error: EOF detected', ['isUnavailable', 'isOutage']],
  ['ErrorIfPostCommitFailedShardPlacements', 'failure on connection', ['isUnavailable', 'isOutage']],
  ['InitializeCopyShardState', 'could not connect to any active placements', ['isUnavailable', 'isOutage']],
  ['ReportCopyError', 'terminating connection due to administrator command', ['isUnavailable', 'isOutage']],
  ['ReportCopyError', 'the database system is shutting down', ['isUnavailable', 'isOutage']],
  ['ReportCopyError', 'cannot execute COPY FROM in a read-only transaction', ['isUnavailable', 'isOutage']],
  ['ReportCopyError', 'could not extend file "base/1/2": No space left on device', ['isUnavailable', 'isOutage']],
  ['ReportCopyError', 'canceling statement due to lock timeout', ['isUnavailable', 'isLockTimeout']],
  ['ReportCopyError', 'canceling statement due to statement timeout', ['isUnavailable', 'isCancelled']],
  ['ReportCopyError', 'deadlock detected', ['isUnavailable', 'isRetryable']],
  ['ReportCopyError', 'could not serialize access due to concurrent update', ['isUnavailable', 'isRetryable']],
  ['ReportCopyError', 'duplicate key value violates unique constraint "terminating connection "', []],
  ...[
    'canceling statement due to lock timeout',
    'canceling statement due to user request',
    'deadlock detected',
    'could not serialize access due to concurrent update',
    'cannot execute COPY FROM in a read-only transaction',
  ].map((quoted): [string, string, string[]] => ['ReportCopyError', `invalid input syntax: "${quoted}"`, []]),
  ['elog_finish', 'terminating connection due to administrator command', []],
  [undefined, 'terminating connection due to administrator command', []],
])('the internal error of Citus by %s "%s" is %j', (routine, message, expected) => {
  const error = Object.assign(new pg.DatabaseError(message, 0, 'error'), { code: 'XX000', routine })
  expect(PREDICATES.filter((predicate) => predicate(error)).map(({ name }) => name)).toEqual(expected)
})

describe('a connection that cannot be opened', () => {
  /** What a query on this address fails with. */
  async function failureAt(url: string, connectionTimeout_ms?: number): Promise<unknown> {
    const pool = createPool(url, { max: 1, connectionTimeout_ms })
    const failure = await pool.query('SELECT 1').then(
      () => undefined,
      (error: unknown) => error,
    )
    await pool.end()
    return failure
  }

  /** What a query fails with at a server that behaves so. */
  async function failureFrom(
    behave: (socket: Socket) => unknown,
    { query = '', timeout_ms }: { query?: string; timeout_ms?: number } = {},
  ): Promise<unknown> {
    const server = createServer((socket) => {
      socket.on('error', () => {})
      behave(socket)
    })
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    const failure = await failureAt(`postgres://flowtrail:secret@127.0.0.1:${port}/flowtrail${query}`, timeout_ms)
    server.close()
    return failure
  }

  test.each([
    ['refused', () => 'postgres://127.0.0.1:1/flowtrail'],
    ['refused on all addresses of a name', () => 'postgres://localhost:1/flowtrail'],
    ['without socket', () => 'postgres://flowtrail@localhost/flowtrail?host=/nowhere'],
    ['to an unknown host name', () => 'postgres://nowhere.invalid/flowtrail'],
    ['to a database that does not exist', () => databaseUrl(database.url, 'not_there')],
  ])('%s, is an outage', async (_, url) => {
    const failure = await failureAt(url())
    expect(isUnavailable(failure), String(failure)).toBe(true)
    expect(isRetryable(failure)).toBe(false)
  })

  test('since the pool has ended, is unavailable, but no outage', async () => {
    const pool = createPool(database.url)
    await pool.end()
    const failure = await pool.query('SELECT 1').catch((error: unknown) => error)
    expect(failure).toMatchObject({ message: expect.stringContaining('Cannot use a pool') })
    expect({ unavailable: isUnavailable(failure), outage: isOutage(failure) }).toEqual({
      unavailable: true,
      outage: false,
    })
  })

  test('that gets no reply, is an outage', async () => {
    const failure = await failureFrom(() => {}, { timeout_ms: 200 })
    expect(isUnavailable(failure), String(failure)).toBe(true)
  })

  test.each<[string, (socket: Socket) => unknown]>([
    ['that is closed at once', (socket) => socket.destroy()],
    ['that is closed gracefully', (socket) => socket.end()],
  ])('%s, is an outage', async (_, behave) => {
    const failure = await failureFrom(behave)
    expect(isUnavailable(failure), String(failure)).toBe(true)
  })

  test.each([
    ['without TLS', ['N'], 'The server does not support SSL connections'],
    ['that replies neither yes nor no to TLS', ['E'], 'There was an error establishing an SSL connection'],
    ['whose TLS fails', ['S', 'no TLS'], 'SSL routines'],
  ])('to a server %s, is an outage', async (_, replies, message) => {
    const behave = (socket: Socket) => socket.on('data', () => socket.write(replies.shift() ?? ''))
    const failure = await failureFrom(behave, { query: '?sslmode=verify-full' })
    expect(String(failure)).toContain(message)
    expect(isUnavailable(failure)).toBe(true)
  })

  test('to a server that asks for an unknown way to log in, is an outage', async () => {
    const mechanisms = Buffer.from('R\0\0\0\x0d\0\0\0\x0aNEW\0\0')
    const failure = await failureFrom((socket) => socket.once('data', () => socket.write(mechanisms)))
    expect(String(failure)).toContain('SASL')
    expect(isUnavailable(failure)).toBe(true)
  })

  test('because all are taken, is an outage', async () => {
    const pool = createPool(database.url, { max: 1 })
    const taken = await pool.connect()
    // Only from now on: under load, the first connection may take longer.
    pool.options.connectionTimeoutMillis = 50
    const failure = await pool.connect().catch((error: unknown) => error)
    expect(isUnavailable(failure), String(failure)).toBe(true)
    taken.release()
    await pool.end()
  })
})

test('several errors at once are an outage if one of them is', () => {
  const refused = Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED', syscall: 'connect' })
  expect(isUnavailable(new AggregateError([new Error('a bug'), refused]))).toBe(true)
  expect(isUnavailable(new AggregateError([new Error('a bug')]))).toBe(false)
})

test.each([
  new Error('a bug'),
  new Error('not as if: Connection terminated'),
  new TypeError('x is undefined'),
  Object.assign(new Error('an error of Node'), { code: 'ERR_STREAM_DESTROYED' }),
  'text',
  undefined,
  null,
  { code: '57014' },
])('an error that is not of the database is no outage: %s', (error) => {
  expect(isUnavailable(error)).toBe(false)
  expect(isRetryable(error)).toBe(false)
})
