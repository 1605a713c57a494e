import { Readable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createPool } from '../../src/database/pool.ts'
import { importRecords } from '../../src/transfer/import.ts'
import { createTestApp, EXAMPLES, importFile, type TestApp } from '../support/app.ts'
import { expectIssues } from './requests.ts'

/** Ids that are odd and right. */
const ODD_IDS = [
  'a/b',
  '100%',
  '%2F',
  '%25',
  'a+b',
  'a b',
  ' ',
  'a?b',
  'a#b',
  'a;b',
  'é',
  '日本',
  '😀'.repeat(128),
  '...',
  '.a',
  '..a',
].concat(
  '__proto__',
  'constructor',
  'toString',
  '"',
  "'",
  '\\',
  'a:b',
  ':id',
  '*',
  '~',
  '{moduleId}',
  'versions',
  'x'.repeat(128),
)

let api: TestApp
beforeAll(async () => {
  api = await createTestApp({
    fill: async (url) => {
      await importFile(url, EXAMPLES)
      const pool = createPool(url, { max: 1 })
      await importRecords(pool, Readable.from([oddModules()]))
      await pool.end()
    },
  })
})
afterAll(() => api.close())

const get = (path: string) => api.call({ path })

function oddModules(): Buffer {
  const common = { project_id: 'demo' }
  const lines = ODD_IDS.flatMap((module_id) => [
    { type: 'module', ...common, module_id, group_id: 'growth', title: module_id },
    {
      type: 'module_version',
      ...common,
      module_id,
      version_number: 1,
      saved_at: '2026-01-01T00:00:00Z',
      published_at: '2026-01-01T00:00:00Z',
      json_string: '{}',
    },
  ])
  return Buffer.from(lines.map((line) => `${JSON.stringify(line)}\n`).join(''))
}

test.each(ODD_IDS)('getModule finds the module "%s"', async (id) => {
  const response = await get(`/projects/demo/modules/${encodeURIComponent(id)}`)
  expect(response.statusCode).toBe(200)
  expect(response.json().module_id).toBe(id)
})

const CONTROL = 'must not hold control characters'
const VERSION_RANGE = '/path/versionNumber must be an integer from -2147483648 to 2147483647'
const LENGTH = 'must be 1 to 128 characters long'

describe.each([
  ['getModule', '/projects/demo/modules/$', 'moduleId'],
  ['listModuleVersions', '/projects/demo/modules/$/versions', 'moduleId'],
  ['getModuleVersion', '/projects/demo/modules/$/versions/1', 'moduleId'],
  ['getEntry', '/projects/demo/entries/$', 'entryId'],
  ['listEntryEvents', '/projects/demo/entries/$/events', 'entryId'],
])('%s', (_, template, name) => {
  test.each([
    ['%00', CONTROL],
    ['a%00b', CONTROL],
    ['%0A', CONTROL],
    ['%C2%85', CONTROL],
    ['a'.repeat(129), LENGTH],
    ['a'.repeat(10_000), LENGTH],
    [encodeURIComponent('😀'.repeat(129)), LENGTH],
  ])('refuses the id %s', async (id, message) => {
    expectIssues(await get(template.replace('$', () => id)), [`/path/${name} ${message}`])
  })

  test.each(['no', 'no%2Fbody', 'no%252F', 'no__proto__', 'n'.repeat(128), encodeURIComponent('ü'.repeat(128)), "'--"])(
    'finds nothing under the id %s',
    async (id) => {
      const response = await get(template.replace('$', () => id))
      expect(response.statusCode).toBe(404)
      expect(response.json().error.code).toBe(name === 'moduleId' ? 'module_does_not_exist' : 'entry_not_found')
      expect(response.json()[name]).toBe(decodeURIComponent(id))
    },
  )

  test.each(['%', '%f', '%zz', '%ff', '%C3', '%ED%A0%80', '%C0%AF'])(
    'refuses %s, which is not percent-encoded UTF-8',
    async (id) => {
      const response = await get(template.replace('$', () => id))
      expect(response.statusCode).toBe(400)
      expect(response.json().error).toEqual({
        code: 'invalid_request',
        message:
          'The path and query must be percent-encoded UTF-8. Encode a literal % as %25, and all non-ASCII characters.',
      })
      expect(response.headers['x-request-id']).toMatch(/^[0-9a-f-]{36}$/)
      expect(response.headers['cache-control']).toBe('no-store')
    },
  )
})

