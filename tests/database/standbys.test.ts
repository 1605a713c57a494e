import { once } from 'node:events'
import { type AddressInfo, connect as connectTo, createServer, type Socket } from 'node:net'
import { sql } from 'kysely'
import type pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { readConfig } from '../../src/config.ts'
import { connect } from '../../src/database/open.ts'
import { createPool, type Database } from '../../src/database/pool.ts'
import { Replicas } from '../../src/database/replicas.ts'
import {
  readServerState,
  SELECT_WAL_POSITION,
  UNKNOWN_POSITION,
  type WalPosition,
} from '../../src/database/wal-position.ts'
import { diagnose } from '../../src/doctor/diagnose.ts'
import type { CheckedFinding } from '../../src/doctor/findings.ts'
import { stopClock } from '../recording/fixture.ts'
import { onServer } from '../support/global-setup.ts'
import { freeze, type Standby, startTcpPostgres, type TcpPostgres } from '../support/tcp-postgres.ts'
import { allowLateStates } from './late-states.ts'

let postgres: TcpPostgres
let first: Standby
let second: Standby
const DATABASE = 'flowtrail'
const urlOf = (server: Pick<TcpPostgres, 'url'>, database = DATABASE) => server.url('admin', database)
/** Runs a statement on a server. */
const on = (server: Pick<TcpPostgres, 'url'>, statement: string) => onServer(urlOf(server), statement)

beforeAll(async () => {
  postgres = await startTcpPostgres({}, 2)
  ;[first, second] = postgres.standbys as [Standby, Standby]
  await onServer(urlOf(postgres, 'postgres'), `CREATE DATABASE ${DATABASE}`)
  await on(postgres, 'CREATE TABLE numbers (number integer)')
  await on(postgres, 'CREATE TABLE locked (number integer)')
  await on(postgres, "CREATE ROLE visitor LOGIN PASSWORD 'visitor'")
})
afterAll(() => postgres.stop())

let primary: Database
let writer: pg.Pool
let replicas: Replicas
/** Has servers that are late taken for silent again. */
let endPatience: () => void
/** What was said of each replica last. */
const said = new Map<string, string | undefined>()
/** The queries that were told of. */
const failed: unknown[][] = []
const nameOf = ({ port }: Standby) => `localhost:${port}/${DATABASE}`

function open(urls: string[], options: ConstructorParameters<typeof Replicas>[2] = {}): Replicas {
  const onChange = (name: string, problem: string | undefined) => said.set(name, problem)
  const onFallback = (name: string, error: unknown) => failed.push([name, error])
  const opened = new Replicas({ url: urlOf(postgres), db: primary }, urls, { max: 2, onChange, onFallback, ...options })
  opened.start()
  return opened
}

/** Waits until this is said of a replica: undefined if it can be read from. */
const until = (standby: Standby, problem: unknown) =>
  expect.poll(() => (said.has(nameOf(standby)) ? said.get(nameOf(standby)) : 'nothing')).toEqual(problem)

beforeEach(async () => {
  endPatience = allowLateStates()
  said.clear()
  failed.length = 0
  primary = connect(urlOf(postgres), { max: 2 })
  writer = createPool(urlOf(postgres), { max: 1 })
  replicas = open([urlOf(first), urlOf(second)])
  await until(first, undefined)
  await until(second, undefined)
})
afterEach(async () => {
  await replicas.close()
  await primary.destroy()
  await writer.end()
})

/** Commits something. @returns the position with it */
async function write(): Promise<WalPosition> {
  await writer.query('INSERT INTO numbers VALUES (1)')
  return (await writer.query(SELECT_WAL_POSITION)).rows[0].wal_position
}

/** Stops the replay on standby servers until the test ends. */
async function pause(...standbys: Standby[]): Promise<() => Promise<unknown>> {
  const resume = () => Promise.all(standbys.map((standby) => on(standby, 'SELECT pg_wal_replay_resume()')))
  for (const standby of standbys) await on(standby, 'SELECT pg_wal_replay_pause()')
  onTestFinished(async () => void (await resume()))
  return resume
}

const portOf = async (db: Database): Promise<number> => {
  const { rows } = await sql<{ port: number }>`SELECT inet_server_port() AS port`.execute(db)
  return rows[0]?.port as number
}
const reads = (projectId: string, least?: WalPosition) => portOf(replicas.databaseFor(projectId, least))

