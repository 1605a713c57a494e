import { EventEmitter } from 'node:events'
import type { ServerResponse } from 'node:http'
import type { CompiledQuery } from 'kysely'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { markDistributed } from '../../src/database/distribution.ts'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { Followers } from '../../src/feed/followers.ts'
import { ReadGate } from '../../src/http/read-gate.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

let database: TestDatabase
let db: Database
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 })
})
afterAll(async () => {
  await db.destroy()
  await database.drop()
})

const FOREVER_ms = 60_000

/** A response whose client may go. */
class Response extends EventEmitter {
  destroyed = false

  leave(): void {
    this.destroyed = true
    this.emit('close')
  }
}

test('a client that goes before its wait begins does not wait', async () => {
  const followers = new Followers(db, { maxFollowers: 2 })
  const gate = new ReadGate()
  const response = new Response()
  const lease = gate.lease('p', response as unknown as ServerResponse)
  response.leave()
  expect(await lease.pause(followers.wait('events', 'p', 0, FOREVER_ms))).toBeUndefined()
  gate.close()
})

test('a wait that is over while the database is away rejects with its error', async () => {
  const nowhere = connect('postgres://flowtrail@127.0.0.1:1/flowtrail', { max: 1 })
  const followers = new Followers(nowhere, { maxFollowers: 2, pollInterval_ms: 1 })
  // In which a look-up has failed.
  const failed = () => expect(followers.wait('events', 'p', 0, 200).ended).rejects.toThrow('ECONNREFUSED')
  await vi.waitFor(failed, { timeout: 30_000 })
  await nowhere.destroy()
})

test('a wait whose time is over already ends, and Node warns of nothing', async () => {
  const emitWarning = vi.spyOn(process, 'emitWarning')
  onTestFinished(() => emitWarning.mockRestore())
  const followers = new Followers(db, { maxFollowers: 2 })
  expect(await followers.wait('events', 'p', 0, -1).ended).toBeUndefined()
  expect(emitWarning).not.toHaveBeenCalled()
})

test('a wait ends in time though a look-up does not', async () => {
  const hanging = { executeQuery: () => new Promise<never>(() => {}) } as unknown as Database
  const followers = new Followers(hanging, { maxFollowers: 2, pollInterval_ms: 1 })
  expect(await followers.wait('events', 'p', 0, 50).ended).toBeUndefined()
})

test('on a cluster, a look-up that fails or hangs concerns its own project alone', async () => {
  const executeQuery = async ({ parameters }: CompiledQuery) => {
    const project = JSON.stringify(parameters)
    if (project.includes('away')) throw new Error('the node is away')
    if (project.includes('frozen')) return new Promise<never>(() => {})
    return { rows: [{ ordinal: 1, events: 9, erasures: null }] }
  }
  const cluster = { executeQuery } as unknown as Database
  markDistributed(cluster)
  const followers = new Followers(cluster, { maxFollowers: 8, pollInterval_ms: 1 })
  const frozen = followers.wait('events', 'frozen', 0, FOREVER_ms)
  const failed = () => expect(followers.wait('events', 'away', 0, 50).ended).rejects.toThrow('the node is away')
  await vi.waitFor(failed, { timeout: 30_000 })
  expect(await followers.wait('events', 'p', 9, 60).ended).toBeUndefined()
  expect(await followers.wait('events', 'p', 0, FOREVER_ms).ended).toBe(9)
  frozen.cancel()
})

test('a wait ends at once when the followers are closed, also one that begins afterwards', async () => {
  const followers = new Followers(db, { maxFollowers: 2 })
  const waiting = followers.wait('events', 'p', 0, FOREVER_ms)
  followers.close()
  expect(await waiting.ended).toBeUndefined()
  expect(await followers.wait('events', 'p', 0, FOREVER_ms).ended).toBeUndefined()
})

test('a wait is ended by what comes in its own feed alone', async () => {
  const rows = [{ ordinal: 1, events: 9, erasures: null }]
  const executeQuery = async () => ({ rows })
  const followers = new Followers({ executeQuery } as unknown as Database, { maxFollowers: 2, pollInterval_ms: 1 })
  const forErasure = followers.wait('erasures', 'p', 0, FOREVER_ms)
  expect(await followers.wait('events', 'p', 0, FOREVER_ms).ended).toBe(9)
  forErasure.cancel()
  expect(await forErasure.ended).toBeUndefined()
})

