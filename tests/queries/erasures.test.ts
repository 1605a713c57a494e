import { sql } from 'kysely'
import { beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { Database, PoolOptions } from '../../src/database/pool.ts'
import { selectKeys } from '../../src/queries/api-keys.ts'
import { deleteProject, eraseContact, rewriteTables, selectErasuresPage } from '../../src/queries/erasures.ts'
import { insertProject } from '../../src/queries/projects.ts'
import { createReader, createTestDatabase, rowsOf, withSettings } from '../support/database.ts'
import { UNLIMITED as lease } from '../support/lease.ts'
import { holdLock, holdProject } from '../support/waiting.ts'
import { countRows, storeFullProject } from './full-project.ts'

// tests/cli/erase.test.ts has what an operator sees of it.

let url: string
let db: Database
beforeEach(async () => {
  const database = await createTestDatabase()
  onTestFinished(() => database.drop())
  url = database.url
  db = connected(url)
  for (const projectId of ['p', 'other']) await storeFullProject(url, db, projectId)
})

function connected(to: string, options?: PoolOptions): Database {
  const opened = connect(to, options)
  onTestFinished(() => opened.destroy())
  return opened
}

test('a contact is erased with its entries, by their ids, and with the Idempotency-Keys of their events alone', async () => {
  // Rows are read in the order of their table, in which this one is moved behind the others.
  await sql`UPDATE entries SET entry_data = '[]' WHERE entry_id = 'e1'`.execute(db)
  const off = Object.fromEntries(['indexscan', 'indexonlyscan', 'bitmapscan'].map((scan) => [`enable_${scan}`, 'off']))
  const unsorted = connected(withSettings(url, off))
  expect(await eraseContact(unsorted, 'p', 'person')).toEqual({
    ...{ erasure_id: expect.any(String), entry_ids: ['e1', 'e2'] },
    ...{ identifiers: 2, events: 2, idempotency_keys: 2 },
  })
  const keys = db.selectFrom('idempotency_keys').select('idempotency_key').where('project_id', '=', 'p')
  expect(await keys.execute()).toEqual([{ idempotency_key: 'view of e3' }])
})

test('the time of an erasure is by the clock of the process, as all that is stored', async () => {
  const erased_at = '2036-01-01T10:00:00.123Z'
  vi.useFakeTimers({ toFake: ['Date'], now: new Date(erased_at) })
  onTestFinished(() => void vi.useRealTimers())
  await eraseContact(db, 'p', 'person')
  const latest = db.selectFrom('erasures').select('erased_at').where('project_id', '=', 'p').orderBy('position', 'desc')
  expect(await latest.executeTakeFirst()).toEqual({ erased_at })
})

test.each([
  ...['projects', 'idempotency_keys', 'events', 'entry_page_views', 'entries', 'contact_identifiers', 'contacts'],
  'erasures',
])('an erasure that gets no lock of %s in time fails for that reason, and erases nothing', async (table) => {
  const before = await rowsOf(db, 'p')
  const lock = await holdLock(url, `LOCK TABLE ${table} IN EXCLUSIVE MODE`)
  const impatient = connected(url, { lockTimeout_ms: 1 })
  await expect(eraseContact(impatient, 'p', 'person')).rejects.toThrow('canceling statement due to lock timeout')
  await lock.release()
  expect(await rowsOf(db, 'p')).toEqual(before)
})

test('a follower of a project without erasures gets the first, whatever its position', async () => {
  await insertProject(db, 'new', '')
  const request = { path: { projectId: 'new' }, lease }
  const read = (cursor?: string) =>
    selectErasuresPage(db, { ...request, query: { limit: 10, direction: 'ASC', ...(cursor && { cursor }) } })
  const { cursor } = (await read()).continuationAfter(0)
  await sql`INSERT INTO erasures VALUES ('new', 1, 'first', 'c', '{}', now())`.execute(db)
  expect((await read(cursor)).rows).toMatchObject([{ erasure_id: 'first' }])
})

test('a project is deleted from all tables, while others are locked', async () => {
  const { p, other } = { p: await countRows(db, 'p'), other: await countRows(db, 'other') }
  expect(Object.values(p)).not.toContain(0)
  const lock = await holdProject(url, 'other')
  const impatient = connected(url, { lockTimeout_ms: 1 })
  expect(await deleteProject(impatient, 'p')).toBe(Object.values(p).reduce((sum, count) => sum + count))
  await lock.release()
  expect(new Set(Object.values(await countRows(db, 'p')))).toEqual(new Set([0]))
  expect(await countRows(db, 'other')).toEqual(other)
  expect(await deleteProject(db, 'p')).toBeUndefined()
})

test('a rewriting lets those pass who come after it, while it waits for a table', async () => {
  const another = connected(url)
  const reader = await holdLock(url, 'LOCK TABLE api_keys IN ACCESS SHARE MODE')
  onTestFinished(() => reader.release())
  const waits: string[] = []
  const rewriting = rewriteTables(db, (reason) => waits.push(reason))
  const failed = vi.fn()
  rewriting.catch(failed)
  await reader.waiting(1)
  expect(await selectKeys(another, 'p')).toHaveLength(1)
  await expect.poll(() => waits).toContain('api_keys, which a long transaction uses')
  // It tries again. Whoever is to be cancelled must wait at that moment.
  const cancelled = async () => {
    await sql`SELECT pg_cancel_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND wait_event_type = 'Lock'`.execute(another)
    expect(failed).toHaveBeenCalled()
  }
  await vi.waitFor(cancelled, { timeout: 30_000, interval: 20 })
  await expect(rewriting).rejects.toThrow('canceling statement due to user request')
})

test('a rewriting waits for those who may see the statistics that it has replaced', async () => {
  const table = await holdLock(url, 'LOCK TABLE projects IN ACCESS SHARE MODE')
  onTestFinished(() => table.release())
  const waits: string[] = []
  const rewriting = rewriteTables(db, (reason) => waits.push(reason))
  await table.waiting(1)
  // It waited for all who had begun before.
  waits.length = 0
  const reader = await holdLock(url, 'SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT FROM groups')
  onTestFinished(() => reader.release())
  const { rows } = await reader.query('SELECT pg_backend_pid() AS pid')
  await table.release()
  const seen = expect.stringMatching(
    new RegExp(`^what began before and may see erased rows: .*process ${rows[0].pid} `),
  )
  await vi.waitFor(() => expect(waits).toContainEqual(seen), { timeout: 30_000 })
  await reader.release()
  expect(await rewriting).toBe(13)
})

test('a rewriting waits for nothing where nothing may see what was deleted', async () => {
  const reader = connected((await createReader(url, db)).url)
  const snapshot = async () => {
    const { rows } = await sql<{ snapshot: string }>`SELECT pg_current_snapshot()::text AS snapshot`.execute(db)
    return rows[0]?.snapshot
  }
  /** What it waited for, if nothing was written meanwhile in any database. */
  const waits = async () => {
    const before = await snapshot()
    const reasons: string[] = []
    const rewriting = rewriteTables(reader, (reason) => reasons.push(reason))
    await expect(rewriting).rejects.toThrow('The role may not rewrite api_keys')
    return reasons.length === 0 || (await snapshot()) === before ? reasons : undefined
  }
  await expect.poll(waits, { timeout: 30_000 }).toEqual([])
})
