import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { type Browser, type BrowserContextOptions, chromium, type Locator, type Page } from 'playwright-core'
import { loadDemo } from '../../src/cli/demo.ts'
import { eraseContact } from '../../src/queries/erasures.ts'
import { createTestApp, type TestApp, type TestAppOptions } from '../support/app.ts'
import { ERASED } from '../support/demo-service.ts'

/** The screens to test on, without animations, which would make the tests race. */
export const SCREENS = {
  desktop: { viewport: { width: 1280, height: 900 }, reducedMotion: 'reduce' },
  'dark desktop': { viewport: { width: 1280, height: 900 }, reducedMotion: 'reduce', colorScheme: 'dark' },
  phone: { viewport: { width: 360, height: 740 }, reducedMotion: 'reduce', isMobile: true, hasTouch: true },
} satisfies Record<string, BrowserContextOptions>

export type Screen = keyof typeof SCREENS

/** A service with demo data, and Chromium to use its docs page. */
export interface Docs {
  api: TestApp
  address: string
  /** Opens the page in a new browser context; its errors are reported by `takeErrors`. */
  open: (screen?: Screen) => Promise<Page>
  /** Returns and clears the console's errors and warnings, CSP violations, and requests to other origins. */
  takeErrors: () => string[]
  close: () => Promise<void>
}

export const launchChromium = (): Promise<Browser> =>
  chromium
    .launch({
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update'],
    })
    .catch((cause) => {
      throw new Error('Chromium does not start: install it (Debian: chromium), or name yours in CHROMIUM', { cause })
    })

export async function startDocs(options: TestAppOptions = {}): Promise<Docs> {
  const api = await createTestApp({
    ...options,
    fill: async (url, db) => {
      await loadDemo(url, { entries: 20 })
      await eraseContact(db, 'demo', ERASED)
    },
    demoKeyFile: '/data/demo-key',
  })
  const address = await api.listen()
  const browser = await launchChromium().catch(async (error) => {
    await api.close()
    throw error
  })
  const errors: string[] = []

  return {
    api,
    address,
    open: async (screen = 'desktop') => {
      const context = await browser.newContext(SCREENS[screen])
      const page = await context.newPage()
      page.on('console', (message) => {
        if (message.type() === 'error' || message.type() === 'warning') errors.push(message.text())
      })
      page.on('pageerror', (error) => errors.push(error.message))
      page.on('request', (request) => {
        const url = request.url()
        if (!url.startsWith(`${address}/`) && !/^(data|blob):/.test(url)) errors.push(`request to ${url}`)
      })
      await page.addInitScript(`addEventListener('securitypolicyviolation', (violation) =>
        console.error('CSP forbids', violation.effectiveDirective, violation.blockedURI))`)
      await page.goto(`${address}/docs`)
      await page.locator('.opblock').first().waitFor()
      return page
    },
    takeErrors: () => errors.splice(0),
    close: async () => {
      await browser.close()
      await api.close()
    },
  }
}

/** The element of an operation. */
export const blockOf = (page: Page, operationId: string): Locator => page.locator(`.opblock[id$="-${operationId}"]`)

export const authorizeButton = (page: Page): Locator => page.locator('.scheme-container button.authorize')

/** Enters a key as a reader does. */
export async function authorize(page: Page, key: string): Promise<void> {
  await authorizeButton(page).click()
  await page.fill('dialog input', key)
  await page.click('dialog button[type=submit]')
  await page.click('dialog .btn-done')
}

export async function expand(page: Page, operationId: string): Promise<Locator> {
  const block = blockOf(page, operationId)
  await block.locator('.opblock-summary-control').click()
  await isExpanded(block)
  return block
}

/** Waits until an operation can be executed: its references are resolved some time after its button is there. */
export const isExpanded = (block: Locator) => block.locator('[data-param-name="projectId"]').waitFor()

/** Executes an expanded operation. @returns the response's status and body as the page shows them */
export async function execute(block: Locator): Promise<{ status: string; body: Locator }> {
  // Not to take the response of an earlier test for the one that is awaited.
  const clear = block.locator('button.btn-clear')
  if ((await clear.count()) > 0) await clear.click()
  await block.locator('button.execute').click()
  return responseOf(block)
}

/** Waits for the response. */
export async function responseOf(block: Locator): Promise<{ status: string; body: Locator }> {
  const response = block.locator('.live-responses-table .response')
  const status = await response.locator('.response-col_status').innerText()
  return { status: status.trim(), body: response.locator('.highlight-code pre') }
}

/** The button that folds and unfolds the documented responses of a status. */
export const foldOf = (block: Locator, status: string) => block.locator('.response-toggle', { hasText: status })

/** Unfolds a documented response, unless it is one that is never folded. */
export async function unfold(block: Locator, status: string): Promise<Locator> {
  if (!status.startsWith('2')) await foldOf(block, status).click()
  return block.locator(`.response[data-code="${status}"]`)
}

/** Saves a screenshot if `SCREENSHOTS` names a folder for them. */
export async function screenshot(page: Page, name: string): Promise<void> {
  const folder = process.env.SCREENSHOTS
  if (!folder) return
  await mkdir(folder, { recursive: true })
  await page.screenshot({ path: path.join(folder, `${name.replaceAll(' ', '-')}.png`) })
}
