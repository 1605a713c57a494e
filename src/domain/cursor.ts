import { hash } from 'node:crypto'
import { crc32 } from 'node:zlib'
import { invalidRequest } from './errors.ts'
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

/** What comes after a page. */
export interface Continuation {
  /** The cursor of the page that begins there, if there is or will be one. */
  cursor: string | undefined
  /** Whether rows follow. */
  more: boolean
}

/** One page of a list. */
export class Page<Row> {
  readonly rows: Row[]
  /** The key that it begins after; undefined at the beginning of the list. */
  readonly after: SortKey | undefined
  /** What comes after as many of the rows. */
  readonly continuationAfter: (rows: number) => Continuation

  constructor(rows: Row[], after: SortKey | undefined, continuationAfter: (rows: number) => Continuation) {
    this.rows = rows
    this.after = after
    this.continuationAfter = continuationAfter
  }

  map<Other>(convert: (row: Row) => Other): Page<Other> {
    return new Page(this.rows.map(convert), this.after, this.continuationAfter)
  }
}

/** A list without pages: it is complete, though it is read and sent page by page. */
export class WholeList<Row> {
  /** Reads the first page, or the one that a cursor leads to, when the rows before it are on their way. */
  readonly read: (cursor?: string) => Promise<Page<Row>>

  constructor(read: (cursor?: string) => Promise<Page<Row>>) {
    this.read = read
  }
}

const VERSION = 1
const FINGERPRINT_bytes = 12
const CHECKSUM_bytes = 4

export const FOREIGN_CURSOR =
  'is not a cursor of this list with this direction and these filters; use the Next-Cursor of the previous page, or leave it out to start from the beginning'

const NEEDS_ASCENDING = 'is a cursor of direction=ASC; send direction=ASC with it'

/** A digest of what a cursor is bound to: operation, path, filters and direction, everything but the limit. */
export function fingerprint(scope: readonly unknown[]): Buffer {
  return hash('sha256', JSON.stringify(scope), 'buffer').subarray(0, FINGERPRINT_bytes)
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
 * The sort key in a cursor; undefined for a cursor of another list, and for one that is damaged or forged.
 * @param isKey whether a value is a sort key of this list; a forged cursor may hold anything
 */
export function decodeCursor<Key extends SortKey>(
  scope: Buffer,
  text: string,
  isKey: (value: unknown) => value is Key,
): Key | undefined {
  const bytes = Buffer.from(text, 'base64url')
  const end = bytes.length - CHECKSUM_bytes
  const start = 1 + FINGERPRINT_bytes
  if (bytes.toString('base64url') !== text || end < start) return undefined
  if (bytes[0] !== VERSION || !bytes.subarray(1, start).equals(scope)) return undefined
  if (bytes.readUInt32BE(end) !== crc32(bytes.subarray(0, end))) return undefined
  try {
    const key: unknown = JSON.parse(bytes.toString('utf8', start, end))
    return isKey(key) ? key : undefined
  } catch {
    return undefined
  }
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

/** A list, as its pages need to know it. */
export interface PagedList<Row, Key extends SortKey> {
  /** Everything that a cursor is bound to beside the direction. */
  scope: readonly unknown[]
  isKey: (value: unknown) => value is Key
  /** Fetches the rows of a keyset. */
  select: (keyset: Keyset<Key>) => Promise<Slice<Row>>
  keyOf: (row: Row) => Key
  /** A key before all others, if rows are only ever added at the end. Every ascending page then has a cursor. */
  origin?: Key | undefined
}

/**
 * Fetches one page.
 *
 * @param start the key to begin after, without a cursor
 * @throws ApiError invalid_request for a cursor of another list
 */
export async function paginate<Row, Key extends SortKey>(
  { scope, isKey, keyOf, select, origin }: PagedList<Row, Key>,
  { limit, direction, cursor }: PageQuery,
  start?: Key,
): Promise<Page<Row>> {
  const boundTo = (chosen: Direction) => fingerprint([...scope, chosen])
  const bound = boundTo(direction)
  const after = cursor === undefined ? start : decodeCursor(bound, cursor, isKey)
  if (cursor !== undefined && after === undefined) {
    const isAscending = origin !== undefined && decodeCursor(boundTo('ASC'), cursor, isKey) !== undefined
    throw invalidRequest([{ pointer: '/query/cursor', message: isAscending ? NEEDS_ASCENDING : FOREIGN_CURSOR }])
  }
  const { rows, more } = await select({ direction, after, limit })
  const growsOn = direction === 'ASC' ? origin : undefined
  return new Page(rows, after, (count) => {
    const last = rows[count - 1]
    const isMore = count < rows.length || more
    const lastKey = last === undefined ? growsOn && (after ?? growsOn) : keyOf(last)
    const hasCursor = lastKey !== undefined && (isMore || growsOn !== undefined)
    return { cursor: hasCursor ? encodeCursor(bound, lastKey) : undefined, more: isMore }
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

/** Whether a value is `[number]`, a position in the feed, or 0. */
export function isPosition(value: unknown): value is readonly [number] {
  return Array.isArray(value) && value.length === 1 && Number.isSafeInteger(value[0]) && value[0] >= 0
}

/** Whether a value is `[number]`, a 32-bit integer, by which versions are sorted. */
export function isInt32(value: unknown): value is readonly [number] {
  return Array.isArray(value) && value.length === 1 && Number.isInteger(value[0]) && (value[0] | 0) === value[0]
}
