import { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { CUSTOM_EVENT } from '../../src/domain/event.ts'
import { NO_TIMEOUTS } from '../../src/transfer/client.ts'
import { type ImportError, type ImportProgress, importRecords } from '../../src/transfer/import.ts'
import { isOnCitus } from '../support/citus.ts'
import { holdLock } from '../support/waiting.ts'
import {
  at,
  BASE,
  contact,
  custom,
  dump,
  dumped,
  entry,
  group,
  load,
  module,
  NOW,
  openDatabase,
  project,
  toLines,
  version,
  view,
  watchQueries,
} from './fixture.ts'

let database: Awaited<ReturnType<typeof openDatabase>>
let pool: pg.Pool
beforeAll(async () => {
  database = await openDatabase()
  pool = database.pool
})
afterAll(() => database[Symbol.asyncDispose]())

/** Functions on a project of the test's own: the project_id of the records is replaced. */
function inProject(project_id: string) {
  const own = (lines: object[]) => lines.map((line) => ({ ...line, project_id }))
  return {
    load: (...lines: object[]) => load(pool, own(lines)),
    fail: (...lines: object[]) => load(pool, own(lines)).then(unexpected, (error: ImportError) => error.message),
    dump: () => dump(pool, project_id),
    of: (type: string) => dumped(pool, type, project_id),
  }
}
const unexpected = () => {
  throw new Error('the import should have failed')
}

describe('a first import', () => {
  test('adds every record, with defaults for what is left out', async () => {
    const { load, of } = inProject('first')
    const summary = await load(...BASE, view('v1', 1, 0), contact('c2', [{ key: 'email', value: '"a"' }]))
    const added = (count: number) => ({ read: count, added: count, updated: 0, unchanged: 0 })
    expect(summary).toEqual({
      lines: 8,
      records: {
        project: added(1),
        group: added(1),
        module: added(1),
        module_version: added(1),
        contact: added(2),
        entry: added(1),
        event: added(1),
      },
      duplicate_lines: 0,
      identifiers_added: 1,
      type_mismatches: [],
    })
    expect(await of('project')).toEqual([{ type: 'project', project_id: 'first', name: 'first' }])
    expect(await of('group')).toMatchObject([{ name: 'g1' }])
    expect(await of('module')).toMatchObject([{ created_at: NOW.toISOString() }])
    expect(await of('entry')).toMatchObject([{ created_at: NOW.toISOString(), entry_data: '{}' }])
  })

  test('uses the current time unless it is given one', async () => {
    const before = new Date().toISOString()
    await importRecords(
      pool,
      Readable.from([toLines([project({ project_id: 'clock' }), contact()]).replaceAll('acme', 'clock')]),
    )
    const [stored] = await dumped(pool, 'contact', 'clock')
    expect([before, stored?.created_at, new Date().toISOString()].sort()[1]).toBe(stored?.created_at)
  })

  test('accepts text in arbitrary chunks, types in any order, and several projects', async () => {
    const lines = [
      ...BASE.map((line) => ({ ...line, project_id: 'mixed-a' })),
      ...BASE.map((line) => ({ ...line, project_id: 'mixed-b' })),
      { ...view('v1', 1, 0), project_id: 'mixed-b' },
      { ...contact('c2'), project_id: 'mixed-a' },
      { ...view('v1', 1, 4), project_id: 'mixed-a' },
    ]
    const text = toLines(lines)
    const summary = await importRecords(pool, Readable.from(text.match(/.{1,7}/gs) ?? []), { now: NOW })
    expect(summary.lines).toBe(15)
    expect(await dumped(pool, 'event', 'mixed-a')).toMatchObject([{ page_index: 4 }])
    expect(await dumped(pool, 'event', 'mixed-b')).toMatchObject([{ page_index: 0 }])
  })

  test('of an empty file does nothing', async () => {
    expect(await load(pool, [])).toMatchObject({ lines: 0, duplicate_lines: 0 })
  })

  test.each([
    ['progress', 0, ['deduplicating']],
    ['progress of few', 300, isOnCitus ? ['deduplicating'] : []],
  ])('reports its %s', async (project_id, small_rows, more) => {
    const seen: string[] = []
    let merged = 0
    const lines = BASE.map((line) => ({ ...line, project_id }))
    const onProgress = ({ phase, step, merged_lines }: ImportProgress) => {
      seen.push(step ?? phase)
      expect(merged_lines).toBeGreaterThanOrEqual(merged)
      merged = merged_lines
    }
    await load(pool, lines, { now: NOW, onProgress, sizes: { small_rows } })
    expect(merged).toBe(lines.length)
    expect(new Set(seen)).toEqual(
      new Set([
        'reading',
        ...more,
        'locking projects',
        'checking',
        'projects',
        'groups',
        'modules',
        'module_versions',
        'contacts',
        'entries',
      ]),
    )
  })
})

test('reports the bytes and lines that it has read', async () => {
  const seen: ImportProgress[] = []
  const lines = BASE.map((line) => ({ ...line, project_id: 'bytes' }))
  const chunks = toLines(lines).match(/.{1,400}/gs) ?? []
  await importRecords(pool, Readable.from(chunks), { now: NOW, onProgress: (progress) => seen.push(progress) })
  const reading = seen.filter(({ phase }) => phase === 'reading')
  const bytes = chunks.map((_, i) => Buffer.byteLength(chunks.slice(0, i + 1).join('')))
  // Once more at the end, for a line without a line break.
  expect(reading.map((progress) => progress.bytes)).toEqual([...bytes, bytes.at(-1)])
  expect(new Set(reading.map(({ merged_lines }) => merged_lines))).toEqual(new Set([0]))
  expect(reading.at(-1)?.lines).toBe(lines.length)
  expect(seen.at(-1)).toMatchObject({ phase: 'merging', bytes: bytes.at(-1), lines: lines.length })
})

test('waits for its input for any time, but keeps projects locked no longer than a minute without a word', async () => {
  const watched = new Map<pg.PoolClient, string[]>()
  const watch = (client: pg.PoolClient) => {
    if (!watched.has(client)) watched.set(client, watchQueries(client).sql)
  }
  pool.on('acquire', watch)
  onTestFinished(() => {
    pool.off('acquire', watch)
    vi.restoreAllMocks()
  })
  const LIMIT = 'SET LOCAL idle_in_transaction_session_timeout = 60000'
  const statements = () => [...watched.values()].flat()
  await load(pool, [project({ project_id: 'idle' }), group({ project_id: 'idle' })])
  const at = statements().indexOf(LIMIT)
  expect(at).toBeGreaterThan(statements().findIndex((text) => text.startsWith('BEGIN')))
  expect(at).toBeLessThan(statements().findIndex((text) => text.includes('FOR NO KEY UPDATE')))
  // That of an import over HTTP is limited from its beginning on.
  await load(pool, [group({ project_id: 'idle' })], { timeouts: { ...NO_TIMEOUTS, statement_timeout: 60_000 } })
  expect(statements().filter((text) => text === LIMIT)).toHaveLength(1)
})

describe('importing again', () => {
  test('changes nothing, including events without id, and counts identical lines once', async () => {
    const { load, dump } = inProject('again')
    const lines = [...BASE, custom(undefined, 5), view('v1', 1, 0), custom(undefined, 5)]
    expect(await load(...lines)).toMatchObject({
      duplicate_lines: 1,
      records: { event: { read: 3, added: 2, unchanged: 0 } },
    })
    const first = await dump()
    expect(await load(...lines)).toMatchObject({
      duplicate_lines: 1,
      records: { project: { unchanged: 1 }, event: { read: 3, added: 0, updated: 0, unchanged: 2 } },
    })
    expect(await dump()).toBe(first)
  })

  test('keeps what is left out and updates what is given', async () => {
    const { load, of } = inProject('optional')
    await load(project({ name: 'Acme' }), group({ name: 'Growth' }), ...BASE.slice(2, 5))
    await load(entry({ created_at: at(1), entry_data: '{"a":1}' }))
    const summary = await load(project(), group({ name: 'Sales' }), entry({ updated_at: at(9) }), contact())
    expect(summary.records).toMatchObject({
      project: { updated: 0, unchanged: 1 },
      group: { updated: 1 },
      entry: { updated: 1 },
      contact: { unchanged: 1 },
    })
    expect(await of('project')).toMatchObject([{ name: 'Acme' }])
    expect(await of('group')).toMatchObject([{ name: 'Sales' }])
    expect(await of('entry')).toMatchObject([{ created_at: at(1), updated_at: at(9), entry_data: '{"a":1}' }])
  })

  test.each([0, 300])('uses the last value given of each field in a file: small_rows %i', async (small_rows) => {
    const project_id = `twice-${small_rows}`
    const { of } = inProject(project_id)
    // Line numbers of one and two digits: as text, 9 comes after 18.
    const entries = Array.from({ length: 12 }, (_, i) => entry({ entry_data: String(i), updated_at: at(i) }))
    const groups = ['One', 'Two', undefined].map((name) => group({ name }))
    const lines = [...BASE, ...entries, entry({ updated_at: at(3) }), ...groups]
    const summary = await load(
      pool,
      lines.map((line) => ({ ...line, project_id })),
      { now: NOW, sizes: { small_rows } },
    )
    expect(summary).toMatchObject({ duplicate_lines: 16, records: { entry: { read: 14, added: 1, updated: 0 } } })
    expect(await of('entry')).toMatchObject([{ entry_data: '11', updated_at: at(3) }])
    expect(await of('group')).toMatchObject([{ name: 'Two' }])
  })

  test('publishes a saved version, once', async () => {
    const { load, fail, of } = inProject('publish')
    await load(...BASE, version(2))
    expect(await load(version(2, at(1)))).toMatchObject({ records: { module_version: { updated: 1 } } })
    expect(await load(version(2))).toMatchObject({ records: { module_version: { updated: 0, unchanged: 1 } } })
    expect(await of('module_version')).toMatchObject([
      { version_number: 1 },
      { version_number: 2, published_at: at(1) },
    ])
    expect(await fail(version(2, at(2)))).toMatch(/^line 1: \/published_at: .* a saved version cannot change$/)
  })

  test('only adds identifiers and keeps the first spelling', async () => {
    const { load, of } = inProject('identifiers')
    await load(project(), contact('c1', [{ key: 'n', value: '1.0' }]))
    const summary = await load(
      contact('c1', [
        { key: 'n', value: '2' },
        { key: 'n', value: '1' },
        { key: 'n', value: '2e0' },
      ]),
    )
    expect(summary.identifiers_added).toBe(1)
    await load(contact('c1'))
    expect(await of('contact')).toMatchObject([
      {
        identifiers: [
          { key: 'n', value: '1.0' },
          { key: 'n', value: '2' },
        ],
      },
    ])
  })

  test('keeps the spelling on the first line of a file', async () => {
    const { load, of } = inProject('spelling')
    await load(
      project(),
      contact('c1', [
        { key: 'm', value: '1' },
        { key: 'n', value: '3' },
      ]),
      contact('c1', [{ key: 'n', value: '3.0' }]),
    )
    expect(await of('contact')).toMatchObject([{ identifiers: [{ value: '1' }, { value: '3' }] }])
  })

  test('has no limit of identifiers, unlike a post', async () => {
    const { load, of } = inProject('many-identifiers')
    const identifiers = Array.from({ length: 30 }, (_, i) => ({ key: 'phone', value: JSON.stringify(String(100 + i)) }))
    expect(await load(project(), contact('c1', identifiers))).toMatchObject({ identifiers_added: 30 })
    expect(await of('contact')).toMatchObject([{ identifiers }])
  })

  test('of a new project waits for another import of it, and sees what that has stored', async () => {
    const { load } = inProject('new-twice')
    // It stops the first one after it has inserted the project.
    const obstacle = await holdLock(database.url, 'LOCK TABLE groups IN SHARE MODE')
    const first = load(project(), group())
    await obstacle.waiting(1)
    const second = load(project(), group())
    await obstacle.waiting(2)
    await obstacle.release()
    expect((await first).records).toMatchObject({ project: { added: 1 }, group: { added: 1 } })
    expect((await second).records).toMatchObject({ project: { unchanged: 1 }, group: { unchanged: 1 } })
  })

  test('of one file twice at the same time loads it once', async () => {
    const { load, dump } = inProject('at-once')
    const lines = [...BASE, ...Array.from({ length: 300 }, (_, i) => view(`v${i}`, i, i % 7))]
    const both = await Promise.all([load(...lines), load(...lines)])
    expect(both.map(({ records }) => records.event.added).sort()).toEqual([0, 300])
    expect(both.map(({ records }) => records.project.added).sort()).toEqual([0, 1])
    expect((await dump()).trimEnd().split('\n')).toHaveLength(306)
  })

  test('waits for a writer that holds the project, and sees what it wrote', async () => {
    const { load, fail } = inProject('locked')
    await load(...BASE)
    const writer = await holdLock(database.url, "SELECT FROM projects WHERE project_id = 'locked' FOR NO KEY UPDATE")
    try {
      const failing = fail(contact('c2', [{ key: 'email', value: '"a"' }]))
      await writer.waiting(1)
      await writer.query(`INSERT INTO contact_identifiers
        VALUES ('locked', sha256(convert_to('email', 'UTF8') || '\\x00' || convert_to('sa', 'UTF8')), 'c1', 'email', '"a"')`)
      await writer.query('COMMIT')
      expect(await failing).toMatch(/^line 1: \/identifiers\/0: /)
    } finally {
      await writer.release()
    }
  })
})

describe('an event', () => {
  const of = async (project_id: string) =>
    new Map((await dumped(pool, 'event', project_id)).map((event) => [event.event_id, event]))

  test('gets the version in effect, or keeps the one given', async () => {
    const { load } = inProject('in-effect')
    const versions = [
      version(1, at(10)),
      version(2, at(20)),
      version(3, at(20)),
      version(4),
      version(5, at(15)),
      version(6, at(10)),
    ]
    const events = [1, 10, 14, 15, 19, 20, 99].map((second) => custom(`at-${second}`, second))
    await load(
      ...BASE.slice(0, 3),
      ...versions,
      ...BASE.slice(4),
      ...events,
      custom('given', 99, { module_version_number: 4 }),
    )
    const stored = await of('in-effect')
    expect([...stored].map(([id, event]) => [id, event.module_version_number])).toEqual([
      ['at-1', 6],
      ['at-10', 6],
      ['at-14', 6],
      ['at-15', 5],
      ['at-19', 5],
      ['at-20', 3],
      ['at-99', 3],
      ['given', 4],
    ])
  })

  test('gets the furthest page of the views so far, whether stored or on any line of the file', async () => {
    const { load } = inProject('furthest')
    await load(...BASE, view('a', 10, 2, { total_pages: 7 }))
    await load(
      custom('z-before', 9),
      custom('z-at', 10),
      custom('z-late', 60),
      view('d', 40, 1, { total_pages: 9 }),
      view('c', 30, 5),
      view('e', 50, 5, { page_id: 'other', total_pages: null }),
      view('b', 20, 1),
      custom('z-c', 30),
      custom('z-given', 60, { max_page_id: null, max_page_key: null, max_page_index: null, total_pages: 3 }),
    )
    const stored = await of('furthest')
    const pages = (id: string) => {
      const event = stored.get(id)
      return [event?.max_page_id, event?.max_page_key, event?.max_page_index, event?.total_pages]
    }
    expect(pages('z-before')).toEqual([null, null, null, null])
    expect(pages('z-at')).toEqual(['p2', 'k2', 2, 7])
    expect(pages('b')).toEqual(['p2', 'k2', 2, 7])
    expect(pages('c')).toEqual(['p5', 'k5', 5, 7])
    expect(pages('z-c')).toEqual(['p5', 'k5', 5, 7])
    expect(pages('d')).toEqual(['p5', 'k5', 5, 9])
    expect(pages('e')).toEqual(['p5', 'k5', 5, null])
    expect(pages('z-late')).toEqual(['p5', 'k5', 5, null])
    expect(pages('z-given')).toEqual([null, null, null, 3])
  })

  test('is stored as given if nothing is left out, and counts for those that leave something out', async () => {
    const { load } = inProject('complete')
    const complete = {
      module_version_number: 1,
      max_page_id: 'x',
      max_page_key: 'y',
      max_page_index: 8,
      total_pages: 9,
    }
    const lines = [custom('given', 5, complete), view('view', 5, 3, complete), custom('derived', 6)]
    expect(await load(...BASE, ...lines, ...lines)).toMatchObject({
      duplicate_lines: 3,
      records: { event: { read: 6, added: 3, unchanged: 0 } },
    })
    expect(await load(...lines)).toMatchObject({ records: { event: { added: 0, unchanged: 3 } } })
    const stored = await of('complete')
    expect(stored.get('given')).toMatchObject(complete)
    expect(stored.get('view')).toMatchObject(complete)
    expect(stored.get('derived')).toMatchObject({
      module_version_number: 1,
      max_page_id: 'p3',
      max_page_key: 'k3',
      max_page_index: 3,
      total_pages: 9,
    })
  })

  test('uses only views of its own entry, and all views of the same time, the first by id', async () => {
    const { load } = inProject('own-entry')
    await load(
      ...BASE,
      entry({ entry_id: 'e2' }),
      view('other', 1, 9, { entry_id: 'e2', total_pages: 99 }),
      custom('a', 1),
      view('c', 1, 3, { page_id: 'second', total_pages: 5 }),
      view('b', 1, 3, { page_id: 'first', total_pages: 4 }),
    )
    expect((await of('own-entry')).get('a')).toMatchObject({ max_page_id: 'first', total_pages: 5 })
  })

  test('is unchanged when views are imported later, and leaves the entry unchanged', async () => {
    const { load, of: recordsOf } = inProject('fixed')
    const lines = [...BASE, custom('x', 10)]
    await load(...lines)
    await load(view('v', 5, 3))
    await load(...lines)
    expect((await of('fixed')).get('x')).toMatchObject({ max_page_id: null })
    expect(await recordsOf('entry')).toMatchObject([{ updated_at: '2026-02-01T00:00:00.000Z' }])
  })

  test.each([0, 300])(
    'gets what it leaves out, whatever others of its entry give: small_rows %i',
    async (small_rows) => {
      const { of: recordsOf } = inProject(`partly-${small_rows}`)
      // One says its version, one its furthest page, one neither, and one both.
      const furthest = { max_page_id: 'p', max_page_key: 'k', max_page_index: 7 }
      const events = [
        view('a', 1, 1, { module_version_number: 1 }),
        view('b', 2, 2, furthest),
        view('c', 3, 3),
        view('d', 4, 4, { module_version_number: 1, total_pages: 9, ...furthest }),
      ]
      const lines = [...BASE, ...events].map((line) => ({ ...line, project_id: `partly-${small_rows}` }))
      expect(await load(pool, lines, { now: NOW, sizes: { small_rows } })).toMatchObject({
        records: { event: { read: 4, added: 4, unchanged: 0 } },
      })
      expect((await recordsOf('event')).map(({ max_page_index }) => max_page_index)).toEqual([1, 7, 3, 7])
    },
  )

  test.each([
    ...(isOnCitus ? [] : [['looked up in place', false] as const]),
    ['copied first, as on a cluster', true] as const,
  ])('comes after all events and erasures of its project, whatever the clock says: %s', async (_, isDistributed) => {
    await using database = await openDatabase(undefined, { isDistributed })
    const { pool } = database
    const twin = (lines: object[]) => lines.map((line) => ({ ...line, project_id: 'twin' }))
    const positionOf = async (event_id: string, project_id = 'acme'): Promise<number> => {
      const where = 'WHERE project_id = $1 AND event_id = $2'
      return (await pool.query(`SELECT position FROM events ${where}`, [project_id, event_id])).rows[0].position
    }
    const erase = (position: number) =>
      pool.query(`INSERT INTO erasures VALUES ('acme', ${position}, 'e${position}', 'gone', '{}', now())`)
    // A time in the year 2128, in microseconds.
    const ahead = 5 * 10 ** 15
    await load(pool, [...BASE, custom('a', 1), custom('b', 2), ...twin([...BASE, custom('a', 1)])])
    await pool.query(`UPDATE events SET position = ${ahead} WHERE project_id = 'acme' AND event_id = 'b'`)
    await load(pool, [custom('c', 3), ...twin([custom('c', 3)])])
    expect(await positionOf('c')).toBe(ahead + 1)
    expect(await positionOf('c', 'twin')).toBeLessThan(ahead)
    await erase(ahead + 5)
    await erase(ahead + 9)
    await load(pool, [custom('d', 4)])
    expect(await positionOf('d')).toBe(ahead + 10)
  })

  test('gets the furthest page of its entry, which several chunks of the merge share', async () => {
    const { of: recordsOf } = inProject('chunks')
    const entries = Array.from({ length: 10 }, (_, i) => entry({ entry_id: `e${i}` }))
    const views = entries.flatMap(({ entry_id }) =>
      Array.from({ length: 100 }, (_, i) => view(`${entry_id}-${i}`, i, i % 60, { entry_id })),
    )
    const lines = [...BASE, ...entries, ...views].map((line) => ({ ...line, project_id: 'chunks' }))
    expect(await load(pool, lines, { now: NOW, sizes: { chunk_pages: 1, small_rows: 0 } })).toMatchObject({
      duplicate_lines: 1,
      records: { event: { read: 1_000, added: 1_000, unchanged: 0 } },
    })
    const events = await recordsOf('event')
    expect(events).toHaveLength(1_000)
    for (const event of events)
      expect(event.max_page_index).toBe(Math.min(Number(String(event.event_id).split('-')[1]), 59))
  })
})

describe('a bad line', () => {
  test('in the middle leaves nothing behind', async () => {
    const { fail, dump } = inProject('nothing')
    const many = Array.from({ length: 5000 }, (_, i) => contact(`c${i}`, [{ key: 'n', value: `${i}` }]))
    expect(await fail(project(), ...many, contact('bad', [{ key: 'n', value: 'x' }]), ...many)).toBe(
      'line 5002: /identifiers/0/value: must be JSON text; to send it as a string, quote it: "x"',
    )
    await expect(dump()).rejects.toThrow('project "nothing" does not exist')
  })

  test('is reported by number, field and message', async () => {
    await expect(load(pool, [project(), '{}'])).rejects.toMatchObject({
      name: 'ImportError',
      issue: { line: 2, field: '/type' },
      message: expect.stringMatching(/^line 2: \/type: must be one of /),
    })
  })

  test('is one whose timestamp is too far ahead of the given time', async () => {
    const timestamp = new Date(NOW.getTime() + 24 * 60 * 60 * 1000 + 1).toISOString()
    await expect(load(pool, [custom('late', 0, { timestamp })])).rejects.toThrow(/^line 1: \/timestamp: .* 24 hours/)
  })

  test('is not reported when the input fails', async () => {
    const failing = Readable.from(
      (async function* () {
        yield toLines([project({ project_id: 'cut-off' })])
        throw new Error('the disk failed')
      })(),
    )
    await expect(importRecords(pool, failing)).rejects.toThrow('the disk failed')
    await expect(dump(pool, 'cut-off')).rejects.toThrow('project "cut-off" does not exist')
  })
})

test('what was published while an import arrives is not in the future', async () => {
  const lines = Readable.from(
    (async function* () {
      const start_ms = Date.now()
      yield `${toLines(BASE.map((line) => ({ ...line, project_id: 'arriving' })))}\n`
      while (Date.now() === start_ms) await setImmediate()
      yield toLines([version(7, new Date().toISOString(), { project_id: 'arriving' })])
    })(),
  )
  const { records } = await importRecords(pool, lines)
  expect(records.module_version.added).toBe(2)
})

test('a broken connection fails the import, and the next import gets a new one', async () => {
  const lines = BASE.map((line) => ({ ...line, project_id: 'dying' }))
  const inTransaction = `FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND state = 'idle in transaction'`
  const kill = `SELECT pg_terminate_backend(pid) ${inTransaction}`
  // PostgreSQL may not have noticed yet that the failed import of a test before has closed its connection.
  await expect.poll(async () => (await pool.query(`SELECT ${inTransaction}`)).rowCount).toBe(0)
  const input = Readable.from(
    (async function* () {
      yield `${toLines(lines)}\n`
      // This generator runs ahead of the import, which may not have begun.
      await expect.poll(async () => (await pool.query(kill)).rowCount).toBe(1)
      yield toLines(lines)
    })(),
  )
  const sizes = { batch_characters: 1, small_rows: 0 }
  await expect(importRecords(pool, input, { sizes })).rejects.toThrow(/terminat|not queryable|EPIPE|ECONNRESET/)
  expect(await load(pool, lines)).toMatchObject({ records: { entry: { added: 1 } } })
})

describe('a conflict', () => {
  const email = (value: string) => ({ key: 'email', value: JSON.stringify(value) })
  const claim = (value: string) => ({ key: 'contact_id', value: JSON.stringify(value) })
  const PUBLISHED = '2026-01-02T00:00:00.000Z'
  const missing = (parent: string) => `no ${parent} with this id is stored or on an earlier line`

  test.for<[string, stored: object[], lines: object[], line: number, field: string, message: string]>([
    ['group without project', [], [group()], 1, '/project_id', missing('project')],
    ['project after its group', [], [group(), project()], 1, '/project_id', missing('project')],
    ['module without project', [], [module()], 1, '/project_id', missing('project')],
    ['module before its group and project', [], [module(), group(), project()], 1, '/project_id', missing('project')],
    ['module without group', [], [project(), module()], 2, '/group_id', missing('group')],
    [
      'module in a group that does not exist',
      BASE,
      [module(), module({ group_id: 'g2' })],
      2,
      '/group_id',
      missing('group'),
    ],
    ['version without module', [], [project(), version(1)], 2, '/module_id', missing('module')],
    ['contact without project', [], [contact()], 1, '/project_id', missing('project')],
    ['version without project', [], [version(1)], 1, '/project_id', missing('project')],
    ['entry without project', [], [entry()], 1, '/project_id', missing('project')],
    ['event without project', [], [view('v', 1, 1)], 1, '/project_id', missing('project')],
    ['entry without module', BASE, [entry({ entry_id: 'e2', module_id: 'x' })], 1, '/module_id', missing('module')],
    [
      'entry before its contact',
      BASE,
      [entry({ entry_id: 'e2', contact_id: 'c2' }), contact('c2')],
      1,
      '/contact_id',
      missing('contact'),
    ],
    [
      'event before its entry',
      BASE,
      [view('v', 1, 1, { entry_id: 'e2' }), entry({ entry_id: 'e2' })],
      1,
      '/entry_id',
      missing('entry'),
    ],
    [
      'event before its entry, and another after it',
      BASE,
      [view('v', 1, 1, { entry_id: 'e2' }), entry({ entry_id: 'e2' }), view('w', 2, 1, { entry_id: 'e2' })],
      1,
      '/entry_id',
      missing('entry'),
    ],
    [
      'version that does not exist',
      BASE,
      [view('v', 1, 1, { module_version_number: 2 })],
      1,
      '/module_version_number',
      'no such version',
    ],
    [
      'version of another module',
      BASE,
      [
        module({ module_id: 'm2' }),
        version(2, PUBLISHED, { module_id: 'm2' }),
        view('v', 1, 1, { module_version_number: 2 }),
      ],
      3,
      '/module_version_number',
      'no such version',
    ],
    [
      'version that comes later',
      BASE,
      [view('v', 1, 1, { module_version_number: 2 }), version(2)],
      1,
      '/module_version_number',
      'no such version',
    ],
    [
      'module without version',
      BASE,
      [project(), module({ module_id: 'm2' })],
      2,
      '/module_id',
      'must have a published version',
    ],
    [
      'module never published',
      BASE,
      [module({ module_id: 'm2' }), version(1, undefined, { module_id: 'm2' })],
      1,
      '/module_id',
      'must have a published version',
    ],
    [
      'module never published, before one that is',
      BASE,
      [
        module({ module_id: 'm2' }),
        version(1, undefined, { module_id: 'm2' }),
        module({ module_id: 'm3' }),
        version(1, PUBLISHED, { module_id: 'm3' }),
      ],
      1,
      '/module_id',
      'must have a published version',
    ],
    [
      'version that does not exist, after one that does',
      BASE,
      [version(2), view('v', 1, 1, { module_version_number: 3 })],
      2,
      '/module_version_number',
      'no such version',
    ],
    [
      'other definition',
      BASE,
      [version(1, undefined, { json_string: '{} ' })],
      1,
      '/json_string',
      'a saved version cannot change',
    ],
    [
      'other definition in the file',
      BASE,
      [version(2), version(2, undefined, { json_string: '[]' })],
      2,
      '/json_string',
      'a saved version cannot change',
    ],
    [
      'other saved_at',
      BASE,
      [version(1, undefined, { saved_at: at(1) })],
      1,
      '/saved_at',
      'a saved version cannot change',
    ],
    [
      'other publication in the file',
      BASE,
      [version(2), version(2, at(1)), version(2, at(2))],
      3,
      '/published_at',
      'a saved version cannot change',
    ],
    [
      'other module of an entry',
      BASE,
      [module({ module_id: 'm2' }), version(1, PUBLISHED, { module_id: 'm2' }), entry({ module_id: 'm2' })],
      3,
      '/module_id',
      'cannot change',
    ],
    [
      'other contact of an entry',
      BASE,
      [contact('c2'), entry({ contact_id: 'c2' })],
      2,
      '/contact_id',
      'cannot change',
    ],
    [
      'stored identifier of another',
      [project(), contact('c1', [email('a')])],
      [contact('c2', [email('b'), email('a')])],
      1,
      '/identifiers/1',
      'belongs to another contact',
    ],
    [
      'identifier of another in the file',
      [project()],
      [contact('c1', [email('a')]), contact('c2', [email('a')])],
      2,
      '/identifiers/0',
      'belongs to another contact',
    ],
    [
      'id of a stored contact',
      BASE,
      [contact('c2', [claim('c1')])],
      1,
      '/identifiers/0/value',
      'is the id of another contact',
    ],
    [
      'id of a contact of the file',
      BASE,
      [contact('c3'), contact('c2', [email('a'), claim('c3')])],
      2,
      '/identifiers/1/value',
      'is the id of another contact',
    ],
    [
      'id that is an identifier of a stored contact',
      [project(), contact('c1', [claim('c2')])],
      [contact('c3'), contact('c2')],
      2,
      '/contact_id',
      'of another contact',
    ],
    [
      'id that is an identifier of a contact in the file',
      BASE,
      [contact('c2', [claim('c3')]), contact('c3')],
      2,
      '/contact_id',
      'of another contact',
    ],
    [
      'other content of a stored event',
      [...BASE, view('v', 1, 1)],
      [view('w', 1, 1), view('v', 1, 2)],
      2,
      '/page_id',
      'an event cannot change',
    ],
    [
      'other derived values of a stored event',
      [...BASE, view('v', 1, 1, { total_pages: 3 })],
      [view('v', 1, 1, { total_pages: null })],
      1,
      '/total_pages',
      'an event cannot change',
    ],
    [
      'stored event under another entry',
      [...BASE, view('v', 1, 1)],
      [entry({ entry_id: 'e2' }), view('v', 1, 1, { entry_id: 'e2' })],
      2,
      '/entry_id',
      'an event cannot change',
    ],
    [
      'other content in the file',
      BASE,
      [view('v', 1, 1), custom('x', 1), view('v', 2, 1)],
      3,
      '/timestamp',
      'differs from an earlier line',
    ],
    [
      'unknown here, left out there',
      BASE,
      [view('v', 1, 1), view('v', 1, 1, { total_pages: null })],
      2,
      '/total_pages',
      'differs from an earlier line',
    ],
    [
      'reported for the first of several lines',
      BASE,
      [contact('c2'), view('v', 1, 1, { entry_id: 'x' }), version(1, at(1)), group({ project_id: 'x' })],
      2,
      '/entry_id',
      missing('entry'),
    ],
  ])('is %s', async ([name, stored, lines, line, field, issue]) => {
    const { load, fail, dump } = inProject(`conflict: ${name}`)
    if (stored.length > 0) await load(...stored)
    const before = await dump().catch(() => 'no project')
    const message = await fail(...lines)
    expect(message.startsWith(`line ${line}: ${field}: `), message).toBe(true)
    expect(message).toContain(issue)
    expect(await dump().catch(() => 'no project')).toBe(before)
  })

  test('is the project that does not exist, behind lines of one that does', async () => {
    const lines = [project({ project_id: 'there' }), group({ project_id: 'there' }), entry({ project_id: 'absent' })]
    await expect(load(pool, lines)).rejects.toThrow(`line 3: /project_id: ${missing('project')}`)
  })

  test('is none if a contact has its own id as identifier, or an id that no contact has', async () => {
    const { load } = inProject('claims')
    await load(
      project(),
      contact('c1', [claim('c1'), claim('nobody'), { key: 'contact_id', value: '7' }]),
      contact('7'),
    )
    await load(contact('c1', [claim('nobody')]))
  })

  test('is none if an event is repeated as stored, completely or partly', async () => {
    const { load, of } = inProject('same-event')
    await load(...BASE, view('v', 1, 1, { total_pages: 3 }), custom('x', 2))
    const events = await of('event')
    expect(events.map((event) => event.event_type)).toContain(CUSTOM_EVENT)
    expect(await load(...events)).toMatchObject({ records: { event: { added: 0, unchanged: 2 } } })
    expect(await load(view('v', 1, 1))).toMatchObject({ records: { event: { added: 0, unchanged: 1 } } })
  })
})
