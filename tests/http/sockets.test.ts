import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test, vi } from 'vitest'
import { LINGER_ms } from '../../src/http/linger.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { openConnection } from '../support/connection.ts'
import { EVENT, rowCounts } from './requests.ts'

// What needs a real connection: bytes that no client library sends, and connections that are kept alive.

let api: TestApp
let port: number
let before: Record<string, number>
const logged: { level: number; msg: string }[] = []
const log = new Writable({
  write(line, _, done) {
    logged.push(JSON.parse(String(line)))
    done()
  },
})

beforeAll(async () => {
  api = await createTestApp({ logger: { level: 'debug', stream: log } })
  port = Number(new URL(await api.listen()).port)
  before = await rowCounts(api.db)
})
beforeEach(() => {
  logged.length = 0
})
afterAll(() => api.close())

/** Sends bytes at once and returns what the server sends until it closes the connection. */
async function exchange(...parts: (string | Buffer)[]): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  socket.write(Buffer.concat(parts.map((part) => Buffer.from(part))))
  return text(socket)
}

interface RawResponse {
  status: number
  headers: Record<string, string>
  body: string
}

/** Splits responses that all have a Content-Length. */
function parseResponses(received: string): RawResponse[] {
  const responses: RawResponse[] = []
  let rest = received
  while (rest !== '') {
    const [head = '', ...after] = rest.split('\r\n\r\n')
    const [status = '', ...lines] = head.split('\r\n')
    const headers = Object.fromEntries(lines.map((line) => line.toLowerCase().split(': ')))
    const tail = after.join('\r\n\r\n')
    const length = Number(headers['content-length'])
    responses.push({ status: Number(status.split(' ')[1]), headers, body: tail.slice(0, length) })
    rest = tail.slice(length)
  }
  return responses
}

const head = (line: string, ...headers: string[]) => `${[line, 'Host: x', ...headers].join('\r\n')}\r\n\r\n`
const get = (path: string, ...headers: string[]) => head(`GET ${path} HTTP/1.1`, `X-Api-Key: ${api.key}`, ...headers)
const last = () => get('/projects/demo/modules', 'Connection: close')
const post = (...headers: string[]) =>
  head('POST /projects/demo/events HTTP/1.1', 'Content-Type: application/json', ...headers)
const keyed = () => `X-Api-Key: ${api.key}`
const chunk = (data: string) => `${data.length.toString(16)}\r\n${data}\r\n`

async function exchangeOne(...parts: (string | Buffer)[]): Promise<RawResponse> {
  const responses = parseResponses(await exchange(...parts))
  expect(responses).toHaveLength(1)
  return responses[0] as RawResponse
}

const BAD_ENCODING =
  'The path and query must be percent-encoded UTF-8. Encode a literal % as %25, and all non-ASCII characters.'

test.each([
  ['a raw #', Buffer.from('/projects/demo/entries-page-views#limit=5')],
  ['a lone %', Buffer.from('/projects/demo/modules/%')],
  ['a lone % where there is no route', Buffer.from('/nowhere/%ff')],
])('a request target with %s is refused', async (_, target) => {
  const response = await exchangeOne('GET ', target, ` HTTP/1.1\r\nHost: x\r\n${keyed()}\r\nConnection: close\r\n\r\n`)
  expect(JSON.parse(response.body).error).toEqual({ code: 'invalid_request', message: BAD_ENCODING })
  expect(response.status).toBe(400)
  expect(response.headers['x-request-id']).toBeDefined()
})

test.each([
  ['/projects/demo/modules/.', 400, '/path/moduleId'],
  ['/projects/demo/modules/..', 400, '/path/moduleId'],
  ['/projects/demo/modules/%2e%2E/versions', 400, '/path/moduleId'],
  ['/projects/demo/entries/../events', 400, '/path/entryId'],
])('dots in %s are an invalid id and do not change the path', async (path, status, pointer) => {
  const response = await exchangeOne(get(path, 'Connection: close'))
  expect(response.status).toBe(status)
  expect(JSON.parse(response.body).error.details).toEqual([{ pointer, message: 'must not be "." or ".."' }])
})

