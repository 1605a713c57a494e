import { createHash } from 'node:crypto'
import { describe, expect, test } from 'vitest'
import {
  canonicalValue,
  identifierDigest,
  identifierKeyIssue,
  namesOf,
  ofOtherType,
} from '../../src/domain/identifier.ts'

/** Groups of spellings of one value; values of different groups differ. */
const SAME = [
  ['"a"', '"\\u0061"', ' "a"\n'],
  ['"A"', '"\\u0041"'],
  ['" a"'],
  ['"é"', '"\\u00e9"', '"\\u00E9"'],
  ['"e\u0301"'],
  ['"😀"', '"\\ud83d\\ude00"'],
  ['"/"', '"\\/"'],
  ['"1"'],
  ['"true"'],
  ['"0"'],
  ['"b"'],
  ['true', ' true '],
  ['false'],
  ['1', '1.0', '1e0', '10e-1', '0.1e1', '1.000', '1E+0', '100E-2', '1e00', '1e-0', ' 1', '\t1.0\r\n'],
  ['2', ' 2', '2 '],
  ['-1', '-1.0', '-10e-1'],
  ['0', '-0', '0.0', '0e5', '-0.0e-5', '0e999999999999'],
  ['0.1', '1e-1', '0.10', '100e-3'],
  ['10', '1e1', '1.0e1'],
  ['12345678901234567890', '1234567890123456789e1', '12345678901234567890.0'],
  ['12345678901234567891'],
  ['9007199254740993'],
  ['9007199254740992'],
  ['0.1234567890123456789'],
  ['0.12345678901234567891'],
  ['1e999999999', '10e999999998', '0.1E1000000000'],
  ['1e999999998'],
  ['1e-999999999'],
  [`1e${'9'.repeat(1000)}`],
  [`1${'0'.repeat(1000)}`, '1e1000'],
  [`1${'0'.repeat(1000)}1`],
]

test('canonicalValue is the same for all spellings of a value and differs between values', () => {
  const canonical = SAME.map((group) => new Set(group.map((text) => JSON.stringify(canonicalValue(text)))))
  for (const [i, spellings] of canonical.entries()) expect([...spellings], String(SAME[i])).toHaveLength(1)
  expect(new Set(canonical.map(([one]) => one)).size).toBe(SAME.length)
  for (const text of SAME.flat()) expect(canonicalValue(text).ok, text).toBe(true)
})

const NOT_A_SCALAR = 'must be JSON text of a non-empty string, a number or a boolean'
const TOO_LONG = 'must be at most 1024 characters long'
const UNSTORABLE = 'must not hold NUL or a lone surrogate'

describe('canonicalValue rejects', () => {
  test.each([
    ...['null', '""', '{}', '[]', '["a"]', '{"a":1}', '['.repeat(512) + ']'.repeat(512)].map((text) => [
      text,
      NOT_A_SCALAR,
    ]),
    ...[
      '',
      ' ',
      'a',
      "'a'",
      '"a',
      '01',
      '+1',
      '1.',
      '.5',
      '1e',
      '0x10',
      'NaN',
      'Infinity',
      'True',
      'undefined',
      '"\n"',
      '1 2',
      '1,000',
    ]
      .concat('a@example.com', '-', '\u00a01', '١')
      .map((text) => [text, `must be JSON text; to send it as a string, quote it: ${JSON.stringify(text)}`]),
    [`"${'a'.repeat(1023)}"`, TOO_LONG],
    ['1'.repeat(1025), TOO_LONG],
    [`"${'😀'.repeat(1023)}"`, TOO_LONG],
    ['"\0"', UNSTORABLE],
    ['"\ud800"', UNSTORABLE],
    ['"\\u0000"', `${UNSTORABLE}, escaped or not`],
    ['"a\\ud800b"', `${UNSTORABLE}, escaped or not`],
    ['"\\ude00\\ud83d"', `${UNSTORABLE}, escaped or not`],
  ])('%j', (text = '', issue) => {
    expect(canonicalValue(text)).toEqual({ ok: false, issue })
  })
})

test.each([`"${'a'.repeat(1022)}"`, `"${'😀'.repeat(1022)}"`, '9'.repeat(1024), '"\\n\\t"', '"\\u0085"'])(
  'canonicalValue accepts %.40s',
  (text) => {
    expect(canonicalValue(text).ok).toBe(true)
  },
)

test.each([
  ['', 'must be 1 to 128 characters long'],
  ['k'.repeat(129), 'must be 1 to 128 characters long'],
  ['😀'.repeat(129), 'must be 1 to 128 characters long'],
  ['a\0', UNSTORABLE],
  ['\udc00', UNSTORABLE],
  ['k'.repeat(128), undefined],
  ['😀'.repeat(128), undefined],
  ['__proto__', undefined],
  ['a\n', undefined],
])('identifierKeyIssue(%j) is %s', (key, issue) => {
  expect(identifierKeyIssue(key)).toBe(issue)
})

test('identifierDigest is SHA-256 of key, NUL and canonical value, so that the key’s end counts', () => {
  expect(identifierDigest('email', 'sa')).toEqual(createHash('sha256').update('email\0sa').digest())
  expect(identifierDigest('a', 'sb')).not.toEqual(identifierDigest('as', 'b'))
})

test.each([
  ['contact_id', 'sc1', 'c1'],
  ['contact_id', 'ssn', 'sn'],
  ['contact_id', 'n5e0', undefined],
  ['contact_id', 'btrue', undefined],
  ['email', 'sc1', undefined],
  ['Contact_id', 'sc1', undefined],
])('namesOf the key %s with the canonical value %s has the contact id %s', (key, canonical, contact_id) => {
  expect(namesOf(key, canonical)).toEqual({ digest: identifierDigest(key, canonical), contact_id })
})

test.each([
  ['"12345"', '12345'],
  ['"-1.5"', '-1.5'],
  ['"true"', 'true'],
  ['"false"', ' false'],
  [' 1.5 ', '"1.5"'],
  ['"1.50"', undefined],
  ['"-0"', undefined],
  ['1e3', undefined],
  ['"12345 "', undefined],
  ['"012"', undefined],
  ['"2026-03-01"', undefined],
  ['"a@example.com"', undefined],
  ['"null"', undefined],
  ['"truest"', undefined],
])('under another type, %s is %s, and the other way round', (value, other) => {
  const identifier = (key: string, value: string) => {
    const parsed = canonicalValue(value)
    return { key, value, canonical: parsed.ok ? parsed.canonical : parsed.issue }
  }
  const names = (key: string, value: string) => namesOf(key, identifier(key, value).canonical)
  for (const key of ['email', 'contact_id']) {
    expect(ofOtherType(identifier(key, value))).toEqual(other && names(key, other))
    if (other) expect(ofOtherType(identifier(key, other))).toEqual(names(key, value))
  }
})
