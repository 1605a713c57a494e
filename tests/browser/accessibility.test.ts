import { AxeBuilder } from '@axe-core/playwright'
import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { operations } from '../support/contract.ts'
import {
  authorize,
  authorizeButton,
  type Docs,
  execute,
  expand,
  SCREENS,
  type Screen,
  screenshot,
  startDocs,
} from './docs-page.ts'

let docs: Docs

beforeAll(async () => {
  docs = await startDocs()
})

afterEach(() => expect(docs.takeErrors()).toEqual([]))

afterAll(() => docs?.close())

/** All rules of axe for WCAG 2.2 A and AA and for best practices, without exception. */
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']

/** The violations that axe finds, a line for each element. @param within a part of the page, to save time */
async function violationsOf(page: Page, within = 'html'): Promise<string[]> {
  const axe = new AxeBuilder({ page }).include(within).options({ runOnly: RULES, resultTypes: ['violations'] })
  // Twice as fast. It ignores frames, which the page does not have and its CSP forbids.
  const { violations } = await axe.setLegacyMode().analyze()
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, html, failureSummary }) => `${id}: ${target} ${html.slice(0, 200)} ${failureSummary}`),
  )
}

/** All operations on the desktop; elsewhere one that reads and one that writes, since only colours and widths differ. */
const CHECKED_OPERATIONS: Record<Screen, string[]> = {
  desktop: Object.keys(operations),
  'dark desktop': ['listModuleVersions', 'recordCustomEvent'],
  phone: ['listModuleVersions', 'recordCustomEvent'],
}

describe.each(Object.keys(SCREENS) as Screen[])('on a %s', (screen) => {
  let page: Page

  beforeAll(async () => {
    page = await docs.open(screen)
  })

  afterAll(() => page.context().close())

  test('the page has no violation', async () => {
    for (const summary of await page.locator('.info summary').all()) await summary.click()
    if (screen === 'phone') await page.locator('.contents summary').click()
    expect(await violationsOf(page)).toEqual([])
  })

  test('the authorization dialog has none, without and with a key', async () => {
    await authorizeButton(page).click()
    await screenshot(page, `${screen} authorization`)
    expect(await violationsOf(page)).toEqual([])
    await page.keyboard.press('Escape')
    await authorize(page, docs.api.key)
    await authorizeButton(page).click()
    expect(await violationsOf(page)).toEqual([])
    await page.keyboard.press('Escape')
  })

  test.each(CHECKED_OPERATIONS[screen])(
    '%s has none, with its response, headers, links and a schema',
    async (operationId) => {
      const block = await expand(page, operationId)
      await execute(block)
      await screenshot(page, `${screen} ${operationId} response`)
      for (const fold of await block.locator('.response-toggle').all()) await fold.click()
      await block.locator('details').evaluateAll((all) => {
        for (const element of all) element.setAttribute('open', '')
      })
      await block.locator('.response[data-code="400"] [data-name=model]').click()
      expect(await violationsOf(page, '.opblock.is-open')).toEqual([])
      await block.locator('.opblock-summary-control').click()
    },
  )

  test('the schemas have none', async () => {
    await page.locator('.models-control').click()
    await page.locator('.models .model-box-control').first().click()
    expect(await violationsOf(page, '.models')).toEqual([])
  })
})

test('a violation is found', async () => {
  const page = await docs.open()
  await page.evaluate(`document.querySelector('.info h1').style.color = '#ddd'`)
  expect(await violationsOf(page)).toEqual([expect.stringContaining('color-contrast')])
  await page.context().close()
})
