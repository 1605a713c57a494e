/** An import is read in chunks, sent in batches and merged in chunks of pages; no border of them may show. */
import { Readable } from 'node:stream'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { openImportPool } from '../../src/database/open.ts'
import { createPool } from '../../src/database/pool.ts'
import { asPooler } from '../../src/database/pooler-client.ts'
import { type ImportSizes, importRecords } from '../../src/transfer/import.ts'
import { mergedTable } from '../../src/transfer/merge-rules.ts'
import { stagedTable, TARGET_TABLES } from '../../src/transfer/stage.ts'
import { IN_PLACE } from '../../src/transfer/stored.ts'
import { ensureTables, filledBy } from '../../src/transfer/tables.ts'
import {
  at,
  contact,
  custom,
  dump,
  entry,
  group,
  load,
  module,
  NOW,
  openDatabase,
  project,
  version,
  view,
  watchConnection,
} from './fixture.ts'

let database: Awaited<ReturnType<typeof openDatabase>>
let pool: pg.Pool
let pipelined: pg.Pool
let pooled: pg.Pool
beforeAll(async () => {
  database = await openDatabase()
  pool = database.pool
  pipelined = openImportPool(database.url, { max: 1 })
  pooled = createPool(asPooler(database.url), { max: 1 })
})
afterAll(async () => {
  await pipelined.end()
  await pooled.end()
  await database[Symbol.asyncDispose]()
})

const COUNT = 60
/** So long that a page holds some fifteen rows with one of them, and five with three. */
const id = (name: string, i: number) => `${name}-${String(i).padStart(3, '0')}-${'🦉'.repeat(110)}`
const numbers = Array.from({ length: COUNT }, (_, i) => i)

/** Records of each kind that fill several pages of its table, with this in what can be updated. */
const records = (mark: string) => [
  project({ name: mark }),
  ...numbers.map((i) => group({ group_id: id('g', i), name: mark })),
  ...numbers.map((i) => module({ module_id: id('m', i), group_id: id('g', i), title: mark, created_at: at(0) })),
  ...numbers.flatMap((i) => [1, 2].map((number) => version(number, at(number), { module_id: id('m', i) }))),
  ...numbers.map((i) => {
    const identifiers = ['a', 'b'].map((key) => ({ key, value: JSON.stringify(id(key, i)) }))
    return contact(id('c', i), identifiers, { created_at: at(0) })
  }),
  ...numbers.map((i) => {
    const parents = { module_id: id('m', i), contact_id: id('c', i) }
    return entry({ entry_id: id('e', i), ...parents, created_at: at(0), entry_data: JSON.stringify(mark) })
  }),
  // Complete ones are merged from their lines, the others from the table of what was derived.
  ...numbers.flatMap((i) => {
    const complete = {
      module_version_number: 1,
      max_page_id: 'p',
      max_page_key: 'k',
      max_page_index: 9,
      total_pages: 9,
    }
    return [
      view(id('v', i), 1, i, { entry_id: id('e', i), total_pages: 7 }),
      view(id('w', i), 2, i + 1, { entry_id: id('e', i), ...complete }),
      custom(id('x', i), 3, { entry_id: id('e', i) }),
      custom(id('y', i), 4, { entry_id: id('e', i), ...complete }),
    ]
  }),
]
const inProject = (project_id: string, mark = 'first') => records(mark).map((record) => ({ ...record, project_id }))
/** An export with this for its project's id. */
const dumpAs = async (name: string, projectId: string) =>
  (await dump(pool, projectId)).replaceAll(`"project_id":"${projectId}"`, `"project_id":"${name}"`)