test.each(['/projects/../modules', '/projects/%2e%2e/modules', '/projects/./modules'])(
  'a project of dots, as in %s, is refused like any other',
  async (path) => {
    expect((await exchangeOne(get(path, 'Connection: close'))).status).toBe(401)
  },
)

test('a request target in absolute form counts as its path, and Link is a path', async () => {
  const response = await exchangeOne(
    get('http://example.com/projects/demo/entries-page-views?limit=1', 'Connection: close'),
  )
  expect(response.status).toBe(200)
  expect(response.headers.link).toMatch(/^<\/projects\/demo\/entries-page-views\?cursor=/)
})

test.each([
  ['a request that is not HTTP', 'HELLO\r\n\r\n', 'This is not a valid HTTP/1.1 request.'],
  ['an unknown method', head('BREW /projects/demo/modules HTTP/1.1'), 'This is not a valid HTTP/1.1 request.'],
  ['a space in the target', head('GET /projects/demo/modules/a b HTTP/1.1'), 'This is not a valid HTTP/1.1 request.'],
  ['a NUL in the target', head('GET /projects/\0 HTTP/1.1'), BAD_ENCODING],
  ['raw UTF-8 in the path', head('GET /projects/demo/modules/é HTTP/1.1'), BAD_ENCODING],
  ['raw Latin-1 in the query', Buffer.from(head('GET /projects/demo/modules?x=é HTTP/1.1'), 'latin1'), BAD_ENCODING],
  [
    'a broken chunk',
    `${head('PUT / HTTP/1.1', 'Transfer-Encoding: chunked')}zz\r\n`,
    'This is not a valid HTTP/1.1 request.',
  ],
  ['a NUL in a header', head('GET / HTTP/1.1', 'X: a\0'), 'This is not a valid HTTP/1.1 request.'],
  [
    'two lengths',
    head('POST / HTTP/1.1', 'Content-Length: 1', 'Content-Length: 2'),
    'This is not a valid HTTP/1.1 request.',
  ],
  [
    'a length and chunks',
    head('POST / HTTP/1.1', 'Content-Length: 1', 'Transfer-Encoding: chunked'),
    'This is not a valid HTTP/1.1 request.',
  ],
  [
    'a long target',
    head(`GET /projects/demo/modules/${'a'.repeat(17_000)} HTTP/1.1`),
    'The request line and headers exceed 16 KiB; shorten the path, the query or the headers.',
  ],
  [
    'a long header',
    head('GET / HTTP/1.1', `X: ${'a'.repeat(17_000)}`),
    'The request line and headers exceed 16 KiB; shorten the path, the query or the headers.',
  ],
])('%s is refused with the error envelope', async (_, bytes, message) => {
  const response = await exchangeOne(bytes)
  expect(JSON.parse(response.body)).toEqual({ error: { code: 'invalid_request', message } })
  expect(response).toMatchObject({ status: 400, headers: { connection: 'close', 'cache-control': 'no-store' } })
  expect(response.headers['x-request-id']).toBeDefined()
})

