/**
 * Batches of a distributed database (ADR 0033). Plain PostgreSQL stands in for the node that has several shards of the projects:
 * they are tables there as well, which inherit from the one that statements name.
 */
import { crc32 } from 'node:zlib'
import type pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from 'vitest'
import { openWritePool } from '../../src/database/open.ts'
import { NO_OBSERVER, type RecorderObserver } from '../../src/recording/observer.ts'
import { Recorder } from '../../src/recording/recorder.ts'
import { isOnCitus } from '../support/citus.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { holdLock, holdProject } from '../support/waiting.ts'
import { fillFixture, parsedEvent, stopClock } from './fixture.ts'

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
    batches = []
    const aroundBatch: RecorderObserver['aroundBatch'] = ({ events }, record) => {
      const queued = events as unknown as { event: { project_id: string } }[]
      batches.push([...new Set(queued.map(({ event }) => event.project_id))])
      return record()
    }
    recorder = new Recorder(
      pool,
      { isDistributed: true, turnTimeout_ms: 10_000, lockTimeout_ms: 10_000 },
      { ...NO_OBSERVER, aroundBatch },
    )
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

  /** Records an event in a project that another session has locked at first. */
  async function recordLocked(project: string): Promise<void> {
    const locked = await holdProject(database.url, project)
    onTestFinished(() => locked.release())
    const recorded = recorder.record(project, parsedEvent())
    await locked.waiting(1)
    await locked.release()
    await recorded
  }

  test('a batch is of the projects of a shard, once each has had one of its own', async () => {
    await place({ demo: 'projects_1', other: 'projects_2', third: 'projects_1' })
    expect(await batchesOfTwoInEach()).toEqual([['demo'], ['other'], ['third']])
    expect(await batchesOfTwoInEach()).toEqual([['demo', 'third'], ['other']])
  })

  test('a project that was locked has had its batch, too', async () => {
    await place({ demo: 'projects_1', other: 'projects_2', third: 'projects_1' })
    await recorder.record('third', parsedEvent())
    await recordLocked('demo')
    batches = []
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
    await recordLocked('demo')
    batches = []
    const turn = await holdLock(database.url, `SELECT pg_advisory_xact_lock(${0x666c6f77}, ${crc32('projects_1') | 0})`)
    onTestFinished(() => turn.release())
    const waiting = [record('demo')]
    await turn.waiting(1)
    waiting.push(record('third'))
    await record('other')
    await turn.release()
    await Promise.all(waiting)
    expect(batches).toEqual([['other'], ['demo', 'third']])
  })
})
