import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { operations } from '../support/contract.ts'
import { authorizeButton, blockOf, type Docs, execute, expand, SCREENS, screenshot, startDocs } from './docs-page.ts'

let docs: Docs
let page: Page
const { width, height } = SCREENS.phone.viewport

beforeAll(async () => {
  docs = await startDocs()
  page = await docs.open('phone')
})

afterEach(() => expect(docs.takeErrors()).toEqual([]))

afterAll(() => docs?.close())

// Browser global of a function below, which runs there.
declare function getComputedStyle(element: unknown): { fontSize: string }

/** A page that is too wide either scrolls or is scaled down, which widens the viewport. */
const expectToFit = async () =>
  expect(await page.evaluate('[document.documentElement.scrollWidth, innerWidth]')).toEqual([width, width])

test('the description fits, folded and unfolded', async () => {
  await expectToFit()
  for (const summary of await page.locator('.info summary').all()) await summary.tap()
  await expectToFit()
  await screenshot(page, 'phone chapters')
})

test('the authorization dialog fits and accepts a key', async () => {
  await authorizeButton(page).tap()
  const box = await page.locator('.modal-ux').boundingBox()
  expect(box?.width).toBeLessThanOrEqual(width)
  expect(box?.height).toBeLessThanOrEqual(height)
  await screenshot(page, 'phone authorization')
  await page.fill('dialog input', docs.api.key)
  await page.locator('dialog button[type=submit]').tap()
  await page.locator('dialog .btn-done').tap()
  await expectToFit()
})

test.each(Object.keys(operations))('%s can be executed and its responses read', async (operationId) => {
  const block = await expand(page, operationId)
  await expectToFit()
  await screenshot(page, `phone ${operationId} open`)
  const { status, body } = await execute(block)
  expect(status).toBe('200')
  await body.scrollIntoViewIfNeeded()
  await screenshot(page, `phone ${operationId} response`)
  // With errors, headers and links.
  for (const fold of await block.locator('.response-toggle').all()) await fold.tap()
  for (const summary of await block.locator('summary').all()) await summary.tap()
  await expectToFit()
  const texts = await block.locator('pre:visible').evaluateAll((all) =>
    all.map((text) => ({
      text: text.innerText,
      isCut: text.scrollWidth > text.clientWidth,
      width: text.clientWidth,
      fontSize: Number.parseFloat(getComputedStyle(text).fontSize),
    })),
  )
  expect(texts.filter(({ isCut, width, fontSize }) => isCut || width < 200 || fontSize < 12)).toEqual([])
  await blockOf(page, operationId).locator('.opblock-summary-control').tap()
})
