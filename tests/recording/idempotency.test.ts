import { request } from 'node:http'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import type { TestApp } from '../support/app.ts'
import { holdProject } from '../support/waiting.ts'
import { createRecordingApp, eventsOf, freshValue, post, rowCounts } from './fixture.ts'

let api: TestApp
beforeAll(async () => {
  api = await createRecordingApp()
})
afterAll(() => api.close())

let keys = 0
const withKey = (key = `key-${keys++}`) => ({ 'idempotency-key': key })

const eventCount = async () => (await rowCounts(api)).events

/** An event whose every field can be spelt differently. */
const event = () => ({
  module_id: 'quiz',
  timestamp: '2026-03-01T09:30:00.5Z',
  custom_event_name: 'bought',
  custom_event_props: '{ "price" : 1.0 }',
  identifiers: [
    { key: 'email', value: freshValue() },
    { key: 'number', value: `${++keys}` },
  ],
})
type Event = ReturnType<typeof event>

describe('the same event again', () => {
  test.each<[string, (event: Event) => object]>([
    ['unchanged', (event) => event],
    ['fields in another order', (event) => Object.fromEntries(Object.entries(event).reverse())],
    ['identifiers in another order', (event) => ({ ...event, identifiers: event.identifiers.toReversed() })],
    ['instant with an offset', (event) => ({ ...event, timestamp: '2026-03-01T10:30:00.5004+01:00' })],
    [
      'a number spelt differently',
      (event) => ({
        ...event,
        identifiers: event.identifiers.map(({ key, value }) => ({
          key,
          value: key === 'number' ? `${value}.0` : value,
        })),
      }),
    ],
  ])('gets the first response, byte for byte, and is recorded once: %s', async (_, again) => {
    const [headers, body] = [withKey(), event()]
    const first = await post(api, body, headers)
    expect(first.statusCode, first.body).toBe(200)
    expect(first.headers).not.toHaveProperty('idempotent-replayed')
    const before = await rowCounts(api)
    const replay = await post(api, again(body), headers)
    expect(replay.statusCode).toBe(200)
    expect(replay.headers['idempotent-replayed']).toBe('true')
    expect(replay.rawPayload.equals(first.rawPayload)).toBe(true)
    expect(await rowCounts(api)).toEqual(before)
    expect(await eventsOf(api, first.json().entry_id)).toHaveLength(1)
  })

  test('is the same without props as with empty props', async () => {
    const headers = withKey()
    const { custom_event_props: _, ...body } = event()
    const first = await post(api, body, headers)
    const replay = await post(api, { ...body, custom_event_props: '{}' }, headers)
    expect(replay.headers['idempotent-replayed']).toBe('true')
    expect(replay.body).toBe(first.body)
  })

  test('gets the first response even if it would be recorded differently now', async () => {
    const [headers, body] = [withKey(), event()]
    const first = await post(api, body, headers)
    await sql`UPDATE module_versions SET version_number = 7 WHERE project_id = 'demo' AND module_id = 'quiz'`.execute(
      api.db,
    )
    const replay = await post(api, body, headers)
    await sql`UPDATE module_versions SET version_number = 1 WHERE project_id = 'demo' AND module_id = 'quiz'`.execute(
      api.db,
    )
    expect(first.json().module_version_number).toBe(1)
    expect(replay.body).toBe(first.body)
  })

  test('gets unusual text unchanged', async () => {
    const headers = withKey()
    const body = { ...event(), custom_event_props: '{"a":"\\u0000\\ud800 😀 \u2028\u007f","a":1.0}' }
    const first = await post(api, body, headers)
    expect(first.json().custom_event_props).toBe(body.custom_event_props)
    expect((await post(api, body, headers)).body).toBe(first.body)
  })

  test('is a separate event under another key, under a key in another case, and without a key', async () => {
    const body = event()
    const before = (await eventCount()) ?? 0
    for (const headers of [withKey('Case'), withKey('case'), {}, {}]) {
      const response = await post(api, body, headers)
      expect(response.statusCode).toBe(200)
      expect(response.headers).not.toHaveProperty('idempotent-replayed')
    }
    expect(await eventCount()).toBe(before + 4)
  })
})

