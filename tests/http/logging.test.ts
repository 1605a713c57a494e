import { once } from 'node:events'
import { connect } from 'node:net'
import { PassThrough, Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { stripVTControlCharacters } from 'node:util'
import fastify from 'fastify'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { logController, logRequests } from '../../src/http/logging.ts'
import { createLogger, loggerOptions } from '../../src/logger.ts'
import { createTestApp, type TestApp } from '../support/app.ts'

const UUID = /^[\da-f-]{36}$/
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'

let api: TestApp
let address: string
const lines: Record<string, unknown>[] = []
beforeAll(async () => {
  const stream = { write: (line: string) => void lines.push(JSON.parse(line)) }
  api = await createTestApp({ logger: { level: 'info', stream }, config: { slowRequest_ms: 60_000 } })
  address = await api.listen()
})
afterAll(() => api.close())
beforeEach(() => void lines.splice(0))

async function loggedOf(path: string, init: RequestInit = {}) {
  const response = await fetch(address + path, { ...init, headers: { 'x-api-key': api.key, ...init.headers } })
  await response.arrayBuffer()
  await expect.poll(() => lines.length).toBe(1)
  const { time, pid, hostname, reqId, ...line } = lines[0] as Record<string, unknown>
  return line
}

const keyId = () => api.key.split('_')[1]

test('a request is one line, with what identifies it and nothing that it says', async () => {
  const line = await loggedOf('/projects/demo/entries?limit=1&direction=ASC', {
    headers: { traceparent: `00-${TRACE}-00f067aa0ba902b7-01`, 'x-request-id': 'mine', 'user-agent': 'secret' },
  })
  expect(line).toEqual({
    level: 30,
    request_id: 'mine',
    operation: 'listEntries',
    method: 'GET',
    project_id: 'demo',
    key_id: keyId(),
    status: 200,
    duration_ms: expect.any(Number),
    bytes: expect.any(Number),
    trace_id: TRACE,
    msg: 'request',
  })
  expect(line.bytes).toBeGreaterThan(500)
  expect(line.duration_ms).toBeGreaterThan(0)
})

test.each([
  ['a refusal', '/projects/demo/modules/nope', {}, { error_code: 'module_does_not_exist', status: 404, level: 30 }],
  ['an unknown path', '/who/a@b.example?q=c', {}, { error_code: 'route_not_found', operation: 'other' }],
  ['a refused body', '/projects/demo/events', { method: 'POST' }, { error_code: 'invalid_request', status: 400 }],
])('%s has its error code', async (_, path, init, expected) => {
  const line = await loggedOf(path, init)
  expect(line).toMatchObject(expected)
  expect(line.request_id).toMatch(UUID)
  expect(JSON.stringify(line)).not.toMatch(/nope|example|127\.0\.0\.1|trace/)
})

test('a refused key is named without its secret, and its project not at all', async () => {
  const line = await loggedOf('/projects/other-than-that/modules')
  expect(line).toMatchObject({ error_code: 'unauthorized', key_id: keyId() })
  expect(JSON.stringify(line)).not.toContain('other-than-that')
  lines.splice(0)
  expect(await loggedOf('/projects/demo/modules', { headers: { 'x-api-key': 'ft_mistyped' } })).not.toHaveProperty(
    'key_id',
  )
})

test.each([
  'nonsense',
  `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`,
  `00-${TRACE}-${'0'.repeat(16)}-01`,
  `00-${TRACE.toUpperCase()}-00f067aa0ba902b7-01`,
  `x00-${TRACE}-00f067aa0ba902b7-01`,
  `00-${TRACE}-00f067aa0ba902b7-011`,
  `ff-${TRACE}-00f067aa0ba902b7-01`,
])('the traceparent %s is ignored', async (traceparent) => {
  expect(await loggedOf('/projects/demo/modules', { headers: { traceparent } })).not.toHaveProperty('trace_id')
})

describe('a line', () => {
  const own = fastify({ logger: { level: 'info', stream: { write: (line) => void lines.push(JSON.parse(line)) } } })
  const elapsed_ms: number[] = []
  beforeAll(() => {
    logRequests(own, 60_000)
    own.addHook('onResponse', async (_, reply) => void elapsed_ms.push(reply.elapsedTime))
    own.get('/:status', async (request, reply) =>
      reply.code(Number((request.params as { status: string }).status)).send(),
    )
    own.get('/livezip', async () => 'no probe')
    own.get('/later', async () => sleep(20, 'later'))
  })
  afterAll(() => own.close())

  test('has the duration in milliseconds, to a tenth', async () => {
    elapsed_ms.splice(0)
    for (const path of ['/200', '/later', '/200']) await own.inject(path)
    const requests = lines.filter(({ msg }) => msg === 'request')
    expect(requests.map(({ duration_ms }) => duration_ms)).toEqual(elapsed_ms.map((ms) => Math.round(ms * 10) / 10))
  })

  test.each([
    [200, 30],
    [499, 30],
    [500, 50],
    [501, 50],
    [503, 40],
    [504, 50],
  ])('of the status %i has the level %i', async (status, level) => {
    await own.inject(`/${status}`)
    expect(lines.findLast(({ msg }) => msg === 'request')).toMatchObject({ status, level })
  })

  test('is left out for probes alone', async () => {
    await own.inject('/livezip')
    expect(lines.findLast(({ msg }) => msg === 'request')).toMatchObject({ level: 30 })
  })
})

test('at debug there is a line when a request arrives, and for probes', async () => {
  const logged: Record<string, unknown>[] = []
  const stream = { write: (line: string) => void logged.push(JSON.parse(line)) }
  const own = fastify({ logController, logger: { level: 'debug', stream } })
  logRequests(own, 60_000)
  for (const path of ['/modules', '/livez']) own.get(path, async () => 'ok')
  for (const path of ['/modules', '/livez']) await own.inject(path)
  await own.close()
  expect(logged.map(({ level, msg }) => [level, msg])).toEqual([
    [20, 'request received'],
    [30, 'request'],
    [20, 'request received'],
    [20, 'request'],
  ])
})

test('probes are not logged at info', async () => {
  for (const path of ['/livez', '/readyz', '/metrics']) await (await fetch(address + path)).arrayBuffer()
  await loggedOf('/projects/demo/modules')
})

test('a request that is cut off says so, and has no status unless it was sent', async () => {
  const socket = connect(Number(new URL(address).port), '127.0.0.1')
  const wait = 'GET /projects/demo/events?direction=ASC&wait=30&after=9000000000000000 HTTP/1.1'
  const accepted = once(api.app.server, 'request')
  socket.write(`${wait}\r\nHost: x\r\nX-Api-Key: ${api.key}\r\n\r\n`)
  await accepted
  const followers = async () => /^flowtrail_feed_followers (.*)$/m.exec((await api.app.inject('/metrics')).body)?.[1]
  await expect.poll(followers).toBe('1')
  socket.destroy()
  await expect.poll(() => lines.at(-1)?.operation).toBe('listProjectEvents')
  expect(lines.at(-1)).toMatchObject({ msg: 'request cut off' })
  expect(lines.at(-1)).not.toHaveProperty('status')
  const { body } = await api.app.inject('/metrics')
  expect(body).toMatch(/_count\{operation="listProjectEvents",method="GET",status="cut",error_code=""\} 1$/m)
})

test('the bytes of pipelined requests are of each alone', async () => {
  const socket = connect(Number(new URL(address).port), '127.0.0.1')
  const head = (path: string) => `GET ${path} HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${api.key}\r\n\r\n`
  socket.write(head('/openapi.json') + head('/nowhere') + head('/nowhere'))
  await expect.poll(() => lines.length).toBe(3)
  socket.destroy()
  const [large, ...small] = lines.map(({ bytes }) => Number(bytes))
  expect(large).toBeGreaterThan(50_000)
  expect(small[0]).toBe(small[1])
  expect(small[0]).toBeLessThan(1_000)
})

test('what is no HTTP is a line, too, with the id of the response', async () => {
  const socket = connect(Number(new URL(address).port), '127.0.0.1')
  socket.write('GARBAGE\r\n\r\n')
  const response = await text(socket)
  const [, request_id] = /^X-Request-Id: (.*)\r$/m.exec(response) ?? []
  expect(lines).toMatchObject([{ request_id, operation: 'other', status: 400, error_code: 'invalid_request' }])
})

test('an X-Request-Id that holds an API key is not taken over', async () => {
  expect((await loggedOf('/nowhere', { headers: { 'x-request-id': `a-${api.key}` } })).request_id).toMatch(UUID)
})

test('a slow request is a warning, but not one that waits for events', async () => {
  const logged: Record<string, unknown>[] = []
  const stream = { write: (line: string) => void logged.push(JSON.parse(line)) }
  const slow = await createTestApp({ logger: { level: 'info', stream }, config: { slowRequest_ms: 0 } })
  await slow.call({ path: '/projects/demo/modules' })
  await slow.call({ path: '/projects/demo/events?direction=ASC&after=0&wait=1' })
  // Those that are refused have not waited, whatever they ask for.
  for (const wait of ['x', '30', '1&wait=2']) await slow.call({ path: `/projects/demo/modules?wait=${wait}` })
  await slow.close()
  expect(logged.map(({ level, msg }) => [level, msg])).toEqual([
    [40, 'slow request'],
    [30, 'request'],
    ...Array(3).fill([40, 'slow request']),
  ])
})

test("a line is JSON with the level's name and the time, and on a terminal a text", async () => {
  const output = new PassThrough()
  const log = createLogger(loggerOptions('info', { stream: output as never }))
  log.debug('left out')
  log.info({ a: 1 }, 'said')
  expect(JSON.parse(String(output.read()))).toEqual({
    level: 'info',
    time: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
    pid: process.pid,
    hostname: expect.any(String),
    a: 1,
    msg: 'said',
  })
  const error = Object.assign(new Error('violates'), {
    code: '23502',
    table: 'contacts',
    detail: 'Failing row: (jane)',
    where: 'jane',
  })
  log.error({ err: error }, 'failed')
  const { err } = JSON.parse(String(output.read()))
  expect(err).toEqual({ type: 'Error', message: 'violates', stack: error.stack, code: '23502', table: 'contacts' })
  const written: string[] = []
  const terminal = new Writable({
    write(chunk, _, done) {
      written.push(String(chunk))
      done()
    },
  })
  createLogger(loggerOptions('info', { stream: Object.assign(terminal, { isTTY: true }) as never })).info(
    { a: 1 },
    'said',
  )
  await expect.poll(() => written.length).toBeGreaterThan(0)
  expect(stripVTControlCharacters(written.join(''))).toMatch(/^\[\d\d:\d\d:\d\d\.\d{3}\] INFO: said \{"a":1\}\n$/)
})
