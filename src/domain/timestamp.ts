/** An RFC 3339 date-time as read, or what is wrong with it and how it would be right. */
export type ParsedTimestamp = { ok: true; iso: string } | { ok: false; problem: string }

const RFC3339 = /^(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))$/
/** The wire's own form of what needs no calendar to be told an instant: any day but 29 February. Most timestamps. */
const READY =
  /^(?!0000)\d{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z$/
export const TIMESTAMP_EXAMPLE = '2026-03-01T09:30:00.000Z'

const MINUTE_ms = 60_000
const DAY_ms = 24 * 60 * MINUTE_ms
const FIRST_ms = Date.parse('0001-01-01T00:00:00.000Z')
const LAST_ms = Date.parse('9999-12-31T23:59:59.999Z')

/** Date.UTC reads the years 0 to 99 as 1900 to 1999; this does not. `month` counts from 1; any part may overflow. */
function utc(year: number, month: number, day: number, hour = 0, minute = 0, second = 0, ms = 0): number {
  return new Date(0).setUTCFullYear(year, month - 1, day) + ((hour * 60 + minute) * 60 + second) * 1000 + ms
}

const daysIn = (year: number, month: number) => new Date(utc(year, month + 1, 0)).getUTCDate()

type Six = [number, number, number, number, number, number]
const clamp = (value: number, least: number, most: number) => Math.min(Math.max(value, least), most)

/**
 * Reads an RFC 3339 date-time of the years 0001 to 9999 and gives it in UTC with exactly milliseconds; what is finer
 * is cut off, never rounded (decisions, "Timestamps in"). What is no real instant is refused with a mended value.
 */
export function parseTimestamp(text: string): ParsedTimestamp {
  if (READY.test(text)) return { ok: true, iso: text }
  const parts = RFC3339.exec(text)
  if (!parts) return { ok: false, problem: explainForm(text) }
  const [year, month, day, hour, minute, second] = parts.slice(1, 7).map(Number) as Six
  const ms = Number((parts[7] ?? '').slice(0, 3).padEnd(3, '0'))
  const offsetHour = Number(parts[9] ?? 0)
  const offsetMinute = Number(parts[10] ?? 0)
  const offset_ms =
    (clamp(offsetHour, 0, 23) * 60 + clamp(offsetMinute, 0, 59)) * MINUTE_ms * (parts[8] === '-' ? -1 : 1)

  const lastDay = daysIn(year, clamp(month, 1, 12))
  const date = [clamp(year, 1, 9999), clamp(month, 1, 12), clamp(day, 1, lastDay)] as const
  const time = hour > 23 ? ([24] as const) : ([hour, clamp(minute, 0, 59), clamp(second, 0, 59), ms] as const)
  // What was sent, or when it is no instant the nearest that is.
  const instant_ms = utc(...date, ...time) - offset_ms
  const iso = new Date(clamp(instant_ms, FIRST_ms, LAST_ms)).toISOString()

  let fault: string | undefined
  if (year < 1) fault = 'the year must be 0001 to 9999'
  else if (month < 1 || month > 12) fault = 'the month must be 01 to 12'
  else if (day < 1 || day > lastDay) fault = `that month has the days 01 to ${lastDay}`
  else if (hour > 23) fault = 'the hour must be 00 to 23 (midnight is 00:00 of the next day)'
  else if (minute > 59) fault = 'the minute must be 00 to 59'
  else if (second > 59) fault = 'the second must be 00 to 59 (leap seconds are not accepted)'
  else if (offsetHour > 23 || offsetMinute > 59) fault = 'the offset must be -23:59 to +23:59'
  else if (instant_ms < FIRST_ms || instant_ms > LAST_ms) fault = 'in UTC the year must be 0001 to 9999'
  return fault === undefined ? { ok: true, iso } : { ok: false, problem: `${fault}; write for example ${iso}` }
}

/** Why a text has not even the form of a date-time; where a small repair makes it one, the repaired text. */
function explainForm(text: string): string {
  const repairs: [RegExp, (text: string) => string, string][] = [
    [/ \d\d:\d\d$/, (t) => t.replace(/ (\d\d:\d\d)$/, '+$1'), 'in a URL write the + of an offset as %2B'],
    [/^\d{4}-\d\d-\d\d$/, (t) => `${t}T00:00:00Z`, 'a time is needed too'],
    [/^\d{4}-\d\d-\d\d .+$/, (t) => t.replace(' ', 'T'), 'date and time are joined by T'],
    [/T\d\d:\d\d(:\d\d(\.\d+)?)?$/i, (t) => `${t}Z`, 'an offset or Z is needed'],
    [/T\d\d:\d\d(Z|[+-]\d\d:\d\d)$/i, (t) => t.replace(/(T\d\d:\d\d)/i, '$1:00'), 'seconds are needed'],
    [/[+-]\d\d\d\d$/, (t) => t.replace(/(\d\d)$/, ':$1'), 'the offset needs a colon'],
  ]
  let mended = text.length > 40 ? '' : text
  const hints: string[] = []
  for (const [form, repair, hint] of repairs) {
    if (!form.test(mended)) continue
    mended = repair(mended)
    hints.push(hint)
  }
  const usable = hints.length > 0 && RFC3339.test(mended) && parseTimestamp(mended).ok
  const hint = usable ? ` (${hints.join('; ')})` : ''
  return `must be an RFC 3339 date-time with an offset or Z${hint}; write for example ${usable ? mended : TIMESTAMP_EXAMPLE}`
}

/** How far an event may lie ahead of the server's clock (decisions, "Timestamps in"), in milliseconds. */
export const MAX_AHEAD_ms = DAY_ms