test('reads are spread over the replicas, and those of one project that follow each other stay on one', async () => {
  stopClock()
  const ports = await Promise.all(Array.from({ length: 20 }, (_, i) => reads(`project ${i}`)))
  expect(new Set(ports)).toEqual(new Set([first.port, second.port]))
  expect(replicas.usage.map(({ reads }) => reads)).toEqual(
    [first, second].map(({ port }) => ports.filter((one) => one === port).length),
  )
  expect(replicas.primaryReads).toBe(0)
  const port = await reads('one')
  for (let i = 0; i < 5; i += 1) expect(await reads('one')).toBe(port)
})

test('a read goes to the other replica while one is busier', async () => {
  stopClock()
  const busy = replicas.databaseFor('one')
  const slow = sql`SELECT pg_sleep(0.2)`.execute(busy)
  // Sent in the next turn of the event loop.
  await vi.waitFor(() => expect(replicas.databaseFor('one')).not.toBe(busy), { interval: 1, timeout: 10_000 })
  await slow
  expect(replicas.databaseFor('one')).toBe(busy)
})

test('a read has what was written before: it goes to the primary server until a replica has replayed it', async () => {
  stopClock()
  const resume = await pause(first, second)
  const position = await write()
  replicas.noteWrite('written', position)
  expect(await reads('written')).toBe(postgres.port)
  // A caller whose write another process has committed.
  expect(await reads('other', position)).toBe(postgres.port)
  expect(await reads('other')).not.toBe(postgres.port)
  await resume()
  await expect.poll(() => reads('written')).not.toBe(postgres.port)
  await expect.poll(() => reads('other', position)).not.toBe(postgres.port)
})

test('one of several replicas is enough', async () => {
  await pause(first)
  const position = await write()
  replicas.noteWrite('written', position)
  await expect.poll(() => reads('written')).toBe(second.port)
})

test('the last write counts, whichever is noted last', async () => {
  await pause(first, second)
  const early = (await writer.query(SELECT_WAL_POSITION)).rows[0].wal_position
  const late = await write()
  replicas.noteWrite('written', late)
  replicas.noteWrite('written', early)
  expect(await reads('written')).toBe(postgres.port)
})

test('after a write at an unknown position, replicas serve once they are known to have the second before', async () => {
  replicas.noteWrite('written', UNKNOWN_POSITION)
  expect(await reads('written')).toBe(postgres.port)
  await expect.poll(() => reads('written')).not.toBe(postgres.port)
})

test('a replica that lags is left out, and comes back', async () => {
  const resume = await pause(first, second)
  await write()
  for (const standby of [first, second]) await until(standby, 'it is more than a second behind')
  expect(await reads('any')).toBe(postgres.port)
  expect(replicas.primaryReads).toBe(1)
  expect(replicas.usage).toMatchObject([{ isUsable: false }, { isUsable: false }])
  await resume()
  for (const standby of [first, second]) await until(standby, undefined)
  const usage = () =>
    replicas.usage.map(({ name, isUsable, lag_s }) => [name, isUsable, lag_s !== undefined && lag_s < 1])
  await expect.poll(usage).toEqual([first, second].map((standby) => [nameOf(standby), true, true]))
})

test('a query that breaks with its connection is run on the primary server', async () => {
  stopClock()
  const db = replicas.databaseFor('one')
  const port = await portOf(db)
  const standby = port === first.port ? first : second
  const sleeping = sql<{ port: number }>`SELECT inet_server_port() AS port
    FROM pg_sleep(CASE WHEN pg_is_in_recovery() THEN 60 ELSE 0 END)`.execute(db)
  const find =
    "SELECT pid FROM pg_stat_activity WHERE query LIKE '%inet_server_port() AS port%FROM pg_sleep%' AND pid <> pg_backend_pid()"
  const pool = createPool(urlOf(standby), { max: 1 })
  onTestFinished(() => pool.end())
  await expect.poll(async () => (await pool.query(find)).rowCount).toBe(1)
  await pool.query(`SELECT pg_terminate_backend(pid) FROM (${find}) sleeping`)
  expect((await sleeping).rows).toEqual([{ port: postgres.port }])
  const usage = replicas.usage.find(({ name }) => name === nameOf(standby))
  expect(usage).toMatchObject({ fallbacks: 1 })
  // Whether it is there will be known when it has been asked again.
  await expect.poll(() => reads('one')).toBe(port)
})

