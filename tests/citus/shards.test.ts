import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { openWritePool } from '../../src/database/open.ts'
import type { Recorder } from '../../src/recording/recorder.ts'
import { holdTurn, parsedEvent, recordLocked, stopClock, version, watchShards } from '../recording/fixture.ts'
import { importInto } from '../support/app.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

/** So many that some share a shard, and a batch has events of all of them. */
const PROJECTS = Array.from({ length: 100 }, (_, i) => `project-${i}`)

const RECORDS = PROJECTS.flatMap((project_id) => [
  { type: 'project', project_id, name: project_id },
  { type: 'group', project_id, group_id: 'growth', name: 'Growth' },
  {
    type: 'module',
    project_id,
    module_id: 'quiz',
    group_id: 'growth',
    title: 'Quiz',
    created_at: '2026-01-01T00:00:00Z',
  },
  { ...version('quiz', 1, '2026-01-05T00:00:00Z'), project_id },
])

let database: TestDatabase
let pool: pg.Pool
beforeAll(async () => {
  database = await createTestDatabase()
  pool = openWritePool(database.url, { max: 2 })
  await importInto(database.url, RECORDS)
})
afterAll(async () => {
  await pool.end()
  await database.drop()
})

/** The projects of each batch. */
let batches: string[][]
let recorder: Recorder
beforeEach(() => {
  ;({ recorder, batches } = watchShards(pool))
})

/** Records an event in each project, which come together. @returns the projects of each batch */
async function recordInEach(): Promise<string[][]> {
  await Promise.all(PROJECTS.map((project) => recorder.record(project, parsedEvent())))
  return batches.splice(0)
}

/** The projects of each shard, in the order of the first. */
async function projectsByShard(): Promise<string[][]> {
  const { rows } = await pool.query<{ project_id: string; shard: string }>(
    `SELECT project_id, get_shard_id_for_distribution_column('projects', project_id) AS shard
     FROM unnest($1::text[]) WITH ORDINALITY AS p (project_id, n) ORDER BY n`,
    [PROJECTS],
  )
  return [...Map.groupBy(rows, ({ shard }) => shard).values()].map((ofShard) => ofShard.map((row) => row.project_id))
}

test('once their shards are known, the events of projects on one shard are a batch', async () => {
  expect(await recordInEach()).toHaveLength(PROJECTS.length)
  expect(await recordInEach()).toEqual(await projectsByShard())
})

test('a batch takes turns with those of other processes on its shard', async () => {
  stopClock()
  await recordInEach()
  const [project = ''] = PROJECTS
  await recordLocked(recorder, database.url, project)
  const { rows } = await pool.query(
    `SELECT 'projects_' || get_shard_id_for_distribution_column('projects', $1::text) AS shard`,
    [project],
  )
  const turn = await holdTurn(database.url, rows[0].shard)
  const inTurn = recorder.record(project, parsedEvent())
  await turn.waiting(1)
  await turn.release()
  expect(await inTurn).toMatchObject({ body: { project_id: project } })
})

test('all events are recorded after a shard was split, and the next batches are of the new shards', async () => {
  await recordInEach()
  const shared = (await projectsByShard()).find((projects) => projects.length > 1) as string[]
  await pool.query(
    `SELECT isolate_tenant_to_new_shard('projects', $1::text, 'CASCADE', shard_transfer_mode => 'block_writes')`,
    [shared[0]],
  )
  const after = await projectsByShard()
  expect(after).toContainEqual([shared[0]])
  await recordInEach()
  expect(await recordInEach()).toEqual(after)
})
