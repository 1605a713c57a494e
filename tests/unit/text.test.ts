import { expect, test } from 'vitest'
import {
  codePoints,
  hasCodePoints,
  hasControlCharacter,
  idIssue,
  isStorable,
  jsonDepth,
  quoted,
} from '../../src/domain/text.ts'

test.each([
  ['', 0],
  ['abc', 3],
  ['é', 1],
  ['e\u0301', 2],
  ['😀', 1],
  ['👨‍👩‍👧', 5],
  ['\ud800', 1],
])('codePoints(%j) is %i', (text, count) => {
  expect(codePoints(text)).toBe(count)
})

test.each([
  ['', 2, false],
  ['a', 2, true],
  ['ab', 2, true],
  ['abc', 2, false],
  ['😀😀', 2, true],
  ['😀😀😀', 2, false],
  ['aaaaa', 2, false],
])('hasCodePoints(%j, %i) is %s', (text, max, fits) => {
  expect(hasCodePoints(text, max)).toBe(fits)
})

test.each([
  ['', true],
  ['\u0001\n\u007f', true],
  ['😀', true],
  ['\uffff', true],
  ['a\0', false],
  ['\ud83d', false],
  ['\ude00\ud83d', false],
])('isStorable(%j) is %s', (text, storable) => {
  expect(isStorable(text)).toBe(storable)
})

test('hasControlCharacter matches C0, DEL and C1 only', () => {
  const found = Array.from({ length: 0x3000 }, (_, code) => code).filter((code) =>
    hasControlCharacter(String.fromCharCode(code)),
  )
  const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)
  expect(found).toEqual([...range(0, 0x1f), ...range(0x7f, 0x9f)])
})

test.each([
  ['a', undefined],
  [' ', undefined],
  ['...', undefined],
  ['.a', undefined],
  ['a/b', undefined],
  ['__proto__', undefined],
  ['😀'.repeat(128), undefined],
  ['', 'must be 1 to 128 characters long'],
  ['😀'.repeat(129), 'must be 1 to 128 characters long'],
  ['.', 'must not be "." or ".."'],
  ['..', 'must not be "." or ".."'],
  ['a\0', 'must not hold control characters'],
  ['a\u0085', 'must not hold control characters'],
  ['\ud800', 'must not hold a lone surrogate'],
])('idIssue(%j) is %s', (id, issue) => {
  expect(idIssue(id)).toBe(issue)
})

test.each<[string, number]>([
  ['1', 0],
  ['null', 0],
  ['"[[]]"', 0],
  ['{}', 1],
  ['[]', 1],
  ['[1,"a",null]', 1],
  ['{"a":[]}', 2],
  ['[[],[[]],[]]', 3],
  ['{"__proto__":{"a":{}}}', 3],
])('jsonDepth(%s) is %i', (json, depth) => {
  expect(jsonDepth(JSON.parse(json))).toBe(depth)
})

test('jsonDepth does not recurse', () => {
  expect(jsonDepth(JSON.parse('['.repeat(100_000) + ']'.repeat(100_000)))).toBe(100_000)
})

test('quoted writes a JSON string and truncates a long one', () => {
  expect(quoted('a"b\n')).toBe('"a\\"b\\n"')
  expect(quoted('a'.repeat(200))).toBe(`"${'a'.repeat(200)}"`)
  expect(quoted('a'.repeat(201))).toBe(`"${'a'.repeat(200)}"…`)
  expect(quoted(`${'a'.repeat(199)}😀`).isWellFormed()).toBe(true)
})
