import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { document, operations } from '../support/contract.ts'
import { blockOf, type Docs, isExpanded, SCREENS, screenshot, startDocs } from './docs-page.ts'

let docs: Docs

beforeAll(async () => {
  docs = await startDocs()
})

afterEach(() => expect(docs.takeErrors()).toEqual([]))

afterAll(() => docs?.close())

const chapters = [...document.info.description.matchAll(/^## (.*)$/gm)].map(([, name = '']) => name)
const summaries = Object.values(operations).map(({ summary }) => summary)
const contentsOf = (page: Page) => page.locator('nav.contents')
const linkTo = (page: Page, text: string) => contentsOf(page).locator('a').filter({ hasText: text }).first()
const chapterOf = (page: Page, name: string) =>
  page.locator('.info details', { has: page.locator(`h3:text-is("${name}")`) })
const topOf = async (page: Page, selector: string) => (await page.locator(selector).boundingBox())?.y ?? Number.NaN

describe('on a wide screen', () => {
  let page: Page
  beforeAll(async () => {
    page = await docs.open()
  })
  afterAll(() => page.context().close())

  test('the contents name all guides, chapters and operations', async () => {
    const names = await contentsOf(page)
      .locator('a')
      .evaluateAll((all) => all.map((link) => link.firstChild?.textContent))
    expect(names).toEqual(expect.arrayContaining(['First call', 'Keep a copy', ...chapters, ...summaries]))
    expect(names.indexOf(chapters[0])).toBeLessThan(names.indexOf(summaries[0]))
  })

  test('every link has a target', async () => {
    const targets = await contentsOf(page)
      .locator('a')
      .evaluateAll((all) => all.map((link) => (link.getAttribute('href') ?? '').slice(1)))
    for (const target of targets) {
      const id = target.startsWith('/') ? `operations${target.replaceAll('/', '-')}` : target
      expect(await page.locator(`[id="${id}"]`).count()).toBe(1)
    }
  })

  test('a chapter is unfolded and scrolled to, and marked as the current one', async () => {
    await linkTo(page, 'Errors').click()
    await chapterOf(page, 'Errors').locator('table').waitFor()
    await expect.poll(() => topOf(page, '#chapter-errors')).toBeLessThan(60)
    await page.locator('nav.contents a[aria-current=location]', { hasText: 'Errors' }).waitFor()
    await screenshot(page, 'desktop contents chapter')
  })

  test('an operation is opened and scrolled to, with the contents still beside it', async () => {
    await linkTo(page, 'Record a custom event').click()
    await isExpanded(blockOf(page, 'recordCustomEvent'))
    await expect.poll(() => topOf(page, '[id$="-recordCustomEvent"]')).toBeLessThan(60)
    expect(page.url()).toContain('/docs#/Events/recordCustomEvent')
    const [nav, block] = [await contentsOf(page).boundingBox(), await blockOf(page, 'recordCustomEvent').boundingBox()]
    expect(nav).toMatchObject({ x: 0, y: 0, height: SCREENS.desktop.viewport.height })
    expect(block?.x).toBeGreaterThanOrEqual(nav?.width ?? Number.NaN)
    await screenshot(page, 'desktop contents operation')
  })

  test('Back returns to what was read before', async () => {
    await page.goBack()
    await expect.poll(() => topOf(page, '#chapter-errors')).toBeLessThan(60)
  })

  test('a chapter has a URL', async () => {
    await page.goto(`${docs.address}/docs#chapter-paging`)
    await page.reload()
    await chapterOf(page, 'Paging').locator('code').first().waitFor()
    await expect.poll(() => topOf(page, '#chapter-paging')).toBeLessThan(60)
  })
})

test.each(['%', '/Entries/getEntry%', '/%E0%A4%A/x'])('a link that was cut off shows the page: #%s', async (hash) => {
  const page = await docs.open()
  await page.goto(`${docs.address}/docs#${hash}`)
  await page.reload()
  await linkTo(page, 'Get an entry').click()
  await isExpanded(blockOf(page, 'getEntry'))
  // Swagger UI reads it as well.
  for (const error of docs.takeErrors()) expect(error).toContain('URI malformed')
  await page.context().close()
})

test('on a phone, the contents are folded at the top, and fold again when something is chosen', async () => {
  const page = await docs.open('phone')
  const contents = contentsOf(page)
  expect((await contents.boundingBox())?.height).toBeLessThan(60)
  await contents.locator('summary').tap()
  await screenshot(page, 'phone contents')
  await linkTo(page, 'Get an entry').tap()
  await isExpanded(blockOf(page, 'getEntry'))
  await expect.poll(async () => (await contents.boundingBox())?.height).toBeLessThan(60)
  await expect.poll(() => topOf(page, '[id$="-getEntry"]')).toBeLessThan(80)
  expect((await contents.boundingBox())?.y).toBe(0)
  expect(await topOf(page, '[id$="-getEntry"]')).toBeGreaterThanOrEqual((await contents.boundingBox())?.height ?? 0)
  await page.context().close()
})
