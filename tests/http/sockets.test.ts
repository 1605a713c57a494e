import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { Writable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { createTestApp, type TestApp } from '../support/app.ts'
import { EVENT, rowCounts } from './requests.ts'

// What only shows on a real connection: bytes that no client library would send, and connections that live on.

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
  api = await createTestApp({ logger: { level: 'info', stream: log } })
  port = Number(new URL(await api.listen()).port)
  before = await rowCounts(api.db)
})
beforeEach(() => {
  logged.length = 0
})
afterAll(() => api.close())

/** What the server says, until it ends the connection, to bytes sent at once. */
async function say(...parts: (string | Buffer)[]): Promise<string> {
  const socket = connect(port, '127.0.0.1')
  socket.write(Buffer.concat(parts.map((part) => Buffer.from(part))))
  return text(socket)
}

interface Answer {
  status: number
  headers: Record<string, string>
  body: string
}

/** Takes apart answers that each tell their Content-Length. */
function answersIn(said: string): Answer[] {
  const answers: Answer[] = []
  let rest = said
  while (rest !== '') {
    const [head = '', ...after] = rest.split('\r\n\r\n')
    const [status = '', ...lines] = head.split('\r\n')
    const headers = Object.fromEntries(lines.map((line) => line.toLowerCase().split(': ')))
    const tail = after.join('\r\n\r\n')
    const length = Number(headers['content-length'])
    answers.push({ status: Number(status.split(' ')[1]), headers, body: tail.slice(0, length) })
    rest = tail.slice(length)
  }
  return answers
}

const head = (line: string, ...headers: string[]) => `${[line, 'Host: x', ...headers].join('\r\n')}\r\n\r\n`
const get = (path: string, ...headers: string[]) => head(`GET ${path} HTTP/1.1`, `X-Api-Key: ${api.key}`, ...headers)
const last = () => get('/projects/demo/modules', 'Connection: close')
const post = (...headers: string[]) =>
  head('POST /projects/demo/events HTTP/1.1', 'Content-Type: application/json', ...headers)
const keyed = () => `X-Api-Key: ${api.key}`
const chunk = (data: string) => `${data.length.toString(16)}\r\n${data}\r\n`

async function one(...parts: (string | Buffer)[]): Promise<Answer> {
  const answers = answersIn(await say(...parts))
  expect(answers).toHaveLength(1)
  return answers[0] as Answer
}

const BAD_ENCODING =
  'The path and query must be percent-encoded UTF-8. Encode a literal % as %25, and all non-ASCII characters.'

test.each([
  ['a raw #', Buffer.from('/projects/demo/entries-page-views#limit=5')],
  ['a lone %', Buffer.from('/projects/demo/modules/%')],
  ['a lone % where there is no route', Buffer.from('/nowhere/%ff')],
])('a request target with %s is refused', async (_, target) => {
  const answer = await one('GET ', target, ` HTTP/1.1\r\nHost: x\r\n${keyed()}\r\nConnection: close\r\n\r\n`)
  expect(JSON.parse(answer.body).error).toEqual({ code: 'invalid_request', message: BAD_ENCODING })
  expect(answer.status).toBe(400)
  expect(answer.headers['x-request-id']).toBeDefined()
})

test.each([
  ['/projects/demo/modules/.', 400, '/path/moduleId'],
  ['/projects/demo/modules/..', 400, '/path/moduleId'],
  ['/projects/demo/modules/%2e%2E/versions', 400, '/path/moduleId'],
  ['/projects/demo/entries/../events', 400, '/path/entryId'],
])('dots in %s are an id that no resource has, and climb nowhere', async (path, status, pointer) => {
  const answer = await one(get(path, 'Connection: close'))
  expect(answer.status).toBe(status)
  expect(JSON.parse(answer.body).error.details).toEqual([{ pointer, message: 'must not be "." or ".."' }])
})

test.each(['/projects/../modules', '/projects/%2e%2e/modules', '/projects/./modules'])(
  'a project of dots, as in %s, is refused like every other',
  async (path) => {
    expect((await one(get(path, 'Connection: close'))).status).toBe(401)
  },
)

test('a request target with scheme and host is the path in it, and Link is a path', async () => {
  const answer = await one(get('http://example.com/projects/demo/entries-page-views?limit=1', 'Connection: close'))
  expect(answer.status).toBe(200)
  expect(answer.headers.link).toMatch(/^<\/projects\/demo\/entries-page-views\?cursor=/)
})