test('a query that a standby refuses is run on the primary server, and the standby is still read from', async () => {
  stopClock()
  const db = replicas.databaseFor('one')
  const port = await portOf(db)
  const standby = port === first.port ? first : second
  const refused = sql<{ port: number }>`
    SELECT CASE WHEN pg_is_in_recovery() THEN 1 / (random() * 0)::int ELSE inet_server_port() END AS port`
  for (let i = 0; i < 2; i += 1) expect((await refused.execute(db)).rows).toEqual([{ port: postgres.port }])
  expect(await reads('one')).toBe(port)
  // Once a minute.
  expect(failed).toEqual([[nameOf(standby), expect.objectContaining({ message: 'division by zero' })]])
})

test('a query that waits for what the replay has locked is run on the primary server', async () => {
  const problems: unknown[] = []
  const migrating = open([urlOf(first)], { onChange: (_, problem) => problems.push(problem) })
  onTestFinished(() => migrating.close())
  await expect.poll(() => migrating.databaseFor('one') === primary).toBe(false)
  const db = migrating.databaseFor('one')
  // Has it connected before.
  await portOf(db)
  await writer.query('BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE; SELECT pg_current_xact_id()')
  // Has the lock sent as well.
  await on(postgres, 'INSERT INTO numbers VALUES (1)')
  const locks = createPool(urlOf(first), { max: 1 })
  onTestFinished(() => locks.end())
  const find = "SELECT 1 FROM pg_locks WHERE relation = 'locked'::regclass AND mode = 'AccessExclusiveLock'"
  await expect.poll(async () => (await locks.query(find)).rowCount).toBe(1)
  stopClock()
  await pause(first)
  await writer.query('COMMIT')
  // All on one connection, so that each waits behind those before it.
  const waiting = Array.from({ length: 10 }, () => sql`SELECT number FROM locked`.execute(db))
  await expect.poll(() => problems).toContain('canceling statement due to lock timeout')
  expect(migrating.databaseFor('one')).toBe(primary)
  for (const { rows } of await Promise.all(waiting)) expect(rows).toEqual([])
  expect(failed).toEqual([[nameOf(first), expect.objectContaining({ code: '55P03' })]])
  expect(migrating.usage).toMatchObject([{ fallbacks: 10 }])
})

/** A proxy on a port of its own. @param connect makes the way to a server of each connection, which are numbered from 1 */
async function startProxy(connect: (client: Socket, number: number) => Socket): Promise<string> {
  let connections = 0
  const proxy = createServer((client) => {
    connections += 1
    const upstream = connect(client, connections)
    client.pipe(upstream)
    for (const [from, to] of [[client, upstream] as const, [upstream, client] as const]) {
      from.on('error', () => {})
      from.on('close', () => to.destroy())
    }
  }).listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  onTestFinished(() => void proxy.close())
  const url = new URL(urlOf(first))
  url.port = String((proxy.address() as AddressInfo).port)
  return url.href
}

test('nothing waits for a connection that falls silent after its login', async () => {
  endPatience()
  let fallsSilent = false
  const url = await startProxy((client) => {
    const upstream = connectTo(first.port, '127.0.0.1')
    const isSilent = fallsSilent
    upstream.on('data', (data) => {
      client.write(data)
      // PostgreSQL is ready for queries.
      if (isSilent && data.includes('Z\0\0\0\x05I')) upstream.pause()
    })
    return upstream
  })
  const silent = open([url])
  onTestFinished(() => silent.close())
  await expect.poll(() => silent.databaseFor('one')).not.toBe(primary)
  // That of the state is open already.
  fallsSilent = true
  expect(await portOf(silent.databaseFor('one'))).toBe(postgres.port)
  expect(silent.usage).toMatchObject([{ fallbacks: 1 }])
})

test('nothing is read from a URL that leads now to one server and now to another', async () => {
  const url = await startProxy((client, number) => {
    const upstream = connectTo((number % 2 === 0 ? first : second).port, '127.0.0.1')
    upstream.pipe(client)
    return upstream
  })
  const problems: unknown[] = []
  const balanced = open([url], { onChange: (_, problem) => problems.push(problem) })
  onTestFinished(() => balanced.close())
  await expect.poll(() => balanced.databaseFor('one')).not.toBe(primary)
  expect(await portOf(balanced.databaseFor('one'))).toBe(postgres.port)
  expect(balanced.databaseFor('one')).toBe(primary)
  await expect.poll(() => problems.at(-1)).toMatch(/^it is another server than before, /)
})

