import { once } from 'node:events'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { PassThrough, Readable, Writable } from 'node:stream'
import { expect, onTestFinished, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { run } from '../../src/cli/run.ts'
import { ApiClient } from '../../src/demo/api-client.ts'
import { formatKey, generateKey } from '../../src/domain/api-key.ts'
import { PAGE_VIEWED } from '../../src/domain/event.ts'
import { toIsoTimestamp } from '../../src/domain/timestamp.ts'
import { createTestApp, importInto, type TestApp } from '../support/app.ts'
import { type Process, runFlowtrail, startService } from '../support/service.ts'
import { flowtrailWith, printed, untilPrinted } from './run.ts'

// Simulated visitors, over the API of a running server with a key alone.

const FAST = ['--rate', '500', '--speed', '10000']

/** A server whose project demo is empty. */
async function startApp(): Promise<TestApp & { url: string }> {
  const fill = (url: string) => importInto(url, [{ type: 'project', project_id: 'demo' }])
  const app = await createTestApp({ fill, twins: false })
  onTestFinished(() => app.close())
  return { ...app, url: await app.listen() }
}

const live = ({ url, key }: { url: string; key: string }, ...args: string[]) =>
  flowtrailWith({ FLOWTRAIL_KEY: key })('demo', '--live', '--url', url, ...args)

/** How many rows there are, as the command says it. */
async function totals({ db }: TestApp): Promise<string> {
  const count = async (custom: boolean) => {
    const rows = await db.selectFrom('events').select(['custom_event_name']).execute()
    return rows.filter(({ custom_event_name }) => (custom_event_name !== null) === custom).length
  }
  const entries = await db.selectFrom('entries').select('entry_id').execute()
  return `${entries.length} visitors, ${await count(false)} page views, ${await count(true)} custom events`
}

/** What happened, without ids and times. */
async function story({ db }: TestApp): Promise<string[]> {
  const events = await db
    .selectFrom('events')
    .innerJoin('entries', (join) =>
      join.onRef('entries.project_id', '=', 'events.project_id').onRef('entries.entry_id', '=', 'events.entry_id'),
    )
    .select([
      'module_id',
      'entry_data',
      'page_key',
      'page_index',
      'total_pages',
      'custom_event_name',
      'custom_event_props',
    ])
    .execute()
  return events.map((event) => JSON.stringify(event).replaceAll(/\.\w+@/g, '@')).sort()
}

test('visitors come, look at pages, give data, act and leave; modules are published', async () => {
  const app = await startApp()
  const said = await printed(live(app, ...FAST, '--visitors', '60'))
  const [, records, events] = /^60 visitors, (\d+) records, (\d+) custom events$/m.exec(said) ?? []
  const had = await totals(app)
  expect(had).toMatch(new RegExp(`^60 visitors, \\d+ page views, ${events} custom events$`))
  expect(Number(records)).toBeGreaterThan(Number(/(\d+) page views/.exec(had)?.[1]))

  const read = async (path: string) => (await app.call({ path: `/projects/demo/${path}` })).json()
  const versions = await read('modules/skin-quiz/versions')
  expect(versions[0]).toMatchObject({ version_number: 4 })
  expect((await read('modules/skin-quiz')).json_string_prod).toContain('Skin quiz, edition 4')
  const [entry] = await read('entries?limit=1')
  expect(entry).toMatchObject({ entry_data: expect.stringContaining('{') })
  const byModule = Map.groupBy(
    (await read('events?limit=1000')) as { module_id: string }[],
    ({ module_id }) => module_id,
  )
  expect([...byModule.keys()].sort()).toEqual(['clinic-booking', 'consultation-request', 'skin-quiz'])
  const contacts = await app.db.selectFrom('contact_identifiers').select('key').where('key', '=', 'email').execute()
  expect(contacts.length).toBeGreaterThan(5)
})

test('an entry is changed with each of its page views, as those expect who follow entries', async () => {
  const app = await startApp()
  await printed(live(app, ...FAST, '--visitors', '20'))
  const missed = await app.db
    .selectFrom('entries')
    .innerJoin('events', (join) =>
      join.onRef('events.project_id', '=', 'entries.project_id').onRef('events.entry_id', '=', 'entries.entry_id'),
    )
    .select('entries.entry_id')
    .where('events.event_type', '=', PAGE_VIEWED)
    .whereRef('events.timestamp', '>', 'entries.updated_at')
    .execute()
  expect(missed).toEqual([])
})

test('what they do depends on the seed alone', async () => {
  const storyOf = async (seed: number) => {
    const app = await startApp()
    await printed(live(app, ...FAST, '--visitors', '30', '--seed', String(seed)))
    return story(app)
  }
  const [first, again, other] = await Promise.all([7, 7, 8].map(storyOf))
  expect(again).toEqual(first)
  expect(other).not.toEqual(first)
})

test('a second run beside the first goes on with new visitors', async () => {
  const app = await startApp()
  await Promise.all([1, 2].map(() => printed(live(app, ...FAST, '--visitors', '10'))))
  expect(await totals(app)).toMatch(/^20 visitors/)
})

test('records that contradict what is stored are reported, and the others sent', async () => {
  const app = await createTestApp({ twins: false })
  onTestFinished(() => app.close())
  await importInto(app.databaseUrl, [
    {
      type: 'module_version',
      project_id: 'demo',
      module_id: 'skin-quiz',
      version_number: 3,
      saved_at: '2026-01-01T00:00:00Z',
      json_string: '{}',
    },
  ])
  const before = await app.db.selectFrom('entries').select('entry_id').execute()
  const { status, stdout, stderr } = await live({ url: await app.listen(), key: app.key }, ...FAST, '--visitors', '5')
  expect(status).toBe(0)
  expect(stdout).toMatch(/^Simulating visitors to project demo at .*, until there have been 5\n5 visitors/)
  expect(stderr).toMatch(/^flowtrail: .*\/body\/\d+\/saved_at.* a saved version cannot change/m)
  const after = await app.db.selectFrom('entries').select('entry_id').execute()
  expect(after.length - before.length).toBe(5)
})

test('an outage loses nothing, and Ctrl-C sends what has happened', async () => {
  const app = await startApp()
  const first = await startService({ DATABASE_URL: app.databaseUrl })
  const PORT = new URL(first.address).port
  const visitors: Process = runFlowtrail(['demo', '--live', '--rate', '10', '--speed', '200'], {
    FLOWTRAIL_KEY: app.key,
    PORT,
  })
  await expect.poll(() => totals(app), { timeout: 20_000 }).toMatch(/[1-9]\d* custom events/)
  first.child.kill('SIGKILL')
  await first.exit
  await untilPrinted(visitors, 'The server cannot be reached. Trying again.\n', 'stderr')
  const second = await startService({ DATABASE_URL: app.databaseUrl, PORT })
  const before = await totals(app)
  await expect.poll(() => totals(app), { timeout: 20_000 }).not.toBe(before)
  visitors.child.kill('SIGINT')
  expect(await visitors.exit).toBe(0)
  const [, count, events] =
    /^Simulating visitors .* until Ctrl-C\n(\d+) visitors, \d+ records, (\d+) custom events\n$/.exec(
      visitors.stdout(),
    ) ?? []
  expect(await totals(app)).toMatch(new RegExp(`^${count} visitors, \\d+ page views, ${events} custom events$`))
  second.child.kill('SIGTERM')
  await second.exit
}, 60_000)

test('Ctrl-C while the server is away ends it, and says so', async () => {
  const app = await startApp()
  const service = await startService({ DATABASE_URL: app.databaseUrl })
  const visitors = runFlowtrail(['demo', '--live', '--rate', '10', '--url', service.address], {
    FLOWTRAIL_KEY: app.key,
  })
  await expect.poll(() => totals(app), { timeout: 20_000 }).not.toMatch(/^0 visitors/)
  service.child.kill('SIGKILL')
  await untilPrinted(visitors, 'Trying again', 'stderr')
  visitors.child.kill('SIGINT')
  expect(await visitors.exit).toBe(1)
  expect(visitors.stderr()).toContain('flowtrail: The server cannot be reached; what happened last was not sent\n')
}, 60_000)

test('the key is that of the demo project, in its file', async () => {
  const app = await startApp()
  const DATA_DIR = await mkdtemp(path.join(tmpdir(), 'flowtrail-live-'))
  onTestFinished(() => rm(DATA_DIR, { recursive: true }))
  const { port } = new URL(app.url)
  const flowtrail = flowtrailWith({ DATA_DIR, PORT: port })
  const args = ['demo', '--live', ...FAST, '--visitors', '1']
  expect((await flowtrail(...args)).stderr).toBe(
    `flowtrail: There is no key in ${DATA_DIR}/demo-key: load the project with flowtrail demo, or set FLOWTRAIL_KEY\n`,
  )
  await writeFile(`${DATA_DIR}/demo-key`, `${app.key}\n`)
  expect(await printed(flowtrail(...args))).toMatch(/^1 visitors/m)
})

test('a wrong key, project or address is said at once', async () => {
  const app = await startApp()
  const readOnly = await createKey(app.db, 'demo', { name: 'read', scopes: ['read'], expires_at: null })
  const refused = async (outcome: ReturnType<typeof live>, message: RegExp) =>
    expect(await outcome).toEqual({ status: 1, stdout: '', stderr: expect.stringMatching(message) })
  await refused(
    live({ ...app, key: formatKey(generateKey()) }),
    /^flowtrail: The server at http:\/\/\S+ does not accept this key for project demo\n$/,
  )
  await refused(live({ ...app, key: readOnly }), /^flowtrail: This key does not have the scope "import".*\n$/)
  await refused(live(app, '--project', 'other'), /does not accept this key for project other\n$/)
  await refused(
    live({ ...app, url: 'http://127.0.0.1:1' }),
    /^flowtrail: No server responds at http:\/\/127.0.0.1:1 \(bad port\). Start it .* --url\n$/,
  )
  await refused(live({ ...app, url: `${app.url}/nowhere` }), /^flowtrail: .*\n$/)
})

test.each([
  ['FLOWTRAIL_KEY', 'ft_…', 'FLOWTRAIL_KEY is not an API key; set one that flowtrail keys create has printed'],
  [
    'FLOWTRAIL_KEY',
    `It expires\n${formatKey(generateKey())}`,
    'FLOWTRAIL_KEY is not an API key; set one that flowtrail keys create has printed',
  ],
  [
    'FLOWTRAIL_URL',
    'localhost:3000',
    'FLOWTRAIL_URL is invalid. Expected an http or https URL, such as http://127.0.0.1:3000.',
  ],
  [
    'FLOWTRAIL_URL',
    'http://user:secret@localhost',
    'FLOWTRAIL_URL is invalid. Expected an http or https URL, such as http://127.0.0.1:3000.',
  ],
])('%s=%j is refused, and not repeated', async (name, value, message) => {
  const settings = { FLOWTRAIL_KEY: formatKey(generateKey()), [name]: value }
  expect(await flowtrailWith(settings)('demo', '--live')).toEqual({
    status: 2,
    stdout: '',
    stderr: `flowtrail: ${message}\n`,
  })
})

test('FLOWTRAIL_URL may end with a slash', async () => {
  const app = await startApp()
  const flowtrail = flowtrailWith({ FLOWTRAIL_URL: `${app.url}/`, FLOWTRAIL_KEY: app.key })
  expect(await printed(flowtrail('demo', '--live', ...FAST, '--visitors', '1'))).toMatch(/^1 visitors/m)
})

test('a key file that cannot be read, or has no key, is said', async () => {
  const DATA_DIR = await mkdtemp(path.join(tmpdir(), 'flowtrail-live-'))
  onTestFinished(() => rm(DATA_DIR, { recursive: true }))
  const file = `${DATA_DIR}/demo-key`
  await writeFile(file, 'no key')
  const flowtrail = flowtrailWith({ DATA_DIR })
  expect((await flowtrail('demo', '--live')).stderr).toBe(
    `flowtrail: ${file} does not contain an API key: load the project with flowtrail demo, or set FLOWTRAIL_KEY\n`,
  )
  await rm(file)
  await mkdir(file)
  expect((await flowtrail('demo', '--live')).stderr).toMatch(/^flowtrail: EISDIR: /)
})

test('a failure is one when nobody reads the output any longer, too', async () => {
  const app = await startApp()
  const stdout = new Writable({
    write(_chunk, _encoding, done) {
      // Before what is printed at the end.
      app.db
        .updateTable('api_keys')
        .set({ revoked_at: toIsoTimestamp(new Date()) })
        .execute()
        .then(() => done(), done)
      stdout._write = (_chunk, _encoding, done) => done(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }))
    },
  })
  const stderr = new PassThrough()
  const context = { env: { FLOWTRAIL_KEY: app.key }, stdin: Readable.from([]), stdout, stderr }
  expect(await run(['demo', '--live', '--url', app.url, '--rate', '50'], context)).toBe(1)
  expect(String(stderr.read())).toMatch(/^flowtrail: .*[Kk]ey.*\n$/)
})