test.each([
  ['what is no HTTP', 'HELLO\r\n\r\n', 'This is not a valid HTTP/1.1 request.'],
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
])('%s is refused in the envelope', async (_, bytes, message) => {
  const answer = await one(bytes)
  expect(JSON.parse(answer.body)).toEqual({ error: { code: 'invalid_request', message } })
  expect(answer).toMatchObject({ status: 400, headers: { connection: 'close', 'cache-control': 'no-store' } })
  expect(answer.headers['x-request-id']).toBeDefined()
})

test.each<[string, number, () => string]>([
  ['a body that nobody reads, as the key is refused', 401, () => post('Content-Length: 500000') + 'x'.repeat(500_000)],
  [
    'a chunked body that nobody reads',
    401,
    () => `${post('Transfer-Encoding: chunked')}${chunk('x'.repeat(500_000))}0\r\n\r\n`,
  ],
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
  const answers = answersIn(await say(first(), last()))
  expect(answers.map((answer) => answer.status)).toEqual([status, 200])
  expect(await rowCounts(api.db)).toEqual(before)
})

test('a body in many small chunks is one body', async () => {
  const chunks = [...JSON.stringify({ ...EVENT, module_id: 'nowhere' })].map(chunk).join('')
  const answer = await one(post(keyed(), 'Transfer-Encoding: chunked', 'Connection: close'), `${chunks}0\r\n\r\n`)
  expect(answer.status).toBe(404)
})

test('a key sent in two headers is refused, and white space around one is not part of it', async () => {
  const twice = get('/projects/demo/modules', keyed(), 'Connection: close')
  expect((await one(twice)).status).toBe(401)
  const spaced = head('GET /projects/demo/modules HTTP/1.1', `x-aPI-key:  \t${api.key} \t`, 'Connection: close')
  expect((await one(spaced)).status).toBe(200)
})

test('an Idempotency-Key sent in two headers is refused', async () => {
  const body = JSON.stringify(EVENT)
  const answer = await one(
    post(keyed(), 'Idempotency-Key: a', 'Idempotency-Key: a', `Content-Length: ${body.length}`, 'Connection: close'),
    body,
  )
  expect(JSON.parse(answer.body).error.details).toEqual([
    { pointer: '/headers/Idempotency-Key', message: 'must hold visible ASCII characters only, and no spaces' },
  ])
  expect(await rowCounts(api.db)).toEqual(before)
})

test('two Content-Types are refused', async () => {
  const body = JSON.stringify(EVENT)
  const sent = post(keyed(), 'Content-Type: text/plain', `Content-Length: ${body.length}`, 'Connection: close')
  expect((await one(sent, body)).status).toBe(415)
})

test('a request without Host gets the envelope', async () => {
  const answer = await one(`GET /projects/demo/modules HTTP/1.1\r\n${keyed()}\r\nConnection: close\r\n\r\n`)
  expect(JSON.parse(answer.body).error.code).toBe('invalid_request')
  expect(answer.headers['x-request-id']).toBeDefined()
  expect(answer.status).toBe(400)
})

test('an expectation that is not known is passed over', async () => {
  expect((await one(get('/projects/demo/modules', 'Expect: a-miracle', 'Connection: close'))).status).toBe(200)
})

test('a body is asked for after the key is checked, and not before', async () => {
  const expecting = ['Expect: 100-continue', 'Content-Length: 2', 'Connection: close']
  expect(await say(post(...expecting), '{}')).toMatch(/^HTTP\/1.1 401 /)
  const said = await say(post(keyed(), ...expecting), '{}')
  expect(said).toMatch(/^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 400 /)
})

test('a caller who goes away within the body writes nothing, and is no fault of the service', async () => {
  const accepted = once(api.app.server, 'connection')
  const caller = connect(port, '127.0.0.1')
  const [connection] = (await accepted) as [Socket]
  caller.write(`${post(keyed(), 'Content-Length: 1000')}{"module_id":`)
  await expect.poll(() => logged.length).toBe(1)
  caller.destroy()
  await once(connection, 'close')
  // The connection's end reaches the request before the next turn.
  await new Promise(setImmediate)
  expect(logged.filter(({ level }) => level >= 50)).toEqual([])
  expect(await rowCounts(api.db)).toEqual(before)
})

test('logs hold no query and no key', async () => {
  await say(get(`/projects/demo/modules?x-api-key=${api.key}`), get(`/nowhere/%?secret=${api.key}`), last())
  await expect.poll(() => logged.length).toBeGreaterThanOrEqual(6)
  expect(JSON.stringify(logged)).not.toContain(api.key)
})
