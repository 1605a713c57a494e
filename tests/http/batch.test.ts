import { once } from 'node:events'
import { connect as connectSocket } from 'node:net'
import type { LightMyRequestResponse } from 'fastify'
import { sql } from 'kysely'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { serviceUnavailable } from '../../src/domain/errors.ts'
import { Lease, ReadGate } from '../../src/http/read-gate.ts'
import { Recorder } from '../../src/recording/recorder.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { holdProject } from '../support/waiting.ts'
import { EVENT, expectIssues, rowCounts, takeTurns } from './requests.ts'

// recordCustomEvents: each event of a batch gets what it alone would get, in the order of the events.

interface Result {
  status: number
  event?: Record<string, unknown>
  replayed?: boolean
  error?: { code: string; message: string; details?: { pointer: string; message: string }[] }
}

let api: TestApp
const log: { msg: string }[] = []
beforeAll(async () => {
  const stream = { write: (line: string) => void log.push(JSON.parse(line)) }
  api = await createTestApp({ logger: { level: 'error', stream } })
})
afterAll(() => api.close())

const send = (body: unknown, headers?: Record<string, string>) =>
  api.call({ method: 'POST', path: '/projects/demo/events/batch', body, headers })
const single = (body: unknown, key?: string) =>
  api.call({
    method: 'POST',
    path: '/projects/demo/events',
    body,
    ...(key !== undefined && { headers: { 'idempotency-key': key } }),
  })

async function record(...events: unknown[]): Promise<Result[]> {
  const response = await send({ events })
  expect(response.statusCode).toBe(200)
  return response.json().results
}

const of = (email: string, changes: object = {}) => ({
  ...EVENT,
  identifiers: [{ key: 'email', value: JSON.stringify(email) }],
  ...changes,
})

const stored = async (name: string) => {
  const { rows } = await sql<{ event_id: string }>`
    SELECT event_id FROM events WHERE project_id = 'demo' AND custom_event_name = ${name} ORDER BY position`.execute(
    api.db,
  )
  return rows.map(({ event_id }) => event_id)
}

test('records events in their order, each with its own result', async () => {
  const results = await record(
    of('first@example.com', { custom_event_name: 'in order' }),
    of('first@example.com', { custom_event_name: 'in order', module_id: 'hair-quiz' }),
    of('second@example.com', { custom_event_name: 'in order' }),
    of('first@example.com', { custom_event_name: 'in order' }),
  )
  expect(results.map(({ status }) => status)).toEqual([200, 404, 200, 200])
  const [first, missing, second, third] = results
  expect(missing).toEqual({
    status: 404,
    error: { code: 'module_does_not_exist', message: 'The project has no module "hair-quiz".' },
    projectId: 'demo',
    moduleId: 'hair-quiz',
  })
  expect(first).toMatchObject({ replayed: false, event: { project_id: 'demo', custom_event_name: 'in order' } })
  expect(third?.event?.contact_id).toBe(first?.event?.contact_id)
  expect(second?.event?.contact_id).not.toBe(first?.event?.contact_id)
  expect(await stored('in order')).toEqual([first, second, third].map((result) => result?.event?.event_id))
})

test('takes a thousand events', async () => {
  const before = await rowCounts(api.db)
  const named = { custom_event_name: 'of a thousand' }
  const results = await record(...Array.from({ length: 1_000 }, (_, i) => of(`${i}@thousand.example.com`, named)))
  expect(new Set(results.map(({ status, replayed }) => `${status} ${replayed}`))).toEqual(new Set(['200 false']))
  expect(await rowCounts(api.db)).toMatchObject({ events: Number(before.events) + 1_000 })
  // More than a transaction takes.
  expect(await stored('of a thousand')).toEqual(results.map(({ event }) => event?.event_id))
})

test('may leave a turn to others before it validates and before it checks each event', async () => {
  const { next, turns } = takeTurns()
  await record(EVENT, EVENT, { ...EVENT, timestamp: 'never' })
  expect(next).toHaveBeenCalledTimes(2 * 3)
  // Whoever takes a turn comes before the next event.
  expect(turns).toEqual({ taking: 0, most: 1 })
})