test('a query that takes too long is not tried a second time', async () => {
  const impatient = open([urlOf(first)], { statementTimeout_ms: 1_000 })
  onTestFinished(() => impatient.close())
  await expect.poll(() => impatient.databaseFor('one') === primary).toBe(false)
  const slow = sql`SELECT pg_sleep(CASE WHEN pg_is_in_recovery() THEN 60 ELSE 0 END)`.execute(
    impatient.databaseFor('one'),
  )
  await expect(slow).rejects.toMatchObject({ code: '57014' })
  expect(impatient.usage).toMatchObject([{ fallbacks: 0 }])
})

test('no connection to a replica is left once it is closed', async () => {
  const closing = open([`${urlOf(first)}?application_name=closing`])
  // For a test that fails; a second time is refused.
  onTestFinished(() => closing.close().catch(() => {}))
  await expect.poll(() => portOf(closing.databaseFor('one'))).toBe(first.port)
  const watcher = connect(urlOf(first), { max: 1 })
  onTestFinished(() => watcher.destroy())
  const connections = async () => {
    const { rows } = await sql`SELECT FROM pg_stat_activity WHERE application_name = 'closing'`.execute(watcher)
    return rows.length
  }
  // One for its state, and one for reads.
  await expect.poll(connections).toBe(2)
  await closing.close()
  // Idle connections are closed by themselves after ten seconds.
  await expect.poll(connections, { timeout: 5_000 }).toBe(0)
})

test.each([
  ['to which there is no connection yet', false],
  ['to which there is a connection', true],
])('nothing waits for a frozen replica %s', async (_, isConnected) => {
  endPatience()
  const frozen = open([urlOf(first)])
  onTestFinished(() => frozen.close())
  await until(first, undefined)
  await expect.poll(() => frozen.databaseFor('one') === primary).toBe(false)
  const db = frozen.databaseFor('one')
  if (isConnected) expect(await portOf(db)).toBe(first.port)
  const thaw = await freeze(first)
  onTestFinished(thaw)
  expect(await portOf(db)).toBe(postgres.port)
  expect(frozen.databaseFor('one')).toBe(primary)
})

test.each([
  ['another database', () => urlOf(first, 'postgres'), 'it is not of the database of DATABASE_URL'],
  ['the primary server', () => urlOf(postgres), 'it is no standby server; it may have been promoted'],
  [
    'nobody',
    () => 'postgres://admin:wrong@localhost:1/flowtrail',
    expect.stringMatching(/ECONNREFUSED.* correct host and port in DATABASE_REPLICA_URLS$/),
  ],
  [
    'a server that knows no such user',
    () => first.url('nobody', DATABASE),
    expect.stringMatching(/^password authentication failed .* in DATABASE_REPLICA_URLS; /),
  ],
])('nothing is read from %s', async (_, url, problem) => {
  const problems: unknown[] = []
  const wrong = open([url()], { onChange: (_, problem) => problems.push(problem) })
  onTestFinished(() => wrong.close())
  await expect.poll(() => problems.at(-1)).toEqual(problem)
  expect(wrong.databaseFor('one')).toBe(primary)
})

test.each([
  ['cannot be reached', () => 'postgres://admin@localhost:1/x', /^the position of .* is unknown: .*ECONNREFUSED/],
  ['is a standby', () => urlOf(second), /^the position of .* is unknown: DATABASE_URL is of a standby server$/],
])('nothing is read from replicas while the primary server %s', async (_, url, problem) => {
  const problems: unknown[] = []
  const onChange = (_: string, problem: unknown) => problems.push(problem)
  const alone = new Replicas({ url: url(), db: primary }, [urlOf(first)], { onChange })
  onTestFinished(() => alone.close())
  alone.start()
  await expect.poll(() => problems.at(-1)).toMatch(problem)
  expect(alone.databaseFor('one')).toBe(primary)
})

test('a standby of another kind of replication is left out', async () => {
  await onServer(urlOf(postgres, 'postgres'), 'CREATE DATABASE logical')
  // As a server responds that replays no log.
  await onServer(
    urlOf(postgres, 'logical'),
    `CREATE OR REPLACE FUNCTION pg_catalog.pg_last_wal_replay_lsn() RETURNS pg_lsn LANGUAGE sql AS 'SELECT NULL::pg_lsn'`,
  )
  const problems: unknown[] = []
  const onChange = (_: string, problem: unknown) => problems.push(problem)
  const logical = new Replicas({ url: urlOf(postgres, 'logical'), db: primary }, [urlOf(first, 'logical')], {
    onChange,
  })
  onTestFinished(() => logical.close())
  logical.start()
  await expect.poll(() => problems.at(-1)).toBe('it does not replay the log of a primary server')
  expect(logical.databaseFor('one')).toBe(primary)
})

