import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestApp, type TestApp } from '../support/app.ts'
import { EVENT, expectIssues } from './requests.ts'

let api: TestApp
beforeAll(async () => {
  api = await createTestApp()
})
afterAll(() => api.close())

const VIEWS = '/projects/demo/entries-page-views'
const get = (path: string) => api.call({ path })

const LIMIT = 'must be an integer from 1 to 1000'
const EMPTY = 'is empty; set a value or omit it'
const REPEATED = 'occurs more than once; send it once'
const CURSOR =
  'is not a cursor of this list with this direction and these filters; use the Next-Cursor of the previous page, or leave it out to start from the beginning'
const UNKNOWN = 'is not a known parameter; known parameters: limit, direction, updated_after, updated_before, cursor'
const DATE_TIME = 'must be an RFC 3339 date-time with an offset or Z'
const EXAMPLE = 'for example 2026-03-01T09:30:00.000Z'

test.each<[string, string[]]>([
  ['limit=0&sort=id', [`/query/sort ${UNKNOWN}`, `/query/limit ${LIMIT}`]],
  ...['0', '1001', '1e2', '%205', '5%20', '5.0', '+5', '%2B5', '05', '-1', '-0', '0x10', '1,000', '٣', 'NaN', 'all']
    .concat('9'.repeat(30), '9'.repeat(400))
    .map((limit): [string, string[]] => [`limit=${limit}`, [`/query/limit ${LIMIT}`]]),
  ...['asc', 'ASCENDING', 'ASC%20', '1', 'ASC,DESC'].map((direction): [string, string[]] => [
    `direction=${direction}`,
    ['/query/direction must be ASC or DESC'],
  ]),
  ['limit=', [`/query/limit ${EMPTY}`]],
  ['limit', [`/query/limit ${EMPTY}`]],
  ['direction=', [`/query/direction ${EMPTY}`]],
  ['cursor=', [`/query/cursor ${EMPTY}`]],
  ['updated_after=', [`/query/updated_after ${EMPTY}`]],
  ['limit=5&limit=5', [`/query/limit ${REPEATED}`]],
  ['limit=&limit=', [`/query/limit ${REPEATED}`]],
  ['limit=5&li%6Dit=6', [`/query/limit ${REPEATED}`]],
  ['cursor=a&cursor=b&cursor=c', [`/query/cursor ${REPEATED}`]],
  ['limit=%00', [`/query/limit ${LIMIT}`]],
  // Everything after the first = is the value.
  ['limit=1=2', [`/query/limit ${LIMIT}`]],
  ['limit=1=', [`/query/limit ${LIMIT}`]],
  ['limit==1', [`/query/limit ${LIMIT}`]],
  ['direction=ASC=DESC', ['/query/direction must be ASC or DESC']],
  ['cursor=a%00', [`/query/cursor ${CURSOR}`]],
  ['direction=ASC%00', ['/query/direction must be ASC or DESC']],
  ...['limt', 'Limit', 'limit%20', 'limit[]', 'limit[0]', '__proto__', 'constructor', 'toString', 'offset', 'x-api-key']
    .concat('hasOwnProperty', '__proto__[limit]', 'projectId')
    .map((name): [string, string[]] => [`${name}=5`, [`/query/${decodeURIComponent(name)} ${UNKNOWN}`]]),
  ['a/b~c=1', [`/query/a~1b~0c ${UNKNOWN}`]],
  ['=5', [`/query/ ${UNKNOWN}`]],
  ['%00=5', [`/query/\0 ${UNKNOWN}`]],
  ['x=1&x=2', [`/query/x ${UNKNOWN}`]],
  ['x=1&a=1', [`/query/x ${UNKNOWN}`, `/query/a ${UNKNOWN}`]],
  ['limit=5;direction=ASC', [`/query/limit ${LIMIT}`]],
  ['?limit=5', [`/query/?limit ${UNKNOWN}`]],
  ['limit=0&direction=up&x=', [`/query/x ${UNKNOWN}`, `/query/limit ${LIMIT}`, '/query/direction must be ASC or DESC']],
  [
    'updated_after=2026-03-01T09:30:00+01:00',
    [
      `/query/updated_after ${DATE_TIME} (in a URL, encode the + of an offset as %2B); for example 2026-03-01T09:30:00+01:00`,
    ],
  ],
  [
    'updated_before=2026-03-01',
    [`/query/updated_before ${DATE_TIME} (a time is required); for example 2026-03-01T00:00:00Z`],
  ],
  ['updated_after=1772357472', [`/query/updated_after ${DATE_TIME}; ${EXAMPLE}`]],
  ['updated_after=yesterday', [`/query/updated_after ${DATE_TIME}; ${EXAMPLE}`]],
  ['updated_after=%20', [`/query/updated_after ${DATE_TIME}; ${EXAMPLE}`]],
  [
    'updated_after=2026-02-30T00:00:00Z',
    ['/query/updated_after the day must be 01 to 28 in that month; for example 2026-02-28T00:00:00.000Z'],
  ],
  [
    'updated_after=2026-03-02T00:00:00Z&updated_before=2026-03-01T00:00:00Z',
    ['/query/updated_before must be later than updated_after'],
  ],
  [
    'updated_after=2026-03-01T00:00:00Z&updated_before=2026-03-01T01:00:00%2B01:00',
    ['/query/updated_before must be later than updated_after'],
  ],
])('listEntryPageViews refuses ?%s', async (query, issues) => {
  expectIssues(await get(`${VIEWS}?${query}`), issues)
})

