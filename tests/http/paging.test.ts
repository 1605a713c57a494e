import { crc32 } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { ReadGate } from '../../src/http/read-gate.ts'
import { createTestApp, EXAMPLES, importFile, importInto, type TestApp, withExamples } from '../support/app.ts'
import type { FiniteList } from '../support/lists.ts'
import { expectIssues } from './requests.ts'

type Row = Record<string, unknown>

const COUNT = 23
const at = (second: number) => new Date(Date.UTC(2026, 2, 1, 10, 0, second)).toISOString()
const number = (i: number) => String(i).padStart(2, '0')
/** Three rows in each second, so that some page ends within a tie. */
const tied = (i: number) => at(Math.floor(i / 3))

/** In project paging: a module with 23 versions, 23 entries, and 23 views of pages in the first of them. */
function* records(): Generator<Row> {
  const of = { project_id: 'paging' }
  yield { type: 'project', ...of }
  yield { type: 'group', ...of, group_id: 'g', name: 'g' }
  for (const module_id of ['m', 'other']) {
    yield { type: 'module', ...of, module_id, group_id: 'g', title: 'm' }
    for (let i = 0; i < COUNT; i += 1) {
      const saved = { version_number: i + 1, saved_at: at(i), published_at: at(i) }
      yield { type: 'module_version', ...of, module_id, ...saved, json_string: '{}' }
    }
  }
  yield { type: 'contact', ...of, contact_id: 'c', identifiers: [] }
  for (let i = 0; i < COUNT; i += 1) {
    const entry = { entry_id: `e${number(i)}`, module_id: 'm', contact_id: 'c' }
    yield { type: 'entry', ...of, ...entry, created_at: at(0), updated_at: tied(i) }
  }
  for (let i = 0; i < COUNT; i += 1) {
    const event = { entry_id: 'e00', event_id: `v${number(i)}`, timestamp: tied(i), event_type: 'flowpage.viewed' }
    yield { type: 'event', ...of, ...event, view_type: 'flowpage', page_id: `p${i}`, page_key: 'k', page_index: i }
  }
}

let api: TestApp
let key: string
beforeAll(async () => {
  api = await createTestApp({
    fill: withExamples(records()),
  })
  key = await createKey(api.db, 'paging', { name: '', scopes: SCOPES, expires_at: null })
})
afterAll(() => api.close())

const get = (path: string) => api.call({ path, key })

/** The rows of each page, reached by following Link unchanged. */
async function walk(path: string): Promise<Row[][]> {
  const pages: Row[][] = []
  let next: string | undefined = path
  while (next !== undefined) {
    const response = await get(next)
    expect(response.statusCode).toBe(200)
    pages.push(response.json())
    const link = response.headers.link as string | undefined
    const cursor = response.headers['next-cursor'] as string | undefined
    expect(link === undefined).toBe(cursor === undefined)
    next = link === undefined ? undefined : /^<(\/[^>]+)>; rel="next"$/.exec(link)?.[1]
    if (next !== undefined) expect(new URL(next, 'http://x').searchParams.get('cursor')).toBe(cursor)
  }
  return pages
}

interface List {
  path: string
  nameOf: (row: Row) => unknown
  ascending: (string | number)[]
}
const ENTRIES = {
  nameOf: (row: Row) => row.entry_id,
  ascending: Array.from({ length: COUNT }, (_, i) => `e${number(i)}`),
}
const LISTS: Record<FiniteList, List> = {
  listModuleVersions: {
    path: '/projects/paging/modules/m/versions',
    nameOf: (row) => row.version_number,
    ascending: Array.from({ length: COUNT }, (_, i) => i + 1),
  },
  listEntryEvents: {
    path: '/projects/paging/entries/e00/events',
    nameOf: (row) => row.page_index,
    ascending: Array.from({ length: COUNT }, (_, i) => i),
  },
  listEntries: { path: '/projects/paging/entries', ...ENTRIES },
  listEntryPageViews: { path: '/projects/paging/entries-page-views', ...ENTRIES },
}

