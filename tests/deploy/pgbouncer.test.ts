import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { connect, openWritePool } from '../../src/database/open.ts'
import { Replicas } from '../../src/database/replicas.ts'
import { type Flowtrail, flowtrailWith, printed, temporaryDirectory } from '../cli/run.ts'
import { holdTurn, parsedEvent, recorderOn, recordLocked, stopClock } from '../recording/fixture.ts'
import { onServer } from '../support/global-setup.ts'
import { freePort, type Service, startService } from '../support/service.ts'
import { startTcpPostgres, type TcpPostgres, untilLogged } from '../support/tcp-postgres.ts'

// A service whose connections share few sessions of PostgreSQL, through PgBouncer in transaction mode.

/** Fewer than the connections that the service opens. */
const SESSIONS = 3

const cleanup = new AsyncDisposableStack()
let postgres: TcpPostgres
let folder: string
let direct: string
let pooled: string
let pgbouncer: ChildProcess
let service: Service
let flowtrail: Flowtrail
let key: string
beforeAll(async () => {
  folder = cleanup.use(await temporaryDirectory()).path
  postgres = await startTcpPostgres()
  cleanup.defer(() => postgres.stop())
  await onServer(postgres.url('admin', 'postgres'), "CREATE ROLE app LOGIN PASSWORD 'app'")
  await onServer(postgres.url('admin', 'postgres'), 'CREATE DATABASE flowtrail OWNER app')
  // Whatever the sessions begin with, transactions of the service have its own settings.
  const unlike = [
    ...["timezone = 'Asia/Tokyo'", 'search_path = nowhere', 'synchronous_commit = off', "datestyle = 'German'"],
    'default_transaction_isolation = serializable',
  ]
  for (const setting of unlike) await onServer(postgres.url('admin', 'postgres'), `ALTER ROLE app SET ${setting}`)
  direct = postgres.url('app', 'flowtrail')
  pooled = `${direct.replace(String(postgres.port), String(await configurePgBouncer()))}?pgbouncer=true`
  pgbouncer = await startPgBouncer()
  flowtrail = flowtrailWith({ DATABASE_URL: pooled })
  await printed(flowtrail('migrate'))
  await printed(flowtrail('projects', 'create', 'acme'))
  key = await printed(
    flowtrail(...'keys create --project acme --scope read --scope events:write --scope import'.split(' ')),
  )
  service = await startService({ DATABASE_URL: pooled })
  cleanup.defer(async () => {
    service.child.kill('SIGTERM')
    expect(await service.exit).toBe(0)
  })
})
afterAll(() => cleanup.disposeAsync())

async function configurePgBouncer(): Promise<number> {
  const port = await freePort()
  const lines = [
    '[databases]',
    `* = host=127.0.0.1 port=${postgres.port}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${port}`,
    'unix_socket_dir =',
    'auth_type = trust',
    `auth_file = ${postgres.directory}/users.txt`,
    'pool_mode = transaction',
    `default_pool_size = ${SESSIONS}`,
    'server_round_robin = 1',
  ]
  await writeFile(`${postgres.directory}/users.txt`, '"app" "app"\n')
  await writeFile(`${postgres.directory}/pgbouncer.ini`, lines.join('\n'))
  return port
}

async function startPgBouncer(): Promise<ChildProcess> {
  const child = postgres.spawn('/usr/sbin/pgbouncer', [`${postgres.directory}/pgbouncer.ini`])
  await untilLogged(child, 'process up')
  return child
}

// biome-ignore lint/suspicious/noExplicitAny: bodies of all operations
type Response = { status: number; headers: Headers; body: any }

async function call(route: string, { body, ...headers }: Record<string, string> = {}): Promise<Response> {
  const response = await fetch(`${service.address}/projects/acme${route}`, {
    method: body === undefined ? 'GET' : 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json', ...headers },
    ...(body !== undefined && { body }),
  })
  return { status: response.status, headers: response.headers, body: (await response.json()) as Response['body'] }
}

const event = (name: string, contact = 'amara') => ({
  ...{ module_id: 'quiz', timestamp: '2026-03-01T09:41:12.345Z', custom_event_name: name },
  identifiers: [{ key: 'email', value: JSON.stringify(`${contact}@example.com`) }],
})

