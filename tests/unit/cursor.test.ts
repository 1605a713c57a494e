import { crc32 } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import {
  decodeCursor,
  encodeCursor,
  fingerprint,
  isInstantAndId,
  isInt32,
  paginate,
  type SortKey,
} from '../../src/domain/cursor.ts'

const SCOPE = fingerprint(['list', 'demo', 'DESC'])
const isAny = (_: unknown): _ is SortKey => true

test.each<SortKey[]>([
  [[1]],
  [[-2147483648]],
  [['2026-03-01T09:30:00.000Z', 'e1']],
  [['2026-03-01T09:30:00.000Z', 'é"\\😀 \u2028']],
  [['', '']],
])('a cursor of %j decodes to its key', (key) => {
  const cursor = encodeCursor(SCOPE, key)
  expect(cursor).toMatch(/^[A-Za-z0-9_-]+$/)
  expect(decodeCursor(SCOPE, cursor, isAny)).toEqual(key)
})

test('the cursor of the longest sort key fits the limit that the document sets', () => {
  const key = ['9999-12-31T23:59:59.999Z', '😀'.repeat(128)] as const
  expect(encodeCursor(SCOPE, key).length).toBeLessThanOrEqual(2048)
})

test('a cursor with any one bit changed is refused', () => {
  const bytes = Buffer.from(encodeCursor(SCOPE, ['2026-03-01T09:30:00.000Z', 'e1']), 'base64url')
  for (let bit = 0; bit < bytes.length * 8; bit += 1) {
    const changed = Buffer.from(bytes)
    changed[bit >> 3] = (changed[bit >> 3] ?? 0) ^ (1 << (bit & 7))
    expect(decodeCursor(SCOPE, changed.toString('base64url'), isAny)).toBeUndefined()
  }
})

test.each([
  ['another version', 0],
  ['another scope', 1],
  ['another scope, at its end', 12],
])('a cursor of %s is refused, however right its checksum', (_, at) => {
  const body = Buffer.from(encodeCursor(SCOPE, [1]), 'base64url').subarray(0, -4)
  const withChecksum = () => {
    const checksum = Buffer.alloc(4)
    checksum.writeUInt32BE(crc32(body))
    return Buffer.concat([body, checksum]).toString('base64url')
  }
  expect(decodeCursor(SCOPE, withChecksum(), isAny)).toEqual([1])
  for (const difference of [1, 2, 0xff]) {
    body[at] = (body[at] ?? 0) ^ difference
    expect(decodeCursor(SCOPE, withChecksum(), isAny)).toBeUndefined()
    body[at] = (body[at] ?? 0) ^ difference
  }
})

test('a cursor cut short at any place is refused', () => {
  const cursor = encodeCursor(SCOPE, [1])
  for (let end = 0; end < cursor.length; end += 1) {
    expect(decodeCursor(SCOPE, cursor.slice(0, end), isAny)).toBeUndefined()
  }
})

test.each(['=', '==', '\n', ' '])('a cursor followed by %j is refused: a cursor has one spelling', (more) => {
  expect(decodeCursor(SCOPE, encodeCursor(SCOPE, [1]) + more, isAny)).toBeUndefined()
})

test('fingerprint depends on every part of a scope, and on its position', () => {
  const scopes = [['a', 'b'], ['ab'], ['b', 'a'], ['a', 'b', undefined], ['a', undefined, 'b'], ['a,b'], ['a', 'B']]
  expect(new Set(scopes.map((scope) => fingerprint(scope).toString('hex'))).size).toBe(scopes.length)
})

test.each<[unknown, boolean]>([
  [[0], true],
  [[2147483647], true],
  [[-2147483648], true],
  [[2147483648], false],
  [[-2147483649], false],
  [[1.5], false],
  [[Number.POSITIVE_INFINITY], false],
  [[Number.NaN], false],
  [['1'], false],
  [[null], false],
  [[], false],
  [[1, 2], false],
  [1, false],
  [null, false],
])('isInt32(%j) is %s', (value, expected) => {
  expect(isInt32(value)).toBe(expected)
})

