import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { createTestApp, importInto, type TestApp } from '../support/app.ts'

const ROOT = path.join(import.meta.dirname, '../..')
const LOOPS = { 'follow.py': 'python3', 'follow.mts': process.execPath }

const event = (n: number) => ({
  ...{ type: 'event', project_id: 'demo', entry_id: '019ca8bb-b5c0-7000-8000-000000000001', event_id: `e${n}` },
  ...{ timestamp: new Date(Date.UTC(2026, 2, 1) + n).toISOString(), event_type: 'custom_event:triggered' },
  ...{ custom_event_name: `é ${n}`, custom_event_props: '{}' },
})

let api: TestApp
let address: string
let next = 0
const addEvents = (count: number) =>
  importInto(
    api.databaseUrl,
    Array.from({ length: count }, () => event(next++)),
  )
beforeAll(async () => {
  api = await createTestApp({ twins: false })
  address = await api.listen()
  await addEvents(2_500)
})
afterAll(() => api.close())

async function temporaryFile(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'flowtrail-copy-'))
  onTestFinished(() => rm(folder, { recursive: true }))
  return path.join(folder, 'copy.db')
}

async function feed(): Promise<object[]> {
  const events: object[] = []
  let next: string | undefined = '/projects/demo/events?direction=ASC&limit=1000'
  while (next !== undefined) {
    const response = await api.call({ path: next })
    events.push(...response.json())
    next = /^<(.+)>/.exec(String(response.headers.link))?.[1]
  }
  return events
}

/** What a copy has, in the order of the feed. */
function copied(file: string): unknown[] {
  const copy = new DatabaseSync(file, { readOnly: true })
  const rows = copy.prepare('SELECT event FROM events ORDER BY position').all() as { event: string }[]
  copy.close()
  return rows.map((row) => JSON.parse(row.event))
}

/** Calls of the feed so far. */
async function calls(): Promise<number> {
  const { body } = await api.call({ path: '/metrics', key: null })
  const counts = body.matchAll(/^flowtrail_request_duration_seconds_count\{operation="listProjectEvents",.* (\d+)$/gm)
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0)
}

describe.each(Object.entries(LOOPS))('the loop %s', (name, command) => {
  function start(
    file: string,
    settings: Record<string, string> = {},
  ): ChildProcess & { stdout: NodeJS.ReadableStream } {
    const child = spawn(command, [path.join(ROOT, 'connectors', name), file], {
      env: {
        PATH: process.env.PATH,
        FLOWTRAIL_URL: address,
        FLOWTRAIL_PROJECT: 'demo',
        FLOWTRAIL_KEY: api.key,
        ...settings,
      },
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    onTestFinished(() => void child.kill('SIGKILL'))
    return child as ChildProcess & { stdout: NodeJS.ReadableStream }
  }
  const run = async (file: string) => {
    const child = start(file)
    const [printed, [status]] = await Promise.all([text(child.stdout), once(child, 'close')])
    expect(status).toBe(0)
    return Number(printed)
  }

  test('copies every event once, and then what is new in one call', async () => {
    const file = await temporaryFile()
    const before = await calls()
    const count = await run(file)
    expect(await calls()).toBe(before + 3)
    const first = await feed()
    expect([count, copied(file)]).toEqual([first.length, first])

    await addEvents(10)
    const later = await calls()
    expect(await run(file)).toBe(count + 10)
    expect(await calls()).toBe(later + 1)
    expect(copied(file)).toEqual(await feed())
  })

  test('goes on where it was when it is killed, and follows what comes', async () => {
    const file = await temporaryFile()
    const isThere = (least: number) =>
      vi.waitFor(() => expect(copied(file).length).toBeGreaterThanOrEqual(least), { timeout: 30_000, interval: 5 })
    const killed = start(file, { WAIT: '30' })
    const closed = once(killed, 'close')
    await isThere(1)
    killed.kill('SIGKILL')
    await closed

    const following = start(file, { WAIT: '30' })
    await isThere((await feed()).length)
    await addEvents(5)
    await isThere((await feed()).length)
    following.kill('SIGKILL')
    expect(copied(file)).toEqual(await feed())
  })
})
