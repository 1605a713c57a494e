import { channel } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { connect } from 'node:net'
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import fastify from 'fastify'
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { readConfig, type TracingOptions } from '../../src/config.ts'
import { QUERY_CHANNEL, timedQuery } from '../../src/database/timed-query.ts'
import { logRequests } from '../../src/http/logging.ts'
import { traceQueries } from '../../src/tracing/queries.ts'
import { traceRecording } from '../../src/tracing/recording.ts'
import { traceRequests } from '../../src/tracing/requests.ts'
import { Spans } from '../../src/tracing/spans.ts'
import { startTracing, type Tracing } from '../../src/tracing/tracing.ts'
import { stopClock } from '../recording/fixture.ts'
import { type Call, createTestApp, type TestApp } from '../support/app.ts'
import { IS_REMOTE, KIND, type OtlpReceiver, type ReceivedSpan, receiveTraces } from '../support/otlp.ts'
import { freePort } from '../support/service.ts'
import { holdLock } from '../support/waiting.ts'
import { EVENT } from './requests.ts'

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
const CALLER = '00f067aa0ba902b7'
const ERROR = 2

const tracingOf = (settings: Record<string, string>) =>
  readConfig({ OTEL_EXPORTER_OTLP_PROTOCOL: 'http/json', OTEL_BSP_SCHEDULE_DELAY: '1', ...settings })
    .tracing as TracingOptions

const silent = { info: () => {}, warn: () => {} }

