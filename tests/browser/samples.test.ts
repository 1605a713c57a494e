import { execFile, spawnSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import type { Locator, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { operations } from '../support/contract.ts'
import { authorize, blockOf, type Docs, execute, expand, screenshot, startDocs } from './docs-page.ts'

let docs: Docs
let page: Page
let folder: string

beforeAll(async () => {
  docs = await startDocs()
  page = await docs.open()
  await authorize(page, docs.api.key)
  folder = await mkdtemp(path.join(tmpdir(), 'flowtrail-samples-'))
})

afterEach(() => expect(docs.takeErrors()).toEqual([]))

afterAll(async () => {
  await docs?.close()
  await rm(folder, { recursive: true })
})

/** How a reader runs the sample of a language. */
const RUNNERS: Record<string, { file: string; command: string[] }> = {
  curl: { file: 'sample.sh', command: ['bash', '-e'] },
  TypeScript: { file: 'sample.mts', command: [process.execPath] },
  Python: { file: 'sample.py', command: ['python3'] },
  Go: { file: 'sample.go', command: ['go', 'run'] },
}
const isInstalled = (language: string) => !spawnSync(RUNNERS[language]?.command[0] ?? '', ['version']).error
const LANGUAGES = ['curl', 'TypeScript', 'Python', ...(isInstalled('Go') ? ['Go'] : [])]

async function sampleOf(block: Locator, language: string): Promise<string> {
  await block.locator('.samples button', { hasText: language }).click()
  await block.locator('.samples button[aria-pressed=true]', { hasText: language }).waitFor()
  return block.locator('.samples pre').innerText()
}

/** Runs a sample. @returns the response that it prints; TypeScript prints an object as Node does */
async function run(language: string, sample: string, key = docs.api.key): Promise<string> {
  const { file, command } = RUNNERS[language] as { file: string; command: string[] }
  const [program = '', ...args] = command
  const printed =
    language === 'TypeScript' ? sample.replace(/console\.log\((.*)\)/, 'console.log(JSON.stringify($1))') : sample
  await writeFile(path.join(folder, file), printed)
  const env = { ...process.env, FLOWTRAIL_KEY: key }
  const { stdout } = await promisify(execFile)(program, [...args, file], { cwd: folder, env })
  return language === 'Python'
    ? (await promisify(execFile)('python3', ['-c', `import json; print(json.dumps(${stdout}))`])).stdout
    : stdout
}

describe.each(Object.keys(operations))('%s', (operationId) => {
  let block: Locator
  let expected: object

  test('has samples, and after Execute still no key on the page', async () => {
    block = await expand(page, operationId)
    const { body } = await execute(block)
    expected = JSON.parse(await body.innerText())
    expect(await page.locator('#swagger-ui').innerText()).not.toContain(docs.api.key)
  })

  test.each(['curl', 'TypeScript', 'Python'])('in %s, which works', async (language) => {
    const sample = await sampleOf(block, language)
    await screenshot(page, `desktop ${operationId} ${language}`)
    expect(sample).toContain('FLOWTRAIL_KEY')
    // Each recording makes an event of its own, but those of a batch with their keys; an import is new once.
    const again = { recordCustomEvent: ['event_id'], importRecords: ['added', 'unchanged'] }[operationId] ?? []
    const same = Array.isArray(expected)
      ? expected
      : { ...expected, ...Object.fromEntries(again.map((field) => [field, expect.anything()])) }
    const printed = (await run(language, sample)).replace(/("replayed": ?)true/, '$1false')
    expect(JSON.parse(printed)).toEqual(same)
  })

  test('closes', () => blockOf(page, operationId).locator('.opblock-summary-control').click())
})

test.skipIf(!isInstalled('Go'))('the samples in Go work', { timeout: 300_000 }, async () => {
  for (const operationId of ['getEntry', 'recordCustomEvent']) {
    const block = await expand(page, operationId)
    expect(JSON.parse(await run('Go', await sampleOf(block, 'Go')))).toMatchObject({ project_id: 'demo' })
    await block.locator('.opblock-summary-control').click()
  }
})

test.each(LANGUAGES)('in %s, a refused request fails with what the service says', async (language) => {
  const block = await expand(page, 'listModules')
  const refused = await run(language, await sampleOf(block, language), 'wrong').catch((error) => error)
  expect(`${refused.stdout}${refused.stderr}`).toContain('"code":"unauthorized"')
  await block.locator('.opblock-summary-control').click()
})

test('a browser that keeps nothing for the page shows it, and samples in each language', async () => {
  const strict = await docs.open()
  await strict.addInitScript(`Object.defineProperty(window, 'localStorage', {
    get() { throw new DOMException('denied', 'SecurityError') }
  })`)
  await strict.reload()
  const block = await expand(strict, 'listModules')
  for (const language of LANGUAGES) expect(await sampleOf(block, language)).toContain('FLOWTRAIL_KEY')
  // Swagger UI looks for a key there, too.
  for (const error of docs.takeErrors()) expect(error).toContain('denied')
  await strict.context().close()
})

describe("the reader's values", () => {
  const name = 'Zoë\'s "free" `gift` $HOME 🎁 \\n'
  let block: Locator

  test.each(LANGUAGES)('are in the sample in %s', async (language) => {
    block = await expand(page, 'recordCustomEvent')
    await block.locator('[data-param-name="Idempotency-Key"] input').fill(`it's-${language}`)
    const event = {
      module_id: 'skin-quiz',
      timestamp: '2026-03-01T09:41:12.345Z',
      custom_event_name: name,
      identifiers: [{ key: 'email', value: '"amara.okafor@example.com"' }],
    }
    await block.locator('.body-param__text').fill(JSON.stringify(event))
    await expect.poll(() => block.locator('.samples pre').innerText()).toContain('Zoë')
    const sample = await sampleOf(block, language)
    expect(sample).toContain(language)
    expect(JSON.parse(await run(language, sample)).custom_event_name).toBe(name)
    await block.locator('.opblock-summary-control').click()
  })

  test('in a query are encoded', async () => {
    const block = await expand(page, 'listEntryPageViews')
    await block.locator('[data-param-name="limit"] input').fill('2')
    await block.locator('[data-param-name="updated_after"] input').fill('2020-01-01T00:00:00+02:00')
    const limit = () => block.locator('.samples pre').innerText()
    await expect.poll(limit).toContain('limit=2&')
    expect(JSON.parse(await run('curl', await sampleOf(block, 'curl')))).toHaveLength(2)
  })

  test('leave a placeholder where they are missing', async () => {
    const block = blockOf(page, 'listEntryPageViews')
    await block.locator('[data-param-name="projectId"] input').fill('')
    await expect.poll(() => block.locator('.samples pre').innerText()).toContain('/projects/{projectId}/')
  })
})

test('the language is remembered', async () => {
  await sampleOf(blockOf(page, 'listEntryPageViews'), 'Python')
  // Without the operation in the URL, which the page would open while the test opens another.
  await page.evaluate(`history.replaceState(null, '', location.pathname)`)
  await page.reload()
  const block = await expand(page, 'getModule')
  await block.locator('.samples button[aria-pressed=true]', { hasText: 'Python' }).waitFor()
})