const RECORDS = [
  { type: 'group', group_id: 'g', name: 'Growth' },
  { type: 'module', module_id: 'quiz', group_id: 'g', title: 'Quiz', created_at: '2026-01-01T00:00:00Z' },
  {
    ...{ type: 'module_version', module_id: 'quiz', version_number: 1, json_string: '{"pages":[]}' },
    ...{ saved_at: '2026-01-01T00:00:00Z', published_at: '2026-01-01T00:00:00Z' },
  },
  { type: 'contact', contact_id: 'c1', created_at: '2026-01-02T00:00:00Z', identifiers: [{ key: 'k', value: '1' }] },
  {
    ...{ type: 'entry', entry_id: 'e1', module_id: 'quiz', contact_id: 'c1', entry_data: '{}' },
    ...{ created_at: '2026-01-02T00:00:00Z', updated_at: '2026-01-02T00:01:00Z' },
  },
  {
    ...{
      type: 'event',
      entry_id: 'e1',
      event_id: 'v1',
      timestamp: '2026-01-02T00:00:01.5Z',
      event_type: 'flowpage.viewed',
    },
    ...{ view_type: 'flowpage', page_id: 'p1', page_key: 'intro', page_index: 0, total_pages: 7 },
  },
]
const ndjson = (records: object[]) => records.map((record) => `${JSON.stringify(record)}\n`).join('')
const importOver = (body: string) => call('/records', { 'content-type': 'application/x-ndjson', body })

