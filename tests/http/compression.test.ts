import { gunzipSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createTestApp, EXAMPLES, importFile, importInto, type TestApp } from '../support/app.ts'
import { EVENT } from './requests.ts'

// Lists are compressed for clients that ask for it.

const ENTRY = { project_id: 'demo', entry_id: 'compressed', module_id: 'skin-quiz', contact_id: 'compressed' }
const VIEW = {
  event_type: 'flowpage.viewed',
  view_type: 'flowpage',
  page_id: 'p',
  page_key: 'k'.repeat(1_000),
  page_index: 0,
}

let api: TestApp
beforeAll(async () => {
  api = await createTestApp({
    twins: false,
    fill: async (url) => {
      await importFile(url, EXAMPLES)
      const timestamp = '2026-02-01T00:00:00.000Z'
      await importInto(url, [
        { type: 'contact', project_id: 'demo', contact_id: 'compressed', identifiers: [] },
        { type: 'entry', ...ENTRY, updated_at: timestamp },
        ...Array.from({ length: 300 }, (_, i) => {
          const { project_id, entry_id } = ENTRY
          return { type: 'event', project_id, entry_id, event_id: `v${i}`, timestamp, ...VIEW }
        }),
      ])
    },
  })
})
afterAll(() => api.close())

const LISTS = [
  '/projects/demo/entries/compressed/events?limit=5',
  '/projects/demo/entries/compressed/events?limit=300',
  '/projects/demo/entries-page-views',
  '/projects/demo/events?limit=300',
]

describe.each(LISTS)('%s', (path) => {
  const get = (encoding?: string, method?: 'HEAD') =>
    api.call({ method, path, headers: encoding === undefined ? {} : { 'accept-encoding': encoding } })

  test.each(['gzip', 'br, gzip;q=0.5', 'deflate, gzip'])(
    'is sent by gzip to a client that accepts %s',
    async (encoding) => {
      const plain = await get()
      const compressed = await get(encoding)
      expect(compressed.headers['content-encoding']).toBe('gzip')
      expect(gunzipSync(compressed.rawPayload).toString()).toBe(plain.body)
      expect(compressed.rawPayload.length).toBeLessThan(plain.rawPayload.length / 5)
      for (const name of ['link', 'next-cursor', 'content-type', 'cache-control']) {
        expect(compressed.headers[name]).toBe(plain.headers[name])
      }
    },
  )

  test.each([undefined, 'identity', 'br', 'gzip;q=0'])('is sent as it is to one that accepts %s', async (encoding) => {
    const { headers, body } = await get(encoding)
    expect(headers['content-encoding']).toBeUndefined()
    expect(headers['content-length']).toBe(String(Buffer.byteLength(body)))
  })

  test('varies on the encoding in any case', async () => {
    for (const encoding of [undefined, 'gzip']) {
      expect((await get(encoding)).headers.vary).toBe('X-Api-Key, accept-encoding')
    }
  })

  test('has the same headers for HEAD', async () => {
    const { headers } = await get('gzip', 'HEAD')
    expect(headers).toMatchObject({ 'content-encoding': 'gzip', vary: 'X-Api-Key, accept-encoding' })
  })
})

test.each([
  ['a list that is small', '/projects/demo/modules'],
  ['a single resource', '/projects/demo/modules/skin-quiz'],
])('%s is sent as it is', async (_, path) => {
  const { headers } = await api.call({ path, headers: { 'accept-encoding': 'gzip' } })
  expect(headers['content-encoding']).toBeUndefined()
})

test('a list is compressed from 1 KiB on', async () => {
  const listOf = async (entry_id: string, text: string) => {
    const timestamp = '2026-02-01T00:00:00.000Z'
    const custom_event_props = JSON.stringify({ text })
    await importInto(api.databaseUrl, [
      { type: 'entry', ...ENTRY, entry_id, updated_at: timestamp },
      {
        type: 'event',
        project_id: 'demo',
        entry_id,
        event_id: entry_id,
        timestamp,
        event_type: 'custom_event:triggered',
        custom_event_name: 'filler',
        custom_event_props,
      },
    ])
    const path = `/projects/demo/entries/${entry_id}/events`
    const plain = await api.call({ path })
    const { headers } = await api.call({ path, headers: { 'accept-encoding': 'gzip' } })
    return [Buffer.byteLength(plain.body), headers['content-encoding']]
  }
  const [least] = await listOf('kib-0', '')
  const filler = 'x'.repeat(1_023 - Number(least))
  expect(await listOf('kib-1', filler)).toEqual([1_023, undefined])
  expect(await listOf('kib-2', `${filler}x`)).toEqual([1_024, 'gzip'])
})

test('the results of a batch are sent as they are', async () => {
  const headers = { 'accept-encoding': 'gzip' }
  const body = { events: Array.from({ length: 20 }, () => EVENT) }
  const response = await api.call({ method: 'POST', path: '/projects/demo/events/batch', headers, body })
  expect(response.body.length).toBeGreaterThan(2_000)
  expect(response.headers['content-encoding']).toBeUndefined()
})

test('an error of a list is not compressed, and depends on no header', async () => {
  const path = `/projects/demo/entries?${'x'.repeat(2_000)}=1`
  const { statusCode, headers, body } = await api.call({ path, headers: { 'accept-encoding': 'gzip' } })
  expect([statusCode, headers['content-encoding'], headers.vary]).toEqual([400, undefined, undefined])
  expect(body.length).toBeGreaterThan(2_000)
})
