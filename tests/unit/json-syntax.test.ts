import { describe, expect, test } from 'vitest'
import { isJson } from '../../src/domain/json-syntax.ts'
import { parses } from './json-syntax.ts'

const VALID = [
  ...[
    'null true false 0 -0 1 -12.5 1e5 1E+5 1.25e-7 123456789012345678901234567890',
    '"" "a" "é😀" "\\"" "\\\\" "\\/\\b\\f\\n\\r\\t" "\\u00e9\\uD800\\uabCD"',
    '[] {} [[]] [{}] [1] [1,2] [[],[]] {"a":1} {"a":{"b":[]},"":[{}]} {"a":1,"a":2}',
  ].flatMap((line) => line.split(' ')),
  ' \t\n\r[ \t\n\r1 \t\n\r, \t\n\r2 \t\n\r] \t\n\r',
  ' { "a" : 1 , "b" : { } , "c" : [ ] } ',
  '"\u007f\u2028\u2029\ud800"',
]

const INVALID = [
  ...[
    'nul True nulll null1 NaN Infinity undefined',
    '- + -a +1 01 -01 1. .5 1.e5 1e 1e+ 1e- 1E 0x1 1_0 1a',
    '" "a "\\" "\\ "\\u00e9 "\\x" "\\u" "\\u00g0" "\\u123" "\\u00e" \'a\' a "a"b',
    '[ ] [1 [1, [1,] [,] [,1] [1,,2] [1}  [1]] [1][ 1,2 [1;2] [1:2]',
    '{ } {] {"a"} {"a":} {"a":1,} {,} {a:1} {1:1} {"a"1} {"a",1} {"a":1 {"a":1] {"a":1,1} {"a":1}} {"a"::1} {"a":1"b":2}',
  ].flatMap((line) => line.split(' ').filter(Boolean)),
  ...['', ' ', '1 2', '[1 2]', '"\n"', '"\u001f"', '"\u0000"', '\ufeff1', '\u00a01', '1\u000b', '/**/1'],
]

describe('isJson', () => {
  test.each([...VALID.map((text) => [text, true] as const), ...INVALID.map((text) => [text, false] as const)])(
    'of %j is %s',
    (text, expected) => {
      expect(parses(text)).toBe(expected)
      expect(isJson(text)).toBe(expected)
    },
  )

  test('of any depth', () => {
    expect(isJson('['.repeat(1_000_000) + ']'.repeat(1_000_000))).toBe(true)
    expect(isJson('['.repeat(1_000_000))).toBe(false)
    expect(isJson('{"":'.repeat(1_000_000))).toBe(false)
  })

  // What takes quadratic time would not end in time.
  test.each(['"\\u00e9"', '"\\n😀"', '1.25e-7', 'null', '{"a":[]}', ' [ ] '])('a million times %s', (item) => {
    expect(isJson(`[${`${item},`.repeat(1_000_000)}0]`)).toBe(true)
  })

  test('a string of a million escapes', () => {
    expect(isJson(`["${'\\u00e9'.repeat(1_000_000)}"]`)).toBe(true)
  })
})
