import pg from 'pg'
import type { IsoTimestamp } from '../domain/timestamp.ts'

/**
 * PostgreSQL's text of a timestamptz(3) in UTC (`2026-03-01 09:30:00.5+00`) as an ISO timestamp
 * (`2026-03-01T09:30:00.500Z`), without a Date in between.
 */
export function parseTimestamptz(text: string): IsoTimestamp {
  if (text.length === 'YYYY-MM-DD HH:MM:SS.SSS+00'.length) {
    return `${text.slice(0, 10)}T${text.slice(11, 23)}Z` as IsoTimestamp
  }
  const [seconds, fraction = ''] = text.slice(0, -'+00'.length).split('.') as [string, string?]
  return `${seconds.replace(' ', 'T')}.${fraction.padEnd(3, '0')}Z` as IsoTimestamp
}

/** How the text of PostgreSQL's types becomes values; the columns' types in generated/database.ts agree with it. */
export const typeParsers: pg.CustomTypesConfig = {
  getTypeParser(oid, format) {
    if (oid === pg.types.builtins.TIMESTAMPTZ) return parseTimestamptz
    if (oid === pg.types.builtins.INT8) return Number
    return pg.types.getTypeParser(oid, format)
  },
}
