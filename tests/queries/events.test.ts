import { sql } from 'kysely'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { findLastPositions, selectFeedPage, selectNextPositions } from '../../src/queries/events.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { UNLIMITED as lease } from '../support/lease.ts'
import { storeFullProject } from './full-project.ts'

/** Far ahead of the clock. */
const FAR = 9_000_000_000_000_000

let database: TestDatabase
let db: Database
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url)
  // The greatest position is neither that of the first row of a table nor that of the last.
  await store('p', [FAR + 2, FAR + 3, FAR + 1], [5, 6, 4])
  await store('q', [2, 3, 1], [FAR + 5, FAR + 6, FAR + 4])
  await store('empty', [], [])
})
afterAll(async () => {
  await db.destroy()
  await database.drop()
})

/** Stores a project with events and erasures at these positions, which are also their ids. */
async function store(projectId: string, events: number[], erasures: number[]): Promise<void> {
  await storeFullProject(database.url, db, projectId)
  for (const table of ['idempotency_keys', 'events', 'erasures']) {
    await sql`DELETE FROM ${sql.table(table)} WHERE project_id = ${projectId}`.execute(db)
  }
  for (const position of events) await insertEvent(projectId, position)
  for (const position of erasures) {
    await sql`INSERT INTO erasures VALUES (${projectId}, ${position}, ${String(position)}, 'c', '{}', now())`.execute(
      db,
    )
  }
}

const insertEvent = (projectId: string, position: number) =>
  sql`INSERT INTO events
      (project_id, event_id, entry_id, timestamp, module_version_number, event_type, position, recorded_at)
    VALUES (${projectId}, ${String(position)}, 'e1', now(), 1, 'e', ${position}, now())`.execute(db)

test('the last positions of a project are the greatest of its events and of its erasures', async () => {
  const found = ['p', 'empty', 'q', 'none'].map((projectId) => findLastPositions(db, projectId))
  expect(await Promise.all(found)).toEqual([
    { events: FAR + 3, erasures: 6 },
    { events: null, erasures: null },
    { events: 3, erasures: FAR + 6 },
    { events: null, erasures: null },
  ])
})

test('the next position of a project follows its last event, its last erasure and the clock', async () => {
  const before_us = Date.now() * 1000
  const positions = await selectNextPositions(db, ['p', 'empty', 'q'])
  expect(positions).toEqual([
    { project_id: 'p', position: FAR + 4 },
    { project_id: 'empty', position: expect.any(Number) },
    { project_id: 'q', position: FAR + 7 },
  ])
  expect(Math.abs((positions[1]?.position ?? 0) - before_us)).toBeLessThan(60_000_000)
})

test('a follower of a project without events gets the first, whatever its position', async () => {
  const read = (cursor?: string) =>
    selectFeedPage(db, {
      ...{ path: { projectId: 'empty' }, lease },
      query: { limit: 10, direction: 'ASC', ...(cursor && { cursor }) },
    })
  const { cursor } = (await read()).continuationAfter(0)
  await insertEvent('empty', 1)
  expect((await read(cursor)).rows).toMatchObject([{ event_id: '1' }])
})
