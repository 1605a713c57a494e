import { createHash, type Hash } from 'node:crypto'
import { Readable } from 'node:stream'
import { setImmediate } from 'node:timers/promises'
import { JsonText } from '../domain/json-text.ts'

/** About how many characters are serialized before other requests have a turn, and sent at once. */
const PART_LENGTH = 128 * 1024

/** How many rows without long texts are serialized at once. */
const GROUP_ROWS = 128

/** A large body, which is sent part by part, as fast as its client reads. */
export class BodyStream extends Readable {
  /** The last part comes first. */
  readonly #parts: Buffer[]
  readonly bytes: number
  /** The strong entity tag of a single result. */
  readonly etag: string | undefined
  /** The bytes of each part that was pushed and is not known to be sent. */
  readonly #unsent_bytes: number[] = []
  /**
   * Called whenever the connection has taken a part, with the bytes that it has sent since. The last parts are not among them:
   * they are sent once the response has ended.
   */
  onPart: ((bytes: number) => void) | undefined

  constructor(parts: Buffer[], etag?: string) {
    super()
    this.#parts = parts.toReversed()
    this.bytes = parts.reduce((sum, { length }) => sum + length, 0)
    this.etag = etag
  }

  /** What was pushed and is not known to be sent. */
  get unsent_bytes(): number {
    return this.#unsent_bytes.reduce((sum, bytes) => sum + bytes, 0)
  }

  override _read(): void {
    this.onPart?.(this.#takeSent())
    const part = this.#parts.pop()
    if (part) this.#unsent_bytes.push(part.length)
    this.push(part ?? null)
  }

  /** A connection takes a part when it has sent the one before. */
  #takeSent(): number {
    const taken_bytes = this.unsent_bytes - this.readableLength
    let sent_bytes = 0
    for (;;) {
      const [first, second] = this.#unsent_bytes
      if (first === undefined || second === undefined || sent_bytes + first + second > taken_bytes) return sent_bytes
      sent_bytes += first
      this.#unsent_bytes.shift()
    }
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

/** A part of a list, and how many rows it holds. */
export interface SerializedPart extends Serialized {
  body: BodyStream
}

/**
 * Serializes rows as an array: the first, and as many others as fit. Large bodies are serialized in turns with other work.
 *
 * @param areSmall whether the rows are without long texts
 * @param max_bytes of the body
 */
export function serializeRows(
  rows: readonly object[],
  areSmall: boolean,
  max_bytes: number,
): Serialized | Promise<Serialized> {
  if (areSmall && rows.length <= GROUP_ROWS) {
    const body = isJsonText(rows) ? `[${joined(rows)}]` : JSON.stringify(rows)
    if (body.length <= PART_LENGTH) return { body, rows: rows.length }
  }
  return serializeInParts(arrayTexts(rows, areSmall, max_bytes))
}

/** Serializes rows as part of an array: the first, and as many others as fit. @param opening what comes before them */
export async function serializePart(
  rows: readonly object[],
  areSmall: boolean,
  max_bytes: number,
  opening: '[' | ',',
): Promise<SerializedPart> {
  return serializeInParts(arrayTexts(rows, areSmall, max_bytes, opening, ''))
}

/** Serializes the response to a batch; a large one in turns with other work. */
export async function serializeResults(results: readonly object[]): Promise<string | BodyStream> {
  if (results.length <= GROUP_ROWS) {
    const body = JSON.stringify({ results })
    if (body.length <= PART_LENGTH) return body
  }
  const texts = arrayTexts(results, false, Number.POSITIVE_INFINITY, '{"results":[', ']}')
  return (await serializeInParts(texts)).body
}

/** Serializes a large object in turns with other work, with its entity tag. */
export async function serializeLarge(value: object): Promise<BodyStream> {
  const digest = createHash('sha256')
  return (await serializeInParts(objectTexts(value), digest)).body
}

async function serializeInParts<Rows>(
  texts: Iterator<string, Rows>,
  digest?: Hash,
): Promise<{ body: BodyStream; rows: Rows }> {
  const parts: Buffer[] = []
  let text = ''
  for (;;) {
    const next = texts.next()
    if (!next.done) text += next.value
    if (text.length > PART_LENGTH || (next.done && text !== '')) {
      const part = Buffer.from(text)
      digest?.update(part)
      parts.push(part)
      text = ''
    }
    if (next.done) return { body: new BodyStream(parts, digest && `"${digest.digest('base64url')}"`), rows: next.value }
    if (text === '') await setImmediate()
  }
}

/** The texts of an array, which returns how many rows it has. */
function* arrayTexts(
  rows: readonly object[],
  areSmall: boolean,
  max_bytes: number,
  opening = '[',
  closing = ']',
): Generator<string, number> {
  let count = 0
  let bytes = '[]'.length
  let groupRows = areSmall ? GROUP_ROWS : 1
  yield opening
  while (count < rows.length) {
    const group = rows.slice(count, count + groupRows)
    const texts = areSmall ? [textOf(group)] : rowTexts(group[0] as object)
    const separator = count > 0 ? ',' : ''
    const added = texts.reduce((sum, text) => sum + Buffer.byteLength(text), separator.length)
    if (count === 0 || bytes + added <= max_bytes) {
      yield separator
      yield* texts
      count += group.length
      bytes += added
    } else if (group.length > 1) groupRows = 1
    else break
  }
  yield closing
  return count
}

const isJsonText = (rows: readonly object[]): rows is readonly JsonText[] => rows[0] instanceof JsonText
const joined = (rows: readonly JsonText[]): string => rows.map(({ text }) => text).join(',')

/** Rows as they are in an array. */
const textOf = (rows: readonly object[]): string =>
  isJsonText(rows) ? joined(rows) : JSON.stringify(rows).slice(1, -1)

const rowTexts = (row: object): string[] => {
  if (row instanceof JsonText) return [...slices(row.text)]
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