describe('of a service', () => {
  let receiver: OtlpReceiver
  let tracing: Tracing
  let api: TestApp
  let address: string
  const lines: Record<string, unknown>[] = []
  beforeAll(async () => {
    receiver = await receiveTraces()
    tracing = startTracing(tracingOf({ OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url }), { version: '1.2.3' }, silent)
    const stream = { write: (line: string) => void lines.push(JSON.parse(line)) }
    api = await createTestApp({ tracing, logger: { level: 'info', stream } })
    address = await api.listen()
  })
  afterAll(async () => {
    await api.close()
    await tracing.stop()
    await receiver.close()
  })
  beforeEach(() => void lines.splice(0))

  let requests = 0
  /** Sends a request, and waits for the spans of its trace. */
  async function traceOf({ method, path, headers, body }: Omit<Call, 'method'> & { method?: string }) {
    requests += 1
    const id = `traces-${requests}`
    // By the network, as a body arrives there.
    const response = await fetch(address + path, {
      ...(method && { method }),
      headers: { 'x-api-key': api.key, 'x-request-id': id, 'content-type': 'application/json', ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    await response.arrayBuffer()
    const isOfRequest = ({ attributes }: ReceivedSpan) => attributes['flowtrail.request_id'] === id
    await expect.poll(() => receiver.spans().some(isOfRequest)).toBe(true)
    const request = receiver.spans().find(isOfRequest) as ReceivedSpan
    const all = receiver.spans().filter(({ traceId }) => traceId === request.traceId)
    const find = (name: string) => all.find((span) => span.name === name) as ReceivedSpan
    const childrenOf = ({ spanId }: ReceivedSpan) =>
      all.filter(({ parentSpanId }) => parentSpanId === spanId).map(({ name }) => name)
    return { request, all, find, childrenOf, line: lines.find(({ request_id }) => request_id === id) }
  }

  test('a request continues the trace of its caller, with its validation and its queries', async () => {
    const { request, find, childrenOf, line } = await traceOf({
      path: '/projects/demo/modules/skin-quiz',
      headers: { traceparent: `00-${TRACE}-${CALLER}-01`, tracestate: 'who=jane' },
    })
    expect(request).toMatchObject({
      traceId: TRACE,
      parentSpanId: CALLER,
      name: 'GET /projects/:projectId/modules/:moduleId',
      kind: KIND.server,
      status: { code: 0 },
    })
    expect(request.flags & IS_REMOTE).toBe(IS_REMOTE)
    expect(request.attributes).toEqual({
      'http.request.method': 'GET',
      'http.route': '/projects/:projectId/modules/:moduleId',
      'http.response.status_code': 200,
      'url.scheme': 'http',
      'flowtrail.operation': 'getModule',
      'flowtrail.request_id': expect.any(String),
      'flowtrail.project_id': 'demo',
      'flowtrail.key_id': api.key.split('_')[1],
    })
    expect(childrenOf(request)).toEqual(expect.arrayContaining(['findKey', 'validate', 'findModule']))
    expect(find('findModule').flags & IS_REMOTE).toBe(0)
    expect(find('findModule')).toMatchObject({
      kind: KIND.client,
      attributes: { 'db.system.name': 'postgresql', 'db.query.summary': 'findModule' },
    })
    expect(line).toMatchObject({ trace_id: TRACE })
  })

  test('a span lies within its parent, on the clock of the system', async () => {
    const before_ms = Date.now()
    const { request, all } = await traceOf({ path: '/projects/demo/modules' })
    const after_ms = Date.now()
    const times = ({ startTimeUnixNano, endTimeUnixNano }: ReceivedSpan) =>
      [startTimeUnixNano, endTimeUnixNano].map(BigInt) as [bigint, bigint]
    const [start, end] = times(request)
    expect(Number(start / 1_000_000n)).toBeGreaterThan(before_ms - 20)
    expect(Number(end / 1_000_000n)).toBeLessThan(after_ms + 20)
    for (const span of all.filter(({ name }) => /^(validate|listModules)$/.test(name))) {
      expect(times(span)[0], span.name).toBeGreaterThanOrEqual(start)
      expect(times(span)[1], span.name).toBeLessThanOrEqual(end)
      expect(times(span)[1], span.name).toBeGreaterThan(times(span)[0])
    }
  })

  test('a request without a caller begins a trace, whose id is in its line of the log', async () => {
    const { request, line } = await traceOf({ path: '/projects/demo/modules' })
    expect(request.parentSpanId).toBeUndefined()
    expect(line).toMatchObject({ trace_id: request.traceId })
  })

  test('what the caller does not sample, and probes, have no spans', async () => {
    const unsampled = TRACE.replace('4', '5')
    const headers = { traceparent: `00-${unsampled}-${CALLER}-00` }
    await api.call({ path: '/projects/demo/modules', headers })
    await api.call({ method: 'POST', path: '/projects/demo/events', headers, body: EVENT })
    for (const path of ['/livez', '/readyz', '/metrics']) await api.app.inject(path)
    await traceOf({ path: '/projects/demo/modules' })
    expect(receiver.spans().filter(({ traceId }) => traceId === unsampled)).toEqual([])
    expect(receiver.spans().filter(({ name }) => /livez|readyz|metrics/.test(name))).toEqual([])
    expect(lines).toContainEqual(expect.objectContaining({ trace_id: unsampled, operation: 'recordCustomEvent' }))
  })

  test('an event has its wait and its batch, with the statements of the transaction', async () => {
    const { request, find, childrenOf } = await traceOf({ method: 'POST', path: '/projects/demo/events', body: EVENT })
    const [queue, batch] = [find('queue'), find('record batch')]
    expect(childrenOf(request)).toEqual(expect.arrayContaining(['validate', 'queue', 'record batch']))
    expect(batch.links).toMatchObject([{ traceId: request.traceId, spanId: request.spanId }])
    expect(queue.links).toMatchObject([{ traceId: batch.traceId, spanId: batch.spanId }])
    expect(batch).toMatchObject({
      kind: KIND.internal,
      attributes: { 'flowtrail.batch.kind': 'multi-project', 'flowtrail.events': 1 },
      status: { code: 0 },
    })
    expect(BigInt(queue.startTimeUnixNano)).toBeGreaterThan(BigInt(find('validate').startTimeUnixNano))
    expect(queue.endTimeUnixNano).toBe(batch.startTimeUnixNano)
    expect(childrenOf(batch)).toEqual(expect.arrayContaining(['BEGIN', 'lockFreeProjects', 'insert_events', 'COMMIT']))
    expect(childrenOf(request)).not.toContain('BEGIN')
  })

  test('an import has its statements, by their tables', async () => {
    const key = await createKey(api.db, 'demo', { name: 'import', scopes: ['import'], expires_at: null })
    const [email, contact_id] = ['import@example.com', 'imported']
    const contact = { type: 'contact', contact_id, identifiers: [{ key: 'email', value: JSON.stringify(email) }] }
    const { request, childrenOf } = await traceOf({
      ...{ method: 'POST', path: '/projects/demo/records', body: contact },
      headers: { 'x-api-key': key, 'content-type': 'application/x-ndjson' },
    })
    expect(childrenOf(request)).toEqual(
      expect.arrayContaining([
        ...['BEGIN', 'merge_locking_projects', 'merge_checking', 'merge_contacts'],
        ...['merge_contact_identifiers', 'COMMIT'],
      ]),
    )
    const exported = receiver.requests.map(({ body }) => String(body)).join('\n')
    expect(exported).not.toMatch(/import@|insert into|isolation/i)
  })

  test('a read that has to wait has its wait', async () => {
    const own = await createTestApp({ tracing, readGate: { reads: { all: 1, project: 1 }, maxWait_ms: 60_000 } })
    onTestFinished(() => own.close())
    const lock = await holdLock(own.databaseUrl, 'LOCK TABLE modules')
    const read = (id: string) => own.call({ path: '/projects/demo/modules', headers: { 'x-request-id': id } })
    const first = read('admitted')
    await lock.waiting(1)
    const second = read('waits')
    await expect.poll(async () => (await own.app.inject('/metrics')).body).toMatch(/^flowtrail_reads_waiting 1$/m)
    await lock.release()
    await Promise.all([first, second])
    const requestOf = (id: string) =>
      receiver.spans().find(({ attributes }) => attributes['flowtrail.request_id'] === id) as ReceivedSpan
    await expect.poll(() => requestOf('waits')).toBeDefined()
    const waits = receiver.spans().filter(({ name }) => name === 'admission')
    expect(waits).toMatchObject([{ parentSpanId: requestOf('waits').spanId, status: { code: 0 } }])
    expect(BigInt(waits[0]?.endTimeUnixNano ?? 0)).toBeGreaterThan(BigInt(waits[0]?.startTimeUnixNano ?? 0))
  })

  test('a body that arrives after its head belongs to its request', async () => {
    const socket = connect(Number(new URL(address).port), '127.0.0.1')
    const body = JSON.stringify(EVENT)
    const headers = `X-Api-Key: ${api.key}\r\nX-Request-Id: late\r\nContent-Type: application/json`
    const accepted = once(api.app.server, 'request')
    socket.write(
      `POST /projects/demo/events HTTP/1.1\r\nHost: x\r\n${headers}\r\nContent-Length: ${body.length}\r\n\r\n`,
    )
    await accepted
    socket.write(body)
    const find = () => receiver.spans().find(({ attributes }) => attributes['flowtrail.request_id'] === 'late')
    await expect.poll(find).toMatchObject({ attributes: { 'http.response.status_code': 200 } })
    socket.destroy()
    const children = receiver.spans().filter(({ parentSpanId }) => parentSpanId === find()?.spanId)
    expect(children.map(({ name }) => name)).toEqual(expect.arrayContaining(['queue', 'record batch']))
  })

  test('the events of one request share the span of their wait', async () => {
    // The service would let others have a turn after some milliseconds, and begin the batch with the first event.
    stopClock()
    const events = ['a', 'b'].map((idempotency_key) => ({ ...EVENT, idempotency_key }))
    const { all, find } = await traceOf({ method: 'POST', path: '/projects/demo/events/batch', body: { events } })
    expect(all.filter(({ name }) => name === 'queue')).toHaveLength(1)
    expect(find('queue').attributes).toEqual({ 'flowtrail.events': 2 })
    expect(find('record batch').links).toHaveLength(1)
  })

  test('a refusal has its error code, and is no error of the server', async () => {
    const { request, find } = await traceOf({
      method: 'POST',
      path: '/projects/demo/events',
      body: { ...EVENT, timestamp: 1 },
    })
    expect(find('validate')).toMatchObject({ attributes: { 'error.type': 'invalid_request' }, status: { code: ERROR } })
    expect(request.status.code).toBe(0)
    expect(request.attributes).toMatchObject({
      'http.response.status_code': 400,
      'flowtrail.error_code': 'invalid_request',
    })
    expect(request.attributes).not.toHaveProperty('error.type')
  })

  test('what is outside of the document has no name of the client', async () => {
    const { request } = await traceOf({ method: 'PATCH', path: '/who/jane@example.com?q=doe' })
    expect(request).toMatchObject({ name: 'PATCH', attributes: { 'flowtrail.operation': 'other' } })
    expect(request.attributes).not.toHaveProperty('http.route')
    const { request: unusual } = await traceOf({ method: 'PROPFIND', path: '/projects/demo/modules' })
    expect(unusual).toMatchObject({
      name: 'HTTP /projects/:projectId/modules',
      attributes: { 'http.request.method': '_OTHER', 'flowtrail.error_code': 'method_not_allowed' },
    })
  })

  test('a request that is cut off says so', async () => {
    const socket = connect(Number(new URL(address).port), '127.0.0.1')
    const wait = 'GET /projects/demo/events?direction=ASC&wait=30&after=9000000000000000 HTTP/1.1'
    const accepted = once(api.app.server, 'request')
    socket.write(`${wait}\r\nHost: x\r\nX-Api-Key: ${api.key}\r\nX-Request-Id: cut\r\n\r\n`)
    await accepted
    const followers = async () => /^flowtrail_feed_followers (.*)$/m.exec((await api.app.inject('/metrics')).body)?.[1]
    await expect.poll(followers).toBe('1')
    socket.destroy()
    const find = () => receiver.spans().find(({ attributes }) => attributes['flowtrail.request_id'] === 'cut')
    await expect.poll(find).toBeDefined()
    expect(find()).toMatchObject({ attributes: { 'flowtrail.cut_off': true }, status: { code: 0 } })
    expect(find()?.attributes).not.toHaveProperty('http.response.status_code')
  })

  test('nothing that a client has filled in is in a span, but for ids that the log has, too', async () => {
    const secrets = { custom_event_name: 'secret-name', custom_event_props: '{"secret":"props"}' }
    const body = { ...EVENT, ...secrets, identifiers: [{ key: 'email', value: '"secret@example.com"' }] }
    await traceOf({ method: 'POST', path: '/projects/demo/events', body, headers: { 'idempotency-key': 'secret-key' } })
    await traceOf({ path: '/projects/demo/modules/secret-id', headers: { 'user-agent': 'secret-agent' } })
    await traceOf({ path: '/projects/secret-project/modules?secret=query', headers: { tracestate: 'secret=1' } })
    const exported = receiver.requests.map(({ body }) => String(body)).join('\n')
    expect(exported).toContain('insert_contact_identifiers')
    expect(exported).not.toMatch(/secret|jane|example|127\.0\.0\.1|insert into/i)
    expect(exported).not.toContain(api.key)
  })

  test('the exporter says what has sent the spans', async () => {
    await traceOf({ path: '/projects/demo/modules' })
    expect(receiver.resource()).toMatchObject({
      'service.name': 'flowtrail',
      'service.version': '1.2.3',
      'process.pid': process.pid,
    })
  })
})

describe('spans', () => {
  const exporter = new InMemorySpanExporter()
  const provider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] })
  const spans = new Spans(provider.getTracer('test'))
  beforeEach(() => exporter.reset())
  const named = (name: string) => exporter.getFinishedSpans().find((span) => span.name === name)

  test('a batch of several requests is linked to all, and each of their waits to the batch', async () => {
    const { onQueue, aroundBatch } = traceRecording(spans)
    const [first, second] = [spans.start('first', {}), spans.start('second', {})]
    const first_ms = performance.now() - 10
    const events = [first, first, second, undefined].map((request, i) => {
      const event = { queued_ms: first_ms + i }
      if (request) spans.run(request, () => onQueue(event))
      else onQueue(event)
      return event
    })
    const outcomes = [{ status: 'recorded' }, { status: 'failed' }]
    const record = async () => {
      spans.end(spans.start('work', {}, spans.current))
      return outcomes
    }
    expect(await aroundBatch({ kind: 'multi-project', events }, record)).toBe(outcomes)
    const batch = named('record batch')
    expect(batch?.parentSpanContext?.spanId).toBe(first.spanContext().spanId)
    expect(batch?.links.map(({ context }) => context)).toEqual([first.spanContext(), second.spanContext()])
    expect(batch?.attributes).toMatchObject({ 'flowtrail.events': 4, 'error.type': 'failed' })
    expect(named('work')?.parentSpanContext?.spanId).toBe(batch?.spanContext().spanId)
    const waits = exporter.getFinishedSpans().filter(({ name }) => name === 'queue')
    expect(
      waits.map(({ parentSpanContext, attributes, links }) => [
        parentSpanContext?.spanId,
        attributes['flowtrail.events'],
        links[0]?.context.spanId,
      ]),
    ).toEqual([
      [first.spanContext().spanId, 2, batch?.spanContext().spanId],
      [second.spanContext().spanId, 1, batch?.spanContext().spanId],
    ])
    // Each as long as its first event has waited.
    const [wait_ms = 0, shorter_ms = 0] = waits.map(({ duration: [s, ns] }) => s * 1e3 + ns / 1e6)
    expect(wait_ms - shorter_ms).toBeCloseTo(2, 1)
  })

  test('a batch without a request that is recorded has no span, and is in none', async () => {
    const { onQueue, aroundBatch } = traceRecording(spans)
    const event = { queued_ms: 0 }
    onQueue(event)
    const record = async () => {
      expect(spans.current).toBeUndefined()
      return []
    }
    // The request whose batch came before.
    await spans.run(spans.start('other', {}), () => aroundBatch({ kind: 'single-project', events: [event] }, record))
    expect(exporter.getFinishedSpans()).toEqual([])
  })

  test('their times follow the clock of the system, but not the pauses of the process', () => {
    const start_ms = performance.now()
    const startTime = () => {
      spans.end(spans.start('timed', { start_ms }))
      const [seconds = 0, nanoseconds = 0] = exporter.getFinishedSpans().at(-1)?.startTime ?? []
      return seconds * 1e3 + nanoseconds / 1e6
    }
    const usual = startTime()
    const systemTime = Date.now
    const clock = vi.spyOn(Date, 'now')
    onTestFinished(() => clock.mockRestore())
    clock.mockImplementation(() => {
      const now_ms = systemTime()
      for (const end_ms = performance.now() + 30; performance.now() < end_ms; );
      return now_ms
    })
    expect(startTime()).toBe(usual)
    clock.mockImplementation(() => systemTime() + 5_000)
    expect(Math.abs(startTime() - usual - 5_000)).toBeLessThan(20)
  })

  test('what is for no one request is in the span of none', () => {
    const { detached } = traceRecording(spans)
    expect(spans.run(spans.start('other', {}), () => detached(() => spans.current ?? 'none'))).toBe('none')
  })

  test('a response of 500 and above is an error', async () => {
    const app = fastify()
    logRequests(app, Number.POSITIVE_INFINITY)
    traceRequests(app, spans)
    for (const status of [499, 500, 503]) app.get(`/${status}`, (_, reply) => void reply.code(status).send())
    for (const status of [499, 500, 503]) await app.inject(`/${status}`)
    await app.close()
    const errorOf = (name: string) => [named(name)?.status.code, named(name)?.attributes['error.type']]
    expect(errorOf('GET /499')).toEqual([0, undefined])
    expect(errorOf('GET /500')).toEqual([ERROR, '500'])
    expect(errorOf('GET /503')).toEqual([ERROR, '503'])
  })

  test('a statement that fails has its SQLSTATE and nothing else of the error', async () => {
    const stop = traceQueries(spans)
    const publish = (query: string) => channel(QUERY_CHANNEL).publish({ query, duration_ms: 250 })
    const fail = async (name: string, error: object) => {
      const client = { query: () => Promise.reject(error) } as never
      await expect(timedQuery(client, { name: `${name}_7_0`, text: 'secret' })).rejects.toBe(error)
    }
    const request = spans.start('request', {})
    await spans.run(request, async () => {
      publish('fine')
      await fail('refused', { code: '23505', severity: 'ERROR', name: 'error', message: 'secret', detail: 'secret' })
      await fail('cut_1_part', new TypeError('secret'))
    })
    publish('of no request')
    spans.end(request)
    spans.run(request, () => publish('of an ended request'))
    stop()
    spans.run(spans.start('other', {}), () => publish('after the end'))
    const all = exporter.getFinishedSpans()
    expect(all.map(({ name, status, attributes }) => ({ name, status, ...attributes }))).toMatchObject([
      { name: 'fine', status: { code: 0 } },
      { name: 'refused', status: { code: ERROR }, 'error.type': '23505', 'db.response.status_code': '23505' },
      { name: 'cut_1_part', status: { code: ERROR }, 'error.type': 'TypeError' },
      { name: 'request', status: { code: 0 } },
    ])
    expect(named('cut_1_part')?.attributes).not.toHaveProperty('db.response.status_code')
    expect(named('fine')?.duration).toEqual([0, expect.closeTo(250e6, -5)])
    for (const { events, status } of all) expect([events, status.message]).toEqual([[], undefined])
  })

  test('follow the clock of the system when it is adjusted', () => {
    const later_ms = Date.now() + 3_600_000
    vi.useFakeTimers({ toFake: ['Date'], now: later_ms })
    spans.end(spans.start('late', {}))
    vi.useRealTimers()
    expect(Math.abs((named('late')?.startTime[0] ?? 0) - later_ms / 1_000)).toBeLessThan(2)
  })
})