test.each<[string, number, () => string]>([
  ['an unread body, as the key is refused', 401, () => post('Content-Length: 500000') + 'x'.repeat(500_000)],
  ['an unread chunked body', 401, () => `${post('Transfer-Encoding: chunked')}${chunk('x'.repeat(500_000))}0\r\n\r\n`],
  ['a body too large by its length', 413, () => post(keyed(), 'Content-Length: 1000000') + ' '.repeat(1_000_000)],
  [
    'a body too large by its chunks',
    413,
    () => `${post(keyed(), 'Transfer-Encoding: chunked')}${chunk(' '.repeat(300_000)).repeat(4)}0\r\n\r\n`,
  ],
  [
    'a body of another type',
    415,
    () =>
      `${head('POST /projects/demo/events HTTP/1.1', keyed(), 'Content-Type: text/plain', 'Content-Length: 5')}hello`,
  ],
  [
    'a body without a type',
    415,
    () => `${head('POST /projects/demo/events HTTP/1.1', keyed(), 'Content-Length: 5')}hello`,
  ],
  ['neither body nor type', 400, () => head('POST /projects/demo/events HTTP/1.1', keyed())],
  ['no body but a type', 400, () => post(keyed())],
  ['an empty chunked body', 400, () => `${post(keyed(), 'Transfer-Encoding: chunked')}0\r\n\r\n`],
  ['a body on a path that does not exist', 404, () => `${head('POST /nowhere HTTP/1.1', 'Content-Length: 5')}hello`],
  [
    'a body on a method that does not exist',
    405,
    () => `${head('PUT /projects/demo/events HTTP/1.1', 'Content-Length: 5')}hello`,
  ],
  [
    'a read with a body of any type',
    200,
    () => `${get('/projects/demo/modules', 'Content-Type: text/plain', 'Content-Length: 5')}hello`,
  ],
])('the connection serves the next request after %s', async (_, status, first) => {
  const responses = parseResponses(await exchange(first(), last()))
  expect(responses.map((response) => response.status)).toEqual([status, 200])
  expect(await rowCounts(api.db)).toEqual(before)
})

test('a body in many small chunks is one body', async () => {
  const chunks = [...JSON.stringify({ ...EVENT, module_id: 'nowhere' })].map(chunk).join('')
  const response = await exchangeOne(
    post(keyed(), 'Transfer-Encoding: chunked', 'Connection: close'),
    `${chunks}0\r\n\r\n`,
  )
  expect(response.status).toBe(404)
})

test('a key sent in two headers is refused, and white space around a key is ignored', async () => {
  const twice = get('/projects/demo/modules', keyed(), 'Connection: close')
  expect((await exchangeOne(twice)).status).toBe(401)
  const spaced = head('GET /projects/demo/modules HTTP/1.1', `x-aPI-key:  \t${api.key} \t`, 'Connection: close')
  expect((await exchangeOne(spaced)).status).toBe(200)
})

test('an Idempotency-Key sent in two headers is refused', async () => {
  const body = JSON.stringify(EVENT)
  const response = await exchangeOne(
    post(keyed(), 'Idempotency-Key: a', 'Idempotency-Key: a', `Content-Length: ${body.length}`, 'Connection: close'),
    body,
  )
  expect(JSON.parse(response.body).error.details).toEqual([
    { pointer: '/headers/Idempotency-Key', message: 'must hold visible ASCII characters only, and no spaces' },
  ])
  expect(await rowCounts(api.db)).toEqual(before)
})

test('a request without Host gets the error envelope', async () => {
  const response = await exchangeOne(`GET /projects/demo/modules HTTP/1.1\r\n${keyed()}\r\nConnection: close\r\n\r\n`)
  expect(JSON.parse(response.body).error.code).toBe('invalid_request')
  expect(response.headers['x-request-id']).toBeDefined()
  expect(response.status).toBe(400)
})

test('a request with two Hosts is refused', async () => {
  const response = await exchangeOne(get('/projects/demo/modules', 'Host: y', 'Connection: close'))
  expect(JSON.parse(response.body).error).toEqual({ code: 'invalid_request', message: 'Send exactly one Host header.' })
  expect(response.status).toBe(400)
})