describe('through a pooler in transaction mode', () => {
  test('imports and exports over HTTP and on the command line, again and again', async () => {
    const wanted = { records: 6, added: 6, changed: 0, unchanged: 0 }
    expect((await importOver(ndjson(RECORDS))).body).toMatchObject(wanted)
    const file = `${folder}/records.ndjson`
    await writeFile(
      file,
      ndjson(
        [{ type: 'project', project_id: 'acme', name: 'acme' }, ...RECORDS].map((r) => ({ project_id: 'acme', ...r })),
      ),
    )
    for (let i = 0; i < 3; i += 1) {
      expect((await importOver(ndjson(RECORDS))).body).toMatchObject({ unchanged: 6 })
      const counts = JSON.parse(await printed(flowtrail('import', file, '--json')))
      expect(counts.map(({ added, updated }: Record<string, number>) => [added, updated])).toEqual(
        counts.map(() => [0, 0]),
      )
    }
    // A conflict undoes its transaction, and leaves nothing to the next.
    const conflict = await importOver(ndjson([{ ...RECORDS[5], page_key: 'other' }]))
    expect(conflict).toMatchObject({ status: 409, body: { error: { code: 'record_conflict' } } })
    expect(await printed(flowtrail('export', '--project', 'acme'))).toContain('"timestamp":"2026-01-02T00:00:01.500Z"')
  })

  test('reads, in UTC and by key', async () => {
    for (const [route, found] of [
      ['/modules', [{ module_id: 'quiz' }]],
      ['/modules/quiz', { title: 'Quiz' }],
      ['/modules/quiz/versions', [{ saved_at: '2026-01-01T00:00:00.000Z' }]],
      ['/modules/quiz/versions/1', { json_string: '{"pages":[]}' }],
      ['/entries?limit=1', [{ entry_id: 'e1' }]],
      ['/entries/e1', { updated_at: '2026-01-02T00:01:00.000Z' }],
      ['/entries/e1/events', [{ event_id: 'v1', timestamp: '2026-01-02T00:00:01.500Z' }]],
      ['/entries-page-views', [{ page_views: [{ page_id: 'p1' }] }]],
    ] as const) {
      expect(await call(route), route).toMatchObject({ status: 200, body: found })
    }
    const ready = await fetch(`${service.address}/readyz`)
    expect(ready.status).toBe(200)
  })

  test('records events, batches and repetitions, and wakes those that wait for them', async () => {
    const [last] = (await call('/events?limit=1')).body
    const waiting = call(`/events?direction=ASC&wait=30&after=${last.position}`)
    const post = { body: JSON.stringify(event('first')), 'idempotency-key': 'one' }
    const { body: recorded } = await call('/events', post)
    expect((await waiting).body).toMatchObject([{ event_id: recorded.event_id }])
    const repeated = await call('/events', post)
    expect([repeated.headers.get('idempotent-replayed'), repeated.body]).toEqual(['true', recorded])
    const events = Array.from({ length: 500 }, (_, i) => event(`batch ${i}`, `contact${i % 50}`))
    const { body: batch } = await call('/events/batch', { body: JSON.stringify({ events }) })
    expect(batch.results.map(({ status }: { status: number }) => status)).toEqual(events.map(() => 200))
  })

  test('more requests than there are sessions, of all kinds at once, disturb neither each other nor another client', async () => {
    const other = new pg.Client(pooled)
    await other.connect()
    const seen = new Set<string>()
    let looks: Promise<unknown> = Promise.resolve()
    const lookNow = async () => {
      const names = [
        'timezone',
        'search_path',
        'statement_timeout',
        'synchronous_commit',
        'datestyle',
        'enable_seqscan',
      ]
      const { rows } = await other.query(
        `SELECT ${names.map((name) => `current_setting('${name}')`).join(" || ';' || ")} AS all`,
      )
      seen.add(rows[0].all)
    }
    const before = (await call('/events?limit=1')).body[0].position
    const kinds = [
      (i: number) => call('/events', { body: JSON.stringify(event(`mixed ${i}`, `mixed${i}`)) }),
      () => importOver(ndjson(RECORDS)),
      () => call('/entries?limit=100'),
      () => call('/entries/e1/events'),
      // One after the other, while the service does the rest at once.
      () => {
        looks = looks.then(lookNow)
      },
    ]
    const all = await Promise.all(Array.from({ length: 200 }, (_, i) => kinds[i % kinds.length]?.(i)))
    await looks
    // Half of the connections for imports are another project's, as they are without a pooler.
    const statuses = all.flatMap((one) => (one ? [one.status] : []))
    expect(statuses.filter((status) => status !== 200 && status !== 503)).toEqual([])
    const feed = await call(`/events?direction=ASC&limit=1000&after=${before}`)
    const posted = all.filter((one, i) => i % kinds.length === 0 && one?.status === 200)
    expect(posted).not.toEqual([])
    expect(feed.body).toHaveLength(posted.length)
    expect([...seen]).toEqual(['Asia/Tokyo;nowhere;0;off;German, DMY;on'])
    const { rows } = await other.query("SELECT count(*)::int AS count FROM pg_class WHERE relpersistence = 't'")
    expect(rows).toEqual([{ count: 0 }])
    await other.end()
  })

  test('a batch that waits for its turn leaves neither the lock nor the time limit of its wait in a session', async () => {
    stopClock()
    const pool = openWritePool(pooled, { max: 2 })
    const recorder = recorderOn(pool, { turnTimeout_ms: 10_000 })
    const database = postgres.url('admin', 'flowtrail')
    // It takes turns once it has found a project locked.
    await recordLocked(recorder, database, 'acme')
    const turn = await holdTurn(database)
    const recorded = recorder.record('acme', parsedEvent())
    await turn.waiting(1)
    await turn.release()
    expect(await recorded).toMatchObject({ replayed: false })
    const other = new pg.Client(pooled)
    await other.connect()
    for (let i = 0; i < 2 * SESSIONS; i += 1) {
      const { rows } = await other.query(`SELECT current_setting('lock_timeout') AS timeout,
        (SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory') AS locks`)
      expect(rows).toEqual([{ timeout: '0', locks: 0 }])
    }
    await other.end()
    await pool.end()
  })

  test('transactions are durable and have the settings of the service', async () => {
    const admin = new pg.Client(postgres.url('admin', 'flowtrail'))
    await admin.connect()
    await admin.query(`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      RAISE EXCEPTION '%', concat_ws(';', current_setting('synchronous_commit'), current_setting('timezone'),
        current_setting('search_path'), current_setting('statement_timeout'), current_setting('transaction_isolation'));
      END $$`)
    await admin.query('CREATE TRIGGER note BEFORE INSERT ON projects EXECUTE FUNCTION note()')
    const { stderr } = await flowtrail('projects', 'create', 'noted')
    await admin.query('DROP FUNCTION note CASCADE')
    await admin.end()
    expect(stderr).toBe('flowtrail: on;UTC;public;0;read committed\n')
  })

  test('doctor says that all is well, and what is wrong if DATABASE_URL does not say pgbouncer=true', async () => {
    const silent = pooled.replace('?pgbouncer=true', '')
    const settings = { PORT: new URL(service.address).port }
    const found = async (DATABASE_URL: string) => {
      const { stdout } = await flowtrailWith({ DATABASE_URL, ...settings })('doctor', '--json')
      return JSON.parse(stdout).find(({ check }: { check: string }) => check === 'pooler')
    }
    expect(await found(pooled)).toMatchObject({ status: 'ok', finding: expect.stringContaining('transaction mode') })
    expect(await found(silent)).toMatchObject({ status: 'error', fix: expect.stringContaining('pgbouncer=true') })
    const { status, stderr } = await flowtrailWith({ DATABASE_URL: silent })('projects', 'list')
    expect([status, stderr]).toEqual([
      1,
      expect.stringMatching(/^flowtrail: DATABASE_URL leads through a pooler .* Add pgbouncer=true/),
    ])
  })

  test.each([
    [
      'is read from only if its URL says pgbouncer=true',
      '',
      /^DATABASE_REPLICA_URLS leads through a pooler .* Add pgbouncer=true/,
    ],
    ['is judged like any other if it does', '?pgbouncer=true', /^it is no standby server/],
  ])('a replica behind it %s', async (_, parameter, problem) => {
    const problems: unknown[] = []
    const db = connect(direct, { max: 1 })
    const url = pooled.replace('?pgbouncer=true', parameter)
    const replicas = new Replicas({ url: direct, db }, [url], { onChange: (_, problem) => problems.push(problem) })
    replicas.start()
    await expect.poll(() => problems).toEqual([expect.stringMatching(problem)])
    expect(replicas.databaseFor('acme')).toBe(db)
    await replicas.close()
    await db.destroy()
  })

  test('a pooler that refuses options says how to allow them', async () => {
    const { status, stderr } = await flowtrailWith({ DATABASE_URL: `${pooled}&options=-c%20jit=off` })(
      'projects',
      'list',
    )
    expect([status, stderr]).toEqual([
      1,
      expect.stringMatching(/unsupported startup parameter: options\. .*#pgbouncer\n$/),
    ])
  })

  test('a command that no transaction can run says that it needs a direct connection, and changes no session', async () => {
    const { status, stderr } = await flowtrail('compact')
    expect([status, stderr]).toEqual([1, expect.stringMatching(/VACUUM cannot run .* leads to PostgreSQL directly/)])
    const other = new pg.Client(pooled)
    await other.connect()
    for (let i = 0; i < 2 * SESSIONS; i += 1) {
      expect((await other.query('SHOW lock_timeout')).rows).toEqual([{ lock_timeout: '0' }])
    }
    await other.end()
  })

  test('is backed up, and restored into another database', async () => {
    const file = `${folder}/backup.gz`
    await printed(flowtrail('backup', file))
    await onServer(postgres.url('admin', 'postgres'), 'CREATE DATABASE restored OWNER app')
    const restored = flowtrailWith({ DATABASE_URL: pooled.replace('/flowtrail?', '/restored?') })
    expect(await restored('restore', file)).toMatchObject({ status: 0 })
    const contents = [flowtrail, restored].map((command) => printed(command('export', '--project', 'acme')))
    const [before, after] = await Promise.all(contents)
    expect(before).toContain('"entry_id":"e1"')
    expect(after).toBe(before)
    expect(await printed(restored('keys', 'list'))).toContain(key.split('_')[1])
    expect((await restored('restore', file)).stderr).toMatch(/the database is not empty/)
  })

  test('requests get a 503 while the pooler is away, and a 200 once it is back', async () => {
    const requests = () => [call('/entries'), call('/events', { body: JSON.stringify(event('outage')) })]
    const statuses = async () => (await Promise.all(requests())).map(({ status }) => status)
    const ended = once(pgbouncer, 'exit')
    pgbouncer.kill('SIGTERM')
    await ended
    // What is sent into a connection that has just been closed fails like what cannot connect.
    expect(await statuses()).toEqual([503, 503])
    pgbouncer = await startPgBouncer()
    await vi.waitFor(async () => expect(await statuses()).toEqual([200, 200]), { timeout: 30_000 })
  })

  test('works directly, too', async () => {
    const lists = [direct, `${direct}?pgbouncer=true`].map((url) =>
      flowtrailWith({ DATABASE_URL: url })('projects', 'list'),
    )
    for (const { stdout } of await Promise.all(lists)) expect(stdout).toContain('acme')
  })
})