describe('the same is stored', () => {
  let expected: string
  let expectedUpdate: string
  beforeAll(async () => {
    await load(pool, inProject('whole'))
    expected = await dumpAs('p', 'whole')
    expect(expected.trimEnd().split('\n')).toHaveLength(records('').length)
    await load(pool, inProject('whole', 'second'))
    expectedUpdate = await dumpAs('p', 'whole')
    expect(expectedUpdate).not.toBe(expected)
  })

  test.each<[string, Partial<ImportSizes>]>([
    ['merged page by page', { chunk_pages: 1, small_rows: 0 }],
    ['merged two pages at a time', { chunk_pages: 2, small_rows: 0 }],
    ['merged three pages at a time', { chunk_pages: 3, small_rows: 0 }],
    ['sent row by row', { batch_characters: 1, small_rows: 0 }],
    ['sent some rows at a time', { batch_characters: 5_000, small_rows: 0 }],
    ['sent and merged in small parts', { batch_characters: 2_000, chunk_pages: 2, small_rows: 0 }],
    ['held and merged at once', { batch_characters: 1, small_rows: 1_000 }],
    ['pipelined row by row', { batch_characters: 1, small_rows: 0 }],
    ['pipelined and merged at once', { small_rows: 1_000 }],
    ['pooled row by row', { batch_characters: 1, small_rows: 0 }],
    ['pooled and merged at once', { small_rows: 1_000 }],
  ])('when it is %s, first and again', async (name, sizes) => {
    const own = name.startsWith('pipelined') ? pipelined : name.startsWith('pooled') ? pooled : pool
    const of = (mark: string) => load(own, inProject(name, mark), { now: NOW, sizes })
    const added = await of('first')
    expect(added.records).toMatchObject({
      module_version: { added: 2 * COUNT, updated: 0, unchanged: 0 },
      entry: { added: COUNT, updated: 0, unchanged: 0 },
      event: { added: 4 * COUNT, updated: 0, unchanged: 0 },
    })
    expect(await dumpAs('p', name)).toBe(expected)
    const updated = await of('second')
    expect(updated.records).toMatchObject({
      group: { added: 0, updated: COUNT, unchanged: 0 },
      module: { added: 0, updated: COUNT, unchanged: 0 },
      entry: { added: 0, updated: COUNT, unchanged: 0 },
      event: { added: 0, updated: 0, unchanged: 4 * COUNT },
    })
    expect(await dumpAs('p', name)).toBe(expectedUpdate)
  })

  test('of many projects merged page by page', async () => {
    const projects = numbers.map((i) => project({ project_id: id('p', i), name: 'n' }))
    const contacts = numbers.map((i) => ({ ...contact('c1'), project_id: id('p', i) }))
    const summary = await load(pool, [...projects, ...contacts], { now: NOW, sizes: { chunk_pages: 1, small_rows: 0 } })
    expect(summary.records).toMatchObject({ project: { added: COUNT, unchanged: 0 }, contact: { added: COUNT } })
  })
})

test('the chunks of merging are of the size that was asked for, and progress reaches every line', async () => {
  const steps = async (chunk_pages: number) => {
    const events: number[] = []
    const project_id = `steps of ${chunk_pages}`
    await importRecords(pool, Readable.from(inProject(project_id).map((record) => `${JSON.stringify(record)}\n`)), {
      now: NOW,
      sizes: { chunk_pages, small_rows: 0 },
      onProgress: ({ step, merged_lines }) => {
        if (step === 'events') events.push(merged_lines)
      },
    })
    expect(events.at(-1)).toBe(records('').length)
    return events.length
  }
  const [single, many] = [await steps(1_000), await steps(1)]
  // At the start, and after each chunk.
  expect(single).toBe(2)
  expect(many).toBeGreaterThan(10)
})

