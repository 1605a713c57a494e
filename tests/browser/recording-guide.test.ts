import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { text } from 'node:stream/consumers'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { snippets } from '../support/recording-guide.ts'
import { launchChromium } from './docs-page.ts'

// What docs/recording.md shows for web pages, in a browser, as it stands.

const [ENDPOINT = ''] = snippets('From a web page', 'js')
const [OWN = '', DIRECT = ''] = snippets('From a web page', 'html')

let browser: Browser
beforeAll(async () => {
  browser = await launchChromium()
})
afterAll(() => browser?.close())

async function startApp(origins: string[] = []): Promise<TestApp & { address: string }> {
  const app = await createTestApp({ twins: false, config: { corsOrigins: origins } })
  onTestFinished(() => app.close())
  return { ...app, address: await app.listen() }
}

/** Serves a page at /, and the pages that its links lead to. Requests to /track go to another server. */
async function startSite(page: () => string, track = ''): Promise<string> {
  const site = createServer(async (request, response) => {
    if (request.url === '/track') {
      const { cookie = '', 'content-type': type = '', 'content-length': length = '' } = request.headers
      const body = await text(request)
      const forwarded = await fetch(`${track}/track`, {
        method: 'POST',
        headers: { cookie, 'content-type': type },
        body,
      })
      expect(Number(length)).toBe(Buffer.byteLength(body))
      response.writeHead(forwarded.status).end()
    } else response.setHeader('content-type', 'text/html').end(request.url === '/' ? page() : 'elsewhere')
  })
  site.listen(0)
  await once(site, 'listening')
  onTestFinished(() => void site.close().closeAllConnections())
  return `http://localhost:${(site.address() as AddressInfo).port}`
}

async function startEndpoint({ address, key }: { address: string; key: string }): Promise<string> {
  const code = [...snippets('From a server', 'js').slice(0, 1), ENDPOINT].join('\n')
  const child = spawn(process.execPath, ['--input-type=module', '--eval', code], {
    cwd: path.join(import.meta.dirname, '../..'),
    env: { PATH: process.env.PATH, FLOWTRAIL_URL: address, FLOWTRAIL_PROJECT: 'demo', FLOWTRAIL_KEY: key, PORT: '0' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  onTestFinished(() => void child.kill())
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string]
  return line
}

async function recorded({ call }: TestApp, name: string): Promise<Record<string, unknown>[]> {
  const events = (await call({ path: '/projects/demo/events?limit=100' })).json() as Record<string, unknown>[]
  return events.filter(({ custom_event_name }) => custom_event_name === name)
}

test('a page records through an endpoint of its site, also when it is left', async () => {
  const app = await startApp()
  const endpoint = await startEndpoint(app)
  const site = await startSite(() => OWN, endpoint)
  const context = await browser.newContext()
  onTestFinished(() => context.close())
  await context.addCookies([
    { name: 'visitor', value: '7b1f7dc3-2d35-4f27-9a3c-7a5b8f2f3b10', url: site, httpOnly: true },
  ])
  const page = await context.newPage()
  await page.goto(site)
  await page.click('#guide')
  await page.waitForURL('**/guide.pdf')
  await expect.poll(() => recorded(app, 'guide_downloaded')).toMatchObject([{ custom_event_props: '{"page":"/"}' }])

  const COOKIE = 'visitor=7b1f7dc3-2d35-4f27-9a3c-7a5b8f2f3b10'
  const track = async (body: string, cookie = `a=b; ${COOKIE}; c=d`, type = 'application/json') => {
    const headers = { cookie, 'content-type': type }
    return (await fetch(`${endpoint}/track`, { method: 'POST', headers, body })).status
  }
  const good = '{"name":"video_watched","page":"/a"}'
  for (const [name, status] of [
    ['another name', track('{"name":"order_placed","page":"/a"}')],
    ['no page', track('{"name":"video_watched"}')],
    ['no text', track('{"name":"video_watched","page":{"toString":1}}')],
    ['no object', track('null')],
    ['no JSON', track('{')],
    ['a long body', track(`{"name":"video_watched","page":"${'a'.repeat(1_000)}"}`)],
    ['no cookie', track(good, '')],
    ['the cookie of something else', track(good, `other${COOKIE}`)],
    ["what another site's form can send", track(good, COOKIE, 'text/plain')],
  ] as const) {
    expect(await status, name).toBe(400)
  }
  expect(await track(good)).toBe(202)
  await expect.poll(() => recorded(app, 'video_watched')).toHaveLength(1)
})

test('a page records directly with a public key, and its beacons are refused', async () => {
  const origins: string[] = []
  let html = ''
  const site = await startSite(() => html)
  origins.push(site)
  const app = await startApp(origins)
  const key = await createKey(app.db, 'demo', { name: 'public', scopes: ['events:write'], expires_at: null })
  html = DIRECT.replace('https://flows.example.com', app.address).replace('ft_…', key)
  expect(html).toContain(`${app.address}/projects/demo`)
  const page = await browser.newPage()
  onTestFinished(() => page.close())
  await page.goto(site)
  await page.click('#watch')
  await expect.poll(() => recorded(app, 'video_watched')).toHaveLength(1)
  // Left at once.
  await page.evaluate("document.querySelector('#watch').click(); location.href = '/elsewhere'")
  await page.waitForURL('**/elsewhere')
  await expect.poll(() => recorded(app, 'video_watched')).toHaveLength(2)
  const [first, second] = await recorded(app, 'video_watched')
  expect(first?.contact_id).toBe(second?.contact_id)

  const reads = await page.evaluate(
    `fetch('${app.address}/projects/demo/modules', { headers: { 'x-api-key': '${key}' } }).then(({ status }) => status)`,
  )
  expect(reads).toBe(403)
  const send = `navigator.sendBeacon('${app.address}/projects/demo/events', new Blob(['{}'], { type: 'text/plain' }))`
  expect(await page.evaluate(send)).toBe(true)
  const metrics = async () => (await app.app.inject('/metrics')).body
  await expect
    .poll(metrics)
    .toContain('seconds_count{operation="recordCustomEvent",method="POST",status="401",error_code="unauthorized"} 1')
  expect(await recorded(app, 'video_watched')).toHaveLength(2)
})
