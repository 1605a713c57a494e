import { createHash } from 'node:crypto'
import { Writable } from 'node:stream'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, test } from 'vitest'
import { JsonText } from '../../src/domain/json-text.ts'
import {
  BodyStream,
  isLarge,
  type Serialized,
  serializeLarge,
  serializeResults,
  serializeRows,
} from '../../src/http/response-body.ts'

// The parts of bodies, which no response shows; tests/http/large.test.ts has large responses.

const PART = 128 * 1024
const text = (length: number) => 'x'.repeat(length)

/** The chunks that a stream gives. Checks that all but the last three at most were reported as sent. */
async function read(stream: BodyStream) {
  let sent = 0
  stream.onPart = (bytes) => {
    sent += bytes
  }
  const chunks: Buffer[] = []
  for await (const chunk of stream) chunks.push(chunk)
  const lengths = chunks.map(({ length }) => length)
  const sumOf = (some: number[]) => some.reduce((sum, length) => sum + length, 0)
  expect(sent).toBeGreaterThanOrEqual(sumOf(lengths.slice(0, -3)))
  expect(sent).toBeLessThanOrEqual(sumOf(lengths.slice(0, -1)))
  return { lengths, body: Buffer.concat(chunks).toString() }
}
const bodyOf = async ({ body }: Serialized) => (typeof body === 'string' ? body : (await read(body)).body)

/** How many turns of the event loop work leaves to others. */
async function turnsDuring(work: () => Promise<unknown>): Promise<number> {
  let turns = 0
  const count = () => {
    turns += 1
    immediate = setImmediate(count)
  }
  let immediate = setImmediate(count)
  await work()
  clearImmediate(immediate)
  return turns
}

describe('rows', () => {
  const objects = (count: number) => Array.from({ length: count }, (_, id) => ({ id, name: 'é🦉"' }))
  const texts = (rows: object[]) => rows.map((row) => new JsonText(JSON.stringify(row)))

  test.each([0, 1, 2, 128, 129, 257])('are the JSON of the array, %i of them', async (count) => {
    const rows = objects(count)
    for (const areSmall of [true, false]) {
      for (const given of [rows, texts(rows)]) {
        const serialized = await serializeRows(given, areSmall, Number.POSITIVE_INFINITY)
        expect(serialized.rows).toBe(count)
        expect(await bodyOf(serialized)).toBe(JSON.stringify(rows))
      }
    }
  })

  test.each([
    ['128 small ones', objects(128), true, false],
    ['129 small ones', objects(129), true, true],
    ['one that may be large', objects(1), false, true],
    ['128 KiB', [text(PART - 4)], true, false],
    ['128 KiB and a byte', [text(PART - 3)], true, true],
  ])('are a stream if they are many or large: %s', async (_, rows, areSmall, isStream) => {
    const { body } = await serializeRows(rows as object[], areSmall, Number.POSITIVE_INFINITY)
    expect(body instanceof BodyStream).toBe(isStream)
  })

  test.each([PART - 4, PART - 3, PART - 2])('have no empty part at their end: %i characters', async (length) => {
    const rows = ['x'.repeat(length)] as unknown as object[]
    // It would let the last real part count as sent, as `read` checks.
    expect(await bodyOf(await serializeRows(rows, false, Number.POSITIVE_INFINITY))).toBe(JSON.stringify(rows))
  })

  test.each([
    ['with long texts', false, objects(10)],
    ['with a long text each', false, objects(4).map((row) => ({ ...row, long: text(PART + 1) }))],
    ['as JSON', false, texts(objects(10))],
    ['of several groups', true, objects(130)],
    ['of several groups as JSON', true, texts(objects(130))],
  ])('end before the body is too large: rows %s', async (_, areSmall, rows) => {
    const bytesOf = (count: number) =>
      Buffer.byteLength(
        JSON.stringify(rows.slice(0, count).map((row) => (row instanceof JsonText ? JSON.parse(row.text) : row))),
      )
    // A group of small ones is there as a whole.
    const first = areSmall ? 128 : 1
    for (const count of [first, first + 1, rows.length - 2, rows.length - 1, rows.length]) {
      const max_bytes = bytesOf(count)
      const fitting = await serializeRows(rows, areSmall, max_bytes)
      expect([fitting.rows, (fitting.body as BodyStream).bytes]).toEqual([count, max_bytes])
      expect(JSON.parse(await bodyOf(fitting))).toHaveLength(count)
      const less = await serializeRows(rows, areSmall, max_bytes - 1)
      expect(less.rows).toBe(Math.max(first, count - 1))
    }
  })
})