describe.each(Object.entries(LISTS))('%s', (_, { path, nameOf, ascending }) => {
  const descending = [...ascending].reverse()
  const cursorOf = async (query = '') => (await get(`${path}?limit=3${query}`)).headers['next-cursor'] as string
  const refusal = [
    '/query/cursor is not a cursor of this list with this direction and these filters; use the Next-Cursor of the previous page, or leave it out to start from the beginning',
  ]

  test.each([1, 2, 3, 5, 7, 10, 22, 23, 24, 1000])('gives each row once in pages of %i', async (limit) => {
    for (const [direction, rows] of [
      ['ASC', ascending],
      ['DESC', descending],
    ] as const) {
      const pages = await walk(`${path}?limit=${limit}&direction=${direction}`)
      expect(pages.flat().map(nameOf)).toEqual(rows)
      // No page is empty: a last page that is exactly full has no next one.
      expect(pages.map((page) => page.length)).toEqual(
        Array.from({ length: Math.ceil(COUNT / limit) }, (_, i) => Math.min(limit, COUNT - i * limit)),
      )
    }
  })

  test('has pages of ten, descending, by default', async () => {
    const pages = await walk(path)
    expect(pages.map((page) => page.length)).toEqual([10, 10, 3])
    expect(pages.flat().map(nameOf)).toEqual(descending)
  })

  test('keeps all parameters in Link, sorted and percent-encoded', async () => {
    const { headers } = await get(`${path}?limit=3&%64irection=ASC`)
    expect(headers.link).toBe(`<${path}?cursor=${headers['next-cursor']}&direction=ASC&limit=3>; rel="next"`)
  })

  test('accepts a cursor with another limit, and repeatedly', async () => {
    const cursor = await cursorOf()
    for (const limit of [1, 4, 1000, 4]) {
      const rows: Row[] = (await get(`${path}?cursor=${cursor}&limit=${limit}`)).json()
      expect(rows.map(nameOf)).toEqual(descending.slice(3, 3 + limit))
    }
  })

  test.each<[string, (cursor: string) => string]>([
    ['cut short', (cursor) => cursor.slice(0, -1)],
    ['cut to its version alone', () => 'AQ'],
    ['with a character changed', (cursor) => cursor.slice(0, 9) + (cursor[9] === 'A' ? 'B' : 'A') + cursor.slice(10)],
    ['with its last character changed', (cursor) => cursor.slice(0, -1) + (cursor.endsWith('A') ? 'B' : 'A')],
    ['of another version', (cursor) => `Ag${cursor.slice(2)}`],
    ['with bytes appended', (cursor) => `${cursor}AAAA`],
    ['repeated', (cursor) => cursor + cursor],
    ['padded', (cursor) => `${cursor}==`],
    ['with white space', (cursor) => `${cursor}%20`],
    ['with a line feed', (cursor) => `${cursor}%0A`],
    ['in upper case', (cursor) => cursor.toUpperCase()],
    ['that is a row number', () => '3'],
    ['that is an offset', () => '-1'],
    ['that is JSON', () => encodeURIComponent('[3]')],
    ['that is zeros', () => 'A'.repeat(2048)],
  ])('refuses a cursor %s', async (_, mangle) => {
    expectIssues(await get(`${path}?limit=3&cursor=${mangle(await cursorOf())}`), refusal)
  })

  test('refuses a cursor that is too long', async () => {
    expectIssues(await get(`${path}?cursor=${'A'.repeat(2049)}`), ['/query/cursor must be 1 to 2048 characters long'])
  })

  test('refuses a cursor of the other direction', async () => {
    expectIssues(await get(`${path}?direction=ASC&cursor=${await cursorOf()}`), refusal)
  })

  test('refuses a cursor of another list', async () => {
    const others = [
      ...Object.values(LISTS).map((list) => list.path),
      '/projects/paging/modules/other/versions',
      '/projects/paging/entries/e01/events',
    ].filter((other) => other !== path)
    const cursor = await cursorOf()
    for (const other of others) expectIssues(await get(`${other}?cursor=${cursor}`), refusal)
  })

  test.each([
    ['no array', '{}'],
    ['null', 'null'],
    ['an empty key', '[]'],
    ['too many parts', '["2026-03-01T10:00:00.000Z","e01",1]'],
    ['text for a number', '["1"]'],
    ['a fraction', '[1.5]'],
    ['a number beyond 32 bits', '[2147483648]'],
    ['an infinite number', '[1e999]'],
    ['an object', '[{"a":1}]'],
    ['numbers for texts', '[1,2]'],
    ['no instant', '["yesterday","e01"]'],
    ['an instant that PostgreSQL cannot read', '["2026-03-01T10:00:00.000+23:59","e01"]'],
    ['an instant with a long fraction', `["2026-03-01T10:00:00.${'1'.repeat(300)}Z","e01"]`],
    ['an instant in lower case', '["2026-03-01t10:00:00.000z","e01"]'],
    ['an instant without a time zone', '["infinity","e01"]'],
    ['an id with NUL', '["2026-03-01T10:00:00.000Z","\\u0000"]'],
    ['an id with a lone surrogate', '["2026-03-01T10:00:00.000Z","\\ud800"]'],
    ['no id', '["2026-03-01T10:00:00.000Z",null]'],
    ['JSON cut short', '["2026-03'],
    ['an array 600 deep', '['.repeat(600) + ']'.repeat(600)],
  ])('refuses a cursor that is valid except for its key: %s', async (_, json) => {
    const cursor = Buffer.from(await cursorOf(), 'base64url')
    const body = Buffer.concat([cursor.subarray(0, 13), Buffer.from(json)])
    const checksum = Buffer.alloc(4)
    checksum.writeUInt32BE(crc32(body))
    expectIssues(await get(`${path}?cursor=${Buffer.concat([body, checksum]).toString('base64url')}`), refusal)
  })
})