test('a role without privileges may ask for what replicas are compared by', async () => {
  const asVisitor = (server: Pick<TcpPostgres, 'url'>) => server.url('visitor', DATABASE)
  const own = new Replicas({ url: asVisitor(postgres), db: primary }, [asVisitor(first)])
  onTestFinished(() => own.close())
  own.start()
  await expect.poll(() => own.databaseFor('one')).not.toBe(primary)
})

test('flowtrail doctor judges each replica', async () => {
  const DATABASE_REPLICA_URLS = [first, postgres].map((server) => urlOf(server)).join()
  const config = readConfig({ DATABASE_URL: urlOf(postgres), DATABASE_REPLICA_URLS })
  const findings: CheckedFinding[] = []
  for await (const finding of diagnose(urlOf(postgres), 'http://127.0.0.1:1', config)) findings.push(finding)
  expect(findings.filter(({ check }) => check === 'replica')).toEqual([
    { check: 'replica', status: 'ok', finding: `${nameOf(first)} keeps up with the primary server` },
    {
      check: 'replica',
      status: 'error',
      finding: `localhost:${postgres.port}/${DATABASE}: it is no standby server; it may have been promoted`,
      fix: 'See docs/operations.md#read-replicas',
    },
  ])
})

test('flowtrail doctor refuses a balancer of several replicas', async () => {
  let connections = 0
  const balancer = createServer((client) => {
    connections += 1
    const server = connectTo(connections % 2 === 0 ? first.port : second.port, 'localhost')
    client.pipe(server).pipe(client)
    for (const socket of [client, server]) socket.on('error', () => {})
  })
  await once(balancer.listen(0, 'localhost'), 'listening')
  onTestFinished(() => void balancer.close())
  const { port } = balancer.address() as AddressInfo
  const DATABASE_REPLICA_URLS = Object.assign(new URL(urlOf(first)), { port }).href
  const config = readConfig({ DATABASE_URL: urlOf(postgres), DATABASE_REPLICA_URLS })
  const findings: CheckedFinding[] = []
  for await (const finding of diagnose(urlOf(postgres), 'http://127.0.0.1:1', config)) findings.push(finding)
  expect(findings.find(({ check }) => check === 'replica')).toMatchObject({
    status: 'error',
    finding: `localhost:${port}/${DATABASE}: it is several servers, as behind a balancer: each URL of DATABASE_REPLICA_URLS must lead to one`,
  })
})

test('a replica that ends, one that is promoted, and one that is ahead of that, are left out', async () => {
  const ended = once(first.process, 'exit')
  first.process.kill('SIGQUIT')
  await ended
  await until(first, expect.stringContaining('ECONNREFUSED'))
  expect(await reads('one')).toBe(second.port)
  await first.restart()
  await until(first, undefined)

  await on(second, 'SELECT pg_promote()')
  await until(second, 'it is no standby server; it may have been promoted')
  expect(await reads('one')).toBe(first.port)

  // As the primary server, it lacks what the first one has replayed since.
  await on(postgres, 'CREATE TABLE long AS SELECT * FROM generate_series(1, 10000)')
  const position = await write()
  const replayed = createPool(urlOf(first), { max: 1 })
  onTestFinished(() => replayed.end())
  const read = async () => (await readServerState(replayed)).wal_position
  await expect.poll(read).toBeGreaterThanOrEqual(position)
  const ahead = 'it has replayed what the primary server has not written, as after a failover'
  const openAfterFailover = async (expected: string, user = 'visitor') => {
    const problems: unknown[] = []
    const onChange = (_: string, problem: string | undefined) => problems.push(problem)
    const own = new Replicas({ url: second.url(user, DATABASE), db: primary }, [first.url(user, DATABASE)], {
      onChange,
    })
    onTestFinished(() => own.close())
    own.start()
    await expect.poll(() => problems.at(-1)).toBe(expected)
    return { own, problems }
  }
  const { own, problems } = await openAfterFailover(ahead)
  // Even when it has come further.
  await on(second, 'CREATE TABLE longer AS SELECT * FROM generate_series(1, 100000)')
  await openAfterFailover('it is more than a second behind')
  expect(problems.at(-1)).toBe(ahead)
  // A role that may read statistics sees whom it follows.
  await openAfterFailover('it follows another server than DATABASE_URL, as after a failover', 'admin')
  expect(own.databaseFor('one')).toBe(primary)
})