test('takes as many bytes as are allowed, and no more', async () => {
  const events = Array.from({ length: 130 }, (_, i) =>
    of(`${i}@bytes.example.com`, { custom_event_props: JSON.stringify({ text: 'x'.repeat(32 * 1024 - 11) }) }),
  )
  const sized = (bytes: number) => {
    const spare = bytes - JSON.stringify({ events: events.slice(0, 127) }).length
    return JSON.stringify({ events: events.slice(0, 127) }) + ' '.repeat(spare)
  }
  const fits = await send(sized(4 * 1024 * 1024))
  expect(fits.statusCode).toBe(200)
  expect(new Set(fits.json().results.map(({ status }: Result) => status))).toEqual(new Set([200]))
  const refused = await send(sized(4 * 1024 * 1024 + 1))
  expect(refused.statusCode).toBe(413)
  expect(refused.json().error.message).toBe('The body exceeds the limit of 4194304 bytes.')
})

test('leaves the limit of a single event as it is', async () => {
  const refused = await single(' '.repeat(256 * 1024 + 1))
  expect(refused.json().error.message).toBe('The body exceeds the limit of 262144 bytes.')
})

describe('a batch is invalid as a whole', () => {
  const others = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`f${i}`, 0]))
  test.each<[string, unknown, string[]]>([
    ['without events', {}, ['/body/events is required']],
    ['with no event', { events: [] }, ['/body/events must hold 1 to 1000 items']],
    ['with 1,001 events', { events: Array(1_001).fill(1) }, ['/body/events must hold 1 to 1000 items']],
    ['with an object of events', { events: { 0: EVENT } }, ['/body/events must be a JSON array']],
    [
      'with another field',
      { events: [EVENT], ordered: true },
      ['/body/ordered is not a known field; known fields: events'],
    ],
  ])('%s', async (_, body, issues) => {
    const before = await rowCounts(api.db)
    expectIssues(await send(body), issues)
    expect(await rowCounts(api.db)).toEqual(before)
  })

  test.each([
    ['that is an array', '[]', 'The body must be a JSON object.'],
    ['that is no JSON', '{"events":[', 'The body is not valid JSON: unexpected end of input.'],
    ['that is empty', '', 'A JSON body is required; the request has none.'],
    [
      'with more fields than its events can have',
      `{"events":[${Array(50_000)}]}`,
      'The body must have at most 50000 fields and items in all.',
    ],
    [
      'with many fields beside the events',
      JSON.stringify({ ...others(200), events: [EVENT] }),
      'The body must have at most 200 fields and items in all.',
    ],
  ])('%s', async (_, body, message) => {
    const response = await send(body)
    expect(response.json()).toEqual({ error: { code: 'invalid_request', message }, projectId: 'demo' })
    expect(response.statusCode).toBe(400)
  })

  test('with many fields beside the events, of which the first are listed', async () => {
    const { message, details } = (await send({ ...others(199), events: [EVENT] })).json().error
    expect(details).toHaveLength(20)
    expect(message).toContain('198 more issues, see details')
  })

  test('with the header of single events', async () => {
    const message = 'is for single events; give each event of a batch its own idempotency_key'
    expectIssues(await send({ events: [EVENT] }, { 'idempotency-key': 'k' }), [`/headers/Idempotency-Key ${message}`])
  })
})

const phone = { key: 'phone', value: '"+1 555 0100"' }
const deep = (levels: number) => JSON.parse('['.repeat(levels) + ']'.repeat(levels))

/** The differences of an event from a valid one, and the status that it gets. */
const REFUSED: [string, object, number][] = [
  ['a timestamp that is none', { timestamp: 'yesterday' }, 400],
  ['a timestamp too far ahead', { timestamp: '2999-01-01T00:00:00Z' }, 400],
  ['an unquoted identifier', { identifiers: [{ key: 'email', value: 'a@example.com' }] }, 400],
  ['an unknown field', { event_name: 'x' }, 400],
  ['a missing field', { module_id: undefined }, 400],
  ['two faults', { module_id: '..', custom_event_props: '[]' }, 400],
  ['30 faults', Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`f${i}`, 0])), 400],
  ['a NUL', { custom_event_name: 'a\0b' }, 400],
  ['a lone surrogate', { identifiers: [{ key: '\ud800', value: '1' }] }, 400],
  ['an array instead of a text', { module_id: deep(150) }, 400],
  ['a module that does not exist', { module_id: 'hair-quiz' }, 404],
  ['identifiers of two contacts', { identifiers: [...EVENT.identifiers, phone] }, 409],
]

/** What a single event gets, as an item of a batch gets it. */
const asItem = (error: Result['error'], i: number) =>
  JSON.parse(
    JSON.stringify(error)
      .replaceAll(/\/body(?=\/)/g, `/body/events/${i}`)
      .replaceAll(', identifiers', ', identifiers, idempotency_key'),
  )

