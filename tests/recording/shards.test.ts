/**
 * Batches of a distributed database (ADR 0033). Plain PostgreSQL stands in for the node that has several shards of the projects:
 * they are tables there as well, which inherit from the one that statements name.
 */
import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { openWritePool } from '../../src/database/open.ts'
import type { Recorder } from '../../src/recording/recorder.ts'
import { isOnCitus } from '../support/citus.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import {
  fillFixture,
  holdTurn,
  parsedEvent,
  recorderOn,
  recordLocked,
  stopClock,
  watchShards,
  watchStatements,
} from './fixture.ts'

const PROJECTS = ['demo', 'other', 'third'] as const

describe.skipIf(isOnCitus)('where projects are on different shards', () => {
  let database: TestDatabase
  let pool: pg.Pool
  beforeAll(async () => {
    database = await createTestDatabase()
    pool = openWritePool(database.url, { max: 4 })
    await fillFixture(database.url)
    // References to a table do not find the rows of those that inherit from it.
    const { rows } = await pool.query<{ referrer: string; name: string }>(
      `SELECT conrelid::regclass AS referrer, conname AS name FROM pg_constraint WHERE confrelid = 'projects'::regclass`,
    )
    for (const { referrer, name } of rows) await pool.query(`ALTER TABLE ${referrer} DROP CONSTRAINT ${name}`)
    for (const shard of ['projects_1', 'projects_2'])
      await pool.query(`CREATE TABLE ${shard} (LIKE projects INCLUDING ALL) INHERITS (projects)`)
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

  async function place(shards: Record<(typeof PROJECTS)[number], string>): Promise<void> {
    for (const [project, shard] of Object.entries(shards)) {
      await pool.query(
        `WITH moved AS (DELETE FROM projects WHERE project_id = '${project}' RETURNING *)
         INSERT INTO ${shard} SELECT * FROM moved`,
      )
    }
  }

  /** Records two events in each project, which come together. @returns the projects of each batch */
  async function batchesOfTwoInEach(): Promise<string[][]> {
    const projects = [...PROJECTS, ...PROJECTS]
    const recorded = await Promise.all(projects.map((project) => recorder.record(project, parsedEvent())))
    expect(recorded.map(({ body }) => body.project_id)).toEqual(projects)
    return batches.splice(0)
  }

  test('a batch is of the projects of a shard, once each has had one of its own', async () => {
    await place({ demo: 'projects_1', other: 'projects_2', third: 'projects_1' })
    expect(await batchesOfTwoInEach()).toEqual([['demo'], ['other'], ['third']])
    expect(await batchesOfTwoInEach()).toEqual([['demo', 'third'], ['other']])
  })

  test('a project that was locked has had its batch, too', async () => {
    await place({ demo: 'projects_1', other: 'projects_2', third: 'projects_1' })
    await recorder.record('third', parsedEvent())
    await recordLocked(recorder, database.url, 'demo')
    batches.length = 0
    expect(await batchesOfTwoInEach()).toContainEqual(['demo', 'third'])
  })

  test('the next batches are of the new shards after some have moved', async () => {
    await place({ demo: 'projects_1', other: 'projects_1', third: 'projects_1' })
    await batchesOfTwoInEach()
    await place({ demo: 'projects_1', other: 'projects_2', third: 'projects_2' })
    expect(await batchesOfTwoInEach()).toEqual([['demo', 'other', 'third']])
    expect(await batchesOfTwoInEach()).toEqual([['demo'], ['other', 'third']])
  })

  test('batches take turns with those of their shard that other processes record, and no others', async () => {
    stopClock()
    await place({ demo: 'projects_1', other: 'projects_2', third: 'projects_1' })
    await batchesOfTwoInEach()
    const record = (project: string) => recorder.record(project, parsedEvent())
    await recordLocked(recorder, database.url, 'demo')
    batches.length = 0
    const turn = await holdTurn(database.url, 'projects_1')
    const waiting = [record('demo')]
    await turn.waiting(1)
    waiting.push(record('third'))
    await record('other')
    await turn.release()
    await Promise.all(waiting)
    expect(batches).toEqual([['other'], ['demo', 'third']])
  })

  test('a batch is set up on all nodes, with the lock timeout where it waits for a lock', async () => {
    const settings = ["SET LOCAL citus.propagate_set_commands = 'local'", "SET LOCAL synchronous_commit = 'on'"]
    const { texts } = watchStatements()
    const sentSettings = () => texts().filter((statement) => statement.startsWith('SET LOCAL'))
    await recorder.record('demo', parsedEvent())
    expect(sentSettings()).toEqual(settings)
    await recordLocked(recorder, database.url, 'demo')
    const withTimeout = [...settings, "SET LOCAL lock_timeout = '10000ms'"]
    expect(sentSettings()).toEqual([...settings, ...settings, ...withTimeout])
  })

  test('a batch reads from its shard alone only where the database is distributed', async () => {
    const shardOf = /"project_id" = any\(\$\d+::text\[\]\)/
    const reads = async (on: Recorder) => {
      const { texts } = watchStatements()
      await on.record('demo', parsedEvent())
      return texts().filter((statement) => /^select "input"/.test(statement))
    }
    const [distributed, plain] = [await reads(recorder), await reads(recorderOn(pool))]
    expect(distributed).toHaveLength(3)
    expect(plain).toHaveLength(3)
    for (const statement of distributed) expect(statement).toMatch(shardOf)
    for (const statement of plain) expect(statement).not.toMatch(shardOf)
  })
})