test('nobody is asked when nobody waits', async () => {
  const executeQuery = vi.fn(async () => ({ rows: [] }))
  const followers = new Followers({ executeQuery } as unknown as Database, { maxFollowers: 2, pollInterval_ms: 1 })
  const wait = followers.wait('events', 'p', 0, FOREVER_ms)
  await expect.poll(() => executeQuery.mock.calls.length, { interval: 1 }).toBeGreaterThan(1)
  wait.cancel()
  await wait.ended
  const asked = executeQuery.mock.calls.length
  const other = followers.wait('events', 'q', 0, 20)
  other.cancel()
  await new Promise((resolve) => setTimeout(resolve, 20))
  expect(executeQuery.mock.calls.length).toBeLessThanOrEqual(asked + 1)
})

test('a slow look-up is followed by a longer rest', async () => {
  const begins_ms: number[] = []
  const ends_ms: number[] = []
  const executeQuery = async () => {
    begins_ms.push(performance.now())
    await new Promise((resolve) => setTimeout(resolve, 50))
    ends_ms.push(performance.now())
    return { rows: [] }
  }
  const followers = new Followers({ executeQuery } as unknown as Database, { maxFollowers: 2, pollInterval_ms: 1 })
  const { cancel } = followers.wait('events', 'p', 0, FOREVER_ms)
  await vi.waitFor(() => expect(begins_ms).toHaveLength(2), { timeout: 30_000 })
  cancel()
  expect((begins_ms[1] as number) - (ends_ms[0] as number)).toBeGreaterThan(150)
})

/** The projects that a statement looks up. */
const projectsOf = ([projects]: readonly unknown[]): string[] => JSON.parse(`[${String(projects).slice(1, -1)}]`)

test('the slow look-ups of a project are of their own, and the others do not rest with it', async () => {
  const statements: string[][] = []
  const executeQuery = async ({ parameters }: CompiledQuery) => {
    const projects = projectsOf(parameters)
    statements.push(projects)
    if (projects.includes('slow')) await new Promise((resolve) => setTimeout(resolve, 60))
    return { rows: [] }
  }
  const followers = new Followers({ executeQuery } as unknown as Database, { maxFollowers: 8, pollInterval_ms: 1 })
  for (const project of ['quick', 'slow', 'other']) followers.wait('events', project, 0, FOREVER_ms)
  const slow = () => statements.filter((projects) => projects.includes('slow'))
  const quick = () => statements.filter((projects) => projects.includes('quick') && projects.includes('other'))
  await vi.waitFor(() => expect(quick().length).toBeGreaterThan(20), { timeout: 30_000 })
  followers.close()
  // After the first, which nobody knows to be slow before.
  expect(new Set(slow().slice(1).flat())).toEqual(new Set(['slow']))
  expect(slow().length).toBeLessThan(quick().length / 2)
})

test('when all look-ups are slow, most are still of one statement', async () => {
  const statements: string[][] = []
  const executeQuery = async ({ parameters }: CompiledQuery) => {
    statements.push(projectsOf(parameters))
    await new Promise((resolve) => setTimeout(resolve, 60))
    return { rows: [] }
  }
  const followers = new Followers({ executeQuery } as unknown as Database, { maxFollowers: 2_000, pollInterval_ms: 1 })
  for (let i = 0; i < 1_000; i += 1) followers.wait('events', `p${i}`, 0, FOREVER_ms)
  const asked = () => statements.flat().length
  await vi.waitFor(() => expect(asked()).toBeGreaterThanOrEqual(2_000), { timeout: 30_000 })
  followers.close()
  expect(statements.length).toBeGreaterThan(33)
  expect(statements.length).toBeLessThan(500)
})

test('who comes again while a look-up is under way waits for that one', async () => {
  const executeQuery = vi.fn(() => new Promise<never>(() => {}))
  const followers = new Followers({ executeQuery } as unknown as Database, { maxFollowers: 2, pollInterval_ms: 1 })
  for (let i = 0; i < 5; i += 1) await followers.wait('events', 'p', 0, 20).ended
  expect(executeQuery).toHaveBeenCalledOnce()
  followers.close()
})

test('as many may follow as the limit says, half of them in one project', () => {
  const followers = new Followers(db, { maxFollowers: 4 })
  const leave = followers.enter('p')
  followers.enter('p')
  expect(() => followers.enter('p')).toThrow('Service unavailable')
  leave()
  followers.enter('p')
  followers.enter('q')
  followers.enter('q')
  expect(() => followers.enter('r')).toThrow('Service unavailable')
  expect(followers.count).toBe(4)
})
