import { expect, test } from 'vitest'
import { parseTimestamp } from '../../src/domain/timestamp.ts'

test.each([
  ['2026-03-01T09:30:00Z', '2026-03-01T09:30:00.000Z'],
  ['2026-03-01t09:30:00z', '2026-03-01T09:30:00.000Z'],
  ['2026-03-01T09:30:00.5Z', '2026-03-01T09:30:00.500Z'],
  ['2026-03-01T09:30:00.05Z', '2026-03-01T09:30:00.050Z'],
  ['2026-03-01T09:30:00.9999Z', '2026-03-01T09:30:00.999Z'],
  [`2026-12-31T23:59:59.${'9'.repeat(5000)}Z`, '2026-12-31T23:59:59.999Z'],
  ['2026-03-01T10:30:00+01:00', '2026-03-01T09:30:00.000Z'],
  ['2026-03-01T04:00:00-05:30', '2026-03-01T09:30:00.000Z'],
  ['2026-03-01T00:00:00-00:00', '2026-03-01T00:00:00.000Z'],
  ['2026-03-01T00:00:00+23:59', '2026-02-28T00:01:00.000Z'],
  ['2026-02-28T23:00:00-23:59', '2026-03-01T22:59:00.000Z'],
  ['2024-02-29T00:00:00Z', '2024-02-29T00:00:00.000Z'],
  ['2000-02-29T00:00:00Z', '2000-02-29T00:00:00.000Z'],
  ['1969-12-31T23:59:59.9999Z', '1969-12-31T23:59:59.999Z'],
  ['0001-01-01T00:00:00Z', '0001-01-01T00:00:00.000Z'],
  ['0001-01-01T01:00:00+01:00', '0001-01-01T00:00:00.000Z'],
  ['0099-12-31T00:00:00Z', '0099-12-31T00:00:00.000Z'],
  ['9999-12-31T23:59:59.9999Z', '9999-12-31T23:59:59.999Z'],
  ['9999-12-31T22:59:59-01:00', '9999-12-31T23:59:59.000Z'],
])('%s is an instant', (text, iso) => {
  expect(parseTimestamp(text)).toEqual({ ok: true, iso })
})

test('the canonical form is accepted unchanged for every day that exists, and for no other', () => {
  const numbers = (count: number) => Array.from({ length: count }, (_, i) => String(i).padStart(2, '0'))
  for (const year of ['0000', '0001', '1900', '2000', '2023', '2024', '9999']) {
    for (const month of numbers(14)) {
      for (const day of numbers(33)) {
        const text = `${year}-${month}-${day}T23:59:59.999Z`
        const date = new Date(text)
        const exists = year !== '0000' && !Number.isNaN(date.getTime()) && date.toISOString() === text
        expect(parseTimestamp(text), text).toEqual(
          exists ? { ok: true, iso: text } : { ok: false, issue: expect.any(String) },
        )
      }
    }
  }
})

/** Well-formed text that names no instant, the issue, and the instant probably meant. */
const NONEXISTENT = [
  ['0000-12-31T00:00:00Z', 'the year must be 0001 to 9999', '0001-12-31T00:00:00.000Z'],
  ['2026-00-10T00:00:00Z', 'the month must be 01 to 12', '2026-01-10T00:00:00.000Z'],
  ['2026-00-31T00:00:00Z', 'the month must be 01 to 12', '2026-01-31T00:00:00.000Z'],
  ['2026-13-31T00:00:00Z', 'the month must be 01 to 12', '2026-12-31T00:00:00.000Z'],
  ['2026-13-10T00:00:00Z', 'the month must be 01 to 12', '2026-12-10T00:00:00.000Z'],
  ['2026-02-30T10:20:30Z', 'the day must be 01 to 28 in that month', '2026-02-28T10:20:30.000Z'],
  ['2024-02-30T10:20:30Z', 'the day must be 01 to 29 in that month', '2024-02-29T10:20:30.000Z'],
  ['2100-02-29T00:00:00Z', 'the day must be 01 to 28 in that month', '2100-02-28T00:00:00.000Z'],
  ['2026-04-31T00:00:00Z', 'the day must be 01 to 30 in that month', '2026-04-30T00:00:00.000Z'],
  ['2026-04-00T00:00:00Z', 'the day must be 01 to 30 in that month', '2026-04-01T00:00:00.000Z'],
  ['2026-04-99T99:99:99Z', 'the day must be 01 to 30 in that month', '2026-05-01T00:00:00.000Z'],
  ['2026-02-30T01:00:00+02:00', 'the day must be 01 to 28 in that month', '2026-02-27T23:00:00.000Z'],
  ['2026-03-01T24:00:00Z', 'the hour must be 00 to 23 (midnight is 00:00 of the next day)', '2026-03-02T00:00:00.000Z'],
  ['2026-03-01T24:30:00Z', 'the hour must be 00 to 23 (midnight is 00:00 of the next day)', '2026-03-02T00:00:00.000Z'],
  ['9999-12-31T24:00:00Z', 'the hour must be 00 to 23 (midnight is 00:00 of the next day)', '9999-12-31T23:59:59.999Z'],
  ['2026-03-01T10:60:00Z', 'the minute must be 00 to 59', '2026-03-01T10:59:00.000Z'],
  ['2016-12-31T23:59:60Z', 'the second must be 00 to 59 (leap seconds are not accepted)', '2016-12-31T23:59:59.000Z'],
  [
    '2017-01-01T00:59:60.5+01:00',
    'the second must be 00 to 59 (leap seconds are not accepted)',
    '2016-12-31T23:59:59.500Z',
  ],
  ['2026-03-01T10:00:00+24:00', 'the offset must be -23:59 to +23:59', '2026-02-28T11:00:00.000Z'],
  ['2026-03-01T10:00:00-01:60', 'the offset must be -23:59 to +23:59', '2026-03-01T11:59:00.000Z'],
  ['0001-01-01T00:00:00+00:01', 'in UTC the year must be 0001 to 9999', '0001-01-01T00:00:00.000Z'],
  ['9999-12-31T23:59:59-00:01', 'in UTC the year must be 0001 to 9999', '9999-12-31T23:59:59.999Z'],
]

