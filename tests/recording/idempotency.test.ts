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

/** An event in which everything can be spelt in another way. */
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
    ['as it was', (event) => event],
    ['its fields in another order', (event) => Object.fromEntries(Object.entries(event).reverse())],
    ['its identifiers in another order', (event) => ({ ...event, identifiers: event.identifiers.toReversed() })],
    ['its instant with an offset', (event) => ({ ...event, timestamp: '2026-03-01T10:30:00.5004+01:00' })],
    [
      'a number spelt otherwise',
      (event) => ({
        ...event,
        identifiers: event.identifiers.map(({ key, value }) => ({
          key,
          value: key === 'number' ? `${value}.0` : value,
        })),
      }),
    ],
  ])('is answered as the first time, byte for byte, and recorded once: %s', async (_, again) => {
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

  test('is the same without props as with empty ones', async () => {
    const headers = withKey()
    const { custom_event_props: _, ...body } = event()
    const first = await post(api, body, headers)
    const replay = await post(api, { ...body, custom_event_props: '{}' }, headers)
    expect(replay.headers['idempotent-replayed']).toBe('true')
    expect(replay.body).toBe(first.body)
  })

  test('is answered as the first time also when it would be recorded differently now', async () => {
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

  test('keeps awkward text as it was', async () => {
    const headers = withKey()
    const body = { ...event(), custom_event_props: '{"a":"\\u0000\\ud800 😀 \u2028\u007f","a":1.0}' }
    const first = await post(api, body, headers)
    expect(first.json().custom_event_props).toBe(body.custom_event_props)
    expect((await post(api, body, headers)).body).toBe(first.body)
  })

  test('is another event under another key, under a key in another case, and without one', async () => {
    const body = event()
    const before = (await eventCount()) ?? 0
    for (const headers of [withKey('Case'), withKey('case'), {}, {}]) {
      const answer = await post(api, body, headers)
      expect(answer.statusCode).toBe(200)
      expect(answer.headers).not.toHaveProperty('idempotent-replayed')
    }
    expect(await eventCount()).toBe(before + 4)
  })
})

describe('another event under the same key', () => {
  test.each<[string, (event: Event) => object]>([
    ['module', (event) => ({ ...event, module_id: 'booking' })],
    ['module, even an absent one', (event) => ({ ...event, module_id: 'absent' })],
    ['instant', (event) => ({ ...event, timestamp: '2026-03-01T09:30:00.501Z' })],
    ['name', (event) => ({ ...event, custom_event_name: 'Bought' })],
    ['props, if only by a space', (event) => ({ ...event, custom_event_props: '{"price":1.0}' })],
    ['identifiers: one less', (event) => ({ ...event, identifiers: event.identifiers.slice(1) })],
    [
      'identifiers: one more',
      (event) => ({ ...event, identifiers: [...event.identifiers, { key: 'phone', value: '"1"' }] }),
    ],
    [
      'identifiers: another value',
      (event) => ({ ...event, identifiers: event.identifiers.map(({ key }) => ({ key, value: '"other"' })) }),
    ],
    [
      'identifiers: values exchanged',
      ({ identifiers: [one, other], ...event }) => ({
        ...event,
        identifiers: [
          { key: one?.key, value: other?.value },
          { key: other?.key, value: one?.value },
        ],
      }),
    ],
  ])('is a 422 that writes nothing and leaves the first answer: another %s', async (_, change) => {
    const [headers, body] = [withKey(), event()]
    const first = await post(api, body, headers)
    const before = await rowCounts(api)
    const answer = await post(api, change(body), headers)
    expect(answer.statusCode, answer.body).toBe(422)
    expect(answer.json()).toMatchObject({
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
    const answer = await post(api, body, headers)
    expect(answer.statusCode).toBe(200)
    expect(answer.headers).not.toHaveProperty('idempotent-replayed')
  })

  test('with 409 is not remembered', async () => {
    const [headers, one, other] = [withKey(), event(), event()]
    await post(api, one)
    await post(api, other)
    const conflict = { ...one, identifiers: [one.identifiers[0], other.identifiers[1]] }
    expect((await post(api, conflict, headers)).statusCode).toBe(409)
    expect((await post(api, conflict, headers)).statusCode).toBe(409)
    const answer = await post(api, one, headers)
    expect(answer.statusCode).toBe(200)
    expect(answer.headers).not.toHaveProperty('idempotent-replayed')
  })
})

test('a key is of its project alone', async () => {
  const other = await createKey(api.db, 'other', { name: 'other', scopes: SCOPES, expires_at: null })
  const [headers, body] = [withKey(), event()]
  await post(api, body, headers)
  const path = '/projects/other/events'
  const another = { ...body, custom_event_name: 'another' }
  const answer = await api.call({ method: 'POST', path, key: other, body: another, headers })
  expect(answer.statusCode).toBe(200)
  expect(answer.headers).not.toHaveProperty('idempotent-replayed')
  expect(answer.json()).toMatchObject({ project_id: 'other', custom_event_name: 'another' })
})

test('twins at once make one event: the first is recorded, the others get its answer', async () => {
  const [headers, body] = [withKey(), event()]
  const before = (await eventCount()) ?? 0
  const answers = await Promise.all(Array.from({ length: 10 }, () => post(api, body, headers)))
  expect(answers.map((answer) => answer.statusCode)).toEqual(Array(10).fill(200))
  expect(answers.filter((answer) => answer.headers['idempotent-replayed'] === undefined)).toHaveLength(1)
  expect(new Set(answers.map((answer) => answer.body)).size).toBe(1)
  expect(await eventCount()).toBe(before + 1)
})

test('event and key are one commit', async () => {
  const headers = withKey()
  await post(api, event(), headers)
  const { rows } = await sql`
    SELECT k.xmin = e.xmin AS together FROM idempotency_keys k
    JOIN events e ON e.project_id = k.project_id AND e.event_id = k.event_id
    WHERE k.idempotency_key = ${headers['idempotency-key']}`.execute(api.db)
  expect(rows).toEqual([{ together: true }])
})

test('a caller who hung up before the answer finds it under the key', async () => {
  const address = await api.listen()
  const [headers, body] = [withKey(), event()]
  const obstacle = await holdProject(api.databaseUrl)
  const lost = request(`${address}/projects/demo/events`, {
    method: 'POST',
    headers: { ...headers, 'x-api-key': api.key, 'content-type': 'application/json' },
  })
  lost.on('error', () => {})
  lost.end(JSON.stringify(body))
  await obstacle.waiting(1)
  lost.destroy()
  // Sent while the first is still under way.
  const again = post(api, body, headers)
  await obstacle.release()
  const answer = await again
  expect(answer.statusCode).toBe(200)
  expect(answer.headers['idempotent-replayed']).toBe('true')
  expect(await eventsOf(api, answer.json().entry_id)).toHaveLength(1)
})