test.each<[unknown, boolean]>([
  [['2026-03-01T09:30:00.000Z', 'e1'], true],
  [['0001-01-01T00:00:00.000Z', ''], true],
  [['2026-03-01T09:30:00Z', 'e1'], false],
  [['2026-03-01T09:30:00.000000Z', 'e1'], false],
  [['2026-03-01T10:30:00.000+01:00', 'e1'], false],
  [['2026-02-30T09:30:00.000Z', 'e1'], false],
  [['infinity', 'e1'], false],
  [['2026-03-01T09:30:00.000Z', 'a\0'], false],
  [['2026-03-01T09:30:00.000Z', '\ud800'], false],
  [['2026-03-01T09:30:00.000Z', 1], false],
  [['2026-03-01T09:30:00.000Z'], false],
  [['2026-03-01T09:30:00.000Z', 'e1', 1], false],
  [{ 0: '2026-03-01T09:30:00.000Z', 1: 'e1', length: 2 }, false],
])('isInstantAndId(%j) is %s', (value, expected) => {
  expect(isInstantAndId(value)).toBe(expected)
})

describe('paginate', () => {
  const page = (stored: number, limit: number) =>
    paginate(
      {
        scope: ['list'],
        isKey: isInt32,
        keyOf: (row: number) => [row] as const,
        select: async ({ limit: most, after, direction }) => {
          expect([after, direction, most]).toEqual([undefined, 'ASC', limit])
          return { rows: Array.from({ length: Math.min(stored, most) }, (_, i) => i), more: stored > most }
        },
      },
      { limit, direction: 'ASC' },
    )

  test.each([
    [0, 1, 0, false],
    [1, 1, 1, false],
    [2, 1, 1, true],
    [10, 10, 10, false],
    [11, 10, 10, true],
  ])('of %i rows, %i a page, returns %i and a next page: %s', async (stored, limit, count, more) => {
    const { rows, continuationAfter } = await page(stored, limit)
    expect(rows).toHaveLength(count)
    const { cursor: next, more: hasMore } = continuationAfter(count)
    expect([next !== undefined, hasMore]).toEqual([more, more])
    if (next !== undefined) expect(decodeCursor(fingerprint(['list', 'ASC']), next, isInt32)).toEqual([limit - 1])
  })

  test.each([
    [undefined, [0]],
    [[7] as const, [7]],
  ])('of a list that only grows, without rows after %j, returns a cursor of %j', async (start, key) => {
    const list = {
      scope: ['feed'],
      isKey: isInt32,
      keyOf: (row: number) => [row] as const,
      select: async () => ({ rows: [], more: false }),
      origin: [0] as const,
    }
    const { cursor, more } = (await paginate(list, { limit: 1, direction: 'ASC' }, start)).continuationAfter(0)
    expect([decodeCursor(fingerprint(['feed', 'ASC']), cursor ?? '', isInt32), more]).toEqual([key, false])
    expect((await paginate(list, { limit: 1, direction: 'DESC' }, start)).continuationAfter(0).cursor).toBeUndefined()
  })

  test.each([
    [
      'of a list that only grows, whose ascending cursor it is',
      [0] as const,
      ['feed', 'ASC'],
      /direction=ASC with it$/,
    ],
    ['of such a list, whose cursor it is not', [0] as const, ['other', 'ASC'], /is not a cursor of this list/],
    ['of another list, whose ascending cursor it is', undefined, ['feed', 'ASC'], /is not a cursor of this list/],
  ])('refuses a cursor for the descending page %s', async (_, origin, scope, message) => {
    const list = {
      scope: ['feed'],
      isKey: isInt32,
      keyOf: (row: number) => [row] as const,
      select: async () => ({ rows: [], more: false }),
      origin,
    }
    const cursor = encodeCursor(fingerprint(scope), [1])
    await expect(paginate(list, { limit: 1, direction: 'DESC', cursor })).rejects.toThrow(message)
  })
})
