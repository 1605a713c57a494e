import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { type Docs, screenshot, startDocs } from './docs-page.ts'

let docs: Docs
let page: Page
let folder: string
let env: Record<string, string | undefined>

beforeAll(async () => {
  docs = await startDocs({ config: { corsOrigins: ['*'] } })
  page = await docs.open()
  folder = await mkdtemp(path.join(tmpdir(), 'flowtrail-guides-'))
  env = { ...process.env, FLOWTRAIL_URL: docs.address, FLOWTRAIL_PROJECT: 'demo', FLOWTRAIL_KEY: docs.api.key }
})

afterEach(() => expect(docs.takeErrors()).toEqual([]))

afterAll(async () => {
  await docs?.close()
  await rm(folder, { recursive: true })
})

const run = promisify(execFile)

/** The code of a guide as the page shows it, with a real key. */
async function codeOf(guide: string): Promise<string> {
  const summary = page.locator(`#guide-${guide} summary`)
  await summary.click()
  await screenshot(page, `desktop guide ${guide}`)
  const code = await page.locator(`#guide-${guide} pre code`).innerText()
  await summary.click()
  return code.replace('ft_…', docs.api.key)
}

async function runNode(file: string, code: string, extra: Record<string, string> = {}): Promise<string> {
  await writeFile(path.join(folder, file), code)
  return (await run(process.execPath, [file], { cwd: folder, env: { ...env, ...extra } })).stdout
}

/** A server for the length of a test. @returns its address */
async function serve(answer: Parameters<typeof createServer>[1], use: (address: string) => Promise<void>) {
  const server = createServer(answer as never).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  try {
    await use(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  } finally {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
}

test('the page says what the service is for and pictures its model', async () => {
  expect(await page.innerText('.info .description')).toContain('Use it to see who went through which flow')
  const picture = page.getByRole('img', { name: 'A project has modules' })
  const names = await picture.locator('[font-weight]').allTextContents()
  expect(names).toEqual(['Project', 'Module', 'Version', 'Contact', 'Entry', 'Event'])
  expect((await picture.boundingBox())?.width).toBeGreaterThan(300)
})

test('the first call lists the modules', async () => {
  const { stdout } = await run('bash', ['-ec', await codeOf('first-call')], { env })
  expect(JSON.parse(stdout)).toContainEqual(expect.objectContaining({ module_id: 'skin-quiz' }))
})

test('a copy has all entries, and later their changes', async () => {
  const code = (await codeOf('keep-a-copy')).replace('limit=1000', 'limit=7')
  const stored = async () => {
    const rows = docs.api.db.selectFrom('entries').where('project_id', '=', 'demo').orderBy('updated_at', 'desc')
    return rows.select('entry_id').execute()
  }
  const copied = async () => JSON.parse(await readFile(path.join(folder, 'copy.json'), 'utf8')).entries
  const [newest, ...others] = (await stored()).map(({ entry_id }) => entry_id)
  expect(await runNode('sync.mts', code)).toBe(`${others.length + 1} entries\n`)
  expect(Object.keys(await copied()).sort()).toEqual([newest, ...others].sort())

  const last = others.at(-1) as string
  const before = (await copied())[last]
  await docs.api.db
    .updateTable('entries')
    .set({ updated_at: new Date().toISOString() as never })
    .where('project_id', '=', 'demo')
    .where('entry_id', '=', last)
    .execute()
  await runNode('sync.mts', code)
  expect((await copied())[last].updated_at > before.updated_at).toBe(true)
})

test('a server records an event once, however often it repeats it', async () => {
  const code = await codeOf('record-from-a-server')
  const first = await runNode('record.mts', code)
  expect(first).toContain(`custom_event_name: 'order_placed'`)
  let requests = 0
  await serve(
    async (request, response) => {
      if (requests++ === 0) return response.writeHead(503, { 'retry-after': '1' }).end()
      const body = await text(request)
      const headers = Object.entries(request.headers).filter(([name]) => /^(x-api|content-type|idem)/.test(name))
      const answer = await fetch(docs.address + request.url, {
        method: 'POST',
        headers: headers as [string, string][],
        body,
      })
      response.end(await answer.text())
    },
    async (address) => expect(await runNode('record.mts', code, { FLOWTRAIL_URL: address })).toBe(first),
  )
  expect(requests).toBe(2)
})

test('a browser records an event from another origin', async () => {
  const code = await codeOf('record-from-a-browser')
  expect(code).toContain(`url: '${docs.address}'`)
  await serve(
    (_, response) => response.setHeader('content-type', 'text/html').end('<title>Shop</title>'),
    async (address) => {
      const shop = await page.context().newPage()
      await shop.goto(address)
      const recorded = shop.waitForResponse(`${docs.address}/projects/demo/events`)
      await shop.addScriptTag({ content: code })
      expect(await (await recorded).json()).toMatchObject({ custom_event_name: 'coupon_applied' })
      await shop.close()
    },
  )
})
