import { createHash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { type ApiError, invalidRequest } from './errors.ts'
import { isStorable } from './text.ts'
import { type IsoTimestamp, parseTimestamp } from './timestamp.ts'

export type Direction = 'ASC' | 'DESC'

/** The values by which a list is sorted, in order. The next page begins after those of a page's last row. */
export type SortKey = readonly [string | number, ...(string | number)[]]

/** The query parameters of every list, after validation. */
export interface PageQuery {
  limit: number
  direction: Direction
  cursor?: string
}

/** One page of a list. */
export class Page<Row> {
  readonly rows: Row[]
  /** The cursor of the page that begins after as many of the rows; undefined if no rows follow. */
  readonly cursorAfter: (rows: number) => string | undefined

  constructor(rows: Row[], cursorAfter: (rows: number) => string | undefined) {
    this.rows = rows
    this.cursorAfter = cursorAfter
  }

  map<Other>(convert: (row: Row) => Other): Page<Other> {
    return new Page(this.rows.map(convert), this.cursorAfter)
  }
}

const VERSION = 1
const FINGERPRINT_bytes = 12
const CHECKSUM_bytes = 4

export const FOREIGN_CURSOR =
  'is not a cursor of this list with this direction and these filters; use the Next-Cursor of the previous page, or leave it out to start from the beginning'

const foreignCursor = (): ApiError => invalidRequest([{ pointer: '/query/cursor', message: FOREIGN_CURSOR }])

/** A digest of what a cursor is bound to: operation, path, filters and direction, everything but the limit. */
export function fingerprint(scope: readonly unknown[]): Buffer {
  return createHash('sha256').update(JSON.stringify(scope)).digest().subarray(0, FINGERPRINT_bytes)
}

/**
 * base64url of version, fingerprint, sort key as JSON, and CRC-32 (docs/semantics.md#paging). Fingerprint and checksum
 * detect mistakes, not forgeries: a cursor gives access to nothing that its holder could not read anyway (ADR 0015).
 */
export function encodeCursor(scope: Buffer, key: SortKey): string {
  const body = Buffer.concat([Buffer.of(VERSION), scope, Buffer.from(JSON.stringify(key))])
  const checksum = Buffer.alloc(CHECKSUM_bytes)
  checksum.writeUInt32BE(crc32(body))
  return Buffer.concat([body, checksum]).toString('base64url')
}

/**
 * The sort key in a cursor.
 * @param isKey whether a value is a sort key of this list; a forged cursor may hold anything
 * @throws ApiError invalid_request for a cursor of another list, and for one that is damaged or forged
 */
export function decodeCursor<Key extends SortKey>(
  scope: Buffer,
  text: string,
  isKey: (value: unknown) => value is Key,
): Key {
  const bytes = Buffer.from(text, 'base64url')
  const end = bytes.length - CHECKSUM_bytes
  const start = 1 + FINGERPRINT_bytes
  if (bytes.toString('base64url') !== text || end < start) throw foreignCursor()
  if (bytes[0] !== VERSION || !bytes.subarray(1, start).equals(scope)) throw foreignCursor()
  if (bytes.readUInt32BE(end) !== crc32(bytes.subarray(0, end))) throw foreignCursor()
  let key: unknown
  try {
    key = JSON.parse(bytes.toString('utf8', start, end))
  } catch {
    throw foreignCursor()
  }
  if (!isKey(key)) throw foreignCursor()
  return key
}

/** How to fetch a page by keyset: sort by the key in this direction, begin after `after`, take at most `limit` rows. */
export interface Keyset<Key extends SortKey> {
  readonly direction: Direction
  readonly after: Key | undefined
  readonly limit: number
}

/** The rows of a page, and whether more follow in the list. */
export interface Slice<Row> {
  rows: Row[]
  more: boolean
}

/**
 * Fetches one page.
 *
 * @param scope everything that the cursor is bound to beside the direction
 * @param select fetches the rows of a keyset
 * @param keyOf the sort key of a row
 * @throws ApiError invalid_request for a cursor of another list
 */
export async function paginate<Row, Key extends SortKey>(
  scope: readonly unknown[],
  query: PageQuery,
  isKey: (value: unknown) => value is Key,
  select: (keyset: Keyset<Key>) => Promise<Slice<Row>>,
  keyOf: (row: Row) => Key,
): Promise<Page<Row>> {
  const { limit, direction, cursor } = query
  const bound = fingerprint([...scope, direction])
  const after = cursor === undefined ? undefined : decodeCursor(bound, cursor, isKey)
  const { rows, more } = await select({ direction, after, limit })
  return new Page(rows, (count) => {
    const last = rows[count - 1]
    return last !== undefined && (count < rows.length || more) ? encodeCursor(bound, keyOf(last)) : undefined
  })
}

/** Whether a value is `[ISO timestamp, id]`, by which events and entries are sorted. */
export function isInstantAndId(value: unknown): value is readonly [IsoTimestamp, string] {
  if (!Array.isArray(value) || value.length !== 2) return false
  const [instant, id] = value
  if (typeof instant !== 'string' || typeof id !== 'string' || !isStorable(id)) return false
  const parsed = parseTimestamp(instant)
  // PostgreSQL reads fewer spellings than RFC 3339 has: it refuses longer fractions and wider offsets.
  return parsed.ok && parsed.iso === instant
}

/** Whether a value is `[number]`, a 32-bit integer, by which versions are sorted. */
export function isInt32(value: unknown): value is readonly [number] {
  return Array.isArray(value) && value.length === 1 && Number.isInteger(value[0]) && (value[0] | 0) === value[0]
}