const LISTS_OF_ENTRIES = ['listEntries', 'listEntryPageViews'] as const

test.each(LISTS_OF_ENTRIES)('%s refuses a cursor of another project', async (operation) => {
  const { path } = LISTS[operation]
  const cursor = (await api.call({ path: `${path.replace('paging', 'demo')}?limit=1` })).headers['next-cursor']
  expect(cursor).toBeDefined()
  expect((await get(`${path}?cursor=${cursor}`)).statusCode).toBe(400)
})

describe.each(LISTS_OF_ENTRIES)('%s with a window', (operation) => {
  const { path } = LISTS[operation]
  const idsIn = async (query: string) =>
    (await walk(`${path}?direction=ASC&${query}`)).flat().map((row) => row.entry_id)
  const ids = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => `e${number(from + i)}`)

  test.each([
    ['includes its start', `updated_after=${at(2)}`, ids(6, COUNT)],
    ['excludes its end', `updated_before=${at(2)}`, ids(0, 6)],
    ['has both bounds', `updated_after=${at(1)}&updated_before=${at(3)}`, ids(3, 9)],
    ['is a millisecond wide', `updated_after=${at(2)}&updated_before=${at(2).replace('.000', '.001')}`, ids(6, 9)],
    ['starts a millisecond later', `updated_after=${at(2).replace('.000', '.001')}`, ids(9, COUNT)],
    ['truncates microseconds', `updated_after=${at(2).replace('.000', '.000999')}`, ids(6, COUNT)],
    ['has an offset', `updated_before=${at(2).replace('T10', 'T11').replace('Z', '%2B01:00')}`, ids(0, 6)],
    ['is before all', `updated_before=${at(0)}`, []],
    ['is after all', 'updated_after=9999-12-31T23:59:59.999Z', []],
  ])('%s', async (_, query, expected) => {
    for (const limit of [1, 3, 1000]) expect(await idsIn(`${query}&limit=${limit}`)).toEqual(expected)
  })

  test('has its filters percent-encoded in Link', async () => {
    const { headers } = await get(`${path}?limit=1&updated_after=2026-03-01T11:00:00%2B01:00`)
    expect(headers.link).toBe(
      `<${path}?cursor=${headers['next-cursor']}&limit=1&updated_after=2026-03-01T11%3A00%3A00%2B01%3A00>; rel="next"`,
    )
  })

  test('binds a cursor to the instants, not to their spelling', async () => {
    const { headers } = await get(`${path}?limit=1&updated_after=2026-03-01T11:00:00%2B01:00`)
    const cursor = headers['next-cursor']
    expect((await get(`${path}?cursor=${cursor}&updated_after=2026-03-01T10:00:00Z`)).statusCode).toBe(200)
    for (const query of ['', '&updated_after=2026-03-01T10:00:01Z', '&updated_before=2026-03-01T10:00:00Z']) {
      expect((await get(`${path}?cursor=${cursor}${query}`)).statusCode).toBe(400)
    }
  })

  test('binds a cursor to each bound', async () => {
    const [start, end, other] = [at(1), at(6), at(5)]
    const windows = ['', `&updated_after=${start}`, `&updated_before=${end}`, `&updated_before=${other}`].concat(
      `&updated_after=${start}&updated_before=${end}`,
      `&updated_after=${start}&updated_before=${other}`,
    )
    for (const window of windows) {
      const cursor = (await get(`${path}?limit=1${window}`)).headers['next-cursor']
      for (const used of windows) {
        const { statusCode } = await get(`${path}?cursor=${cursor}${used}`)
        expect([window, used, statusCode]).toEqual([window, used, used === window ? 200 : 400])
      }
    }
  })
})

