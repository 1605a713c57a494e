import { expect, test } from 'vitest'
import type { Exchange } from './recorder.ts'
import type { ReplayResult, Violation } from './replay.ts'
import { findingsOf, reasonNotReplayable, responseFindings } from './verdict.ts'

const exchange: Exchange = {
  operationId: 'listModules',
  method: 'GET',
  url: '/projects/demo/modules',
  headers: {},
  body: undefined,
  unread: false,
  status: 200,
  responseHeaders: {},
  responseBody: '[ ]',
}
const replayed: ReplayResult = { reached: true, status: 200, responseBody: '[]', violations: [] }
const wrongLimit: Violation = { location: ['request', 'query', 'limit'], code: 'maximum', message: 'too much' }
const noKey: Violation = { location: ['request'], code: 401, message: 'Invalid security scheme used' }
const noBody: Violation = { location: ['request'], code: 'required', message: 'Body parameter is required' }
const noTitle: Violation = { location: ['response', 'body'], code: 'required', message: 'no title' }
const noRoute: Violation = { location: ['request'], message: 'Selected route not found' }
const rejection = (...messages: string[]) => ({
  status: 400,
  responseBody: JSON.stringify({
    error: { message: 'not valid', details: messages.map((message) => ({ pointer: '/query/limit', message })) },
  }),
})
const noBatch: Violation = { location: ['request', 'body'], code: 'required', message: 'no batch' }
const wrongItem = (i: number): Violation => ({
  location: ['request', 'body', 'events', String(i), 'timestamp'],
  code: 'format',
  message: 'no time',
})
const invalid = (issue: string) => ({
  status: 400,
  error: {
    message: 'not valid',
    details: [{ pointer: '/body/events/0/timestamp', message: issue.startsWith('must') ? issue : `is ${issue}` }],
  },
})
const batch = (...results: object[]) => ({
  operationId: 'recordCustomEvents',
  responseBody: JSON.stringify({ results }),
})
const unknown = 'is not a known parameter; known are none'
const unrouted = { operationId: undefined, status: 404 }

test.each<[string, Partial<Exchange>, Partial<ReplayResult>, string[]]>([
  ['nothing where both agree', {}, {}, []],
  [
    'a request that never reached the service',
    {},
    { reached: false, status: 422 },
    ['Prism responds with 422 by itself'],
  ],
  ['another status', {}, { status: 500 }, ['Prism changes the response: 500 []']],
  ['another body', {}, { responseBody: '{}' }, ['Prism changes the response: 200 {}']],
  ['an invalid response', {}, { violations: [noTitle] }, ['response/body: no title']],
  ['an invalid error response', { status: 429 }, { violations: [noTitle] }, ['response/body: no title']],
  [
    'an invalid request that was accepted',
    {},
    { violations: [wrongLimit] },
    ['accepted, but request/query/limit: too much'],
  ],
  [
    'an invalid request whose resource was looked up',
    { status: 404 },
    { violations: [wrongLimit] },
    ['accepted, but request/query/limit: too much'],
  ],
  ['nothing where both reject', rejection('must be less'), { violations: [wrongLimit] }, []],
  [
    'nothing where the request was rejected earlier for another reason',
    { status: 429 },
    { violations: [wrongLimit] },
    [],
  ],
  [
    'a valid request that was rejected',
    rejection('is ugly'),
    {},
    ['rejected, but Prism reports nothing: /query/limit is ugly'],
  ],
  [
    'one issue that no rule explains',
    rejection(unknown, 'is ugly'),
    {},
    ['rejected, but Prism reports nothing: /query/limit is ugly'],
  ],
  ['nothing where no schema can state the rule', rejection(unknown), {}, []],
  ['nothing in a 401 for a missing key', { status: 401 }, { violations: [noKey] }, []],
  [
    'a missing key that was accepted',
    rejection('must be less'),
    { violations: [noKey, wrongLimit] },
    ['responded 400 without a key'],
  ],
  ['a missing body', {}, { violations: [noBody] }, ['accepted, but request: Body parameter is required']],
  ['nothing in the body of a GET', { unread: true }, { violations: [noBody] }, []],
  ['nothing in an item of a batch that both reject', batch(invalid('ugly')), { violations: [wrongItem(0)] }, []],
  [
    'an invalid item of a batch that was accepted',
    batch({ status: 200 }, invalid('ugly')),
    { violations: [wrongItem(0), wrongItem(1)] },
    ['accepted, but request/body/events/0/timestamp: no time'],
  ],
  [
    'a valid item of a batch that was rejected',
    batch({ status: 200 }, invalid('ugly')),
    {},
    ['rejected, but Prism reports nothing: /body/timestamp is ugly'],
  ],
  [
    'nothing where no schema can state the rule for an item',
    batch(invalid('must be at most 24 hours ahead of the clock')),
    {},
    [],
  ],
  [
    'nothing in a batch that was not recorded',
    { ...batch(invalid('ugly')), unread: true },
    { violations: [noBody] },
    [],
  ],
  [
    'a batch that was accepted',
    batch({ status: 200 }),
    { violations: [noBatch] },
    ['accepted, but request/body: no batch'],
  ],
  ['an operation that Prism does not find', {}, { violations: [noRoute] }, ['Prism finds no operation']],
  ['nothing where neither finds an operation', unrouted, { violations: [noRoute] }, []],
  [
    'an operation that the service does not find',
    unrouted,
    {},
    ['Prism finds an operation where the service finds none'],
  ],
  ['nothing in an empty segment', { ...unrouted, url: '/projects//modules' }, { violations: [noKey] }, []],
])('finds %s', (_, of, how, findings) => {
  const { status = 200, responseBody = '[]' } = { ...of }
  expect(findingsOf({ ...exchange, ...of }, { ...replayed, status, responseBody, ...how })).toEqual(findings)
})

test('a response can be checked without its request', () => {
  const sent = { ...replayed, violations: [wrongLimit, noTitle] }
  expect(responseFindings(exchange, sent)).toEqual(['response/body: no title'])
})

test.each<[string, Partial<Exchange>]>([
  ['HEAD', { method: 'HEAD' }],
  ['an incomplete escape', { url: '/projects/%/modules' }],
  ['.. segments', { url: '/projects/%2E./modules?limit=1' }],
  ['a request line of 16 KiB', { url: `/projects/demo/modules?${'x'.repeat(16_000)}` }],
  ['an empty parameter of Content-Type', { headers: { 'content-type': 'application/json;' } }],
])('does not replay %s', (_, of) => {
  expect(reasonNotReplayable(exchange)).toBe(undefined)
  expect(reasonNotReplayable({ ...exchange, ...of })).toEqual(expect.any(String))
})
