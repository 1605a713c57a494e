/** The page views of an entry are stored once more, as the JSON of a response, by each import that adds some. */
import { expect, test } from 'vitest'
import { at, BASE, contact, custom, entry, load, NOW, openDatabase, view } from './fixture.ts'

/** What is stored, by entry. */
async function stored({ pool }: Awaited<ReturnType<typeof openDatabase>>): Promise<Record<string, unknown[]>> {
  const { rows } = await pool.query('SELECT entry_id, page_views FROM entry_page_views')
  return Object.fromEntries(rows.map(({ entry_id, page_views }) => [entry_id, JSON.parse(page_views)]))
}
const expected = (second: number, page_index: number, page_key = `k${page_index}`) => ({
  timestamp: at(second),
  page_id: `p${page_index}`,
  page_key,
  page_index,
})

test('views are in the order of time and id, whatever file they came in', async () => {
  await using database = await openDatabase()
  await load(database.pool, [...BASE, view('c', 2, 1), view('b', 1, 2), custom('x', 1)])
  expect(await stored(database)).toEqual({ e1: [expected(1, 2), expected(2, 1)] })
  await load(database.pool, [view('a', 1, 3), view('c', 2, 1)])
  expect(await stored(database)).toEqual({ e1: [expected(1, 3), expected(1, 2), expected(2, 1)] })
})

test('what is stored stays as it is when no page views come', async () => {
  await using database = await openDatabase()
  await load(database.pool, [...BASE, view('a', 1, 1)])
  const rowVersion = async () => (await database.pool.query('SELECT xmin FROM entry_page_views')).rows
  const before = await rowVersion()
  await load(database.pool, [entry(), custom('x', 3), view('a', 1, 1)])
  expect(await rowVersion()).toEqual(before)
})

test('an entry without page views has no row', async () => {
  await using database = await openDatabase()
  await load(database.pool, [...BASE, custom('x', 1)])
  expect(await stored(database)).toEqual({})
})

test.each(['"\\/', ' \t\n\r\b\f', '\u0001\u001f\u007f\u0085\u2028', '🦉é', '</script>', "'; --", '\\u0000'])(
  'the page key %j is stored as JSON',
  async (page_key) => {
    await using database = await openDatabase()
    await load(database.pool, [...BASE, view('a', 1, 1, { page_key })])
    expect(await stored(database)).toEqual({ e1: [expected(1, 1, page_key)] })
  },
)

test('entries of all chunks of a merge get theirs', async () => {
  await using database = await openDatabase()
  const ids = Array.from({ length: 100 }, (_, i) => `e${i}-${'x'.repeat(110)}`)
  const entries = ids.flatMap((id) => [contact(id), entry({ entry_id: id, contact_id: id })])
  const views = ids.map((entry_id, i) => view(`v${i}`, i, i, { entry_id }))
  await load(database.pool, [...BASE, ...entries, ...views], { now: NOW, sizes: { chunk_pages: 1, small_rows: 0 } })
  expect(await stored(database)).toEqual(Object.fromEntries(ids.map((id, i) => [id, [expected(i, i)]])))
})