test.each([
  'one',
  '1.0',
  '01',
  '+1',
  '1e0',
  '%201',
  '1%20',
  '0x1',
  '-',
  '--1',
  '1_000',
  '١',
  'NaN',
  'Infinity',
  'null',
  '2147483648',
  '-2147483649',
  '99999999999999999999',
  '9'.repeat(400),
])('getModuleVersion refuses the version %s', async (version) => {
  expectIssues(await get(`/projects/demo/modules/skin-quiz/versions/${encodeURI(version).replaceAll('%25', '%')}`), [
    VERSION_RANGE,
  ])
})

test('getModuleVersion lists every invalid part of the path', async () => {
  expectIssues(await get('/projects/demo/modules/%00/versions/x'), [`/path/moduleId ${CONTROL}`, VERSION_RANGE])
})

test.each([
  ['0', 0],
  ['-0', 0],
  ['-1', -1],
  ['99', 99],
  ['2147483647', 2147483647],
  ['-2147483648', -2147483648],
])('getModuleVersion finds no version %s', async (version, versionNumber) => {
  const response = await get(`/projects/demo/modules/skin-quiz/versions/${version}`)
  expect(response.statusCode).toBe(404)
  expect(response.json()).toMatchObject({
    error: { code: 'module_version_does_not_exist' },
    projectId: 'demo',
    moduleId: 'skin-quiz',
    versionNumber,
  })
})

test.each([
  '/',
  '/projects',
  '/projects/',
  '/projects/demo',
  '/projects/demo/',
  '/projects//modules',
  '/projects/demo/modules/',
  '/projects/demo/modules//versions',
  '/projects/demo/modules/skin-quiz/',
  '/projects/demo/modules/skin-quiz/versions/',
  '/projects/demo/modules/skin-quiz/versions/1/',
  '/projects/demo/modules//versions/1',
  '/projects/demo//modules',
  '/projects/demo/entries/',
  '/projects/demo/entries//events',
  '/projects/demo/events/',
  '/Projects/demo/modules',
  '/projects/demo/Modules',
  '/projects/demo/modules;x=1',
  '/projects/demo/modules%2Fskin-quiz',
  '/projects/demo/modules%3Flimit=1',
])('there is no route %s', async (path) => {
  for (const method of ['GET', 'POST'] as const) {
    const response = await api.call({ method, path, key: null })
    expect(response.json()).toEqual({
      error: {
        code: 'route_not_found',
        message: 'No such path. All paths are documented at /docs and in /openapi.yaml, below the URL of the API.',
      },
    })
    expect(response.statusCode).toBe(404)
  }
})

test.each(['%00', 'a'.repeat(10_000), '%0D%0Ax: y', 'nobody', 'demo%20', 'DEMO'])(
  'the project %s is refused like every other',
  async (project) => {
    const response = await get(`/projects/${project}/modules`)
    expect(response.json().error.code).toBe('unauthorized')
    expect(response.json().projectId).toBe(decodeURIComponent(project))
    expect(response.statusCode).toBe(401)
  },
)

test('with a base path, operations are below it and nowhere else', async () => {
  const app = await createTestApp({ config: { basePath: '/flow' } })
  const path = '/projects/demo/modules'
  const statusOf = async (path: string, method?: 'PUT') => (await app.call({ path, method })).statusCode
  expect(await statusOf(`/flow${path}`)).toBe(200)
  expect(await statusOf(`/flow${path}`, 'PUT')).toBe(405)
  expect(await statusOf(path)).toBe(404)
  expect(await statusOf(path, 'PUT')).toBe(404)
  await app.close()
})
