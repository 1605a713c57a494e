import { randomBytes, randomUUID } from 'node:crypto'
import { type EventEmitter, once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import path from 'node:path'
import { Readable, Writable } from 'node:stream'
import { sql } from 'kysely'
import pg from 'pg'
import { beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { run } from '../../src/cli/run.ts'
import { createPool, type Database } from '../../src/database/pool.ts'
import { parseKey } from '../../src/domain/api-key.ts'
import { createTestApp, importInto, type TestApp, withExamples } from '../support/app.ts'
import { isOnCitus } from '../support/citus.ts'
import { createReader, rowsOf } from '../support/database.ts'
import { kill, runFlowtrail } from '../support/service.ts'
import { holdLock, holdProject } from '../support/waiting.ts'
import { type Flowtrail, flowtrailWith, printed, untilPrinted } from './run.ts'

const NOW = '2026-03-01T09:30:00.000Z'
/** In everything that the person has written. */
const TRACE = `amara${randomBytes(8).toString('hex')}`
const EMAIL = { key: 'email', value: JSON.stringify(`${TRACE}@example.com`) }

const person = (project_id: string, trace: string) => [
  {
    ...{ type: 'contact', project_id, contact_id: 'person', created_at: NOW },
    identifiers: [
      { key: 'email', value: JSON.stringify(`${trace}@example.com`) },
      { key: trace, value: '1' },
    ],
  },
  ...['e1', 'e2'].map((entry_id) => ({
    ...{ type: 'entry', project_id, module_id: 'skin-quiz', contact_id: 'person', entry_id },
    ...{ created_at: NOW, updated_at: NOW, entry_data: JSON.stringify({ name: trace }) },
  })),
  {
    ...{ type: 'event', project_id, entry_id: 'e1', event_id: 'v1', timestamp: NOW },
    ...{ event_type: 'flowpage.viewed', view_type: 'flowpage', page_id: trace, page_key: trace },
    ...{ page_index: 0, total_pages: 7 },
  },
]

/** Another project, with somebody else under the same ids. */
const TWIN = [
  { type: 'project', project_id: 'twin', name: 'Twin' },
  { type: 'group', project_id: 'twin', group_id: 'g', name: 'G' },
  {
    ...{ type: 'module', project_id: 'twin', module_id: 'skin-quiz', group_id: 'g' },
    ...{ title: 'Quiz', created_at: '2026-01-01T00:00:00Z' },
  },
  {
    ...{ type: 'module_version', project_id: 'twin', module_id: 'skin-quiz', version_number: 1, json_string: '{}' },
    ...{ saved_at: '2026-01-01T00:00:00Z', published_at: '2026-01-01T00:00:00Z' },
  },
  ...person('twin', 'somebody else'),
]

let api: TestApp
let flowtrail: Flowtrail
beforeEach(async () => {
  api = await createTestApp({
    // Their content would have the person's.
    twins: false,
    fill: withExamples([...TWIN, ...person('demo', TRACE)]),
  })
  onTestFinished(() => api.close())
  flowtrail = flowtrailWith({ DATABASE_URL: api.databaseUrl })
})

const post = (identifiers = [EMAIL], headers: Record<string, string> = {}) =>
  api.call({
    ...{ method: 'POST', path: '/projects/demo/events', headers },
    body: {
      ...{ module_id: 'skin-quiz', timestamp: NOW, custom_event_name: TRACE, identifiers },
      custom_event_props: JSON.stringify({ said: TRACE }),
    },
  })

const erase = (...args: string[]) => flowtrail('contacts', 'erase', 'person', '--project', 'demo', '--yes', ...args)

async function tables(db: Database): Promise<string[]> {
  const { rows } = await sql<{ name: string }>`
    SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`.execute(db)
  return rows.map(({ name }) => name)
}

/** The tables that have this text in a row. */
async function tablesWith(db: Database, needle: string): Promise<string[]> {
  const all = await tables(db)
  const found = all.map(async (table) => {
    const { rows } = await sql`SELECT FROM ${sql.table(table)} t WHERE t::text LIKE ${`%${needle}%`} LIMIT 1`.execute(
      db,
    )
    return rows.length > 0
  })
  const has = await Promise.all(found)
  return all.filter((_, i) => has[i]).sort()
}

describe('contacts erase', () => {
  test('leaves no trace of the person but ids, and everything of others', async () => {
    const event_id = (await post([EMAIL], { 'idempotency-key': TRACE })).json().event_id
    const digests = await api.db
      .selectFrom('contact_identifiers')
      .select(sql<string>`encode(digest, 'hex')`.as('digest'))
      .where('contact_id', '=', 'person')
      .where('project_id', '=', 'demo')
      .execute()
    const written = ['contact_identifiers', 'entries', 'entry_page_views', 'events', 'idempotency_keys']
    expect(await tablesWith(api.db, TRACE)).toEqual(written)
    const others = async () => {
      const { rows } = await sql<{ project_id: string }>`SELECT project_id FROM projects ORDER BY 1`.execute(api.db)
      return Promise.all(
        rows.filter(({ project_id }) => project_id !== 'demo').map(({ project_id }) => rowsOf(api.db, project_id)),
      )
    }
    const before = { own: await rowsOf(api.db, 'demo'), others: await others() }

    const report = await printed(erase())
    expect(report).toMatch(
      /^Erased contact person of project demo, with 2 identifiers, 2 events, 1 idempotency key, 2 entries\. Erasure: [\w-]{36}$/,
    )

    expect(await tablesWith(api.db, TRACE)).toEqual([])
    for (const { digest } of digests) expect(await tablesWith(api.db, digest), digest).toEqual([])
    const erasures = api.db.selectFrom('erasures').selectAll().orderBy('position', 'desc')
    const [erasure, ...more] = (await erasures.execute()).slice(0, -1)
    expect(more).toEqual([])
    expect(erasure).toEqual({
      ...{ project_id: 'demo', contact_id: 'person', entry_ids: ['e1', 'e2'] },
      erasure_id: report.slice(-36),
      position: expect.any(Number),
      erased_at: expect.stringMatching(/^20\d\d-\d\d-\d\dT[\d:.]+Z$/),
    })
    expect(await tablesWith(api.db, event_id)).toEqual([])
    const isOther = (row: Record<string, unknown>) =>
      row.contact_id !== 'person' && !['e1', 'e2'].includes(row.entry_id as string)
    const kept = Object.entries(before.own).map(([table, rows]) => [table, (rows as object[]).filter(isOther as never)])
    const erasuresAfter = [...before.own.erasures, erasure]
    expect(await rowsOf(api.db, 'demo')).toEqual({ ...Object.fromEntries(kept), erasures: erasuresAfter })
    expect(await others()).toEqual(before.others)

    for (const what of ['e1', 'e2']) {
      const response = await api.call({ path: `/projects/demo/modules/skin-quiz/entries/${what}` })
      expect(response.statusCode).toBe(404)
    }
    // The same request is a new one.
    const again = await post([EMAIL], { 'idempotency-key': TRACE })
    expect(again.headers['idempotent-replayed']).toBeUndefined()
    expect(again.json()).toMatchObject({ event_id: expect.not.stringMatching(event_id) })
  })

  test('nothing that is recorded or imported later precedes it in the feed', async () => {
    // The positions are ahead of the clock, as after the clock was set back, and the last ones are erased.
    const far = 9_000_000_000_000_000
    await sql`UPDATE events SET position = ${far} WHERE project_id = 'demo' AND event_id = 'v1'`.execute(api.db)
    await printed(erase())
    const erasures = api.db.selectFrom('erasures').select('position').orderBy('position', 'desc')
    const { position } = await erasures.executeTakeFirstOrThrow()
    expect(position).toBe(far + 1)
    const positionOf = async (eventId: string) =>
      (
        await api.db
          .selectFrom('events')
          .select('position')
          .where('project_id', '=', 'demo')
          .where('event_id', '=', eventId)
          .executeTakeFirstOrThrow()
      ).position
    expect(await positionOf((await post()).json().event_id)).toBe(far + 2)
    await sql`DELETE FROM events WHERE position = ${far + 2}`.execute(api.db)
    await importInto(api.databaseUrl, person('demo', 'later'))
    expect(await positionOf('v1')).toBeGreaterThan(far + 1)
  })

  test('beside requests of the same person fails none of them', async () => {
    const statuses = new Set<number>()
    let isErased = false
    const client = async () => {
      while (!isErased) statuses.add((await post()).statusCode)
    }
    const clients = Promise.all([client(), client(), client(), client()])
    await printed(erase()).finally(() => {
      isErased = true
    })
    await clients
    expect(statuses).toEqual(new Set([200]))
  })

  test.each(['contacts', 'erasures'])('killed while it writes %s, it has erased nothing', async (table) => {
    const before = await rowsOf(api.db, 'demo')
    const pool = createPool(api.databaseUrl, { max: 1 })
    onTestFinished(() => pool.end())
    const holder = await pool.connect()
    onTestFinished(() => holder.release())
    await holder.query(`BEGIN; LOCK TABLE ${table} IN SHARE MODE`)
    const process = runFlowtrail(['contacts', 'erase', 'person', '--project', 'demo', '--yes'], {
      DATABASE_URL: api.databaseUrl,
    })
    const waiters = async () => {
      const { rows } = await holder.query(
        `SELECT pid FROM pg_locks WHERE NOT granted AND relation = '${table}'::regclass
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
      )
      return rows as { pid: number }[]
    }
    await expect.poll(waiters, { timeout: 20_000 }).toHaveLength(1)
    const [waiter] = await waiters()
    process.child.kill('SIGKILL')
    expect(await process.exit).toBe('SIGKILL')
    // A backend that waits for a lock does not notice that its client is gone.
    await holder.query('SELECT pg_terminate_backend($1::integer, 10000)', [waiter?.pid])
    await holder.query('ROLLBACK')
    expect(await rowsOf(api.db, 'demo')).toEqual(before)
    expect(await printed(erase())).toContain('Erased contact person')
  })

  /** Runs a command at a terminal at which somebody types this. */
  async function atTerminal(args: string[], typed: string) {
    const stdin = Object.assign(Readable.from(typed === '' ? [] : [typed]), { isTTY: true })
    let stderr = ''
    const collect = (write: (chunk: Buffer) => void) =>
      new Writable({
        write: (chunk, _, done) => {
          write(chunk)
          done()
        },
      })
    const status = await run(args, {
      ...{ env: { DATABASE_URL: api.databaseUrl }, stdin, stdout: collect(() => {}) },
      stderr: collect((chunk) => {
        stderr += chunk
      }),
    })
    return { status, stderr }
  }

  test('asks first, and changes nothing without a yes', async () => {
    const before = await rowsOf(api.db, 'demo')
    const args = ['contacts', 'erase', 'person', '--project', 'demo']
    for (const typed of ['', '\n', 'y\n', 'no\n', 'yes please\n']) {
      const { status, stderr } = await atTerminal(args, typed)
      expect(stderr).toBe(
        'Erase contact person of project demo, with 2 identifiers, 2 entries, 1 event? ' +
          'This cannot be undone. Type yes to go on: flowtrail: Nothing was changed\n',
      )
      expect(status).toBe(1)
    }
    expect(await flowtrail(...args)).toEqual({
      ...{ status: 2, stdout: '' },
      stderr:
        'flowtrail: This cannot be undone. Add --yes to do it without being asked. See flowtrail contacts erase --help\n',
    })
    expect(await rowsOf(api.db, 'demo')).toEqual(before)
    expect((await atTerminal(args, 'yes\n')).status).toBe(0)
    expect(await tablesWith(api.db, TRACE)).toEqual([])
  })

  test.each([
    [
      ['c9', '--project', 'demo'],
      'Project demo has no contact c9. Run: npm run -s flowtrail -- contacts find --project demo --identifier KEY=JSON',
    ],
    [['person', '--project', 'none'], 'Project none does not exist. Run: npm run -s flowtrail -- projects list'],
  ])('%j fails', async (args, message) => {
    expect(await flowtrail('contacts', 'erase', ...args, '--yes')).toEqual({
      ...{ status: 1, stdout: '' },
      stderr: `flowtrail: ${message}\n`,
    })
  })
})

describe('projects delete', () => {
  test('deletes a project with everything in it, and nothing else', async () => {
    await post([EMAIL], { 'idempotency-key': randomUUID() })
    await printed(erase())
    const { rows } = await sql<{ project_id: string }>`SELECT project_id FROM projects`.execute(api.db)
    const others = rows.map(({ project_id }) => project_id).filter((id) => id !== 'demo')
    const before = await Promise.all(others.map((id) => rowsOf(api.db, id)))
    let count = 0
    for (const table of await tables(api.db)) {
      if (table.startsWith('kysely_')) continue
      count += (await sql`SELECT FROM ${sql.table(table)} WHERE project_id = 'demo'`.execute(api.db)).rows.length
    }
    expect(await printed(flowtrail('projects', 'delete', 'demo', '--yes'))).toBe(
      `Deleted project demo, ${count} rows in all`,
    )
    for (const table of await tables(api.db)) {
      if (table.startsWith('kysely_')) continue
      const { rows } = await sql`SELECT FROM ${sql.table(table)} WHERE project_id = 'demo'`.execute(api.db)
      expect(rows, table).toEqual([])
    }
    expect(await Promise.all(others.map((id) => rowsOf(api.db, id)))).toEqual(before)
    // A deleted key may be accepted for a second, as a revoked one.
    await vi.waitUntil(async () => (await post()).statusCode === 401, { timeout: 30_000 })
    await printed(flowtrail('projects', 'create', 'demo'))
  })

  const contact = { type: 'contact', project_id: 'demo', contact_id: 'late', identifiers: [] }
  const saved_at = '2026-01-01T00:00:00.000Z'
  const version = {
    type: 'module_version',
    project_id: 'demo',
    module_id: 'm',
    version_number: 1,
    saved_at,
    json_string: '{}',
  }
  const project = { type: 'project', project_id: 'demo', name: 'Again' }
  const deleteDemo = () => flowtrail('projects', 'delete', 'demo', '--yes')
  const importing = (records: object[]) => importInto(api.databaseUrl, records).catch((error: unknown) => error)

  /** Starts the steps one after the other, each once that before it waits for the project, which is then free. */
  async function queued(...steps: (() => Promise<unknown>)[]): Promise<unknown[]> {
    const lock = await holdProject(api.databaseUrl)
    const results: Promise<unknown>[] = []
    for (const step of steps) {
      results.push(step())
      await lock.waiting(results.length)
    }
    await lock.release()
    return Promise.all(results)
  }

  test('makes an import that waits for it fail as without the project, or create it anew', async () => {
    for (const line of [contact, version]) {
      const [deleted, imported] = await queued(deleteDemo, () => importing([line]))
      expect(deleted).toMatchObject({ status: 0 })
      expect(String(imported)).toBe(
        'ImportError: line 1: /project_id: no project with this id is stored or on an earlier line',
      )
      await importInto(api.databaseUrl, [project])
    }

    const [again] = await queued(deleteDemo, () => importing([project, contact]))
    expect(again).toMatchObject({ status: 0 })
    const { projects, contacts } = await rowsOf(api.db, 'demo')
    expect(projects).toEqual([{ project_id: 'demo', name: 'Again' }])
    expect(contacts).toMatchObject([{ contact_id: 'late' }])
  })

  test('deletes what an import for which it waits adds', async () => {
    await queued(() => importing([contact]), deleteDemo)
    expect((await rowsOf(api.db, 'demo')).contacts).toEqual([])
  })

  test.each<[string, () => string[], RegExp]>([
    ['created', () => ['create', '--project', 'demo'], /^flowtrail: Project demo does not exist\. .+\n$/],
    ['rotated', () => ['rotate', parseKey(api.key)?.key_id ?? ''], /^flowtrail: Key \S+ does not exist\. .+\n$/],
  ])('makes a key that is %s meanwhile fail as without the project', async (_, command, message) => {
    // API keys are deleted before groups.
    const groups = await holdLock(api.databaseUrl, 'LOCK TABLE groups IN SHARE MODE')
    const deleted = deleteDemo()
    await groups.waiting(1)
    const inserted = flowtrail('keys', ...command())
    await Promise.race([inserted, groups.waiting(2)])
    await groups.release()
    expect(await deleted).toEqual({ status: 0, stdout: expect.stringMatching(/^Deleted project demo, /), stderr: '' })
    expect(await inserted).toMatchObject({ status: 1, stderr: expect.stringMatching(message) })
  })

  test('fails without the project, and without being asked', async () => {
    expect(await flowtrail('projects', 'delete', 'none', '--yes')).toMatchObject({
      ...{ status: 1, stderr: 'flowtrail: Project none does not exist. Run: npm run -s flowtrail -- projects list\n' },
    })
    expect(await flowtrail('projects', 'delete', 'demo')).toMatchObject({
      ...{ status: 2, stderr: expect.stringContaining('Add --yes') },
    })
    expect((await rowsOf(api.db, 'demo')).projects).toHaveLength(1)
  })
})

// A cluster refuses it.
describe.skipIf(isOnCitus)('compact', { timeout: 120_000 }, () => {
  /** The files of the database that have the trace, in the state of a checkpoint. */
  async function filesWithTrace(): Promise<string[]> {
    const { rows } = await sql<{ directory: string; oid: number }>`
    SELECT current_setting('data_directory') AS directory, oid FROM pg_database WHERE datname = current_database()`.execute(
      api.db,
    )
    const { directory, oid } = rows[0] as { directory: string; oid: number }
    await sql`CHECKPOINT`.execute(api.db)
    const folder = path.join(directory, 'base', String(oid))
    const files = (await readdir(folder)).map(async (file) => ({
      file,
      // PostgreSQL may delete it meanwhile.
      has: (await readFile(path.join(folder, file)).catch(() => Buffer.alloc(0))).includes(TRACE),
    }))
    return (await Promise.all(files)).filter(({ has }) => has).map(({ file }) => file)
  }

  test('leaves no trace of what was erased in the files of the tables', async () => {
    // Statistics quote what is frequent.
    await sql`ANALYZE`.execute(api.db)
    await printed(erase())
    expect(await filesWithTrace()).not.toEqual([])
    // It may have to wait for other tests.
    expect(await flowtrail('compact')).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/^Rewrote 13 tables; the database had \d+\.\d MiB, and has \d+\.\d MiB\n$/),
    })
    expect(await filesWithTrace()).toEqual([])
    expect((await api.call({ path: '/projects/demo/modules' })).statusCode).toBe(200)
  })

  test('waits for transactions that may see what was erased', async () => {
    const pool = createPool(api.databaseUrl, { max: 1 })
    onTestFinished(() => pool.end())
    const reader = await pool.connect()
    onTestFinished(() => reader.release())
    await reader.query('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT FROM contacts LIMIT 1')
    await printed(erase())
    const compact = runFlowtrail(['compact'], { DATABASE_URL: api.databaseUrl })
    expect(await untilPrinted(compact, '\n', 'stderr')).toMatch(
      /^Waiting for what began before and may see erased rows: .*process \d+ \(flowtrail\)/,
    )
    await reader.query('COMMIT')
    expect(await compact.exit).toBe(0)
    expect(await filesWithTrace()).toEqual([])
  })

  /** A standby server without a slot, whose readers see what is deleted from now on. */
  async function startStandby(application_name: string) {
    const client = new pg.Client({ connectionString: api.databaseUrl, application_name, replication: 'true' } as object)
    client.on('error', () => {})
    await client.connect()
    const { rows } = await client.query('IDENTIFY_SYSTEM')
    const { connection } = client as unknown as {
      connection: EventEmitter & { stream: Socket; sendCopyFromChunk: (chunk: Buffer) => void }
    }
    const started = once(connection, 'replicationStart')
    client.query(`START_REPLICATION PHYSICAL ${rows[0].xlogpos}`).catch(() => {})
    await started
    const { rows: snapshots } = await sql<{ xid: string }>`SELECT pg_current_xact_id()::text AS xid`.execute(api.db)
    const feedback = Buffer.alloc(25)
    feedback.write('h')
    feedback.writeUInt32BE(Number(snapshots[0]?.xid), 9)
    connection.sendCopyFromChunk(feedback)
    const xmin = sql`SELECT FROM pg_stat_replication WHERE application_name = ${application_name} AND backend_xmin IS NOT NULL`
    await expect.poll(async () => (await xmin.execute(api.db)).rows, { timeout: 30_000 }).toHaveLength(1)
    return { stop: () => connection.stream.destroy() }
  }

  test('waits for a standby server, of whose sender an owner sees little', async () => {
    const { role, url } = await createReader(api.databaseUrl, api.db)
    const standby = await startStandby(role)
    onTestFinished(() => void standby.stop())
    await printed(erase())
    const compact = runFlowtrail(['compact'], { DATABASE_URL: url })
    onTestFinished(() => kill(compact))
    expect(await untilPrinted(compact, '\n', 'stderr')).toMatch(
      new RegExp(`^Waiting for what began before and may see erased rows: .*process \\d+ \\(${role}\\)`),
    )
    standby.stop()
    expect(await compact.exit).toBe(1)
    expect(compact.stderr()).toContain('The role may not rewrite api_keys')
  })

  test('fails for a role that may not rewrite the tables', async () => {
    const { url } = await createReader(api.databaseUrl, api.db)
    expect(await flowtrailWith({ DATABASE_URL: url })('compact')).toMatchObject({
      ...{ status: 1, stdout: '' },
      stderr: expect.stringContaining(
        'The role may not rewrite api_keys. Connect as the owner of the database and its tables\n',
      ),
    })
  })
})

test('an erasure that is interrupted while it waits erases nothing', async () => {
  const recording = await holdProject(api.databaseUrl)
  const process = runFlowtrail(['contacts', 'erase', 'person', '--project', 'demo', '--yes'], {
    DATABASE_URL: api.databaseUrl,
  })
  const [pid] = await recording.waiting(1)
  process.child.kill('SIGINT')
  expect([await process.exit, process.stderr()]).toEqual([130, 'flowtrail: interrupted\n'])
  await recording.release()
  // Until its session has had the lock.
  const sessions = sql`SELECT FROM pg_stat_activity WHERE pid = ${pid}`
  await expect.poll(async () => (await sessions.execute(api.db)).rows).toEqual([])
  expect(await printed(flowtrail('contacts', 'export', 'person', '--project', 'demo'))).toContain(TRACE)
})
