import type { Writable } from 'node:stream'
import { finished } from 'node:stream/promises'
import type pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { openImportPool } from '../../src/database/open.ts'
import { beginLongTransaction, NO_TIMEOUTS } from '../../src/transfer/client.ts'
import type { ContactRecord, ImportRecord } from '../../src/transfer/records.ts'
import { Stage, stagedTable } from '../../src/transfer/stage.ts'
import { IN_PLACE } from '../../src/transfer/stored.ts'
import { ensureTables } from '../../src/transfer/tables.ts'
import { openDatabase, project, version, type WatchedQueries, watchQueries } from './fixture.ts'

let database: Awaited<ReturnType<typeof openDatabase>>
beforeAll(async () => {
  database = await openDatabase()
})
afterAll(() => database[Symbol.asyncDispose]())

let client: pg.PoolClient
beforeEach(async () => {
  client = await database.pool.connect()
})
afterEach(() => client.release(true))

describe('a long transaction', () => {
  test('has no timeouts, and memory to sort', async () => {
    for (const name of ['statement_timeout', 'idle_in_transaction_session_timeout'])
      await client.query(`SET ${name} = 99`)
    await client.query('SET jit = on')
    await beginLongTransaction(client, 'REPEATABLE READ')
    const names = [
      'transaction_isolation',
      'statement_timeout',
      'idle_in_transaction_session_timeout',
      'jit',
      'work_mem',
      'default_statistics_target',
    ]
    const { rows } = await client.query(`SELECT ${names.map((name) => `current_setting('${name}') AS ${name}`)}`)
    expect(rows).toEqual([
      {
        transaction_isolation: 'repeatable read',
        statement_timeout: '0',
        idle_in_transaction_session_timeout: '0',
        jit: 'off',
        work_mem: '64MB',
        default_statistics_target: '10',
      },
    ])
    await client.query('ROLLBACK')
    expect((await client.query('SHOW statement_timeout')).rows).toEqual([{ statement_timeout: '99ms' }])
  })

  test('fails when it cannot begin', async () => {
    await expect(beginLongTransaction(client, 'NO SUCH LEVEL')).rejects.toThrow('syntax error')
  })

  test('begins in one round trip in pipeline mode, and its settings end with it', async () => {
    const pool = openImportPool(database.url, { max: 1 })
    onTestFinished(() => pool.end())
    const pipelined = await pool.connect()
    onTestFinished(() => pipelined.release(true))
    const begin = watchQueries(pipelined)
    await beginLongTransaction(pipelined, 'READ COMMITTED', NO_TIMEOUTS, { enable_seqscan: 'off' })
    expect([begin.mostAtOnce, begin.underWay]).toEqual([2, 0])
    expect((await pipelined.query('SHOW enable_seqscan')).rows).toEqual([{ enable_seqscan: 'off' }])
    await pipelined.query('COMMIT')
    expect((await pipelined.query('SHOW enable_seqscan')).rows).toEqual([{ enable_seqscan: 'on' }])
    vi.restoreAllMocks()

    const one = watchQueries(client)
    await beginLongTransaction(client, 'READ COMMITTED')
    expect([one.mostAtOnce, one.sql.length]).toEqual([1, 2])
    vi.restoreAllMocks()
    await expect(beginLongTransaction(pipelined, 'NO SUCH LEVEL')).rejects.toThrow('syntax error')
  })
})

test('the tables of imports are created once on a connection, and are there when that is done', async () => {
  onTestFinished(() => void vi.restoreAllMocks())
  const watched = watchQueries(client)
  await ensureTables(client, IN_PLACE)
  expect(watched).toMatchObject({ underWay: 0, sql: [expect.stringContaining('CREATE TEMPORARY TABLE')] })
  await ensureTables(client, IN_PLACE)
  expect(watched.sql).toHaveLength(1)
})

