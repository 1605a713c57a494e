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
  picture,
  SCREENS,
  type Screen,
  startDocs,
} from './docs-page.ts'

let docs: Docs

beforeAll(async () => {
  docs = await startDocs()
})

afterEach(() => expect(docs.complaints()).toEqual([]))

afterAll(() => docs?.close())

/** All rules of axe for WCAG 2.2 A and AA and for good practice, without exception. */
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']

/** What axe finds wrong, a line for each element. @param within a part of the page, to save time */
async function faults(page: Page, within = 'html'): Promise<string[]> {
  const axe = new AxeBuilder({ page }).include(within).options({ runOnly: RULES, resultTypes: ['violations'] })
  // Twice as quick, at the price of frames, which the page has none of and its CSP forbids.
  const { violations } = await axe.setLegacyMode().analyze()
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, html, failureSummary }) => `${id}: ${target} ${html.slice(0, 200)} ${failureSummary}`),
  )
}

/** On a desk all operations are looked at; elsewhere one that reads and one that writes: colours and widths differ. */
const LOOKED_AT: Record<Screen, string[]> = {
  desk: Object.keys(operations),
  'dark desk': ['listModuleVersions', 'recordCustomEvent'],
  phone: ['listModuleVersions', 'recordCustomEvent'],
}

describe.each(Object.keys(SCREENS) as Screen[])('on a %s', (screen) => {
  let page: Page

  beforeAll(async () => {
    page = await docs.open(screen)
  })

  afterAll(() => page.context().close())

  test('the page has no fault', async () => {
    await page.locator('.info summary').click()
    expect(await faults(page)).toEqual([])
  })

  test('the authorization dialog has none, without and with a key', async () => {
    await authorizeButton(page).click()
    await picture(page, `${screen} authorization`)
    expect(await faults(page)).toEqual([])
    await page.keyboard.press('Escape')
    await authorize(page, docs.api.key)
    await authorizeButton(page).click()
    expect(await faults(page)).toEqual([])
    await page.keyboard.press('Escape')
  })

  test.each(LOOKED_AT[screen])('%s has none, with its answer, headers, links and a schema', async (operationId) => {
    const block = await expand(page, operationId)
    await execute(block)
    await picture(page, `${screen} ${operationId} answer`)
    await block.locator('details').evaluateAll((all) => {
      for (const fold of all) fold.setAttribute('open', '')
    })
    await block.locator('.response[data-code="400"] [data-name=model]').click()
    expect(await faults(page, '.opblock.is-open')).toEqual([])
    await block.locator('.opblock-summary-control').click()
  })

  test('the schemas have none', async () => {
    await page.locator('.models-control').click()
    await page.locator('.models .model-box-control').first().click()
    expect(await faults(page, '.models')).toEqual([])
  })
})

test('a fault is found', async () => {
  const page = await docs.open()
  await page.evaluate(`document.querySelector('.info h1').style.color = '#ddd'`)
  expect(await faults(page)).toEqual([expect.stringContaining('color-contrast')])
  await page.context().close()
})
