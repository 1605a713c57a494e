import { once } from 'node:events'
import { PassThrough, Readable, Writable } from 'node:stream'
import { styleText } from 'node:util'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { useEmbeddedServer } from '../../db/embedded/server.ts'
import type { components } from '../../generated/api.ts'
import { run } from '../../src/cli/run.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { isOnCitus } from '../support/citus.ts'
import { createDatabaseProxy } from '../support/database-proxy.ts'
import { kill, type Process, runFlowtrail } from '../support/service.ts'
import { holdLock } from '../support/waiting.ts'
import { flowtrailWith, printed, temporaryDirectory, untilPrinted } from './run.ts'

type ProjectEvent = components['schemas']['ProjectEvent']

const paint = (style: 'dim' | 'bold' | 'cyan' | 'yellow') => (text: string) =>
  styleText(style, text, { validateStream: false })

let api: TestApp
beforeAll(async () => {
  api = await createTestApp()
})
afterAll(() => api.close())

function tail(...options: string[]): Process {
  const process = runFlowtrail(['tail', '--project', 'demo', ...options], { DATABASE_URL: api.databaseUrl })
  onTestFinished(() => kill(process))
  return process
}

/** Runs the command until the reader of its output closes it, after the first write. */
async function tailOnce(env: Record<string, string>, { isTTY = false } = {}) {
  let printed = ''
  const output = new Writable({
    write(chunk, _, done) {
      printed += chunk
      done(Object.assign(new Error('closed'), { code: 'EPIPE' }))
    },
  })
  output.on('error', () => {})
  const [stdout, stderr] = [Object.assign(output, { isTTY }), new PassThrough({ encoding: 'utf8' })]
  const context = { env, stdin: Readable.from([]), stdout, stderr }
  const status = await run(['tail', '--project', 'demo', '--since', 'start'], context)
  return { status, printed, stderr: stderr.read() ?? '' }
}

async function record(custom_event_name: string, custom_event_props = '{}') {
  const identifiers = [{ key: 'email', value: '"amara.okafor@example.com"' }]
  const body = {
    module_id: 'skin-quiz',
    timestamp: '2026-03-01T10:00:00Z',
    custom_event_name,
    custom_event_props,
    identifiers,
  }
  const response = await api.call({ method: 'POST', path: '/projects/demo/events', body })
  expect(response.statusCode).toBe(200)
}

const feed = async (): Promise<ProjectEvent[]> =>
  (await api.call({ path: '/projects/demo/events?direction=ASC&limit=1000' })).json()

const linesOf = ({ stdout }: Process) => stdout().split('\n').slice(0, -1)
const untilLines = (process: Process, count: number) =>
  vi.waitFor(() => expect(linesOf(process)).toHaveLength(count), { timeout: 30_000, interval: 20 })

test('prints all events and then those that come, until it is interrupted', async () => {
  const before = (await feed()).length
  const process = tail('--since', 'start')
  await untilLines(process, before)
  await record('bought', '{"plan":\n"pro"}')
  await untilLines(process, before + 1)
  expect(linesOf(process).slice(0, 2)).toEqual([
    '2026-03-01T09:31:10.250Z  skin-quiz  flowpage.viewed  skin-type  entry 019ca8bb-b5c0-7000-8000-000000000001',
    '2026-03-01T09:31:40.000Z  skin-quiz  custom event  newsletter_opt_in  {"list":"spring"}  entry 019ca8bb-b5c0-7000-8000-000000000001',
  ])
  expect(linesOf(process).at(-1)).toContain('  bought  {"plan": "pro"}  ')
  process.child.kill('SIGINT')
  expect([await process.exit, process.stderr()]).toEqual([130, ''])
})

test('fails when the database goes silent', async () => {
  const proxy = await createDatabaseProxy(api.databaseUrl)
  onTestFinished(() => proxy.close())
  const process = runFlowtrail(['tail', '--project', 'demo', '--since', 'start'], {
    DATABASE_URL: proxy.reach(api.databaseUrl),
  })
  onTestFinished(() => kill(process))
  await untilPrinted(process, '\n')
  proxy.freeze()
  expect(await process.exit).toBe(1)
  expect(process.stderr()).toMatch(/^flowtrail: Query read timeout\. The server takes connections/)
})

