import fc from 'fast-check'
import pg from 'pg'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { arrayLiteral } from '../../src/database/array-literal.ts'

let client: pg.Client
beforeAll(async () => {
  client = new pg.Client(inject('databaseServer'))
  await client.connect()
})
afterAll(() => client.end())

/** What PostgreSQL reads of a literal. */
async function read(type: string, literal: unknown): Promise<unknown> {
  const { rows } = await client.query(`SELECT to_json($1::${type}[]) AS read`, [literal])
  return rows[0].read
}

test.each([
  ['plain text', ['a', 'order placed', '']],
  ['quotes and backslashes', ['"', '\\', '\\"', '\\n', '{"a":"b\\\\"}', '\\\\']],
  ['what is special in an array', ['{', '}', ',', 'NULL', 'null', ' a ', '{1,2}']],
  ['line breaks and other control characters', ['{\n\t"a": "b\\n"\r\n}', '\u0001', '\u007f', '\u0085', 'plain "one"']],
  ['characters of several units', ['é', '😀', '\u2028', '\u2029', '\ufeff', '\u{10ffff}']],
  ['nothing among others', ['a', null, '"\n', null]],
  ['nothing at all', []],
])('of %s is read as it was', async (_, values) => {
  expect(await read('text', arrayLiteral(values))).toEqual(values)
})

test('of any text is read as it was, as what pg writes is', async () => {
  const text = fc.string({ unit: 'grapheme' }).map((value) => value.replaceAll('\0', ''))
  await fc.assert(
    fc.asyncProperty(fc.array(fc.option(text)), async (values) => {
      expect(await read('text', arrayLiteral(values))).toEqual(values)
      expect(await read('text', values)).toEqual(values)
    }),
  )
})

test('a missing value is NULL, whatever is beside it', () => {
  expect(arrayLiteral(['a', undefined])).toBe('{"a",null}')
  expect(arrayLiteral(['\n', undefined, null])).toBe('{"\n",null,null}')
})

test('half of a surrogate pair is left to the encoding, which replaces it', async () => {
  expect(await read('text', arrayLiteral(['a"\ud800']))).toEqual(['a"\ufffd'])
})

test('of numbers, booleans and times is read as it was', async () => {
  const numbers = [0, -1, 2_147_483_647, null]
  expect(await read('integer', arrayLiteral(numbers))).toEqual(numbers)
  expect(await read('bigint', arrayLiteral([2 ** 53 - 1]))).toEqual([2 ** 53 - 1])
  expect(await read('boolean', arrayLiteral([true, false]))).toEqual([true, false])
  expect([arrayLiteral([1, 2]), arrayLiteral([true, false])]).toEqual(['{1,2}', '{true,false}'])
  const [time] = (await read('timestamptz', arrayLiteral(['2026-03-01T09:41:12.345Z']))) as string[]
  expect(Date.parse(String(time))).toBe(Date.parse('2026-03-01T09:41:12.345Z'))
})

test.each<[string, unknown[], unknown]>([
  [
    'integer',
    [
      [1, 2],
      [3, null],
    ],
    [
      [1, 2],
      [3, null],
    ],
  ],
  ['bigint', [null, 7n], [null, 7]],
  ['real', [Number.NaN, 1], ['NaN', 1]],
])('%s values that JSON cannot hold are left to pg', async (type, values, stored) => {
  expect(arrayLiteral(values)).toBe(values)
  expect(await read(type, arrayLiteral(values))).toEqual(stored)
})

test('bytes are left to pg', async () => {
  const digests = [null, Buffer.from([0, 255, 92]), Buffer.alloc(0)]
  expect(arrayLiteral(digests)).toBe(digests)
  expect(await read('bytea', arrayLiteral(digests))).toEqual([null, '\\x00ff5c', '\\x'])
})
