import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { createTestApp, type TestApp } from '../support/app.ts'
import { sectionOf, snippets } from '../support/recording-guide.ts'

// What docs/recording.md shows is run here as it stands; its web pages in tests/browser/recording-guide.test.ts.

const ROOT = path.join(import.meta.dirname, '../..')

let api: TestApp
let environment: Record<string, string | undefined>
beforeAll(async () => {
  api = await createTestApp({ twins: false })
  environment = { FLOWTRAIL_URL: await api.listen(), FLOWTRAIL_PROJECT: 'demo', FLOWTRAIL_KEY: api.key }
})
afterAll(() => api.close())

function node(args: string[]) {
  const child = spawn(process.execPath, args, {
    cwd: ROOT,
    env: { PATH: process.env.PATH, ...environment, PORT: '0' },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  onTestFinished(() => void child.kill())
  return child
}

const feed = async (): Promise<Record<string, unknown>[]> =>
  (await api.call({ path: '/projects/demo/events?limit=100' })).json()

test('the snippets for a server and a worker queue record each event once', async () => {
  const code = ['From a server', 'From a worker queue'].flatMap((section) => snippets(section, 'js')).join('\n')
  const child = node(['--input-type=module', '--eval', code])
  const [printed, errors] = await Promise.all([text(child.stdout), text(child.stderr)])
  expect(errors).toBe('')
  expect(printed.trim().split('\n')).toEqual([
    'done 20041',
    'done 20042',
    expect.stringMatching(/^refused 20043 .*\/body\/events\/2\/identifiers\/0\/value/),
  ])
  const orders = (await feed()).filter(({ custom_event_name }) => custom_event_name === 'order_placed')
  expect(orders.map(({ custom_event_props }) => JSON.parse(String(custom_event_props)).order)).toEqual([20042, 20041])
})

test('the records of the example can be imported', async () => {
  const [call = ''] = snippets('From a flow runtime', 'sh')
  const [, body = ''] = /<<'END'\n(.*)\nEND\n/s.exec(call) ?? []
  const headers = { 'content-type': 'application/x-ndjson' }
  const response = await api.call({ method: 'POST', path: '/projects/demo/records', headers, body })
  expect(sectionOf('From a flow runtime')).toContain(`\`${response.body}\``)
})

test('the visitors of the example runtime appear in the feed as they go', async () => {
  const child = node(['docs/flow-runtime.mjs'])
  const [address] = (await once(createInterface(child.stdout), 'line')) as [string]
  const first = await fetch(address, { redirect: 'manual' })
  const cookie = String(first.headers.get('set-cookie')).split(';')[0] as string
  let next = String(first.headers.get('location'))
  while (next !== '') {
    const page = await (await fetch(address + next, { headers: { cookie } })).text()
    next = /href="([^"]+)"/.exec(page)?.[1] ?? ''
  }
  const viewed = async () => (await feed()).filter(({ module_id }) => module_id === 'tea-quiz')
  await vi.waitFor(async () => expect(await viewed()).toHaveLength(4), { timeout: 30_000, interval: 50 })
  const views = await viewed()
  expect(views.map(({ page_key }) => page_key)).toEqual(['result', 'time', 'taste', 'welcome'])
  // So that they are in this order within a millisecond, too.
  expect(views.map(({ event_id }) => event_id).sort()).toEqual(views.map(({ event_id }) => event_id).toReversed())
  const [last] = views
  expect(last).toMatchObject({ page_key: 'result', max_page_index: 3, total_pages: 4, group_id: 'quizzes' })
  const entry = await api.call({ path: `/projects/demo/entries/${last?.entry_id}` })
  expect(entry.json()).toMatchObject({ updated_at: last?.timestamp })
  expect(JSON.parse(entry.json().entry_data)).toEqual({ welcome: 'Begin', taste: 'Sweet', time: 'Morning' })
})