// The embedded PostgreSQL is no cluster, whose sessions are looked for there.
test.skipIf(isOnCitus)(
  'waits until another process has migrated the embedded database, however long that takes',
  async () => {
    await using directory = await temporaryDirectory()
    const settings = { DATA_DIR: directory.path }
    expect((await flowtrailWith(settings)('demo', '--entries', '1')).status).toBe(0)
    const server = await useEmbeddedServer({ dataDir: directory.path, name: 'flowtrail' })
    await using _ = { [Symbol.asyncDispose]: () => server.release() }
    const migration = await holdLock(server.url, 'LOCK TABLE kysely_migration')
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'], shouldAdvanceTime: true })
    onTestFinished(() => void vi.useRealTimers())
    const tailing = tailOnce(settings)
    await Promise.race([tailing, migration.waiting(1)])
    vi.advanceTimersByTime(60_000)
    await migration.release()
    expect(await tailing).toMatchObject({ status: 0, stderr: '', printed: expect.stringContaining('  entry ') })
  },
)

test('ends when the project is deleted', async () => {
  await using directory = await temporaryDirectory()
  const flowtrail = flowtrailWith({ DATABASE_URL: api.databaseUrl, DATA_DIR: directory.path })
  await printed(flowtrail('demo', '--project', 'gone', '--entries', '1'))
  const process = runFlowtrail(['tail', '--project', 'gone', '--since', 'start'], { DATABASE_URL: api.databaseUrl })
  onTestFinished(() => kill(process))
  await untilPrinted(process, '\n')
  await printed(flowtrail('projects', 'delete', 'gone', '--yes'))
  expect(await process.exit).toBe(1)
  expect(process.stderr()).toMatch(/^flowtrail: Project gone does not exist\. Run: /)
})

test('begins with what comes when it is not told where', async () => {
  const process = tail()
  let count = 0
  const untilPrinted = async () => {
    await record(`news ${count++}`)
    expect(linesOf(process)).not.toEqual([])
  }
  await vi.waitFor(untilPrinted, { timeout: 30_000, interval: 100 })
  expect(linesOf(process)[0]).toContain('  news ')
})

test('colours what it prints on a terminal', async () => {
  const { status, printed } = await tailOnce({ DATABASE_URL: api.databaseUrl }, { isTTY: true })
  expect(status).toBe(0)
  const [view, opted] = printed.split('\n')
  const [dim, bold, module] = [paint('dim'), paint('bold'), paint('cyan')('skin-quiz')]
  const id = 'entry 019ca8bb-b5c0-7000-8000-000000000001'
  expect([view, opted]).toEqual([
    `${dim('2026-03-01T09:31:10.250Z')}  ${module}  flowpage.viewed  ${bold('skin-type')}  ${dim(id)}`,
    `${dim('2026-03-01T09:31:40.000Z')}  ${module}  ${paint('yellow')('custom event')}  ${bold('newsletter_opt_in')}  {"list":"spring"}  ${dim(id)}`,
  ])
})

test('prints events as in the feed, after a position', async () => {
  const events = await feed()
  const process = tail('--json', '--since', String(events[0]?.position))
  await untilLines(process, events.length - 1)
  expect(linesOf(process).map((line) => JSON.parse(line))).toEqual(events.slice(1))
})

test('ends quietly when nobody reads it any longer', async () => {
  const process = tail('--since', 'start')
  await once(process.child.stdout as NonNullable<typeof process.child.stdout>, 'data')
  process.child.stdout?.destroy()
  await record('unread')
  expect([await process.exit, process.stderr()]).toEqual([0, ''])
})

test.each([
  [['--since', 'soon'], 2, 'Expected start, now, or the position of an event.'],
  [['--since', '-1'], 2, 'Expected start, now, or the position of an event.'],
  [['--since', '9007199254740992'], 2, 'Expected start, now, or the position of an event.'],
  [['--project', 'nowhere'], 1, 'Project nowhere does not exist.'],
])('%j is refused with status %i', async (options, status, message) => {
  const refused = await flowtrailWith({ DATABASE_URL: api.databaseUrl })('tail', '--project', 'demo', ...options)
  expect([refused.status, refused.stdout]).toEqual([status, ''])
  expect(refused.stderr).toContain(message)
})
