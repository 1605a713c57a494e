declare const brand: unique symbol

/**
 * An instant in UTC with exactly three fraction digits, such as `2026-03-01T09:30:00.000Z`: the form of every timestamp in
 * responses and cursors. Such texts sort as the instants do. Only `parseTimestamp`, `toIsoTimestamp` and the database's
 * type parser make them.
 */
export type IsoTimestamp = string & { readonly [brand]: 'IsoTimestamp' }

/** A date as an ISO timestamp. @param date of the years 0001 to 9999 */
export const toIsoTimestamp = (date: Date): IsoTimestamp => date.toISOString() as IsoTimestamp

/** The result of reading an RFC 3339 date-time: an instant in UTC, or what is wrong with the text and a valid example. */
export type ParsedTimestamp = { ok: true; iso: IsoTimestamp } | { ok: false; issue: string }

const RFC3339 = /^(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))$/
/**
 * Fast path: text that is already in the canonical form, on any day that exists in every year (all but 29 February).
 * Most timestamps match and need no calendar arithmetic.
 */
const CANONICAL =
  /^(?!0000)\d{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z$/
export const TIMESTAMP_EXAMPLE = '2026-03-01T09:30:00.000Z'

const MINUTE_ms = 60_000
const DAY_ms = 24 * 60 * MINUTE_ms
const FIRST_ms = Date.parse('0001-01-01T00:00:00.000Z')
const LAST_ms = Date.parse('9999-12-31T23:59:59.999Z')

/** Like Date.UTC, without its mapping of the years 0–99 to 1900–1999. `month` counts from 1; any part may overflow. */
function utc(year: number, month: number, day: number, hour = 0, minute = 0, second = 0, ms = 0): number {
  return new Date(0).setUTCFullYear(year, month - 1, day) + ((hour * 60 + minute) * 60 + second) * 1000 + ms
}

const daysIn = (year: number, month: number) => new Date(utc(year, month + 1, 0)).getUTCDate()

type DateTimeParts = [number, number, number, number, number, number]
const clamp = (value: number, min: number, max: number) => Math.min(Math.max(value, min), max)

/**
 * Parses an RFC 3339 date-time of the years 0001 to 9999 and returns it in UTC with exactly three fraction digits;
 * further digits are truncated, never rounded (docs/semantics.md#timestamps). Never throws: a text that names no real
 * instant yields an issue that ends in the nearest valid value.
 */
export function parseTimestamp(text: string): ParsedTimestamp {
  if (CANONICAL.test(text)) return { ok: true, iso: text as IsoTimestamp }
  const parts = RFC3339.exec(text)
  if (!parts) return { ok: false, issue: describeMalformed(text) }
  const [year, month, day, hour, minute, second] = parts.slice(1).map(Number) as DateTimeParts
  const ms = Number((parts[7] ?? '').slice(0, 3).padEnd(3, '0'))
  const offsetHour = Number(parts[9] ?? 0)
  const offsetMinute = Number(parts[10] ?? 0)
  const offset_ms =
    (clamp(offsetHour, 0, 23) * 60 + clamp(offsetMinute, 0, 59)) * MINUTE_ms * (parts[8] === '-' ? -1 : 1)

  const lastDay = daysIn(year, clamp(month, 1, 12))
  const date = [Math.max(year, 1), clamp(month, 1, 12), clamp(day, 1, lastDay)] as const
  const time = hour > 23 ? ([24] as const) : ([hour, clamp(minute, 0, 59), clamp(second, 0, 59), ms] as const)
  // The instant given or, where it does not exist, the nearest that does.
  const instant_ms = utc(...date, ...time) - offset_ms
  const iso = toIsoTimestamp(new Date(clamp(instant_ms, FIRST_ms, LAST_ms)))

  let issue: string | undefined
  if (year < 1) issue = 'the year must be 0001 to 9999'
  else if (month < 1 || month > 12) issue = 'the month must be 01 to 12'
  else if (day < 1 || day > lastDay) issue = `the day must be 01 to ${lastDay} in that month`
  else if (hour > 23) issue = 'the hour must be 00 to 23 (midnight is 00:00 of the next day)'
  else if (minute > 59) issue = 'the minute must be 00 to 59'
  else if (second > 59) issue = 'the second must be 00 to 59 (leap seconds are not accepted)'
  else if (offsetHour > 23 || offsetMinute > 59) issue = 'the offset must be -23:59 to +23:59'
  else if (instant_ms < FIRST_ms || instant_ms > LAST_ms) issue = 'in UTC the year must be 0001 to 9999'
  return issue === undefined ? { ok: true, iso } : { ok: false, issue: `${issue}; for example ${iso}` }
}

/** Describes why a text does not have the form of a date-time. The example is the text repaired, where that is easy. */
function describeMalformed(text: string): string {
  const repairs: [RegExp, (text: string) => string, string][] = [
    [/ \d\d:\d\d$/, (t) => t.replace(/ (\d\d:\d\d)$/, '+$1'), 'in a URL, encode the + of an offset as %2B'],
    [/^\d{4}-\d\d-\d\d$/, (t) => `${t}T00:00:00Z`, 'a time is required'],
    [/^\d{4}-\d\d-\d\d .+$/, (t) => t.replace(' ', 'T'), 'separate date and time with T'],
    [/T\d\d:\d\d(:\d\d(\.\d+)?)?$/i, (t) => `${t}Z`, 'an offset or Z is required'],
    [/T\d\d:\d\d(Z|[+-]\d\d:\d\d)$/i, (t) => t.replace(/(T\d\d:\d\d)/i, '$1:00'), 'seconds are required'],
    [/[+-]\d\d\d\d$/, (t) => t.replace(/(\d\d)$/, ':$1'), 'the offset requires a colon'],
  ]
  let repaired = text.length > 40 ? '' : text
  const hints: string[] = []
  for (const [form, repair, hint] of repairs) {
    if (!form.test(repaired)) continue
    repaired = repair(repaired)
    hints.push(hint)
  }
  const usable = RFC3339.test(repaired) && parseTimestamp(repaired).ok
  const hint = usable ? ` (${hints.join('; ')})` : ''
  return `must be an RFC 3339 date-time with an offset or Z${hint}; for example ${usable ? repaired : TIMESTAMP_EXAMPLE}`
}

/** How far an event may be ahead of the server's clock, in milliseconds (docs/semantics.md#timestamps). */
export const MAX_AHEAD_ms = DAY_ms
