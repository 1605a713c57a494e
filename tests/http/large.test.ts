import { createHash, Hash } from 'node:crypto'
import type { ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { text as textOf } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { Lease, ReadGate } from '../../src/http/read-gate.ts'
import { createTestApp, type TestApp, withExamples } from '../support/app.ts'
import { lengthenKeys, longKey } from '../support/long-keys.ts'

// Responses whose size no limit of the document bounds: a page ends before it has more than 8 MiB, and what is larger by
// itself is sent part by part.

const MAX_PAGE_bytes = 8 * 1024 * 1024
/** A part of a body: 128 Ki characters, of which some take several bytes. */
const PART_bytes = 4 * 128 * 1024
const project = { project_id: 'demo' }
/** Of two-byte, four-byte and escaped characters, so that wherever it is cut, it is within one. */
const text = (length: number) => 'é🦉"\n'.repeat(Math.ceil(length / 5)).slice(0, length)
const DEFINITION = JSON.stringify({ text: text(700_000) })
const SMALL = JSON.stringify({ text: 'x'.repeat(64 * 1024 - 11) })

/** The kilobytes of the page keys of each entry: of 12 entries, one is larger than a page and two fill one. */
const SIZES_kB = [1, 3_000, 5, 4_500, 4_500, 1, 9_000, 1, 0, 2_500, 2_500, 2_500]
const at = (second: number) => new Date(Date.UTC(2026, 1, 1, 0, 0, second)).toISOString()

function* records(): Generator<object> {
  const module = { ...project, module_id: 'large' }
  yield { type: 'module', ...module, group_id: 'clinic', title: 'Large' }
  const saved = { saved_at: at(0), published_at: at(0) }
  yield { type: 'module_version', ...module, ...saved, version_number: 1, json_string: SMALL }
  yield { type: 'module_version', ...module, ...saved, published_at: at(1), version_number: 2, json_string: DEFINITION }
  for (const [i, size_kB] of SIZES_kB.entries()) {
    const entry = { ...project, entry_id: `large-${i}` }
    yield { type: 'contact', ...project, contact_id: `large-${i}`, identifiers: [] }
    const ids = { module_id: 'large', contact_id: `large-${i}` }
    yield { type: 'entry', ...entry, ...ids, created_at: at(0), updated_at: at(i), entry_data: DEFINITION }
    // Texts without escapes, whose size is known before they are read.
    for (let k = 0; k < size_kB; k += 500) {
      const page = {
        view_type: 'flowpage',
        page_id: `p${k}`,
        page_index: 1,
        page_key: longKey('k', 1000 * Math.min(500, size_kB - k)),
      }
      yield { type: 'event', ...entry, event_id: `${i}-${k}`, timestamp: at(k), event_type: 'flowpage.viewed', ...page }
    }
  }
  // Its events take 8 MB in the database and 16 MB as JSON, in which each character is escaped.
  const entry = { ...project, entry_id: 'escaped' }
  yield { type: 'contact', ...project, contact_id: 'escaped', identifiers: [] }
  yield { type: 'entry', ...entry, module_id: 'large', contact_id: 'escaped', created_at: at(0), updated_at: at(60) }
  for (let k = 0; k < 8; k += 1) {
    const page = { view_type: 'flowpage', page_id: 'p', page_index: 1, page_key: longKey('"', 500_000) }
    yield { type: 'event', ...entry, event_id: `x${k}`, timestamp: at(k), event_type: 'flowpage.viewed', ...page }
  }
}

let api: TestApp
let address: URL
beforeAll(async () => {
  api = await createTestApp({
    fill: async (url, db) => {
      await withExamples(records())(url, db)
      await lengthenKeys(url)
    },
    twins: false,
  })
  address = new URL(await api.listen())
})
afterAll(() => api.close())

/** Every page of a list, from the first to the last. */
async function pagesOf(path: string): Promise<{ bytes: number; rows: Record<string, unknown>[] }[]> {
  const pages = []
  for (let next: string | undefined = path; next !== undefined; ) {
    const response = await api.call({ path: next })
    expect(response.statusCode).toBe(200)
    expect(Number(response.headers['content-length'])).toBe(response.rawPayload.length)
    pages.push({ bytes: response.rawPayload.length, rows: response.json() })
    const { link } = response.headers
    expect(link === undefined).toBe(response.headers['next-cursor'] === undefined)
    next = /^<(.*)>; rel="next"$/.exec(String(link ?? ''))?.[1]
  }
  return pages
}

describe.each(['ASC', 'DESC'])('a walk through large rows, %s', (direction) => {
  const window = `updated_after=${at(0)}&updated_before=${at(60)}&direction=${direction}`

  test.each([3, 1000])('gives each entry once, in pages of at most %i rows and 8 MiB', async (limit) => {
    const pages = await pagesOf(`/projects/demo/entries-page-views?${window}&limit=${limit}`)
    const ids = SIZES_kB.map((_, i) => `large-${i}`)
    expect(pages.flatMap(({ rows }) => rows.map((row) => row.entry_id))).toEqual(
      direction === 'ASC' ? ids : ids.toReversed(),
    )
    for (const { bytes, rows } of pages) {
      expect(rows.length).toBeGreaterThan(0)
      if (rows.length > 1) expect(bytes).toBeLessThanOrEqual(MAX_PAGE_bytes)
    }
    // None could have held the first row of the next.
    if (limit === 1000) {
      for (const [i, { bytes }] of pages.slice(0, -1).entries()) {
        const [first] = pages[i + 1]?.rows ?? []
        expect(bytes + Buffer.byteLength(JSON.stringify(first))).toBeGreaterThan(MAX_PAGE_bytes)
      }
    }
    for (const row of pages.flatMap(({ rows }) => rows)) {
      const length = (row.page_views as { page_key: string }[]).reduce((sum, view) => sum + view.page_key.length, 0)
      expect(length).toBe(1000 * (SIZES_kB[ids.indexOf(String(row.entry_id))] ?? 0))
    }
  })

  test('gives each entry once, with its data', async () => {
    const pages = await pagesOf(`/projects/demo/entries?${window}&limit=1000`)
    expect(pages.length).toBeGreaterThan(1)
    for (const { bytes } of pages) expect(bytes).toBeLessThanOrEqual(MAX_PAGE_bytes)
    const entries = SIZES_kB.map((_, i) => ({ entry_id: `large-${i}`, entry_data: DEFINITION }))
    const read = pages.flatMap(({ rows }) => rows.map(({ entry_id, entry_data }) => ({ entry_id, entry_data })))
    expect(read).toEqual(direction === 'ASC' ? entries : entries.toReversed())
  })

  test('gives each event once', async () => {
    const pages = await pagesOf(`/projects/demo/entries/large-6/events?limit=1000&direction=${direction}`)
    expect(pages.length).toBeGreaterThan(1)
    for (const { bytes } of pages) expect(bytes).toBeLessThanOrEqual(MAX_PAGE_bytes)
    const keys = pages.flatMap(({ rows }) => rows.map((row) => row.page_id))
    const all = Array.from({ length: 18 }, (_, i) => `p${500 * i}`)
    expect(keys).toEqual(direction === 'ASC' ? all : all.toReversed())
  })
})

test('a page ends before 8 MiB of JSON, too', async () => {
  const pages = await pagesOf('/projects/demo/entries/escaped/events?limit=1000&direction=ASC')
  expect(pages.map(({ rows }) => rows.map((row) => row.timestamp))).toEqual([
    [0, 1, 2, 3].map(at),
    [4, 5, 6, 7].map(at),
  ])
})

describe.each([
  ['a module', '/projects/demo/modules/large', 'json_string_prod', DEFINITION],
  ['a version', '/projects/demo/modules/large/versions/2', 'json_string', DEFINITION],
  ['a version as large as is read at once', '/projects/demo/modules/large/versions/1', 'json_string', SMALL],
  ['an entry', '/projects/demo/entries/large-3', 'entry_data', DEFINITION],
])('%s', (_, path, field, expected) => {
  test('is sent whole, with its entity tag', async () => {
    const response = await api.call({ path })
    expect(response.json()[field]).toBe(expected)
    expect(response.headers['content-length']).toBe(String(response.rawPayload.length))
    const etag = `"${createHash('sha256').update(response.rawPayload).digest('base64url')}"`
    expect(response.headers.etag).toBe(etag)

    const head = await api.call({ method: 'HEAD', path })
    expect(head.rawPayload).toHaveLength(0)
    expect(head.headers).toMatchObject({ etag, 'content-length': response.headers['content-length'] })
    const unchanged = await api.call({ path, headers: { 'if-none-match': etag } })
    expect([unchanged.statusCode, unchanged.body]).toEqual([304, ''])
  })

  test('is the same for several at once', async () => {
    const responses = await Promise.all(Array.from({ length: 5 }, () => api.call({ path })))
    for (const response of responses) expect(response.json()[field]).toBe(expected)
  })
})

test('a read is admitted with as much as small rows and values may have', async () => {
  const admit = vi.spyOn(ReadGate.prototype, 'admit')
  onTestFinished(() => admit.mockRestore())
  await api.call({ path: '/projects/demo/entries/large-8/events?limit=3' })
  await api.call({ path: '/projects/demo/modules/large/versions/1' })
  expect(admit.mock.calls.map(([project, bytes]) => [project, bytes])).toEqual([
    ['demo', 3 * 4 * 1024],
    ['demo', 64 * 1024],
  ])
})

test('a look-up of a large value asks for as many bytes as it has', async () => {
  const enter = vi.spyOn(ReadGate.prototype, 'enter')
  onTestFinished(() => enter.mockRestore())
  await api.call({ path: '/projects/demo/modules/large' })
  expect(enter.mock.calls.map(([, bytes]) => bytes)).toEqual([64 * 1024, Buffer.byteLength(DEFINITION)])
})

test.each([
  ['/projects/demo/entries/large-8/events', false],
  ['/projects/demo/modules/skin-quiz', false],
  ['/projects/demo/entries/large-3/events', true],
  ['/projects/demo/modules/large', true],
])('the lease of %s has the bytes of the body until they are sent', async (path, isInParts) => {
  const [send, sent] = [vi.spyOn(Lease.prototype, 'send'), vi.spyOn(Lease.prototype, 'sent')]
  onTestFinished(() => {
    send.mockRestore()
    sent.mockRestore()
  })
  const { length } = (await api.call({ path })).rawPayload
  expect(send.mock.calls).toEqual([[length]])
  const sent_bytes = sent.mock.calls.reduce((sum, [bytes]) => sum + bytes, 0)
  // The rest is sent once the response has ended.
  expect(sent_bytes).toBeGreaterThanOrEqual(isInParts ? length - 3 * PART_bytes : 0)
  expect(sent_bytes).toBeLessThan(isInParts ? length : 1)
})

test('a client that leaves while its body is serialized leaves its place to others', async () => {
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>()
  const update = vi.spyOn(Hash.prototype, 'update')
  onTestFinished(() => update.mockRestore())
  api.app.server.once('request', (_, response: ServerResponse) => {
    update.mockImplementation(function (this: Hash) {
      response.destroy()
      begin()
      return this
    })
  })
  const socket = connect(Number(address.port), address.hostname)
  socket.write(`GET /projects/demo/modules/large HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${api.key}\r\n\r\n`)
  await begun
  const reads = async () => /^flowtrail_reads_under_way (.*)$/m.exec((await api.app.inject('/metrics')).body)?.[1]
  await expect.poll(reads).toBe('0')
})

test('bytes that are no request end the connection, and not within the response before them', async () => {
  const socket = connect(Number(address.port), address.hostname)
  socket.write(
    `GET /projects/demo/entries/large-6/events?limit=1000 HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${api.key}\r\n\r\n`,
  )
  socket.once('data', () => socket.write('no request\r\n\r\n'))
  const received = await textOf(socket)
  expect(received).not.toContain('HTTP/1.1 400')
  const body = received.slice(received.indexOf('\r\n\r\n'))
  expect(Buffer.byteLength(body.trim())).toBe(Number(/^content-length: (\d+)/im.exec(received)?.[1]))
})