describe('a collector', () => {
  const endpoint = async () => `http://127.0.0.1:${await freePort()}`
  const start = (settings: Record<string, string>, log = silent) =>
    startTracing(tracingOf({ OTEL_EXPORTER_OTLP_TIMEOUT: '700', ...settings }), { version: '1' }, log)

  test('that is away is a line of the log, and so is its return; requests are served all the same', async () => {
    const OTEL_EXPORTER_OTLP_ENDPOINT = await endpoint()
    const logged: unknown[] = []
    const add = (...line: unknown[]) => void logged.push(line.at(-1))
    const tracing = start({ OTEL_EXPORTER_OTLP_ENDPOINT }, { info: add, warn: add } as never)
    const api = await createTestApp({ tracing })
    const call = async () => expect((await api.call({ path: '/projects/demo/modules' })).statusCode).toBe(200)
    await call()
    await expect.poll(() => logged[0]).toBe('traces are lost: they cannot be exported to OTEL_EXPORTER_OTLP_ENDPOINT')
    await call()
    const receiver = await receiveTraces(Number(new URL(OTEL_EXPORTER_OTLP_ENDPOINT).port))
    await expect
      .poll(async () => {
        await call()
        return logged.at(-1)
      })
      .toBe('traces are exported again')
    await call()
    await api.close()
    await tracing.stop()
    expect(logged.filter((line, i) => line === logged[i - 1])).toEqual([])
    await receiver.close()
  })

  test('that is too slow is a line of the log', async () => {
    const receiver = await receiveTraces()
    const logged: unknown[] = []
    const warn = (...line: unknown[]) => void logged.push(line.at(-1))
    const tracing = start(
      {
        OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
        OTEL_BSP_MAX_QUEUE_SIZE: '1',
        OTEL_BSP_MAX_EXPORT_BATCH_SIZE: '1',
        OTEL_EXPORTER_OTLP_TIMEOUT: '20000',
      },
      { info: warn, warn } as never,
    )
    const api = await createTestApp({ tracing })
    await expect
      .poll(async () => {
        await api.call({ path: '/projects/demo/modules' })
        return logged.length
      })
      .toBeGreaterThan(0)
    await api.call({ path: '/projects/demo/modules' })
    await api.close()
    await tracing.stop()
    expect(logged).toEqual(['traces are lost: the queue of spans was full'])
    await receiver.close()
  })

  test.each([
    ['always_on', '1', 1],
    ['always_off', '1', 0],
    ['traceidratio', '0', 0],
    ['traceidratio', '1', 1],
    ['parentbased_always_off', '1', 0],
    ['parentbased_traceidratio', '0', 0],
  ])('gets what the sampler %s with %s takes', async (OTEL_TRACES_SAMPLER, OTEL_TRACES_SAMPLER_ARG, expected) => {
    const receiver = await receiveTraces()
    const tracing = start({
      OTEL_TRACES_SAMPLER,
      OTEL_TRACES_SAMPLER_ARG,
      OTEL_EXPORTER_OTLP_TIMEOUT: '20000',
      OTEL_EXPORTER_OTLP_ENDPOINT: `${receiver.url}/`,
      OTEL_EXPORTER_OTLP_HEADERS: 'authorization=Bearer%20x',
      OTEL_SERVICE_NAME: 'flows',
    })
    const app = fastify()
    logRequests(app, Number.POSITIVE_INFINITY)
    tracing.traceRequests(app)
    app.get('/', async () => 'x')
    await app.inject('/')
    await app.close()
    await tracing.stop()
    expect(receiver.spans()).toHaveLength(expected * 2)
    for (const { path, headers } of receiver.requests) {
      expect([path, headers.authorization]).toEqual(['/v1/traces', 'Bearer x'])
      expect(receiver.resource()['service.name']).toBe('flows')
    }
    await receiver.close()
  })

  test('gets all links of a batch, whatever the usual limit', async () => {
    const receiver = await receiveTraces()
    const tracing = start({ OTEL_EXPORTER_OTLP_TIMEOUT: '20000', OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url })
    const app = fastify()
    logRequests(app, Number.POSITIVE_INFINITY)
    tracing.traceRequests(app)
    const events: { queued_ms: number }[] = []
    app.get('/', async () => {
      const event = { queued_ms: performance.now() }
      tracing.recording.onQueue(event)
      events.push(event)
      return 'x'
    })
    // OpenTelemetry's own limit is 128.
    for (let i = 0; i < 200; i += 1) await app.inject('/')
    await tracing.recording.aroundBatch({ kind: 'multi-project', events }, async () => [])
    await app.close()
    await tracing.stop()
    expect(receiver.spans().find(({ name }) => name === 'record batch')?.links).toHaveLength(200)
    await receiver.close()
  })
})