describe('a stage', () => {
  const record = (line: object) => line as ImportRecord
  const projectRow = record(project({ name: 'Acme' }))
  /** The characters of its line. */
  const LENGTH = 10
  const refused = record(version(2 ** 40))

  let watched: WatchedQueries
  beforeEach(async () => {
    await ensureTables(client, IN_PLACE)
    await client.query('BEGIN')
  })
  afterEach(() => vi.restoreAllMocks())

  const open = async (batch_characters: number) => {
    const stage = new Stage(async () => client, batch_characters)
    watched = watchQueries(client)
    return stage
  }
  const stored = async (kind: 'project' | 'identifier' | 'contact') =>
    (await client.query(`SELECT count(*)::integer AS rows FROM ${stagedTable(kind)}`)).rows[0].rows

  test('sends a batch once it is full', async () => {
    const stage = await open(2 * LENGTH)
    expect(stage.add(projectRow, 1, LENGTH)).toBeUndefined()
    expect(watched.results).toHaveLength(0)
    await stage.add(projectRow, 2, LENGTH)
    expect(watched.results).toHaveLength(1)
    expect(stage.add(projectRow, 3, LENGTH)).toBeUndefined()
    await stage.finish()
    expect(watched.results).toHaveLength(2)
    expect(await stored('project')).toBe(3)
    expect(stage.counts.project).toBe(3)
  })

  test('sends the identifiers of contacts as they come', async () => {
    const stage = await open(200)
    const contact = record({
      type: 'contact',
      project_id: 'acme',
      contact_id: 'c1',
      identifiers: [{ key: 'k'.repeat(128), value: '"a"', canonical: 'sa' }] satisfies ContactRecord['identifiers'],
    })
    await stage.add(contact, 1, 200)
    expect(watched.results).toHaveLength(1)
    await finished(watched.results[0] as Writable)
    expect([await stored('identifier'), await stored('contact')]).toEqual([1, 0])
    await stage.finish()
    expect([await stored('identifier'), await stored('contact')]).toEqual([1, 1])
  })

  test('counts the characters of a line once, however many identifiers it has', async () => {
    const stage = await open(201)
    const identifiers = ['1', '2', '3'].map((value) => ({ key: 'k', value, canonical: `n${value}e0` }))
    const contact = record({ type: 'contact', project_id: 'acme', contact_id: 'c1', identifiers })
    expect(stage.add(contact, 1, 200)).toBeUndefined()
    expect(watched.results).toHaveLength(0)
    await stage.finish()
    expect(await stored('identifier')).toBe(3)
  })

  test('runs one COPY at a time, and has finished when all rows are stored', async () => {
    const stage = await open(1)
    for (let line = 1; line <= 5; line += 1) await stage.add(projectRow, line, LENGTH)
    expect(watched.underWay).toBe(1)
    await stage.finish()
    expect([watched.results.length, watched.mostAtOnce, watched.underWay]).toEqual([5, 1, 0])
  })

  test.each([
    ['as many rows as may be held', 2, LENGTH, 2],
    ['lines of a MiB', 100, 524_288, 2],
  ])('holds %s, whatever fills a batch, and sends them with the next', async (_, heldRows, characters, count) => {
    const stage = new Stage(async () => client, 1, heldRows)
    watched = watchQueries(client)
    for (let line = 1; line <= count; line += 1) expect(stage.add(projectRow, line, characters)).toBeUndefined()
    expect(stage.held?.project.map(({ line }) => line)).toEqual([1, 2])
    await stage.add(projectRow, count + 1, characters)
    expect(stage.held).toBeUndefined()
    expect(watched.results).toHaveLength(1)
    await stage.finish()
    expect(await stored('project')).toBe(count + 1)
  })

  test('sends the kinds that remain one after another', async () => {
    const stage = await open(2 * LENGTH)
    for (const line of [1, 2, 3]) await stage.add(projectRow, line, LENGTH)
    stage.add(record(version(1)), 4, LENGTH)
    await stage.finish()
    expect([watched.results.length, watched.mostAtOnce, watched.underWay]).toEqual([3, 1, 0])
  })

  test('fails with the next batch, or at the end, when PostgreSQL refuses a row', async () => {
    const stage = await open(1)
    await stage.add(refused, 1, LENGTH)
    // It fails while nobody waits for it.
    await expect(finished(watched.results[0] as Writable)).rejects.toThrow('out of range')
    await new Promise(setImmediate)
    await expect(stage.add(projectRow, 2, LENGTH)).rejects.toThrow('out of range')
    await expect(stage.finish()).rejects.toThrow('out of range')
  })

  test('of pipeline mode has finished when all rows are stored, or fails', async () => {
    const pool = openImportPool(database.url, { max: 1 })
    onTestFinished(() => pool.end())
    const pipelined = await pool.connect()
    onTestFinished(() => pipelined.release(true))
    await ensureTables(pipelined, IN_PLACE)
    await pipelined.query('BEGIN')
    const stage = new Stage(async () => pipelined, 1_000)
    watched = watchQueries(pipelined)
    stage.add(projectRow, 1, LENGTH)
    stage.add(record(version(1)), 2, LENGTH)
    await stage.finish()
    expect([watched.results.length, watched.mostAtOnce, watched.underWay]).toEqual([2, 2, 0])
    stage.add(refused, 3, LENGTH)
    await expect(stage.finish()).rejects.toThrow('out of range')
  })

  test('fails at the end when PostgreSQL refuses the last batch', async () => {
    const stage = await open(1_000)
    stage.add(refused, 1, LENGTH)
    await expect(stage.finish()).rejects.toThrow('out of range')
  })
})
