import { expect, test } from 'vitest'
import { type SizedRow, selectPage } from '../../src/database/large-rows.ts'

// What happens between the two queries of a page with large rows; tests/http/large.test.ts has the rest.

interface Row extends SizedRow {
  id: number
}
const MiB = 1024 * 1024
const row = (id: number, value_bytes: number | null = null): Row => ({ id, value_bytes })

/** A page of a list that becomes another one while the read waits for room. */
async function pageOf(before: Row[], after: Row[], limit: number) {
  let list = before
  const extended: number[] = []
  const lease = {
    extend: async (bytes: number) => {
      extended.push(bytes)
      list = after
    },
  }
  const select = async (count: number) => list.slice(0, count)
  const { rows, more } = await selectPage(limit, lease, select, ({ id }) => id)
  return { ids: rows.map(({ id }) => id), more, extended }
}

test('a page without large rows is selected once', async () => {
  const rows = [row(1), row(2), row(3)]
  expect(await pageOf(rows, [], 2)).toEqual({ ids: [1, 2], more: true, extended: [] })
  expect(await pageOf(rows, [], 3)).toEqual({ ids: [1, 2, 3], more: false, extended: [] })
})

test('the size of large rows and the most of small ones is asked for', async () => {
  const rows = [row(1), row(2, 5_000), row(3)]
  expect(await pageOf(rows, rows, 3)).toEqual({ ids: [1, 2, 3], more: false, extended: [5_000 + 3 * 4_096] })
})

test.each([
  [[row(1, 5 * MiB), row(2, 3 * MiB), row(3)], 10, [1, 2, 3], false],
  [[row(1, 5 * MiB), row(2, 3 * MiB + 1), row(3)], 10, [1], true],
  [[row(1, 9 * MiB), row(2)], 10, [1], true],
  [[row(1, 9 * MiB)], 1, [1], false],
  [[row(1, 9 * MiB), row(2)], 1, [1], true],
])('of %j, %i a page, those that fit are %j, and more follow: %s', async (rows, limit, ids, more) => {
  expect(await pageOf(rows, rows, limit)).toMatchObject({ ids, more })
})

test('a row that is inserted in between leaves the last one to the next page', async () => {
  const rows = [row(3), row(2, 5_000), row(1)]
  expect(await pageOf(rows, [row(4), ...rows], 10)).toMatchObject({ ids: [4, 3, 2], more: true })
})

test('a row that is gone in between is missing', async () => {
  const rows = [row(3), row(2, 5_000), row(1)]
  expect(await pageOf(rows, rows.slice(1), 10)).toMatchObject({ ids: [2, 1], more: false })
})
