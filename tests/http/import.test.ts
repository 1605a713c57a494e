import { request as httpRequest } from 'node:http'
import { connect } from 'node:net'
import { PassThrough, Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { gzipSync } from 'node:zlib'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { openImportPool } from '../../src/database/open.ts'
import { toIsoTimestamp } from '../../src/domain/timestamp.ts'
import { toApiError } from '../../src/http/error-handler.ts'
import { Importer } from '../../src/transfer/importer.ts'
import { createTestApp, importInto, PLAIN_CONFIG, type TestApp, type TestAppOptions } from '../support/app.ts'
import { document } from '../support/contract.ts'
import { holdProject } from '../support/waiting.ts'
import { outliveKeyCache, rowCounts, takeTurns } from './requests.ts'

// importRecords: what `flowtrail import` does, for one project and over HTTP (tests/transfer has the rules of the merge).

const PATH = '/projects/demo/records'
const NDJSON = 'application/x-ndjson'

let api: TestApp
beforeAll(async () => {
  api = await createTestApp()
})
afterAll(() => api.close())

async function another(options: TestAppOptions): Promise<TestApp> {
  const app = await createTestApp({ twins: false, ...options })
  onTestFinished(() => app.close())
  return app
}

const linesOf = (records: (object | string)[]): string =>
  records.map((record) => (typeof record === 'string' ? record : JSON.stringify(record))).join('\n')

const send = (records: (object | string)[] | Buffer, headers: Record<string, string> = {}, to = api) =>
  to.call({
    method: 'POST',
    path: PATH,
    body: Array.isArray(records) ? linesOf(records) : records,
    headers: { 'content-type': NDJSON, ...headers },
  })

let visits = 0
/** A contact, its entry, and as many page views. */
function visit(views: number) {
  visits += 1
  const [entry_id, contact_id] = [`entry-${visits}`, `contact-${visits}`]
  const contact = { type: 'contact', contact_id, identifiers: [{ key: 'email', value: `"${visits}@example.com"` }] }
  const entry = { type: 'entry', entry_id, module_id: 'skin-quiz', contact_id, updated_at: '2026-03-01T09:52:00.000Z' }
  const pages = Array.from({ length: views }, (_, i) => view(entry_id, i))
  return { entry_id, contact, entry, views: pages, all: [contact, entry, ...pages] }
}

const view = (entry_id: string, i: number, changes: object = {}) => ({
  ...{ type: 'event', entry_id, event_id: `${entry_id}-${i}`, event_type: 'flowpage.viewed', view_type: 'flowpage' },
  ...{ timestamp: new Date(Date.UTC(2026, 2, 1, 9, 52, i)).toISOString() },
  ...{ page_id: `p${i}`, page_key: `page-${i}`, page_index: i, total_pages: 9, ...changes },
})

const read = async (path: string, from = api) => (await from.call({ path: `/projects/demo/${path}` })).json()

describe('a visit', () => {
  test('is listed, and in the feed, the next moment', async () => {
    const { entry_id, all } = visit(3)
    const response = await send(all)
    expect([response.statusCode, response.json()]).toEqual([200, { records: 5, added: 5, changed: 0, unchanged: 0 }])
    expect(response.headers['cache-control']).toBe('no-store')
    expect(await read(`entries/${entry_id}`)).toMatchObject({ entry_id, module_id: 'skin-quiz' })
    const shown = [
      ...(await read(`entries/${entry_id}/events?direction=ASC`)),
      ...(await read('events?limit=3')).toReversed(),
    ]
    expect(shown.map(({ event_id, max_page_index }) => [event_id, max_page_index])).toEqual([
      ...[0, 1, 2].map((i) => [`${entry_id}-${i}`, i]),
      ...[0, 1, 2].map((i) => [`${entry_id}-${i}`, i]),
    ])
  })

  test('that is sent as it goes grows page by page', async () => {
    const { entry_id, contact, entry, views } = visit(3)
    await send([contact, entry])
    for (const page of views) expect((await send([page])).json()).toMatchObject({ records: 1, added: 1 })
    const later = { ...entry, updated_at: '2026-03-01T09:53:00.000Z', entry_data: '{"skin":"dry"}' }
    expect((await send([later])).json()).toEqual({ records: 1, added: 0, changed: 1, unchanged: 0 })
    expect(await read(`entries/${entry_id}`)).toMatchObject({ entry_data: '{"skin":"dry"}' })
    expect(await read(`entries/${entry_id}/events`)).toHaveLength(3)
  })

  test('that is sent twice is stored once, also without ids of events', async () => {
    const { all } = visit(2)
    const anonymous = all.map((record) => ({ ...record, event_id: undefined }))
    expect((await send(anonymous)).json()).toEqual({ records: 4, added: 4, changed: 0, unchanged: 0 })
    // With the project's id or without, it is the same record.
    const again = anonymous.map((record) => ({ ...record, project_id: 'demo' }))
    expect((await send(again)).json()).toEqual({ records: 4, added: 0, changed: 0, unchanged: 4 })
  })

  test('may have a record on several lines, which is one', async () => {
    const { all } = visit(1)
    expect((await send([...all, ...all])).json()).toEqual({ records: 3, added: 3, changed: 0, unchanged: 0 })
  })

  test('may come with the module, and end in a line break', async () => {
    const module = { type: 'module', module_id: 'fresh', group_id: 'new', title: 'Fresh' }
    const version = { type: 'module_version', module_id: 'fresh', version_number: 1, json_string: '{}' }
    const times = { saved_at: '2026-03-01T00:00:00Z', published_at: '2026-03-01T00:00:00Z' }
    const body = linesOf([{ type: 'group', group_id: 'new' }, module, { ...version, ...times }])
    expect((await send(Buffer.from(`${body}\r\n`))).json()).toMatchObject({ records: 3, added: 3 })
    expect(await read('modules/fresh')).toMatchObject({ title: 'Fresh', json_string_prod: '{}' })
  })
})

test('many records are imported by the same rules', async () => {
  const { entry_id, contact, entry, views } = visit(3_000)
  expect((await send([contact, entry, ...views])).json()).toMatchObject({ records: 3_002, added: 3_002 })
  expect((await send([contact, entry, ...views])).json()).toMatchObject({ records: 3_002, unchanged: 3_002 })
  const rows: { entry_id: string; page_views: unknown[] }[] = await read('entries-page-views?limit=1000')
  expect(rows.find((row) => row.entry_id === entry_id)?.page_views).toHaveLength(3_000)
})

/** The records, which must leave nothing behind. */
async function expectRefused(records: (object | string)[] | Buffer, status: number, headers?: Record<string, string>) {
  const before = await rowCounts(api.db)
  const response = await send(records, headers)
  expect([response.statusCode, await rowCounts(api.db)]).toEqual([status, before])
  return response.json().error
}

describe('a bad line is reported by its number, and nothing is imported', () => {
  const good = visit(1)
  test.each<[string, (object | string)[] | Buffer, pointer: string, message: string]>([
    ['behind good ones', [...good.all, view('e', 1, { page_index: -1 })], '/body/4/page_index', 'must be an integer'],
    ['without a field', [{ type: 'entry' }], '/body/1/entry_id', 'is required'],
    ['with an unknown field', [{ ...good.contact, 'a/b': 1 }], '/body/1/a~1b', 'is not a known field'],
    ['of another project', [{ ...good.contact, project_id: 'other' }], '/body/1/project_id', 'project in the path'],
    ['whose project is null', [{ ...good.contact, project_id: null }], '/body/1/project_id', 'project in the path'],
    ['of no project', [{ ...good.contact, project_id: 1 }], '/body/1/project_id', 'project in the path'],
    ['that is a project', [{ type: 'project', project_id: 'demo' }], '/body/1/type', 'must be one of group, module'],
    ['of no type', [{ type: 'user' }], '/body/1/type', 'must be one of group, module'],
    ['that is no object', [good.contact, '[]'], '/body/2', 'must be one JSON object'],
    ['that is no JSON', [good.contact, '{"type":"entry"'], '/body/2', 'must be one JSON object'],
    ['that is empty', [good.contact, '', good.entry], '/body/2', 'empty lines are not allowed'],
    ['nested deeply', [`{"type":${'['.repeat(100_000)}`], '/body/1', 'at most 1000 fields and items'],
    [
      'of very many values',
      [{ ...good.contact, identifiers: Array(400).fill({ key: 'k', value: '1' }) }],
      '/body/1',
      'at most 1000',
    ],
    [
      'with an endless name',
      [{ ...good.contact, ['n'.repeat(10_000)]: 1 }],
      `/body/1/${'n'.repeat(100)}…`,
      'known field',
    ],
    ['not in UTF-8', Buffer.from([0x7b, 0xff, 0x7d, 0x0a]), '/body/1', 'must be UTF-8'],
  ])('%s', async (_, records, pointer, message) => {
    const { code, details } = await expectRefused(records, 400)
    expect([code, details]).toEqual(['invalid_request', [{ pointer, message: expect.stringContaining(message) }]])
  })

  test('in a large body, of which much has been sent to the database', async () => {
    const { contact, entry, views } = visit(5_000)
    const error = await expectRefused([contact, entry, ...views, '{}'], 400)
    expect(error.details).toMatchObject([{ pointer: '/body/5003/type' }])
    expect((await send(visit(1).all)).statusCode).toBe(200)
  })
})

describe('a contradiction is a conflict, and nothing is imported', () => {
  const stored = visit(1)
  beforeAll(() => send(stored.all))
  test.each<[string, () => object[], pointer: string]>([
    ['an event of no entry', () => [view('nowhere', 1)], '/body/1/entry_id'],
    ['another event under the same id', () => [{ ...stored.views[0], page_key: 'else' }], '/body/1/page_key'],
    [
      'another contact of an entry',
      () => [visit(0).contact, { ...stored.entry, contact_id: `contact-${visits}` }],
      '/body/2/contact_id',
    ],
    [
      "another contact's identifier",
      () => [{ ...visit(0).contact, identifiers: stored.contact.identifiers }],
      '/body/1/identifiers/0',
    ],
    ['an entry before its contact', () => visit(1).all.toReversed(), '/body/1/entry_id'],
  ])('%s', async (_, records, pointer) => {
    const { code, details } = await expectRefused(records(), 409)
    expect([code, details]).toEqual(['record_conflict', [{ pointer, message: expect.any(String) }]])
  })
})

test('a body without records is refused', async () => {
  expect(await expectRefused(Buffer.alloc(0), 400)).toMatchObject({ message: expect.stringContaining('no records') })
})

test.each([
  ['application/json', {}],
  ['text/plain', {}],
  [`${NDJSON}; charset=latin1`, {}],
  [`${NDJSON}x`, {}],
  [NDJSON, { 'content-encoding': 'gzip' }],
])('the media type %s %o is refused', async (type, headers) => {
  const body = 'content-encoding' in headers ? gzipSync(linesOf(visit(1).all)) : visit(1).all
  const error = await expectRefused(body, 415, { 'content-type': type, ...headers })
  expect(error.message).toContain(`Content-Type: ${NDJSON}`)
})

test('a large import leaves nothing of its records in the statistics of its tables', async () => {
  const pool = openImportPool(api.databaseUrl, { max: 1 })
  onTestFinished(() => pool.end())
  await new Importer(pool).import('demo', Readable.from([Buffer.from(linesOf(visit(400).all))]))
  await expect
    .poll(async () => (await pool.query("SELECT FROM pg_stats WHERE schemaname LIKE 'pg_temp%'")).rowCount)
    .toBe(0)
})

test('a key that is revoked while a body arrives imports nothing', async () => {
  const key = await createKey(api.db, 'demo', { name: 'revoked', scopes: ['import'], expires_at: null })
  const body = Readable.from(
    (async function* () {
      yield Buffer.from(linesOf(visit(1).all))
      await api.db
        .updateTable('api_keys')
        .set({ revoked_at: toIsoTimestamp(new Date(0)) })
        .where('name', '=', 'revoked')
        .execute()
      outliveKeyCache()
    })(),
  )
  const before = await rowCounts(api.db)
  const response = await api.app.inject({
    ...{ method: 'POST', url: PATH, payload: body, headers: { 'x-api-key': key, 'content-type': NDJSON } },
  })
  expect([response.statusCode, await rowCounts(api.db)]).toEqual([401, before])
})

test('others may take a turn before each line is read', async () => {
  const { next, turns } = takeTurns()
  const contacts = ['one', 'two', 'three'].map((name) => ({
    type: 'contact',
    contact_id: name,
    identifiers: [{ key: 'email', value: `"${name}@turns.example.com"` }],
  }))
  expect((await send(contacts)).statusCode).toBe(200)
  expect(next).toHaveBeenCalledTimes(3)
  // Whoever takes a turn comes before the next line.
  expect(turns).toEqual({ taking: 0, most: 1 })
})

test('the media type must be given', async () => {
  const response = await api.app.inject({
    ...{ method: 'POST', url: PATH, payload: linesOf(visit(1).all), headers: { 'x-api-key': api.key } },
  })
  expect([response.statusCode, response.json().error.message]).toEqual([415, expect.stringContaining(NDJSON)])
})

test('a connection that breaks at the end of a refused import is closed, and leaves its place to others', async () => {
  const pool = openImportPool(api.databaseUrl, { max: 2 })
  onTestFinished(() => pool.end())
  const client = await pool.connect()
  const query = client.query.bind(client) as (...statement: unknown[]) => unknown
  client.query = ((...statement: unknown[]) =>
    statement[0] === 'ROLLBACK' ? Promise.reject(new Error('broken')) : query(...statement)) as typeof client.query
  client.release()
  const importer = new Importer(pool)
  const refused = importer.import('demo', Readable.from([Buffer.from(linesOf([view('nowhere', 1)]))]))
  await expect(refused).rejects.toThrow('broken')
  expect([pool.totalCount, pool.idleCount]).toEqual([0, 0])
})

test('the media type may have its charset', async () => {
  expect((await send(visit(1).all, { 'content-type': `${NDJSON}; charset=UTF-8` })).statusCode).toBe(200)
})

test('the default limit is that of the document', () => {
  expect(PLAIN_CONFIG.maxImport_bytes).toBe(
    document.paths['/projects/{projectId}/records']?.post?.requestBody?.['x-max-bytes'],
  )
})

describe('a body over the limit', () => {
  test.each([undefined, 2_000])('of %s bytes is refused', async (maxImport_bytes) => {
    const own = maxImport_bytes === undefined ? api : await another({ config: { maxImport_bytes } })
    const limit = maxImport_bytes ?? 16 * 1024 * 1024
    const line = `${JSON.stringify({ type: 'group', group_id: 'g' })}\n`
    const response = await send(Buffer.from(line.repeat(limit / line.length + 1)), {}, own)
    expect([response.statusCode, response.json().error]).toEqual([
      413,
      { code: 'payload_too_large', message: `The body exceeds the limit of ${limit} bytes.` },
    ])
    // A line without end.
    expect((await send(Buffer.alloc(limit + 1, '{'), {}, own)).statusCode).toBe(413)
    expect((await read('modules', own)).every((row: { group_id: string }) => row.group_id !== 'g')).toBe(true)
  })

  test('gets its response over a connection, which stays usable', async () => {
    const own = await another({ config: { maxImport_bytes: 2_000 } })
    const { port } = new URL(await own.listen())
    const call = () =>
      new Promise<[number | undefined, string]>((resolve, reject) => {
        const sent = httpRequest({
          port,
          method: 'POST',
          path: PATH,
          headers: { 'x-api-key': own.key, 'content-type': NDJSON },
        })
        sent.on('response', async (response) => resolve([response.statusCode, await text(response)]))
        sent.on('error', reject)
        sent.end(Buffer.alloc(500_000, '{'))
      })
    for (let i = 0; i < 3; i += 1) expect(await call()).toEqual([413, expect.any(String)])
  })
})

test('a body in chunks of a byte is refused after a while, and one in small chunks is not', async () => {
  const own = await another({})
  const { port } = new URL(await own.listen())
  const sendInChunks = async (body: Buffer, size: number) => {
    const socket = connect(Number(port), '127.0.0.1')
    const head = [`POST ${PATH} HTTP/1.1`, 'Host: x', `X-Api-Key: ${own.key}`, `Content-Type: ${NDJSON}`]
    const chunks = Array.from({ length: Math.ceil(body.length / size) }, (_, i) => {
      const chunk = body.subarray(i * size, (i + 1) * size)
      return `${chunk.length.toString(16)}\r\n${chunk}\r\n`
    })
    socket.write(`${head.join('\r\n')}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n`)
    socket.write(`${chunks.join('')}0\r\n\r\n`)
    return text(socket)
  }
  const refused = await sendInChunks(Buffer.alloc(200_000, ' '), 1)
  expect(refused).toMatch(/^HTTP\/1.1 400 .*The body is sent in chunks of a few bytes each; send larger chunks./s)
  expect(await sendInChunks(Buffer.from(linesOf(visit(3).all)), 1)).toMatch(/^HTTP\/1.1 200 .*"added":5/s)
  expect(await sendInChunks(Buffer.from(linesOf(visit(8_000).all)), 100)).toMatch(/^HTTP\/1.1 200 .*"added":8002/s)
})

test('a key needs the scope import, which is not one of the default ones', async () => {
  const key = await createKey(api.db, 'demo', { name: 'no import', scopes: ['read', 'events:write'], expires_at: null })
  expect(await expectRefused(visit(1).all, 403, { 'x-api-key': key })).toMatchObject({ code: 'insufficient_scope' })
})

test('an import that is cut off leaves nothing, and its place to others', async () => {
  const own = await another({})
  const { port } = new URL(await own.listen())
  const { contact, entry_id } = visit(1)
  for (let i = 0; i < 20; i += 1) {
    const socket = connect(Number(port), '127.0.0.1')
    socket.write(
      `POST ${PATH} HTTP/1.1\r\nHost: x\r\nX-Api-Key: ${own.key}\r\nContent-Type: ${NDJSON}\r\nContent-Length: 9999\r\n\r\n` +
        `${JSON.stringify(contact)}\n{"type":"entry","entry_id":"${entry_id}`,
    )
    await new Promise((resolve) => socket.once('ready', resolve))
    socket.destroy()
    await new Promise((resolve) => socket.once('close', resolve))
  }
  // The service may learn of it a little later.
  await expect.poll(async () => (await send(visit(1).all, {}, own)).json()).toMatchObject({ added: 3 })
  expect((await own.call({ path: `/projects/demo/entries/${entry_id}` })).statusCode).toBe(404)
})

describe('at most so many imports run at once', () => {
  /** Begins an import whose body does not end. @returns how to end it, and its status */
  async function begin(own: TestApp, port: string) {
    const [received, response] = [Promise.withResolvers<void>(), Promise.withResolvers<number>()]
    const sent = httpRequest({
      ...{ port, method: 'POST', path: PATH },
      headers: { 'x-api-key': own.key, 'content-type': NDJSON, expect: '100-continue' },
    })
    sent.on('continue', received.resolve)
    sent.on('response', (answer) => {
      answer.resume()
      response.resolve(answer.statusCode as number)
    })
    // Some are cancelled.
    sent.on('error', () => {})
    sent.flushHeaders()
    await received.promise
    const cancel = () => sent.destroy()
    return { response: response.promise, end: () => sent.end(linesOf(visit(1).all)), cancel }
  }

  test('not counting those whose bodies are still to come', async () => {
    const own = await another({})
    const { port } = new URL(await own.listen())
    const slow = await Promise.all(Array.from({ length: 10 }, () => begin(own, port)))
    expect((await send(visit(1).all, {}, own)).statusCode).toBe(200)
    for (const one of slow.slice(0, 1)) {
      one.end()
      expect(await one.response).toBe(200)
    }
    for (const one of slow) one.cancel()
  })

  test('half of them in one project; one more gets a 503', async () => {
    const pool = openImportPool(api.databaseUrl, { max: 3 })
    onTestFinished(() => pool.end())
    const importer = new Importer(pool, { lockTimeout_ms: 60_000 })
    const statusOf = (
      project: string,
      body: AsyncIterable<Buffer> = Readable.from([Buffer.from(linesOf(visit(1).all))]),
    ) =>
      importer.import(project, body).then(
        () => 200,
        (error: unknown) => toApiError(error).status,
      )
    // It leaves its place.
    expect(await statusOf('demo')).toBe(200)
    const writer = await holdProject(api.databaseUrl)
    onTestFinished(() => writer.release())
    const waiting = Promise.all([statusOf('demo'), statusOf('demo')])
    await writer.waiting(2)
    expect(await Promise.all([statusOf('demo'), statusOf('demo')])).toEqual([503, 503])
    // Before any of its body has arrived.
    expect(await statusOf('demo', new PassThrough())).toBe(503)
    // Another project has a place. It does not exist.
    expect(await statusOf('other')).toBe(409)
    await writer.release()
    expect(await waiting).toEqual([200, 200])
    expect(await statusOf('demo')).toBe(200)
  })

  test('and so much of their bodies is buffered', async () => {
    const pool = openImportPool(api.databaseUrl, { max: 4 })
    onTestFinished(() => pool.end())
    const importer = new Importer(pool, { buffered_bytes: { all: 3_000, project: 2_000 }, lockTimeout_ms: 60_000 })
    // It gives back what it has taken, and no more.
    await importer.import('demo', Readable.from([Buffer.from(linesOf(visit(1).all))]))
    const arrived = Promise.withResolvers<void>()
    const [rest, part] = [Promise.withResolvers<Buffer>(), Buffer.alloc(1_500, ' ')]
    const first = importer.import(
      'demo',
      Readable.from(
        (async function* () {
          yield part
          arrived.resolve()
          yield rest.promise
        })(),
      ),
    )
    await arrived.promise
    const import_ = (project: string, bytes: number) =>
      importer
        .import(project, Readable.from([Buffer.alloc(bytes, ' ')]))
        .catch((error: unknown) => toApiError(error).status)
    expect(await import_('demo', 501)).toBe(503)
    expect(await import_('other', 1_501)).toBe(503)
    expect(await import_('other', 1_500)).toBe(400)
    rest.resolve(Buffer.from(`{}\n`))
    await expect(first).rejects.toMatchObject({ status: 400 })
    expect(await import_('demo', 2_000)).toBe(400)

    // Once an import has its connection, what it reads does not count.
    await api.db.transaction().execute(async (trx) => {
      await sql`SELECT FROM projects WHERE project_id = 'demo' FOR NO KEY UPDATE`.execute(trx)
      const body = Buffer.from(linesOf(visit(5).all))
      expect(body.length).toBeGreaterThan(1_000)
      const waiting = importer.import('demo', Readable.from([body]))
      await expect.poll(() => import_('demo', 2_000)).toBe(400)
      return [waiting]
    })
  })
})

test('what an import reads once it has a connection is not counted as buffered', async () => {
  const pool = openImportPool(api.databaseUrl, { max: 2 })
  onTestFinished(() => pool.end())
  const importer = new Importer(pool, { buffered_bytes: { all: 400_000, project: 400_000 } })
  /** More records than are held without a connection, of a kilobyte each. */
  const part = (i: number) =>
    Array.from({ length: 350 }, (_, j) => {
      const group = { type: 'group', group_id: `large-${i}-${j}`, name: 'n'.repeat(1_000) }
      return `${JSON.stringify(group)}\n`
    }).join('')
  const parts = [1, 2, 3].map((i) => Buffer.from(part(i)))
  expect(await importer.import('demo', Readable.from(parts))).toMatchObject({ body: { added: 1_050 } })
})

test('an import tells the position of its records if it is asked to and can', async () => {
  const pool = openImportPool(api.databaseUrl, { max: 2 })
  onTestFinished(() => pool.end())
  const done: object[] = []
  const import_ = (readsPosition?: boolean) =>
    new Importer(pool, { onImport: (result) => done.push(result), ...(readsPosition && { readsPosition }) }).import(
      'demo',
      Readable.from([Buffer.from(linesOf(visit(1).all))]),
    )
  expect((await import_()).position).toBeUndefined()
  const { body, position } = await import_(true)
  expect(position).toBeDefined()
  expect(done).toEqual([body, body])
  const query = vi.spyOn(pool, 'query').mockImplementation((async () => {
    throw new Error('it is gone')
  }) as never)
  onTestFinished(() => query.mockRestore())
  expect(await import_(true)).toEqual({ body, position: undefined })
})

test('an import does not wait forever for a project that another writer holds', async () => {
  const pool = openImportPool(api.databaseUrl, { max: 2 })
  onTestFinished(() => pool.end())
  const { all } = visit(1)
  const importAll = () =>
    new Importer(pool, { lockTimeout_ms: 50 }).import('demo', Readable.from([Buffer.from(linesOf(all))]))
  await api.db.transaction().execute(async (trx) => {
    await sql`SELECT FROM projects WHERE project_id = 'demo' FOR NO KEY UPDATE`.execute(trx)
    expect(toApiError(await importAll().catch((error: unknown) => error))).toMatchObject({ status: 503 })
  })
  expect(await importAll()).toMatchObject({ body: { added: 3 } })
})

test('imports and recordings at the same time are all stored', async () => {
  const own = await another({})
  await importInto(own.databaseUrl, [{ type: 'project', project_id: 'demo' }])
  const all = Array.from({ length: 20 }, () => visit(5))
  const event = {
    module_id: 'skin-quiz',
    timestamp: '2026-03-01T10:00:00Z',
    custom_event_name: 'beside',
    identifiers: [{ key: 'email', value: '"beside@example.com"' }],
  }
  const statuses = await Promise.all(
    all.flatMap(({ all }, i) => [
      own.call({ method: 'POST', path: '/projects/demo/events', body: event }).then((r) => r.statusCode),
      ...(i < 2 ? [send(all, {}, own).then((r) => r.statusCode)] : []),
    ]),
  )
  expect(new Set(statuses)).toEqual(new Set([200]))
  const { rows } = await sql<{
    count: number
  }>`SELECT count(*)::integer AS count, count(DISTINCT position)::integer AS positions
    FROM events WHERE project_id = 'demo' AND (custom_event_name = 'beside' OR event_id LIKE 'entry-%')`.execute(own.db)
  expect(rows).toEqual([{ count: 30, positions: 30 }])
})