/** Malformed text, the hint, and the text probably meant. */
const MALFORMED = [
  ['2026-03-01', ' (a time is required)', '2026-03-01T00:00:00Z'],
  ['2026-03-01T09:30:00 01:00', ' (in a URL, encode the + of an offset as %2B)', '2026-03-01T09:30:00+01:00'],
  [
    '2026-03-01 09:30:00 01:00',
    ' (in a URL, encode the + of an offset as %2B; separate date and time with T)',
    '2026-03-01T09:30:00+01:00',
  ],
  // The longest that is repaired, and one character more.
  [`2026-03-01T09:30:00.${'0'.repeat(20)}`, ' (an offset or Z is required)', `2026-03-01T09:30:00.${'0'.repeat(20)}Z`],
  [`2026-03-01T09:30:00.${'0'.repeat(21)}`, '', '2026-03-01T09:30:00.000Z'],
  ['2026-03-01 09:30:00Z', ' (separate date and time with T)', '2026-03-01T09:30:00Z'],
  ['2026-03-01 09:30:00', ' (separate date and time with T; an offset or Z is required)', '2026-03-01T09:30:00Z'],
  ['2026-03-01T09:30:00', ' (an offset or Z is required)', '2026-03-01T09:30:00Z'],
  ['2026-03-01T09:30Z', ' (seconds are required)', '2026-03-01T09:30:00Z'],
  ['2026-03-01T09:30', ' (an offset or Z is required; seconds are required)', '2026-03-01T09:30:00Z'],
  ['2026-03-01T09:30:00+0100', ' (the offset requires a colon)', '2026-03-01T09:30:00+01:00'],
  ...[
    '',
    ' ',
    '1772357472',
    'yesterday',
    'infinity',
    '2026-3-1T9:30:00Z',
    '+002026-03-01T09:30:00Z',
    '2026-060T00:00:00Z',
  ]
    .concat(
      '2026-W09-7T00:00:00Z',
      '20260301T093000Z',
      ' 2026-03-01T09:30:00Z',
      '2026-03-01T09:30:00Z ',
      '2026-03-01T09:30:00Z\n',
      ' 2026-03-01T09:30:00.000Z',
      '2026-03-01T09:30:00.000Z ',
      '2026-03-01T09:30:00.000Z\n',
    )
    .concat('2026-03-01T09:30:00,5Z', '2026-03-01T09:30:00.Z', '2026-03-01T09:30:00+01', '2026-03-01T09:30:00−01:00')
    .concat('٢٠٢٦-03-01T09:30:00Z', '2026-03-01T09:30:00Z\0', '2026-02-30', '9'.repeat(100_000), ' '.repeat(100_000))
    .map((text) => [text, '', '2026-03-01T09:30:00.000Z']),
]

test.each([
  ...NONEXISTENT.map(([text = '', issue, suggested]) => [text, `${issue}; for example ${suggested}`]),
  ...MALFORMED.map(([text = '', hint, suggested]) => [
    text,
    `must be an RFC 3339 date-time with an offset or Z${hint}; for example ${suggested}`,
  ]),
])('%o is rejected', (text, issue) => {
  expect(parseTimestamp(text)).toEqual({ ok: false, issue })
})

test.each([...NONEXISTENT, ...MALFORMED])('the example suggested for %o is valid', (_text, _issue, suggested = '') => {
  expect(parseTimestamp(suggested).ok).toBe(true)
})
