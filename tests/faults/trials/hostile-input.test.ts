import { readFileSync } from 'node:fs'
import { Agent, request } from 'node:http'
import { connect } from 'node:net'
import { Readable } from 'node:stream'
import { buffer, text } from 'node:stream/consumers'
import { gunzipSync } from 'node:zlib'
import fc from 'fast-check'
import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createKey } from '../../../src/cli/keys.ts'
import { connect as connectDatabase } from '../../../src/database/open.ts'
import { createPool } from '../../../src/database/pool.ts'
import { SCOPES } from '../../../src/domain/api-key.ts'
import { ImportError, importRecords } from '../../../src/transfer/import.ts'
import { flowtrailWith } from '../../cli/run.ts'
import { EXAMPLES, importFile } from '../../support/app.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { kill, type Service, startService } from '../../support/service.ts'
import {
  type CommandCase,
  commandCase,
  type HttpCase,
  httpCase,
  type ImportCase,
  importCase,
  type RawCase,
  rawCase,
} from './hostile-input.ts'
import { runsInForm, TRIAL_OPTIONS } from './trial.ts'

// Whatever is sent, the service responds, with no 5xx but 503, and goes on. Each kind of input is first what has been found
// before: a failure prints the case as JSON; add it to hostile-input.ndjson.

interface Corpus {
  http: HttpCase
  raw: RawCase
  import: ImportCase
  command: CommandCase
}
const corpus = readFileSync(new URL('hostile-input.ndjson', import.meta.url), 'utf8')
  .trimEnd()
  .split('\n')
  .map((line) => JSON.parse(line) as { kind: keyof Corpus } & Corpus[keyof Corpus])
const foundBefore = <Kind extends keyof Corpus>(kind: Kind) =>
  corpus.filter((one) => one.kind === kind) as unknown as Corpus[Kind][]

/** No response within it is a hang: far more than any request of these takes on any machine. */
const HANG_ms = 60_000

let database: TestDatabase
let pool: pg.Pool
let service: Service
let key: string
let cursors: string[]
const agent = new Agent({ keepAlive: true, maxSockets: 32 })

beforeAll(async () => {
  database = await createTestDatabase()
  await importFile(database.url, EXAMPLES)
  pool = createPool(database.url, { max: 1 })
  const db = connectDatabase(database.url, { max: 1 })
  key = await createKey(db, 'demo', { name: 'test', scopes: SCOPES, expires_at: null })
  await db.destroy()
  service = await startService({ DATABASE_URL: database.url })
  const entry = 'entries/019ca8bb-b5c0-7000-8000-000000000001'
  const lists = ['modules/skin-quiz/versions', `${entry}/events`, 'entries-page-views', `${entry}/events?direction=ASC`]
  cursors = await Promise.all(
    lists.map(async (list) => {
      const path = `${service.address}/projects/demo/${list}${list.includes('?') ? '&' : '?'}limit=1`
      return (await fetch(path, { headers: { 'x-api-key': key } })).headers.get('next-cursor') ?? ''
    }),
  )
  expect(cursors).not.toContain('')
})
afterAll(async () => {
  agent.destroy()
  await kill(service)
  await pool.end()
  await database.drop()
})

/** Fails with the case, in the form of the corpus. */
function report(kind: keyof Corpus, one: object, outcome: string): never {
  throw new Error(`${outcome} for ${JSON.stringify({ kind, ...one })}`)
}

const statuses = new Map<number, number>()

/** The status of the response to a request, with the service's own key unless it has one. */
async function send(one: HttpCase): Promise<void> {
  const { method, target, headers, body } = one
  const all = new Headers()
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; body: string }>()
  const bytes = Buffer.from(body ?? '', 'latin1')
  // For GET, Node would send a body without its length.
  const length = { 'content-type': 'application/json', 'content-length': String(bytes.length) }
  const sent = { 'x-api-key': key, ...(body !== undefined && length) }
  for (const [name, value] of [...Object.entries(sent), ...headers]) all.set(name, value)
  request(service.address, { method, path: target, headers: Object.fromEntries(all), agent, timeout: HANG_ms })
    .on('timeout', () => reject(new Error('no response')))
    .on('error', reject)
    .on('response', (response) => {
      const isZipped = response.headers['content-encoding'] === 'gzip' && method !== 'HEAD'
      const decode = (bytes: Buffer) => (isZipped ? gunzipSync(bytes) : bytes).toString()
      buffer(response)
        .then((bytes) => resolve({ status: Number(response.statusCode), body: decode(bytes) }))
        .catch(reject)
    })
    .end(bytes)
  const response = await promise.catch((error: unknown) => report('http', one, String(error)))
  statuses.set(response.status, (statuses.get(response.status) ?? 0) + 1)
  const isEnvelope = response.body.startsWith('{"error":{"code":"')
  const isFailure = response.status >= 500 && response.status !== 503
  if (isFailure || (response.status >= 400 && method !== 'HEAD' && !isEnvelope)) {
    report('http', one, `${response.status} ${response.body}`)
  }
}