test.each([
  ['128 of them', Array(128).fill({ status: 200 }), false],
  ['129 of them', Array(129).fill({ status: 200 }), true],
  ['128 KiB', [text(PART - '{"results":[""]}'.length)], false],
  ['more than 128 KiB', [text(PART)], true],
])('the results of a batch are a stream if they are many or large: %s', async (_, results, isStream) => {
  const body = await serializeResults(results)
  expect(body instanceof BodyStream).toBe(isStream)
  expect(await bodyOf({ body, rows: results.length })).toBe(JSON.stringify({ results }))
})

describe('an object with long texts', () => {
  const value = { id: 'é', none: undefined, long: text(4 * PART), null: null, other: text(PART + 1) }

  test('is sent in parts, each as soon as there is room', async () => {
    const stream = await serializeLarge(value)
    const { lengths, body } = await read(stream)
    expect(body).toBe(JSON.stringify(value))
    const head = Buffer.byteLength('{"id":"é","long":"')
    const middle = ',"null":null,"other":"'.length
    // A part ends with what exceeds 128 KiB.
    expect(lengths).toEqual([head + PART, 2 * PART, PART + '"'.length, middle + PART, 1 + '"}'.length])
    expect(stream.bytes).toBe(Buffer.byteLength(body))
    expect(stream.etag).toBe(`"${createHash('sha256').update(body).digest('base64url')}"`)
  })

  test('leaves a turn to others after each part', async () => {
    expect(await turnsDuring(() => serializeLarge(value))).toBe(4)
    expect(await turnsDuring(async () => serializeRows([value], false, Number.POSITIVE_INFINITY))).toBe(4)
  })

  test('is cut between characters', async () => {
    for (const start of ['', 'x', text(PART - 1), text(PART)]) {
      const long = { text: `${start}🦉${start}${'🦉'.repeat(PART)}` }
      expect((await read(await serializeLarge(long))).body).toBe(JSON.stringify(long))
    }
  })

  test('as text is what is not sent yet', async () => {
    const stream = await serializeLarge(value)
    expect(`${stream}`).toBe(JSON.stringify(value))
  })

  test.each([
    [{ a: 1, b: text(PART) }, false],
    [{ a: 1, b: text(PART + 1) }, true],
    [{ a: [text(PART + 1)] }, false],
  ])('is large from one character above 128 KiB on', (object, expected) => {
    expect(isLarge(object)).toBe(expected)
  })
})

// Node 24 asks for a part earlier than Node 26, and so knows of one less.
test.each([
  [[1], [0]],
  [
    [1, 1],
    [0, 1],
  ],
  [
    [1, 1, 1, 1, 1],
    [3, 4],
  ],
  [
    [1, 2, 3, 4, 5],
    [6, 10],
  ],
  [
    [5, 4, 3, 2, 1],
    [12, 14],
  ],
])('no part that its connection still holds is reported as sent, of parts of %j', async (sizes, sentAtLast) => {
  const stream = new BodyStream(sizes.map((size) => Buffer.alloc(size * PART)))
  let reported = 0
  stream.onPart = (bytes) => {
    reported += bytes
  }
  let sent = 0
  let end: (() => void) | undefined
  const connection = new Writable({
    write: ({ length }: Buffer, _, done) => {
      end = () => {
        sent += length
        done()
      }
    },
  })
  stream.pipe(connection)
  while (sent < stream.bytes) {
    await nextTurn()
    expect(reported).toBeLessThanOrEqual(sent)
    end?.()
    end = undefined
  }
  const [before26, since26] = sentAtLast
  expect(reported).toBe(Number(parseInt(process.versions.node, 10) < 26 ? before26 : since26) * PART)
  expect(stream.unsent_bytes).toBe(stream.bytes - reported)
})