test.each(REFUSED)('an event with %s gets the error that it gets alone', async (_, changes, status) => {
  vi.useFakeTimers({ toFake: ['Date'], now: new Date('2026-04-01T00:00:00Z') })
  onTestFinished(() => void vi.useRealTimers())
  const event = { ...EVENT, ...changes }
  const alone = (await single(event)).json().error
  const before = await rowCounts(api.db)
  const [first, refused, last] = await record(EVENT, event, EVENT)
  expect([first?.status, refused?.status, last?.status]).toEqual([200, status, 200])
  expect(refused?.error).toEqual(asItem(alone, 1))
  expect(await rowCounts(api.db)).toMatchObject({ events: Number(before.events) + 2 })
})

test.each([
  ['null', null],
  ['a number', 1],
  ['a text', '{}'],
  ['an array', [EVENT]],
])('an item that is %s is no event', async (_, item) => {
  const [refused, recorded] = await record(item, EVENT)
  expect(refused?.error?.details).toEqual([{ pointer: '/body/events/0', message: 'must be a JSON object' }])
  expect([refused?.status, recorded?.status]).toEqual([400, 200])
})

const nested = (levels: number) =>
  JSON.stringify({ ...EVENT, more: 0 }).replace(/0}$/, `${'['.repeat(levels)}${']'.repeat(levels)}}`)

/** EVENT and what it holds are 8 fields and items. */
const withMore = (count: number) => ({ ...EVENT, ...Object.fromEntries(Array(count).fill(0).entries()) })

test('an event with 200 fields and items gets the error that it gets alone', async () => {
  const event = withMore(192)
  const [refused] = await record(event)
  expect(refused?.error).toEqual(asItem((await single(event)).json().error, 0))
})

test.each([
  ['201 fields and items', JSON.stringify(withMore(193))],
  ['201 fields and items, one of them within the last', JSON.stringify({ ...withMore(195), identifiers: [1] })],
  ['many fields', JSON.stringify(withMore(196))],
  ['deep fields', nested(250)],
  ['fields as deep as a batch may have', nested(20_000)],
])('an event with %s is refused at once', async (_, item) => {
  const response = await send(`{"events":[${item},${JSON.stringify(EVENT)}]}`)
  const [refused, recorded]: Result[] = response.json().results
  expect(refused?.error?.details).toEqual([
    { pointer: '/body/events/0', message: 'must have at most 200 fields and items in all' },
  ])
  expect([refused?.status, recorded?.status]).toEqual([400, 200])
})

describe('idempotency keys', () => {
  test.each([
    ['', 'must be 1 to 255 characters long'],
    ['x'.repeat(256), 'must be 1 to 255 characters long'],
    ['a b', 'must hold visible ASCII characters only, and no spaces'],
    ['é', 'must hold visible ASCII characters only, and no spaces'],
    [1, 'must be a string; as a string this value is "1"'],
  ])('%j is refused', async (idempotency_key, message) => {
    const [refused] = await record({ ...EVENT, idempotency_key }, EVENT)
    expect(refused?.error?.details).toEqual([{ pointer: '/body/events/0/idempotency_key', message }])
  })

  test('a repeated batch is replayed, byte for byte', async () => {
    const events = ['r1', 'r2', 'r3'].map((idempotency_key) => of('again@example.com', { idempotency_key }))
    const first = await record(...events)
    const before = await rowCounts(api.db)
    const again = await record(...events)
    expect(again).toEqual(first.map((result) => ({ ...result, replayed: true })))
    expect(JSON.stringify(again.map(({ event }) => event))).toBe(JSON.stringify(first.map(({ event }) => event)))
    expect(await rowCounts(api.db)).toEqual(before)
  })

  test('within a batch the same event is replayed, and another one refused', async () => {
    const event = of('twin@example.com', { idempotency_key: 'twins' })
    const [first, same, other] = await record(event, event, { ...event, custom_event_name: 'other' })
    expect(first).toMatchObject({ status: 200, replayed: false })
    expect(same).toEqual({ ...first, replayed: true })
    expect(other).toMatchObject({
      status: 422,
      error: {
        code: 'idempotency_key_reused',
        details: [{ pointer: '/body/events/2/idempotency_key', message: 'was used for another event' }],
      },
    })
  })

  test('count from one transaction to the next', async () => {
    const event = of('far@example.com', { idempotency_key: 'far-apart' })
    const others = Array.from({ length: 997 }, (_, i) => of(`${i}@between.example.com`))
    const results = await record(event, ...others, event, { ...event, custom_event_name: 'other' })
    expect(results[998]).toEqual({ ...results[0], replayed: true })
    expect([results[0]?.status, results[999]?.status]).toEqual([200, 422])
  })

  test('of an event that was refused is free', async () => {
    const event = of('free@example.com', { idempotency_key: 'freed' })
    const [refused, invalid, recorded] = await record(
      { ...event, module_id: 'hair-quiz' },
      { ...event, timestamp: 'never' },
      event,
    )
    expect([refused?.status, invalid?.status, recorded?.status]).toEqual([404, 400, 200])
    expect(recorded?.replayed).toBe(false)
  })

  test('are those of single events', async () => {
    const event = of('shared@example.com')
    const alone = await single(event, 'shared-1')
    const [replayed, recorded] = await record(
      { ...event, idempotency_key: 'shared-1' },
      { ...event, idempotency_key: 'shared-2' },
    )
    expect(replayed).toEqual({ status: 200, event: alone.json(), replayed: true })
    const later = await single(event, 'shared-2')
    expect([later.headers['idempotent-replayed'], later.json()]).toEqual(['true', recorded?.event])
  })
})