/** Sends bytes and waits until the service closes the connection. */
async function exchange(one: RawCase): Promise<void> {
  const { hostname, port } = new URL(service.address)
  const socket = connect(Number(port), hostname)
  const hang = setTimeout(() => socket.destroy(new Error('not closed')), HANG_ms)
  socket.end(Buffer.from(one.bytes, 'latin1'))
  const received = await text(socket).catch((error: NodeJS.ErrnoException) => {
    // The service closes a connection with what it has not read.
    if (error.code === 'ECONNRESET' || error.code === 'EPIPE') return ''
    return report('raw', one, String(error))
  })
  clearTimeout(hang)
  for (const [, status] of received.matchAll(/(?:^|\n|\})HTTP\/1\.1 (\d{3}) /g)) {
    statuses.set(Number(status), (statuses.get(Number(status)) ?? 0) + 1)
    if (Number(status) >= 500 && status !== '503') report('raw', one, received)
  }
}

async function expectUnharmed(): Promise<void> {
  expect(service.child.exitCode, service.stderr()).toBeNull()
  expect((await fetch(`${service.address}/readyz`)).status).toBe(200)
  expect((await fetch(`${service.address}/projects/demo/modules`, { headers: { 'x-api-key': key } })).status).toBe(200)
  // Of level error or higher.
  expect(
    service
      .stdout()
      .split('\n')
      .filter((line) => /^\{"level":[56]0/.test(line)),
  ).toEqual([])
  console.log(
    `${expect.getState().currentTestName}: ${total} cases; statuses ${JSON.stringify(Object.fromEntries([...statuses].sort()))}`,
  )
}

let total: number

/** Tries what has been found before, and then new cases, up to 64 at a time. */
async function tryAll<Case>(
  before: Case[],
  one: fc.Arbitrary<Case>,
  batches: number,
  run: (one: Case) => Promise<void>,
) {
  statuses.clear()
  total = before.length
  expect(total).toBeGreaterThan(0)
  for (const known of before) await run(known)
  await fc.assert(
    fc.asyncProperty(fc.array(one, { minLength: 1, maxLength: 64, size: 'max' }), async (cases) => {
      total += cases.length
      await Promise.all(cases.map(run))
    }),
    {
      ...runsInForm(batches, batches * 40),
      interruptAfterTimeLimit: TRIAL_OPTIONS.timeout - 30_000,
      markInterruptAsFailure: true,
    },
  )
}

test('requests with any path, query, headers, body and cursor get a response', TRIAL_OPTIONS, async () => {
  await tryAll(foundBefore('http'), httpCase(cursors), 600, send)
  await expectUnharmed()
  expect([...statuses.keys()]).toEqual(expect.arrayContaining([200, 304, 400, 401, 404, 405, 409, 413, 415, 422]))
})

test('connections with any bytes get a response or an end', TRIAL_OPTIONS, async () => {
  await tryAll(foundBefore('raw'), rawCase(key), 200, exchange)
  await expectUnharmed()
  expect([...statuses.keys()]).toEqual(expect.arrayContaining([200, 400]))
})

test('import files with any lines are imported, or refused by their line', TRIAL_OPTIONS, async () => {
  let imported = 0
  const importOne = async (one: ImportCase) => {
    try {
      await importRecords(pool, Readable.from([Buffer.from(one.lines, 'latin1')]))
      imported += 1
    } catch (error) {
      if (!(error instanceof ImportError)) report('import', one, String(error))
    }
  }
  let last = Promise.resolve()
  // One after another: they are of one project, which an import locks.
  const inTurn = (one: ImportCase) => {
    last = last.then(() => importOne(one))
    return last
  }
  await tryAll(foundBefore('import'), importCase, 8, inTurn)
  console.log(`imported ${imported} of ${total}`)
  expect(imported).toBeGreaterThan(0)
})

test('command lines with any arguments succeed or fail in one line', TRIAL_OPTIONS, async () => {
  const flowtrail = flowtrailWith({ DATABASE_URL: database.url })
  const byStatus: Record<string, number> = {}
  const run = async (one: CommandCase) => {
    const { status, stderr } = await flowtrail(...one.args)
    byStatus[status] = (byStatus[status] ?? 0) + 1
    const isHelp = stderr.startsWith('Usage: ') || stderr.startsWith('Lines about')
    if (stderr !== '' && !isHelp && !/^flowtrail: [^\n]+\n$/.test(stderr)) report('command', one, stderr)
    // What only a mistake of ours causes, or PostgreSQL says.
    if (/ of undefined|of null|is not a function|syntax|violates|byte sequence/.test(stderr))
      report('command', one, stderr)
  }
  await tryAll(foundBefore('command'), commandCase, 6, run)
  console.log(`statuses ${JSON.stringify(byStatus)}`)
  expect(Object.keys(byStatus).sort()).toEqual(['0', '1', '2'])
})
