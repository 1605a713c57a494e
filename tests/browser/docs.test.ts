import type { Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { createTestApp } from '../support/app.ts'
import { operations } from '../support/contract.ts'
import {
  authorize,
  authorizeButton,
  blockOf,
  type Docs,
  execute,
  expand,
  foldOf,
  SCREENS,
  type Screen,
  screenshot,
  startDocs,
  unfold,
} from './docs-page.ts'

let docs: Docs
let page: Page

beforeAll(async () => {
  docs = await startDocs()
  page = await docs.open()
})

afterEach(() => expect(docs.takeErrors()).toEqual([]))

afterAll(() => docs?.close())

describe('the first screen', () => {
  test.each<Screen>(['desktop', 'dark desktop', 'phone'])(
    'shows on a %s the description and the first steps',
    async (screen) => {
      const page = await docs.open(screen)
      expect(await page.title()).toBe('Flowtrail API')
      expect(await page.getAttribute('link[rel=icon]', 'href')).toContain('favicon.svg')
      const height = page.viewportSize()?.height ?? 0
      // A phone has the operations in the contents, at the top of the screen.
      const operations = screen === 'phone' ? [page.locator('.contents summary')] : [blockOf(page, 'listModules')]
      if (screen !== 'phone') operations.push(authorizeButton(page))
      for (const place of [page.locator('.info ol:visible li').last(), ...operations]) {
        const box = await place.boundingBox()
        expect((box?.y ?? height) + (box?.height ?? 0)).toBeLessThanOrEqual(height)
      }
      await screenshot(page, `${screen} first screen`)
      await page.context().close()
    },
  )

  test('names the file with the demo key, but not the key', async () => {
    expect(await page.innerText('.info')).toContain('/data/demo-key')
    expect(await page.content()).not.toContain(docs.api.key)
  })

  test('folds the chapters of the description under their names', async () => {
    const chapter = page.locator('#chapter-paging')
    expect(await chapter.locator('summary').innerText()).toBe('Paging')
    expect(await chapter.locator('p:visible').count()).toBe(0)
    await chapter.locator('summary').click()
    await chapter.getByText('Lists are bare arrays.').waitFor()
    await screenshot(page, 'desktop chapter')
    await chapter.locator('summary').click()
  })

  test('links to the document as YAML and as JSON, and to the strict one', async () => {
    const links = await page.locator('.info .description a').all()
    const names = await Promise.all(links.map((link) => link.innerText()))
    expect(names).toEqual(['openapi.yaml', 'openapi.json', 'openapi.strict.json'])
    for (const link of links) {
      const response = await page.request.get(new URL((await link.getAttribute('href')) ?? '', docs.address).href)
      expect(await response.text()).toContain('Flowtrail API')
    }
  })

  test('says who provides a key when there is no demo project', async () => {
    const { app, close } = await createTestApp()
    const { description } = (await app.inject('/docs/json')).json().info
    expect(description).toContain('1. Get a key of your project from the operator of this server')
    expect(description).not.toContain('demo')
    await close()
  })
})

test('authorization survives a reload', async () => {
  await authorize(page, docs.api.key)
  await page.reload()
  await page.locator('.scheme-container button.authorize.locked').waitFor()
})

describe.each(Object.values(operations))('$operationId', ({ operationId, responses }) => {
  test('responds with 200 to the values filled in', async () => {
    const block = await expand(page, operationId)
    const { status, body } = await execute(block)
    expect(status).toBe('200')
    expect(JSON.parse(await body.innerText())).toBeTruthy()
    await screenshot(page, `desktop ${operationId}`)
  })

  test('shows the response without scrolling', async () => {
    const response = blockOf(page, operationId).locator('.live-response')
    for (const place of [response.locator('.response-col_status').last(), response.locator('.highlight-code pre')]) {
      const { y = Number.NaN } = (await place.boundingBox()) ?? {}
      expect(y).toBeGreaterThanOrEqual(0)
      expect(y).toBeLessThan(SCREENS.desktop.viewport.height - 100)
    }
  })

  const documented = Object.entries(responses).map(([status, response]) => ({
    status,
    examples: Object.entries(response.content?.['application/json']?.examples ?? {}),
  }))
  test.each(documented)('shows examples of $status', async ({ status, examples }) => {
    const block = blockOf(page, operationId)
    const isFolded = !status.startsWith('2')
    expect(await block.locator(`.response[data-code="${status}"]`).count()).toBe(isFolded ? 0 : 1)
    const response = await unfold(block, status)
    const description = isFolded ? foldOf(block, status).locator('span') : response.locator('.response-col_description')
    expect(await description.innerText()).not.toBe('')
    const choice = response.locator('.examples-select-element')
    expect(
      await choice.locator('option').evaluateAll((all) => all.map((option) => option.getAttribute('value'))),
    ).toEqual(examples.map(([name]) => name))
    for (const [name, { value }] of examples) {
      await choice.selectOption(name)
      const shown = response.locator('pre.example')
      await expect.poll(async () => JSON.parse(await shown.innerText())).toEqual(value)
    }
    if (isFolded) {
      await response.locator('summary').first().scrollIntoViewIfNeeded()
      if (status === '400') await screenshot(page, `desktop ${operationId} 400`)
      await foldOf(block, status).click()
      expect(await response.count()).toBe(0)
    }
  })

  test('closes again', async () => {
    await blockOf(page, operationId).locator('.opblock-summary-control').click()
    await blockOf(page, operationId).locator('button.execute').waitFor({ state: 'detached' })
  })
})

test('editing a field after Execute does not scroll', async () => {
  const block = await expand(page, 'getEntry')
  await execute(block)
  await block.locator('[data-param-name="entryId"] input').fill('another')
  await block.locator('.samples pre', { hasText: '/entries/another' }).waitFor()
  expect((await block.locator('[data-param-name="entryId"] input').boundingBox())?.y).toBeGreaterThan(0)
  await block.locator('.opblock-summary-control').click()
})

test('an operation has a URL', async () => {
  const page = await docs.open()
  await expand(page, 'getEntry')
  await page.waitForURL('**/docs#/Entries/getEntry')
  await page.reload()
  await blockOf(page, 'getEntry').locator('button.execute').waitFor()
  await page.context().close()
})

test('every error of the page is reported', async () => {
  const page = await docs.open()
  const mistakes = [
    [`console.warn('a warning')`, 'a warning'],
    [`setTimeout(() => { throw new Error('an error') })`, 'an error'],
    [`fetch('http://docs.invalid/').catch(() => {})`, 'CSP forbids connect-src'],
    [
      `document.body.append(Object.assign(document.createElement('img'), { src: '//docs.invalid/' }))`,
      'CSP forbids img-src',
    ],
    [`location = 'http://docs.invalid/'`, 'request to http://docs.invalid/'],
  ] as const
  for (const [mistake, error] of mistakes) {
    await page.evaluate(mistake)
    await expect.poll(docs.takeErrors).toContainEqual(expect.stringContaining(error))
  }
  await page.context().close()
  docs.takeErrors()
})