describe('when events cannot be recorded', () => {
  /** A recorder that fails for events of this name. */
  function failFor(name: string, error: unknown): void {
    const { record } = Recorder.prototype
    const spy = vi.spyOn(Recorder.prototype, 'record').mockImplementation(function (this: Recorder, ...args) {
      return args[1].custom_event_name === name ? Promise.reject(error) : record.apply(this, args)
    })
    onTestFinished(() => spy.mockRestore())
  }
  const outage = Object.assign(new pg.DatabaseError('terminating connection', 0, 'error'), { code: '57P01' })
  const failing = of('late@example.com', { custom_event_name: 'failing' })
  const send2 = (...events: unknown[]): Promise<LightMyRequestResponse> => send({ events })

  test('some get a 503, with Retry-After', async () => {
    failFor('failing', outage)
    const response = await send2(EVENT, failing)
    expect(response.statusCode).toBe(200)
    expect(response.headers['retry-after']).toBe('1')
    expect(response.json().results[1]).toEqual({
      status: 503,
      error: {
        code: 'service_unavailable',
        message: 'Service unavailable; retry after Retry-After seconds.',
      },
      projectId: 'demo',
    })
  })

  test('and none is, the response is a 503', async () => {
    failFor('failing', outage)
    const response = await send2(failing, { ...EVENT, timestamp: 'never' })
    expect([response.statusCode, response.headers['retry-after']]).toEqual([503, '1'])
    expect(response.json().error.code).toBe('service_unavailable')
  })

  /** What is logged of results, besides requests. */
  const logged = () => log.filter(({ msg }) => msg === 'events of a batch failed')
  beforeEach(() => void log.splice(0))

  test('because of a defect, they get a 500, without Retry-After, and it is logged', async () => {
    failFor('failing', new Error('a defect'))
    const defects = async () =>
      /^flowtrail_defects_total\{operation="recordCustomEvents"\} (\d+)$/m.exec(
        (await api.app.inject('/metrics')).body,
      )?.[1]
    expect(await defects()).toBe('0')
    const response = await send2(EVENT, failing, failing)
    expect(await defects()).toBe('1')
    expect([response.statusCode, response.headers['retry-after']]).toEqual([200, undefined])
    expect(response.json().results[1]).toMatchObject({ status: 500, error: { code: 'internal_error' } })
    expect(logged()).toMatchObject([{ level: 50, events: 2, err: { message: 'a defect' } }])
  })

  test('because of an outage, they are not logged, as the outage is', async () => {
    failFor('failing', outage)
    await send2(EVENT, failing)
    expect(logged()).toEqual([])
  })

  test('because the queue is full, or they are invalid, nothing is logged', async () => {
    failFor('failing', serviceUnavailable())
    await send2(EVENT, failing, { ...EVENT, timestamp: 'never' })
    expect(logged()).toEqual([])
  })

  test('all are refused, the response has the results', async () => {
    const response = await send2({ ...EVENT, timestamp: 'never' })
    expect([response.statusCode, response.headers['retry-after']]).toEqual([200, undefined])
  })
})