describe('a different event under the same key', () => {
  test.each<[string, (event: Event) => object]>([
    ['module', (event) => ({ ...event, module_id: 'booking' })],
    ['module, even one that does not exist', (event) => ({ ...event, module_id: 'absent' })],
    ['instant', (event) => ({ ...event, timestamp: '2026-03-01T09:30:00.501Z' })],
    ['name', (event) => ({ ...event, custom_event_name: 'Bought' })],
    ['props, even if only by a space', (event) => ({ ...event, custom_event_props: '{"price":1.0}' })],
    ['identifiers: one fewer', (event) => ({ ...event, identifiers: event.identifiers.slice(1) })],
    [
      'identifiers: one more',
      (event) => ({ ...event, identifiers: [...event.identifiers, { key: 'phone', value: '"1"' }] }),
    ],
    [
      'identifiers: another value',
      (event) => ({ ...event, identifiers: event.identifiers.map(({ key }) => ({ key, value: '"other"' })) }),
    ],
    [
      'identifiers: values swapped',
      ({ identifiers: [one, other], ...event }) => ({
        ...event,
        identifiers: [
          { key: one?.key, value: other?.value },
          { key: other?.key, value: one?.value },
        ],
      }),
    ],
  ])('is a 422, stores nothing and keeps the first response: different %s', async (_, change) => {
    const [headers, body] = [withKey(), event()]
    const first = await post(api, body, headers)
    const before = await rowCounts(api)
    const response = await post(api, change(body), headers)
    expect(response.statusCode, response.body).toBe(422)
    expect(response.json()).toMatchObject({
      error: { code: 'idempotency_key_reused', details: [{ pointer: '/headers/Idempotency-Key' }] },
      projectId: 'demo',
    })
    expect(await rowCounts(api)).toEqual(before)
    expect((await post(api, body, headers)).body).toBe(first.body)
  })
})

describe('a request that failed', () => {
  test.each<[number, (event: Event) => object]>([
    [400, (event) => ({ ...event, custom_event_props: '[]' })],
    [404, (event) => ({ ...event, module_id: 'absent' })],
  ])('with %i is not remembered', async (status, spoil) => {
    const [headers, body] = [withKey(), event()]
    expect((await post(api, spoil(body), headers)).statusCode).toBe(status)
    const response = await post(api, body, headers)
    expect(response.statusCode).toBe(200)
    expect(response.headers).not.toHaveProperty('idempotent-replayed')
  })

  test('with 409 is not remembered', async () => {
    const [headers, one, other] = [withKey(), event(), event()]
    await post(api, one)
    await post(api, other)
    const conflict = { ...one, identifiers: [one.identifiers[0], other.identifiers[1]] }
    expect((await post(api, conflict, headers)).statusCode).toBe(409)
    expect((await post(api, conflict, headers)).statusCode).toBe(409)
    const response = await post(api, one, headers)
    expect(response.statusCode).toBe(200)
    expect(response.headers).not.toHaveProperty('idempotent-replayed')
  })
})

test('a key is scoped to its project', async () => {
  const other = await createKey(api.db, 'other', { name: 'other', scopes: SCOPES, expires_at: null })
  const [headers, body] = [withKey(), event()]
  await post(api, body, headers)
  const path = '/projects/other/events'
  const another = { ...body, custom_event_name: 'another' }
  const response = await api.call({ method: 'POST', path, key: other, body: another, headers })
  expect(response.statusCode).toBe(200)
  expect(response.headers).not.toHaveProperty('idempotent-replayed')
  expect(response.json()).toMatchObject({ project_id: 'other', custom_event_name: 'another' })
})

test('concurrent requests with one key record one event and all get its response', async () => {
  const [headers, body] = [withKey(), event()]
  const before = (await eventCount()) ?? 0
  const responses = await Promise.all(Array.from({ length: 10 }, () => post(api, body, headers)))
  expect(responses.map((response) => response.statusCode)).toEqual(Array(10).fill(200))
  expect(responses.filter((response) => response.headers['idempotent-replayed'] === undefined)).toHaveLength(1)
  expect(new Set(responses.map((response) => response.body)).size).toBe(1)
  expect(await eventCount()).toBe(before + 1)
})

test('event and key are stored in one commit', async () => {
  const headers = withKey()
  await post(api, event(), headers)
  const { rows } = await sql`
    SELECT k.xmin = e.xmin AS together FROM idempotency_keys k
    JOIN events e ON e.project_id = k.project_id AND e.event_id = k.event_id
    WHERE k.idempotency_key = ${headers['idempotency-key']}`.execute(api.db)
  expect(rows).toEqual([{ together: true }])
})

test('a client that disconnected before the response gets it with its key', async () => {
  const address = await api.listen()
  const [headers, body] = [withKey(), event()]
  const obstacle = await holdProject(api.databaseUrl)
  const aborted = request(`${address}/projects/demo/events`, {
    method: 'POST',
    headers: { ...headers, 'x-api-key': api.key, 'content-type': 'application/json' },
  })
  aborted.on('error', () => {})
  aborted.end(JSON.stringify(body))
  await obstacle.waiting(1)
  aborted.destroy()
  // Sent while the first is still being recorded.
  const again = post(api, body, headers)
  await obstacle.release()
  const response = await again
  expect(response.statusCode).toBe(200)
  expect(response.headers['idempotent-replayed']).toBe('true')
  expect(await eventsOf(api, response.json().entry_id)).toHaveLength(1)
})