test.each([
  ['', (url: string) => url],
  [' through a pooler', asPooler],
])('one statement is sent%s at a time, so that a failure is never overlooked', async (_, as) => {
  const ownDatabase = await openDatabase()
  onTestFinished(() => ownDatabase[Symbol.asyncDispose]())
  const own = createPool(as(ownDatabase.url), { max: 1 })
  onTestFinished(() => own.end())
  const { watched } = await watchConnection(own)
  for (const mark of ['first', 'second']) {
    await load(own, records(mark), { now: NOW, sizes: { batch_characters: 1_000, chunk_pages: 1, small_rows: 0 } })
  }
  expect(watched.results.length).toBeGreaterThan(100)
  expect([watched.mostAtOnce, watched.underWay]).toEqual([1, 0])
  const results = await Promise.all(watched.results.filter((result) => result instanceof Promise))
  const target = new RegExp(`^INSERT INTO (${Object.values(TARGET_TABLES).join('|')}) `)
  const merged = results.filter((_, i) => target.test(watched.sql[i] ?? ''))
  const inserted = merged.map(({ rowCount }) => Number(rowCount))
  // So few rows fit on a page.
  expect(Math.max(...inserted)).toBeLessThan(COUNT)
})

test('lines end at LF only, wherever the input is cut: CR is white space within a record', async () => {
  const line = (record: object) => JSON.stringify(record).replaceAll(',"', ',\r"')
  const text = `${[project({ project_id: 'cr' }), { ...contact('c1'), project_id: 'cr' }].map(line).join('\r\n')}\r\n`
  for (const size of [1, 2, 3, 7, text.length]) {
    const chunks = text.match(new RegExp(`[^]{1,${size}}`, 'g')) ?? []
    const summary = await importRecords(pool, Readable.from(chunks), { now: NOW })
    expect(summary).toMatchObject({ lines: 2, records: { project: { read: 1 }, contact: { read: 1 } } })
  }
})

test('records that only CR separates are one bad line', async () => {
  const records = ['a', 'b'].map((project_id) => JSON.stringify(project({ project_id }))).join('\r')
  await expect(load(pool, [project(), records])).rejects.toThrow(/^line 2: must be one JSON object: /)
})

test.each([
  ['an import of many lines leaves fresh statistics for the planner', 0, true],
  ['an import of fewer lines does not take the time for that', 1, false],
])('%s', async (_, missing, isAnalyzed) => {
  const own = await openDatabase()
  onTestFinished(() => own[Symbol.asyncDispose]())
  await own.pool.query('ALTER TABLE events SET (autovacuum_enabled = off)')
  const other = createPool(own.url, { max: 1 })
  onTestFinished(() => other.end())
  // Connected before, so that it sees whether the import has waited for ANALYZE.
  await other.query('SELECT')
  const lines = inProject('analyzed')
  await load(own.pool, lines, { now: NOW, sizes: { analyze_from_lines: lines.length + missing } })
  const { rows } = await other.query("SELECT reltuples >= 0 AS has FROM pg_class WHERE oid = 'events'::regclass")
  expect(rows).toEqual([{ has: isAnalyzed }])
})

test('an import succeeds even if its tables cannot be analyzed', async () => {
  const analyze = vi.spyOn(pool, 'query').mockRejectedValueOnce(new Error('no time') as never)
  onTestFinished(() => analyze.mockRestore())
  const summary = await load(pool, inProject('not-analyzed'), { now: NOW, sizes: { analyze_from_lines: 1 } })
  expect(analyze).toHaveBeenCalledOnce()
  expect(summary.records.project.added).toBe(1)
})

test('lines about one entry may have more in all than PostgreSQL can allocate', async () => {
  const client = await pool.connect()
  try {
    await ensureTables(client, IN_PLACE)
    await client.query('BEGIN')
    await client.query(`INSERT INTO ${stagedTable('entry')} (line, project_id, entry_id, entry_data)
      SELECT line, 'p', 'e', repeat('x', 16000000) || line FROM generate_series(1, 70) line`)
    const { rows } = await client.query(`SELECT line, length(entry_data) AS length, right(entry_data, 3) AS end
      FROM (${filledBy(IN_PLACE).get(mergedTable('entry'))}) merged`)
    expect(rows).toEqual([{ line: 1, length: 16_000_002, end: 'x70' }])
  } finally {
    client.release(true)
  }
})
