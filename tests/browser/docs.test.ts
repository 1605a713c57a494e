import { type Browser, chromium, type Page } from 'playwright-core'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadDemo } from '../../src/cli/demo.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { operations } from '../support/contract.ts'

let api: TestApp
let address: string
let browser: Browser
let page: Page
const complaints: string[] = []
const foreignRequests: string[] = []

beforeAll(async () => {
  api = await createTestApp({ fill: (url) => loadDemo(url, { entries: 20 }), demoKeyFile: '/data/demo-key' })
  address = await api.listen()
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update'],
  })
  page = await browser.newPage({ viewport: { width: 1280, height: 1000 } })
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') complaints.push(message.text())
  })
  page.on('pageerror', (error) => complaints.push(error.message))
  page.on('request', (request) => {
    if (!request.url().startsWith(address) && !/^(data|blob):/.test(request.url())) foreignRequests.push(request.url())
  })
})

afterAll(async () => {
  await browser?.close()
  await api?.close()
})

test('the page has our title and favicon and says where the demo key is, but not the key', async () => {
  await page.goto(`${address}/docs`)
  await page.waitForSelector('.opblock')
  expect(await page.title()).toBe('Flowtrail API')
  expect(await page.getAttribute('link[rel=icon]', 'href')).toContain('favicon.svg')
  expect(await page.textContent('.info')).toContain('/data/demo-key')
  expect(await page.content()).not.toContain(api.key)
})

test('authorization is kept over a reload', async () => {
  await page.click('button.authorize')
  await page.fill('.auth-container input[type=text]', api.key)
  await page.click('.auth-btn-wrapper button.authorize')
  await page.click('.auth-btn-wrapper button.btn-done')
  await page.reload()
  await page.waitForSelector('button.authorize.locked')
})

test.each(Object.keys(operations))('%s answers 200 with the values filled in', async (operationId) => {
  const block = page.locator(`.opblock[id$="-${operationId}"]`)
  await block.locator('.opblock-summary-control').click()
  await block.locator('button.execute').click()
  const status = block.locator('.live-responses-table .response-col_status').last()
  await status.waitFor()
  expect((await status.textContent())?.trim()).toMatch(/^200/)
  await block.locator('.opblock-summary-control').click()
})

test('nothing was asked of another origin and nothing was complained about', () => {
  expect(foreignRequests).toEqual([])
  expect(complaints).toEqual([])
})
