import { spawnSync } from 'node:child_process'
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { parseDocument, stringify } from 'yaml'
import { diff as runDiff } from '../../openapi/diff/command.ts'
import { versionsAfter } from '../../openapi/diff/version.ts'
import { startRedocly } from './redocly.ts'

const ROOT = path.join(import.meta.dirname, '../..')
const RELEASED = '1.0.0'

/** A document in place of ours, which takes a hundred times as long to read. */
const DOCUMENT = {
  openapi: '3.0.3',
  info: { title: 'Entries', version: RELEASED },
  paths: {
    '/entries': {
      get: {
        operationId: 'listEntries',
        parameters: [{ $ref: '#/components/parameters/Limit' }],
        responses: {
          200: {
            description: 'The entries.',
            content: {
              'application/json': { schema: { type: 'array', items: { $ref: '#/components/schemas/FlowEntry' } } },
            },
          },
        },
      },
    },
  },
  components: {
    parameters: {
      Limit: { name: 'limit', in: 'query', description: 'At most so many.', schema: { type: 'integer', default: 10 } },
    },
    schemas: {
      FlowEntry: { type: 'object', description: 'An entry.', properties: { entry_id: { type: 'string' } } },
    },
  },
}

let redocly: ReturnType<typeof startRedocly>['redocly']
beforeAll(() => {
  const started = startRedocly()
  redocly = started.redocly
  return started.stop
})

/** A copy of the files of the command, in which the document is the released one. */
let copy: string
beforeEach(async () => {
  copy = await mkdtemp(path.join(tmpdir(), 'flowtrail-release-'))
  await cp(path.join(ROOT, 'openapi'), path.join(copy, 'openapi'), { recursive: true })
  await cp(path.join(ROOT, 'package.json'), path.join(copy, 'package.json'))
  await symlink(path.join(ROOT, 'node_modules'), path.join(copy, 'node_modules'))
  await writeFile(path.join(copy, 'CHANGELOG.md'), `# Changelog\n\n## ${RELEASED} (2026-01-01)\n\nThe first.\n`)
  for (const name of ['openapi', 'released']) {
    await writeFile(path.join(copy, `openapi/${name}.yaml`), stringify(DOCUMENT))
  }
})
afterEach(() => rm(copy, { recursive: true }))

const read = (name: string) => readFile(path.join(copy, name), 'utf8')

/** Sets values in the document, by path. */
async function edit(values: Record<string, unknown>): Promise<void> {
  const document = parseDocument(await read('openapi/openapi.yaml'))
  for (const [place, value] of Object.entries(values)) document.setIn(place.split('/'), value)
  await writeFile(path.join(copy, 'openapi/openapi.yaml'), document.toString())
}

/** Runs the command. Returns what it prints, and whether it succeeded. */
async function diff(...args: string[]): Promise<{ ok: boolean; text: string }> {
  return runDiff(copy, args, redocly).then(
    (text) => ({ ok: true, text }),
    (error: Error) => ({ ok: false, text: error.message }),
  )
}

/** Runs the command in a process. */
const run = (...args: string[]) =>
  spawnSync(process.execPath, [path.join(copy, 'openapi/diff.ts'), ...args], { encoding: 'utf8' })

const passes = (text: string) => ({ ok: true, text: expect.stringContaining(text) })
const fails = (text: string) => ({ ok: false, text: expect.stringContaining(text) })

const ADDITION = { 'components/schemas/FlowEntry/properties/note': { type: 'string', description: 'A note.' } }
const WORDING = { 'components/schemas/FlowEntry/description': 'A run.' }
const BREAK = { 'components/parameters/Limit/schema/default': 20 }

test('without differences the version stays', async () => {
  expect(await diff()).toEqual(passes('The document is 1.0.0 as released.'))
  await edit({ 'info/version': '1.0.1' })
  expect(await diff()).toEqual(fails('Set it to 1.0.0 (nothing differs)'))
})

test('the command prints its summary, or what to fix to stderr with status 1', async () => {
  expect(run()).toMatchObject({ status: 0, stdout: 'The document is 1.0.0 as released.\n', stderr: '' })
  await edit({ ...ADDITION, 'info/version': '1.1.0' })
  const failure = 'CHANGELOG.md does not list the changes of the document. Run: make changelog\n'
  expect(run()).toMatchObject({ status: 1, stdout: '', stderr: failure })
  expect(run('--release')).toMatchObject({ status: 0, stderr: '' })
})