test.each([
  [1, 10, 0],
  [1_000, 10, 100_000],
  [100, 30_000, 1_000_000],
])(
  'the response to %i events reserves memory, and is sent in parts if it is long',
  async (count, props_length, least_bytes) => {
    const [admit, sent] = [vi.spyOn(ReadGate.prototype, 'leaseResponse'), vi.spyOn(Lease.prototype, 'sent')]
    onTestFinished(() => {
      admit.mockRestore()
      sent.mockRestore()
    })
    const custom_event_props = JSON.stringify({ text: 'x'.repeat(props_length) })
    const response = await send({ events: Array(count).fill({ ...EVENT, custom_event_props }) })
    expect(response.json().results).toHaveLength(count)
    expect(Number(response.headers['content-length'])).toBe(response.rawPayload.length)
    expect(admit.mock.calls.map(([project, bytes]) => [project, bytes])).toEqual([['demo', 512 * count]])
    const sent_bytes = sent.mock.calls.reduce((sum, [bytes]) => sum + bytes, 0)
    expect(sent_bytes).toBeGreaterThanOrEqual(least_bytes)
    expect(sent_bytes > 0).toBe(least_bytes > 0)
  },
)

const batchOf = (key: string, events: unknown[]) => {
  const body = JSON.stringify({ events })
  const head = `POST /projects/demo/events/batch HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${key}\r\n`
  return `${head}Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`
}

test('a client that leaves before the response to its batch is no defect', async () => {
  const lines: { msg: string; operation: string }[] = []
  const stream = { write: (line: string) => void lines.push(JSON.parse(line)) }
  const own = await createTestApp({ logger: { level: 'info', stream } })
  onTestFinished(() => own.close())
  const { hostname, port } = new URL(await own.listen())
  for (const count of [1, 500]) {
    const obstacle = await holdProject(own.databaseUrl)
    const client = connectSocket(Number(port), hostname)
    client.write(batchOf(own.key, Array(count).fill(EVENT)))
    await obstacle.waiting(1)
    const cut = once(client, 'close')
    client.destroy()
    await cut
    await expect.poll(() => lines.some(({ msg }) => msg === 'request cut off')).toBe(true)
    await obstacle.release()
    // Until the batch has its response, which nobody reads.
    const unsent = async () => /^flowtrail_pending_events (.*)$/m.exec((await own.app.inject('/metrics')).body)?.[1]
    await expect.poll(unsent).toBe('0')
    await own.call({ method: 'POST', path: '/projects/demo/events/batch', body: { events: [EVENT] } })
    expect(
      lines.filter(({ operation, msg }) => operation === 'recordCustomEvents' || msg === 'request failed'),
    ).toMatchObject([{ msg: 'request cut off' }, { msg: 'request' }])
    lines.length = 0
  }
})

describe('a client that does not read the response to its batch', () => {
  // More than the buffers of the connection take: the response repeats the name twice, once with two characters for each.
  const INVALID = Array.from({ length: 1_000 }, () => ({ ['~'.repeat(4_100)]: 1 }))

  test('is disconnected, and keeps others from sending more only for as long', async () => {
    const readGate = {
      unsentOfWrites_bytes: { all: 2 ** 19, project: 2 ** 19 },
      maxStall_ms: 60_000,
      maxStallUnderPressure_ms: 1,
    }
    const own = await createTestApp({ readGate, twins: false })
    onTestFinished(() => own.close())
    const { hostname, port } = new URL(await own.listen())
    const client = connectSocket(Number(port), hostname)
    onTestFinished(() => void client.destroy())
    client.pause()
    client.on('error', () => {})
    const closed = once(client, 'close')
    client.write(batchOf(own.key, INVALID))
    const metric = async (name: string) => {
      const { body } = await own.app.inject('/metrics')
      return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(body)?.[1])
    }
    await expect.poll(() => metric('flowtrail_unsent_bytes')).toBeGreaterThan(2 ** 19)
    const sendOne = () => own.call({ method: 'POST', path: '/projects/demo/events/batch', body: { events: [EVENT] } })
    const before = await rowCounts(own.db)
    const refused = await sendOne()
    expect(refused.statusCode).toBe(503)
    expect(refused.headers['retry-after']).toBe('1')
    expect(await rowCounts(own.db)).toEqual(before)
    await expect.poll(() => metric('flowtrail_stalled_clients_total')).toBe(1)
    await expect.poll(() => metric('flowtrail_unsent_bytes')).toBe(0)
    expect((await sendOne()).statusCode).toBe(200)
    client.resume()
    await closed
  })
})
