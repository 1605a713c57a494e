import type { Locator, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { operations } from '../support/contract.ts'
import { authorizeButton, blockOf, type Docs, foldOf, isExpanded, responseOf, startDocs } from './docs-page.ts'

let docs: Docs
let page: Page

beforeAll(async () => {
  docs = await startDocs()
  page = await docs.open()
})

afterEach(() => expect(docs.takeErrors()).toEqual([]))

afterAll(() => docs?.close())

const MAX_STOPS = 120

const focused = (place: Locator) => place.and(page.locator(':focus'))

/** Presses Tab until the element has the focus; each stop on the way has to show its focus. */
async function tabTo(place: Locator): Promise<void> {
  for (let stop = 0; stop < MAX_STOPS; stop++) {
    await page.keyboard.press('Tab')
    expect(await invisibleFocus()).toBeNull()
    if ((await focused(place).count()) === 1) return
  }
  throw new Error(`${MAX_STOPS} presses of Tab did not reach ${place}`)
}

// Browser globals of the function below, which runs there.
declare const innerHeight: number
declare function getComputedStyle(element: unknown): { outlineStyle: string; outlineWidth: string }

/** The focused element, or null if it is on the screen, large enough to see, and outlined. */
const invisibleFocus = () =>
  page.locator(':focus').evaluate((element) => {
    const { outlineStyle, outlineWidth } = getComputedStyle(element)
    const { width, height, top, bottom } = element.getBoundingClientRect()
    const isVisible = width >= 10 && height >= 10 && top < innerHeight && bottom > 0
    return isVisible && outlineStyle === 'solid' && Number.parseFloat(outlineWidth) >= 2 ? null : element.outerHTML
  })

describe('the authorization dialog', () => {
  const dialog = () => page.locator('dialog')

  test('traps the focus, and restores it when Escape closes the dialog', async () => {
    await tabTo(authorizeButton(page))
    await page.keyboard.press('Enter')
    await focused(dialog().locator('input')).waitFor()
    for (let stop = 0; stop < 10; stop++) {
      await page.keyboard.press('Tab')
      // Between the last and the first stop, the browser's own controls have the focus.
      expect(await page.locator(':focus:not(dialog *)').count()).toBe(0)
    }
    await page.keyboard.press('Escape')
    await dialog().waitFor({ state: 'detached' })
    await focused(authorizeButton(page)).waitFor()
  })

  test('accepts a key', async () => {
    await page.keyboard.press('Space')
    await focused(dialog().locator('input')).waitFor()
    await page.keyboard.type(docs.api.key)
    await page.keyboard.press('Enter')
    await tabTo(dialog().locator('.btn-done'))
    await page.keyboard.press('Space')
    await dialog().waitFor({ state: 'detached' })
    await focused(page.locator('button.authorize.locked')).waitFor()
  })
})

test.each(Object.keys(operations))('%s can be opened, executed and read', async (operationId) => {
  await page.goto(`${docs.address}/docs`)
  const block = blockOf(page, operationId)
  await block.waitFor()
  await tabTo(block.locator('.opblock-summary-control'))
  await page.keyboard.press('Enter')
  await isExpanded(block)
  await tabTo(block.locator('button.execute'))
  await page.keyboard.press('Space')
  expect((await responseOf(block)).status).toBe('200')
  await tabTo(block.locator('.download-contents'))

  // The examples and headers of an error.
  await tabTo(foldOf(block, '400'))
  await page.keyboard.press('Enter')
  const error = block.locator('.response[data-code="400"]')
  await tabTo(error.locator('.examples-select-element'))
  const examples = Object.values(
    operations[operationId]?.responses['400']?.content?.['application/json']?.examples ?? {},
  )
  await page.keyboard.press('End')
  await expect
    .poll(async () => JSON.parse(await error.locator('pre.example').innerText()))
    .toEqual(examples.at(-1)?.value)
  await tabTo(error.locator('summary'))
  await page.keyboard.press('Enter')
  await error.locator('table.headers').waitFor()
})