test('an addition requires a minor step and is listed in the changelog', async () => {
  await edit({ ...ADDITION, ...WORDING })
  expect(await diff()).toEqual(fails('Set it to 1.1.0 (for example FlowEntry.note: new field)'))
  expect(await diff('--write')).toEqual(fails('Set it to 1.1.0'))
  await edit({ 'info/version': '1.1.0' })
  expect(await diff()).toEqual(fails('Run: make changelog'))
  expect(await diff('--write')).toEqual(passes('1.1.0 follows 1.0.0: 1 addition, 1 of wording, no break.'))
  expect(await diff()).toEqual(passes('1.1.0 follows 1.0.0'))
  expect(await read('CHANGELOG.md')).toBe(`# Changelog

## 1.1.0 (unreleased)

<!-- wire: \`make changelog\` writes this list; write anything else above it -->
- \`FlowEntry.note\`: new field
- Wording, examples and links: \`FlowEntry\`
<!-- /wire -->

## 1.0.0 (2026-01-01)

The first.
`)
})

test('wording requires a patch step', async () => {
  await edit(WORDING)
  expect(await diff()).toEqual(fails('Set it to 1.0.1 or 1.1.0'))
  await edit({ 'info/version': '1.0.1' })
  expect(await diff('--write')).toEqual(passes('1.0.1 follows 1.0.0: 0 additions, 1 of wording'))
})

test('text written by hand stays while the list is regenerated, and goes with the last change', async () => {
  const before = await read('CHANGELOG.md')
  await edit({ ...WORDING, 'info/version': '1.0.1' })
  await diff('--write')
  const changelog = await read('CHANGELOG.md')
  await writeFile(path.join(copy, 'CHANGELOG.md'), changelog.replace('<!-- wire', 'Thanks to all.\n\n<!-- wire'))
  await edit({ ...ADDITION, 'info/version': '1.1.0' })
  await diff('--write')
  expect(await read('CHANGELOG.md')).toMatch(
    /^## 1\.1\.0 \(unreleased\)\n\nThanks to all\.\n\n<!-- wire.*\n- `FlowEntry\.note`/m,
  )
  expect(await diff()).toEqual(passes('1.1.0 follows 1.0.0'))
  await cp(path.join(copy, 'openapi/released.yaml'), path.join(copy, 'openapi/openapi.yaml'))
  expect(await diff()).toEqual(fails('Run: make changelog'))
  await diff('--write')
  expect(await read('CHANGELOG.md')).toBe(before)
})

test('a release closes the section and copies the document', async () => {
  await edit({ ...ADDITION, 'info/version': '1.1.0' })
  expect(await diff('--release')).toEqual(passes('1.1.0 is released'))
  expect(await read('openapi/released.yaml')).toBe(await read('openapi/openapi.yaml'))
  expect(await read('CHANGELOG.md')).toMatch(
    /^# Changelog\n\n## 1\.1\.0 \(\d{4}-\d\d-\d\d\)\n\n- `FlowEntry\.note`: new field\n\n## 1\.0\.0 \(2026-01-01\)\n/,
  )
  expect(await diff()).toEqual(passes('The document is 1.1.0 as released.'))
})

test('a break is refused whatever the version, except by a breaking release', async () => {
  await edit({ ...BREAK, 'info/version': '2.0.0' })
  const refusal = fails('#/components/parameters/Limit/schema/default\n    limit: `default` changed from `10` to `20`')
  expect(await readFile(path.join(ROOT, 'CONTRIBUTING.md'), 'utf8')).toContain('\n## To release the document\n')
  for (const args of [[], ['--write'], ['--release'], ['--breaking']]) expect(await diff(...args)).toEqual(refusal)
  await edit({ 'info/version': '1.1.0' })
  expect(await diff('--release', '--breaking')).toEqual(fails('Set it to 2.0.0'))
  await edit({ 'info/version': '2.0.0' })
  expect(await diff('--release', '--breaking')).toEqual(passes('2.0.0 is released'))
  expect(await read('CHANGELOG.md')).toContain('- **Breaking.** `limit`: `default` changed from `10` to `20`')
})

test('without a released document only a first release succeeds', async () => {
  await rm(path.join(copy, 'openapi/released.yaml'))
  expect(await diff()).toEqual(fails('openapi/released.yaml is missing'))
  expect(await diff('--release')).toEqual(passes('1.0.0 is released'))
  expect(await diff()).toEqual(passes('The document is 1.0.0 as released.'))
  await rm(path.join(copy, 'openapi/released.yaml'))
  await writeFile(path.join(copy, 'CHANGELOG.md'), '# Changelog\n')
  expect(await diff('--release')).toEqual(fails('CHANGELOG.md has no section "## 1.0.0"'))
})

test.for([
  ['1.4.2', undefined, ['1.4.2']],
  ['1.4.2', 'patch', ['1.4.3', '1.5.0']],
  ['1.4.2', 'minor', ['1.5.0']],
  ['1.4.2', 'breaking', ['2.0.0']],
] as const)('after %s a change rated %s requires %s', ([released, rating, versions]) => {
  expect(versionsAfter(released, rating)).toEqual(versions)
})