test('a server that takes a request and does not respond is waited for no longer than its time', async () => {
  const server = createServer(() => {})
  await once(server.listen(0), 'listening')
  onTestFinished(() => void server.close().closeAllConnections())
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const { signal } = new AbortController()
  const client = new ApiClient({ url, projectId: 'demo', key: 'key', signal, timeout_ms: 50 }, () => {})
  await expect(client.check()).rejects.toThrow(`No server responds at ${url} (`)
})

test('what is temporary is tried again, neither at once nor as a refusal', async () => {
  const responses: ((response: ServerResponse) => unknown)[] = [
    (response) => response.writeHead(503).end(),
    (response) => response.writeHead(429, { 'retry-after': 'Wed, 21 Oct 2026 07:28:00 GMT' }).end(),
    (response) => response.writeHead(502, { 'content-type': 'text/html' }).end('<h1>Bad Gateway</h1>'),
    (response) => response.writeHead(200, { 'content-length': '100' }).write('{"records":', () => response.destroy()),
    (response) => response.writeHead(200).end('{"records":1}'),
  ]
  const times_ms: number[] = []
  const server = createServer((request, response) => {
    times_ms.push(performance.now())
    request.resume()
    responses.shift()?.(response)
  })
  await once(server.listen(0), 'listening')
  onTestFinished(() => void server.close().closeAllConnections())
  const problems: string[] = []
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const signal = AbortSignal.timeout(20_000)
  const client = new ApiClient({ url, projectId: 'demo', key: 'key', signal, retry_ms: 50 }, (problem) =>
    problems.push(problem),
  )
  expect(await client.importRecords([{ type: 'project', project_id: 'demo', name: 'Demo' }])).toBe(1)
  expect(problems).toEqual(['The server responded with 503. Trying again.'])
  expect(times_ms).toHaveLength(5)
  const gaps_ms = times_ms.slice(1).map((time_ms, i) => time_ms - (times_ms[i] as number))
  expect(Math.min(...gaps_ms)).toBeGreaterThan(40)
})

test.each([
  [['--live', '--rate', '0'], "option '--rate <n>' argument '0' is invalid. Expected a number from 0.01 to 10000"],
  [
    ['--live', '--speed', 'fast'],
    "option '--speed <n>' argument 'fast' is invalid. Expected a number from 0.01 to 10000",
  ],
  [
    ['--live', '--url', 'localhost:3000'],
    "option '--url <url>' argument 'localhost:3000' is invalid. Expected an http or https URL, such as http://127.0.0.1:3000",
  ],
  [['--live', '--entries', '3'], "option '--live' cannot be used with option '--entries <n>'"],
  [['--rate', '3'], "option '--rate <n>' needs --live"],
])('%j is wrong usage', async (args, message) => {
  const { status, stderr } = await flowtrailWith({})('demo', ...args)
  expect({ status, stderr }).toEqual({ status: 2, stderr: `flowtrail: ${message}. See flowtrail demo --help\n` })
})