test.each([
  '',
  '?',
  '?&&',
  '?limit=1',
  '?limit=1000',
  '?limit=%35',
  '?%6Cimit=5',
  '?direction=ASC',
  '?updated_after=0001-01-01T00:00:00Z&updated_before=9999-12-31T23:59:59.999Z',
  '?updated_after=2026-01-01t00:00:00z',
  '?updated_after=2026-01-01T00:00:00%2B23:59',
  '?updated_after=2026-01-01T00:00:00.123456789Z',
])('listEntryPageViews accepts "%s"', async (query) => {
  expect((await get(VIEWS + query)).statusCode).toBe(200)
})

test.each([
  ['listModules', '/projects/demo/modules', 'this operation has none'],
  ['getModule', '/projects/demo/modules/skin-quiz', 'this operation has none'],
  ['listModuleVersions', '/projects/demo/modules/skin-quiz/versions', 'known parameters: limit, direction, cursor'],
  ['getModuleVersion', '/projects/demo/modules/skin-quiz/versions/1', 'this operation has none'],
  ['getEntry', '/projects/demo/entries/019ca8bb-b5c0-7000-8000-000000000001', 'this operation has none'],
  [
    'listEntryEvents',
    '/projects/demo/entries/019ca8bb-b5c0-7000-8000-000000000001/events',
    'known parameters: limit, direction, cursor',
  ],
])('%s refuses an unknown parameter', async (_, path, known) => {
  for (const name of ['updated_after', '__proto__', 'fields']) {
    expectIssues(await get(`${path}?${name}=1`), [`/query/${name} is not a known parameter; ${known}`])
  }
})

test('recordCustomEvent refuses a query, even an API key in it, and does not echo its value', async () => {
  const response = await api.call({ method: 'POST', path: `/projects/demo/events?x-api-key=${api.key}`, body: EVENT })
  expect(response.json().error.details[0]).toEqual({
    pointer: '/query/x-api-key',
    message: 'is not a known parameter; this operation has none',
  })
  expect(response.body).not.toContain(api.key)
})

test.each(['%', 'limit=%', 'limit=%zz', 'x=%ff', 'x=%C3', '%ff=1', 'x=%ED%A0%80', 'x=%C0%80', 'limit=5&%u0041=1'])(
  'listEntryPageViews refuses ?%s, which is not percent-encoded UTF-8',
  async (query) => {
    const response = await get(`${VIEWS}?${query}`)
    expect(response.json()).toEqual({
      error: {
        code: 'invalid_request',
        message:
          'The path and query must be percent-encoded UTF-8. Encode a literal % as %25, and all non-ASCII characters.',
      },
      projectId: 'demo',
    })
    expect(response.statusCode).toBe(400)
  },
)

test('a parameter repeated thousands of times is one issue and cheap', async () => {
  expectIssues(await get(`${VIEWS}?${'limit&'.repeat(100_000)}`), [`/query/limit ${REPEATED}`])
}, 5_000)