test('listEntryPageViews sorts the views of an entry oldest first, in both directions', async () => {
  for (const direction of ['ASC', 'DESC']) {
    const rows: Row[] = (await get(`/projects/paging/entries-page-views?limit=1000&direction=${direction}`)).json()
    const { page_views } = rows.find((row) => row.entry_id === 'e00') as { page_views: Row[] }
    expect(page_views.map((view) => view.page_index)).toEqual(Array.from({ length: COUNT }, (_, i) => i))
    expect(rows.find((row) => row.entry_id === 'e01')?.page_views).toEqual([])
  }
})

test('Link leads to what follows the page, whatever position the list was to begin after', async () => {
  const path = '/projects/paging/events'
  const all: Row[] = (await get(`${path}?direction=ASC&after=0&limit=1000`)).json()
  const { headers } = await get(`${path}?direction=ASC&after=0&limit=10`)
  const next = `${path}?cursor=${headers['next-cursor']}&direction=ASC&limit=10`
  expect(headers.link).toBe(`<${next}>; rel="next"`)
  expect((await get(next)).json()).toEqual(all.slice(10, 20))
})

test('a read is admitted with as many bytes as so many small rows have', async () => {
  const admit = vi.spyOn(ReadGate.prototype, 'admit')
  onTestFinished(() => admit.mockRestore())
  await get('/projects/paging/entries-page-views?limit=3')
  expect(admit.mock.calls.map(([project, bytes]) => [project, bytes])).toEqual([['paging', 3 * 4 * 1024]])
})

test('an empty list is an empty page without Link', async () => {
  const otherKey = await createKey(api.db, 'other', { name: '', scopes: SCOPES, expires_at: null })
  for (const path of ['/projects/other/entries', '/projects/other/entries-page-views', '/projects/other/modules']) {
    const response = await api.call({ path, key: otherKey })
    expect(response.body).toBe('[]')
    expect(response.headers).not.toHaveProperty('link')
    expect(response.headers).not.toHaveProperty('next-cursor')
  }
})

test('Link starts with BASE_PATH, and ids in it stay percent-encoded', async () => {
  const based = await createTestApp({
    config: { basePath: '/flow/trail' },
    fill: async (url) => {
      await importFile(url, EXAMPLES)
      const odd = { type: 'module', project_id: 'demo', module_id: 'a/b?c %', group_id: 'growth', title: 'odd' }
      const versions = [1, 2].map((version_number) => ({
        ...{ type: 'module_version', project_id: 'demo', module_id: odd.module_id, version_number },
        ...{ saved_at: at(0), published_at: at(0), json_string: '{}' },
      }))
      await importInto(url, [odd, ...versions])
    },
  })
  const path = `/flow/trail/projects/demo/modules/${encodeURIComponent('a/b?c %')}/versions`
  const first = await based.call({ path: `${path}?limit=1` })
  const link = /^<(.+)>; rel="next"$/.exec(String(first.headers.link))?.[1] ?? ''
  const second = await based.call({ path: link })
  const root = await based.call({ path: '/projects/demo/modules' })
  await based.close()
  expect(link).toBe(`${path}?cursor=${first.headers['next-cursor']}&limit=1`)
  expect(second.json().map((row: Row) => row.version_number)).toEqual([1])
  expect(root.statusCode).toBe(404)
})