const OUTSIDE = ['%2e%2e', '.', '..', '..%5c', '%00', '/', 'a%00b', '%2e%2e/%2e%2e/package.json', 'theme/../x']
test.each<[string, header: string, status: number, code: string]>([
  ...OUTSIDE.map((path): [string, string, number, string] => [path, 'Accept: */*', 404, 'route_not_found']),
  ['no-such-file', 'Accept: */*', 404, 'route_not_found'],
  ['', 'Range: bytes=99999999-', 416, 'invalid_request'],
  ['', 'If-Match: "x"', 412, 'invalid_request'],
])('of the files of the docs page, "%s" with %s is a client error', async (path, header, status, code) => {
  const response = await exchangeOne(get(`/docs/static/${path}`, header, 'Connection: close'))
  expect(response.status).toBe(status)
  expect(JSON.parse(response.body).error.code).toBe(code)
  expect(logged.filter(({ level }) => level >= 50)).toEqual([])
})

test.each([
  ['head', () => 'GET /projects/demo/modules HTTP/1.1\r\nHost: x\r\n'],
  ['body', () => `${post(keyed(), 'Content-Length: 1000')}{"module_id":`],
])('a slow %s is refused soon after its time is up', async (_, slow) => {
  const { headersTimeout, requestTimeout } = api.app.server
  expect([headersTimeout, requestTimeout]).toEqual([30_000, 30_000])
  Object.assign(api.app.server, { headersTimeout: 1_000, requestTimeout: 1_000 })
  const start = performance.now()
  const response = await exchangeOne(slow())
  // Node checks every 30 s if it is not told otherwise.
  expect(performance.now() - start).toBeLessThan(25_000)
  expect(JSON.parse(response.body).error.message).toBe('The request was not complete within 30 seconds.')
  Object.assign(api.app.server, { headersTimeout, requestTimeout })
})

test('a request that is complete after its time is up is not recorded, and its connection closed', async () => {
  const { headersTimeout, requestTimeout } = api.app.server
  Object.assign(api.app.server, { headersTimeout: 1_000, requestTimeout: 1_000 })
  const body = JSON.stringify(EVENT)
  // Like a client that reads the response only once it has sent all.
  const { client, connection } = await openConnection(api.app, { allowHalfOpen: true })
  const { setTimeout } = globalThis
  let endLinger = () => {}
  const lingering = vi.spyOn(globalThis, 'setTimeout').mockImplementation(((work: () => void, delay_ms: number) => {
    if (delay_ms !== LINGER_ms) return setTimeout(work, delay_ms)
    endLinger = work
    return setTimeout(() => {})
  }) as typeof setTimeout)
  onTestFinished(() => lingering.mockRestore())
  client.write(post(keyed(), `Content-Length: ${body.length}`))
  const [received] = await once(client, 'data')
  expect(String(received)).toMatch(/^HTTP\/1.1 400 /)
  const received_bytes = connection.bytesRead
  client.write(body)
  await expect.poll(() => connection.bytesRead).toBe(received_bytes + body.length)
  expect(connection.destroyed).toBe(false)
  endLinger()
  expect(connection.destroyed).toBe(true)
  expect(await rowCounts(api.db)).toEqual(before)
  Object.assign(api.app.server, { headersTimeout, requestTimeout })
})

/** Sends data. @throws Error when the connection breaks before all is on its way */
const written = (client: Socket, data: Buffer) =>
  new Promise<void>((resolve, reject) => {
    client.write(data, (error) => (error ? reject(error) : resolve()))
  })

test('what follows a request and is no HTTP gets no response in its place, which is the last', async () => {
  const received = await exchange(`${get('/projects/demo/modules')}no HTTP\r\n\r\n`)
  expect(received).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
  expect(received).toContain('\r\nConnection: close\r\n')
  expect(received).not.toContain('not a valid HTTP')
})

