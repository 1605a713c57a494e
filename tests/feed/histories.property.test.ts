import fc from 'fast-check'
import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect, openWritePool } from '../../src/database/open.ts'
import { createPool, type Database } from '../../src/database/pool.ts'
import { selectFeedPage } from '../../src/queries/events.ts'
import { Recorder } from '../../src/recording/recorder.ts'
import { parsedEvent } from '../recording/fixture.ts'
import { EXAMPLES, importFile } from '../support/app.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { UNLIMITED } from '../support/lease.ts'
import { runs, TEST_OPTIONS } from '../support/properties.ts'
import { load } from '../transfer/fixture.ts'

/** What one of several writers does at the same time as the others. */
type Step =
  | { kind: 'record'; process: 0 | 1; events: number }
  | { kind: 'import'; events: number }
  /** A transaction that takes positions and is rolled back. */
  | { kind: 'abort' }

const count = fc.integer({ min: 1, max: 6 })
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constant('record' as const), process: fc.constantFrom(0, 1), events: count }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('import' as const), events: count }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('abort' as const) }) },
)

let database: TestDatabase
let db: Database
let pool: pg.Pool
let writePools: pg.Pool[]
let recorders: Recorder[]
beforeAll(async () => {
  database = await createTestDatabase()
  await importFile(database.url, EXAMPLES)
  db = connect(database.url, { max: 2 })
  pool = createPool(database.url)
  // Two processes share no memory, and neither do two recorders.
  writePools = [0, 1].map(() => openWritePool(database.url, { max: 2 }))
  recorders = writePools.map((own) => new Recorder(own))
})
afterAll(async () => {
  await Promise.all([db.destroy(), pool.end(), ...writePools.map((own) => own.end())])
  await database.drop()
})

let names = 0
const identifiers = [{ key: 'email', value: '"amara.okafor@example.com"' }]
const module_id = 'skin-quiz'

/** A transaction that has taken a position and is rolled back. */
const ABORTED = `
  BEGIN;
  SELECT FROM projects WHERE project_id = 'demo' FOR NO KEY UPDATE;
  INSERT INTO events SELECT (e).* FROM (
    SELECT jsonb_populate_record(e, jsonb_build_object('event_id', 'aborted', 'position', e.position + 5)) AS e
    FROM events e WHERE project_id = 'demo' ORDER BY position DESC LIMIT 1
  ) newest;
  ROLLBACK`

/** Resolves to the names of the events that are committed. */
async function take(step: Step): Promise<string[]> {
  if (step.kind === 'abort') {
    const client = await pool.connect()
    await client.query(ABORTED)
    client.release()
    return []
  }
  const taken = Array.from({ length: step.events }, () => `e${names++}`)
  if (step.kind === 'record') {
    const recorder = recorders[step.process] as Recorder
    await Promise.all(
      taken.map((custom_event_name) =>
        recorder.record('demo', parsedEvent({ module_id, identifiers, custom_event_name })),
      ),
    )
    return taken
  }
  const entry_id = '019ca8bb-b5c0-7000-8000-000000000001'
  await load(
    pool,
    taken.map((name) => ({
      ...{ type: 'event', project_id: 'demo', entry_id, event_id: name, timestamp: '2026-03-01T09:31:50Z' },
      ...{ event_type: 'custom_event:triggered', custom_event_name: name, custom_event_props: '{}' },
    })),
    {},
  )
  return taken
}

const page = (after: number) =>
  selectFeedPage(
    db,
    { path: { projectId: 'demo' }, query: { limit: 4, direction: 'ASC', wait: 0 }, lease: UNLIMITED },
    [after],
  )

test('a follower sees every event once, in order, and no gap is filled later', TEST_OPTIONS, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 2, maxLength: 8 }), async (steps) => {
      const { rows: start } = await pool.query("SELECT max(position) AS position FROM events WHERE project_id = 'demo'")
      let isWriting = true
      const writing = Promise.all(steps.map(take)).finally(() => {
        isWriting = false
      })
      const seen: { name: string | null; position: number }[] = []
      let position = start[0].position as number
      for (let isLast = false; !isLast; ) {
        // What is committed before the last page was asked for is on it.
        isLast = !isWriting
        const { rows } = await page(position)
        for (const row of rows) seen.push({ name: row.custom_event_name, position: row.position })
        position = rows.at(-1)?.position ?? position
        if (rows.length > 0) isLast = false
      }
      const committed = (await writing).flat()
      expect(seen.map(({ name }) => name).toSorted()).toEqual(committed.toSorted())
      const positions = seen.map((event) => event.position)
      expect(positions).toEqual(positions.toSorted((a, b) => a - b))
      expect(new Set(positions).size).toBe(positions.length)
    }),
    runs(30),
  )
})
