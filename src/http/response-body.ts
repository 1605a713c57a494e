import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import { JsonText } from '../domain/json-text.ts'

/** The largest body of a page (docs/semantics.md#paging). */
export const MAX_PAGE_bytes = 8 * 1024 * 1024

/** About how many characters are serialized before other requests have a turn, and sent at once. */
const PART_LENGTH = 128 * 1024

/** A large body, which is sent part by part, as fast as its client reads. */
export class BodyStream extends Readable {
  /** The last part comes first. */
  readonly #parts: Buffer[]
  readonly bytes: number
  /** The strong entity tag. */
  readonly etag: string
  /** Called with the bytes of each part when the client has room for it. */
  onPart: ((bytes: number) => void) | undefined

  constructor(parts: Buffer[], etag: string) {
    super()
    this.#parts = parts.toReversed()
    this.bytes = parts.reduce((sum, { length }) => sum + length, 0)
    this.etag = etag
  }

  override _read(): void {
    const part = this.#parts.pop()
    if (part) this.onPart?.(part.length)
    this.push(part ?? null)
  }

  /** What is not sent yet. */
  override toString(): string {
    return Buffer.concat(this.#parts.toReversed()).toString()
  }
}

/** A serialized result, and how many rows it holds. */
export interface Serialized {
  body: string | BodyStream
  rows: number
}

/**
 * Serializes rows as an array: the first, and as many others as fit. Large bodies are serialized in turns with other work.
 *
 * @param max_bytes of the body
 */
export function serializeRows(rows: readonly object[], max_bytes: number): Serialized | Promise<Serialized> {
  const texts = arrayTexts(rows, max_bytes)
  let body = ''
  for (;;) {
    const next = texts.next()
    if (next.done) return { body, rows: next.value }
    body += next.value
    if (body.length > PART_LENGTH) return serializeInParts(body, texts)
  }
}

/** Serializes a large object in turns with other work. */
export const serializeLarge = async (value: object): Promise<BodyStream> =>
  (await serializeInParts('', objectTexts(value))).body

async function serializeInParts<Rows>(
  start: string,
  texts: Iterator<string, Rows>,
): Promise<{ body: BodyStream; rows: Rows }> {
  const parts: Buffer[] = []
  const digest = createHash('sha256')
  let text = start
  const addPart = () => {
    const part = Buffer.from(text)
    digest.update(part)
    parts.push(part)
    text = ''
  }
  for (;;) {
    const next = texts.next()
    if (next.done) {
      addPart()
      return { body: new BodyStream(parts, `"${digest.digest('base64url')}"`), rows: next.value }
    }
    text += next.value
    if (text.length > PART_LENGTH) {
      addPart()
      await setImmediate()
    }
  }
}

/** The texts of an array, which returns how many rows it has. */
function* arrayTexts(rows: readonly object[], max_bytes: number): Generator<string, number> {
  let bytes = '[]'.length
  for (const [i, row] of rows.entries()) {
    const texts = rowTexts(row)
    bytes += Number(i > 0) + texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
    if (i > 0 && bytes > max_bytes) {
      yield ']'
      return i
    }
    yield i > 0 ? ',' : '['
    yield* texts
  }
  yield rows.length > 0 ? ']' : '[]'
  return rows.length
}

const rowTexts = (row: object): string[] => {
  if (row instanceof JsonText) return row.text.length > PART_LENGTH ? [...slices(row.text)] : [row.text]
  return isLarge(row) ? [...objectTexts(row)] : [JSON.stringify(row)]
}

const isLong = (value: unknown): value is string => typeof value === 'string' && value.length > PART_LENGTH

/** Whether an object has a long text, which takes long to serialize. */
export const isLarge = (value: object): boolean => Object.values(value).some(isLong)

function* objectTexts(value: object): Generator<string, void> {
  let start = '{'
  for (const [name, field] of Object.entries(value)) {
    if (field === undefined) continue
    yield `${start}${JSON.stringify(name)}:`
    start = ','
    if (!isLong(field)) yield JSON.stringify(field)
    else {
      yield '"'
      for (const slice of slices(field)) yield JSON.stringify(slice).slice(1, -1)
      yield '"'
    }
  }
  yield '}'
}

/** A text in slices that do not cut a character in two. */
function* slices(text: string): Generator<string> {
  for (let start = 0; start < text.length; ) {
    const end = start + PART_LENGTH
    const isCut = /[\uD800-\uDBFF]/.test(text.charAt(end - 1))
    const slice = text.slice(start, end + Number(isCut))
    yield slice
    start += slice.length
  }
}