test('a body of more bytes than its Content-Length gets the response to those', async () => {
  const body = JSON.stringify({ ...EVENT, module_id: 'nowhere' })
  const sent = post(keyed(), `Content-Length: ${Buffer.byteLength(body)}`)
  const { status, headers } = await exchangeOne(sent, body, 'x')
  expect({ status, connection: headers.connection }).toEqual({ status: 404, connection: 'close' })
  expect(await exchangeOne(sent, body.replace('nowhere', 'nöwhere'))).toMatchObject({
    status: 400,
    body: expect.stringContaining('The body is not valid JSON'),
  })
  // Of a client that reads nothing before it has sent all.
  const client = connect(port, '127.0.0.1')
  client.write(`${sent}${body}`)
  await written(client, Buffer.alloc(8_000_000, 'x'))
  expect(parseResponses(await text(client)).map(({ status }) => status)).toEqual([404])
})

test.each([
  ['a wrong key', 401, { 'X-Api-Key': 'x' }],
  ['its size', 413, {}],
  ['its type', 415, { 'Content-Type': 'text/plain' }],
])('a body that is refused for %s, of a client that closes, may be sent as a whole', async (_, status, headers) => {
  const body = Buffer.alloc(8_000_000, 'x')
  const usual = { 'X-Api-Key': api.key, 'Content-Type': 'application/json', 'Content-Length': body.length }
  const lines = Object.entries({ ...usual, ...headers }).map((field) => field.join(': '))
  const client = connect(port, '127.0.0.1')
  client.write(head('POST /projects/demo/events HTTP/1.1', 'Connection: close', ...lines))
  // Like clients that read nothing before.
  await written(client, body)
  const [response] = parseResponses(await text(client))
  expect(response).toMatchObject({ status, headers: { connection: 'close' } })
})

test.each([
  ['never comes', ''],
  ['is no HTTP', 'no chunk'],
])('a request that is refused before its body, which then %s, gets no second response', async (_, rest) => {
  const { headersTimeout, requestTimeout } = api.app.server
  Object.assign(api.app.server, { headersTimeout: 1_000, requestTimeout: 1_000 })
  const client = connect(port, '127.0.0.1')
  let received = ''
  client.on('data', (data) => {
    received += data
    client.write(rest)
  })
  client.on('error', () => {})
  client.write(`${post('Transfer-Encoding: chunked')}${chunk('x')}`)
  await once(client, 'close')
  expect(parseResponses(received).map(({ status }) => status)).toEqual([401])
  Object.assign(api.app.server, { headersTimeout, requestTimeout })
})

test('a JSON body in chunks of a byte is refused after a while', async () => {
  const chunks = `${chunk(' ').repeat(20_000)}0\r\n\r\n`
  const sent = post(keyed(), 'Transfer-Encoding: chunked', 'Connection: close')
  const { status, body } = await exchangeOne(sent, chunks)
  expect(status).toBe(400)
  expect(body).toContain('The body is sent in chunks of a few bytes each; send larger chunks.')
  const short = JSON.stringify({ ...EVENT, module_id: 'nowhere' })
  const bytes = [...short].map(chunk).join('')
  const { body: read } = await exchangeOne(sent, `${bytes}0\r\n\r\n`)
  expect(read).toContain('module_does_not_exist')
})

test('a client that disconnects within the body writes nothing, and logs no error', async () => {
  const { client, connection } = await openConnection(api.app)
  client.write(`${post(keyed(), 'Content-Length: 1000')}{"module_id":`)
  await expect.poll(() => logged.length).toBe(1)
  client.destroy()
  await once(connection, 'close')
  // The request sees the end of the connection within this turn of the event loop.
  await new Promise(setImmediate)
  expect(logged.filter(({ level }) => level >= 50)).toEqual([])
  expect(await rowCounts(api.db)).toEqual(before)
})

test('logs contain no query and no key', async () => {
  await exchange(get(`/projects/demo/modules?x-api-key=${api.key}`), get(`/nowhere/%?secret=${api.key}`), last())
  await expect.poll(() => logged.length).toBeGreaterThanOrEqual(6)
  expect(JSON.stringify(logged)).not.toContain(api.key)
})
