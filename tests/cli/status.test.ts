import { mkdir } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { PassThrough, Readable, Writable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { withLock } from '../../db/embedded/process-registry.ts'
import { run } from '../../src/cli/run.ts'
import { parseMetrics, perSecond, quantile, type Scrape, sinceStart, sum } from '../../src/cli/scrape.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { createDatabaseProxy } from '../support/database-proxy.ts'
import { kill, runFlowtrail } from '../support/service.ts'
import { flowtrailProcessWith, flowtrailWith, temporaryDirectory, untilPrinted } from './run.ts'

describe('metrics', () => {
  const text = (le1: number, le2: number, inf: number) => `# HELP a_seconds of "a"
# TYPE a_seconds histogram
a_seconds_bucket{of="a",le="1"} ${le1}
a_seconds_bucket{of="a",le="2"} ${le2}
a_seconds_bucket{of="a",le="+Inf"} ${inf}
b_total{code="x",of="a"} ${inf}
b_total{code="y",of="\\"\\\\n\\n"} 2
c 1.5e-7
`
  const before = parseMetrics(text(0, 0, 0), 0)
  const after = parseMetrics(text(10, 30, 40), 2_000)

  test('are read with their labels', () => {
    expect(after.series.slice(-2)).toEqual([
      { name: 'b_total', labels: { code: 'y', of: '"\\n\n' }, value: 2 },
      { name: 'c', labels: {}, value: 1.5e-7 },
    ])
    expect(sum(after, 'b_total')).toBe(42)
    expect(sum(after, 'b_total', { of: 'a' })).toBe(40)
    expect(sum(after, 'b_total', { of: 'a', code: 'y' })).toBe(0)
  })

  test('grow in a second', () => {
    expect(perSecond(before, after, 'b_total', { code: 'x' })).toBe(20)
  })

  test('are all of what a server has counted if it has been restarted in between', () => {
    const [running, restarted] = [100, 101].map((start) =>
      parseMetrics(`process_start_time_seconds ${start}\n${text(10, 30, 40)}`, start * 1_000),
    ) as [Scrape, Scrape]
    expect(sinceStart(running, running)).toBe(running)
    const start = sinceStart(running, restarted)
    expect(perSecond(start, restarted, 'b_total', { code: 'x' })).toBe(40)
    expect(quantile(start, restarted, 'a_seconds', 0.5)).toBe(1.5)
  })

  test.each([
    [0.125, 0.5],
    [0.25, 1],
    [0.5, 1.5],
    [0.75, 2],
    [0.99, 2],
  ])('have the quantile %d, by interpolation', (q, seconds) => {
    expect(quantile(before, after, 'a_seconds', q)).toBe(seconds)
  })

  test('have no quantile of nothing', () => {
    expect(quantile(after, after, 'a_seconds', 0.5)).toBeUndefined()
  })
})

describe('status', () => {
  let api: TestApp
  let settings: { DATABASE_URL: string; PORT: string }
  beforeAll(async () => {
    api = await createTestApp({ twins: false })
    settings = { DATABASE_URL: api.databaseUrl, PORT: new URL(await api.listen()).port }
    await api.call({ path: '/projects/demo/modules' })
    await api.call({ path: '/projects/demo/modules/none' })
    await api.call({ path: '/projects/demo/modules/none' })
    await api.call({ path: '/projects/demo/modules', key: null })
  })
  afterAll(() => api.close())

  test('shows the server, its errors, and the projects and keys', async () => {
    const { status, stdout, stderr } = await flowtrailWith(settings)('status')
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    expect(stdout).toMatch(
      new RegExp(
        `^Server {4}http://127\\.0\\.0\\.1:${settings.PORT}: ready, \\d+\\.\\d+\\.\\d+ \\(document [\\d.]+\\), up \\d+ h \\d+ min
Requests {2}0\\.0 a second
Events {4}0\\.0 a second recorded, 0 pending
Errors {4}404 module_does_not_exist: 2, 401 unauthorized: 1, since the start
Database {2}\\d+\\.\\d MiB

project_id +name +last_event_at
demo +.* 20[-\\d]+T[:.\\d]+Z
other +.*

project_id +key_id +name +last_used_at +expires_at
demo `,
      ),
    )
  })

  test('--watch --json goes on until a signal', async () => {
    const process = runFlowtrail(['status', '--watch', '--json'], settings)
    onTestFinished(async () => {
      await kill(process)
    })
    await untilPrinted(process, '\n')
    // Between two of its looks.
    await api.call({ path: '/projects/demo/modules' })
    await expect.poll(() => process.stdout().split('\n').length, { timeout: 20_000 }).toBeGreaterThan(3)
    const statuses = process
      .stdout()
      .split('\n')
      .slice(0, 3)
      .map((line) => JSON.parse(line))
    expect(statuses[0]).toMatchObject({
      server: { url: `http://127.0.0.1:${settings.PORT}`, ready: true, pending_events: 0 },
      database: { bytes: expect.any(Number) },
      projects: [{ project_id: 'demo' }, { project_id: 'other' }],
      keys: [{ project_id: 'demo' }],
    })
    process.child.kill('SIGINT')
    expect([await process.exit, process.stderr()]).toEqual([130, ''])
  })

  test('shows the server while the database is away, and exits with 1', async () => {
    const away = { ...settings, DATABASE_URL: 'postgres://u@127.0.0.1:1/d' }
    const { status, stdout, stderr } = await flowtrailWith(away)('status')
    expect(stdout).toMatch(
      /^Server {4}.*: ready, .*\nRequests .*\nEvents .*\nErrors {4}404 module_does_not_exist: 2, .*\nDatabase {2}Cannot connect to the database: .*ECONNREFUSED.*\n$/,
    )
    expect({ status, stderr }).toEqual({ status: 1, stderr: 'flowtrail: The database cannot be read\n' })
  })

  // The next three wait for seconds, together.
  test.concurrent('--watch goes on while the database is away, and shows it again afterwards', async ({
    // Of the test: that of the file polls for the one that began last, which may have ended.
    expect,
    onTestFinished,
  }) => {
    const proxy = await createDatabaseProxy(api.databaseUrl)
    onTestFinished(() => proxy.close())
    proxy.cut()
    const process = runFlowtrail(['status', '--watch', '--json'], {
      ...{ ...settings, DATABASE_URL: proxy.reach(api.databaseUrl) },
    })
    onTestFinished(async () => {
      await kill(process)
    })
    const last = () => JSON.parse(process.stdout().split('\n').at(-2) ?? '{}')
    const untilShown = (database: object) =>
      expect.poll(last, { timeout: 20_000 }).toMatchObject({ server: { ready: true }, database })
    const problem = { problem: expect.stringContaining('Cannot connect to the database') }
    await untilShown(problem)
    proxy.restore()
    await untilShown({ bytes: expect.any(Number) })
    proxy.cut()
    await untilShown({ problem: expect.any(String) })
    proxy.restore()
    await untilShown({ bytes: expect.any(Number) })
    proxy.freeze()
    await untilShown({ problem: 'no response within 5 s' })
    process.child.kill('SIGINT')
    expect([await process.exit, process.stderr()]).toEqual([130, ''])
  })

  test.concurrent('does not wait for an embedded PostgreSQL that another process starts', async () => {
    await using directory = await temporaryDirectory()
    const lock = path.join(directory.path, 'lock')
    await mkdir(lock)
    const started = Promise.withResolvers<void>()
    const starting = withLock(lock, () => started.promise)
    const status = await flowtrailWith({ PORT: settings.PORT, DATA_DIR: directory.path })('status')
    started.resolve()
    await starting
    expect(status.stdout).toContain('\nDatabase  no response within 5 s\n')
    expect(status).toMatchObject({ status: 1, stderr: 'flowtrail: The database cannot be read\n' })
  })

  test.concurrent('does not wait for a database that goes silent after the login', async ({ onTestFinished }) => {
    const proxy = await createDatabaseProxy(api.databaseUrl)
    onTestFinished(() => proxy.close())
    proxy.freezeAt('pg_backend_pid')
    const DATABASE_URL = proxy.reach(api.databaseUrl)
    const { status, stdout, stderr } = await flowtrailProcessWith({ ...settings, DATABASE_URL })('status')
    expect(stdout).toContain('\nDatabase  no response within 5 s\n')
    expect({ status, stderr }).toEqual({ status: 1, stderr: 'flowtrail: The database cannot be read\n' })
  })

  test('--watch clears the screen of a terminal, and not what was on it before', async () => {
    let printed = ''
    const terminal = new Writable({
      write(chunk, _, done) {
        printed += chunk
        done(Object.assign(new Error('closed'), { code: 'EPIPE' }))
      },
    })
    const stdout = Object.assign(terminal, { isTTY: true })
    const context = { env: settings, stdin: Readable.from([]), stdout, stderr: new PassThrough() }
    expect(await run(['status', '--watch'], context)).toBe(0)
    expect(printed.split('Server')[0]).toBe('\x1b[H\x1b[2J')
  })

  test('exits with 1 without a server that is ready', async () => {
    const { status, stdout, stderr } = await flowtrailWith({ ...settings, PORT: '1' })('status')
    expect(stdout).toMatch(/^Server {4}http:\/\/127\.0\.0\.1:1: no response: .+\nDatabase {2}/)
    expect({ status, stderr }).toEqual({
      ...{
        status: 1,
        stderr:
          'flowtrail: No server of Flowtrail responds at http://127.0.0.1:1; start it, or say where it is with --url\n',
      },
    })
  })

  test('says that something else is there', async () => {
    const other = createServer((_, response) => response.writeHead(404).end('no')).listen(0, '127.0.0.1')
    onTestFinished(() => {
      other.close()
      other.closeAllConnections()
    })
    await new Promise((resolve) => other.once('listening', resolve))
    const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`
    const { status, stdout } = await flowtrailWith(settings)('status', '--url', `${url}/`)
    expect(status).toBe(1)
    expect(stdout).toContain(
      `Server    ${url}: no metrics of Flowtrail there (status 404); they are at ADMIN_PORT if that is set\n`,
    )
  })
})
