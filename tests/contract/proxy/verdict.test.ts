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
const refusal = (...messages: string[]) => ({
  status: 400,
  responseBody: JSON.stringify({
    error: { message: 'not valid', details: messages.map((message) => ({ pointer: '/query/limit', message })) },
  }),
})
const unknown = 'is not a known parameter; known are none'
const outside = { operationId: undefined, status: 404 }

test.each<[string, Partial<Exchange>, Partial<ReplayResult>, string[]]>([
  ['nothing where both agree', {}, {}, []],
  ['a refusal that never reached the service', {}, { reached: false, status: 422 }, ['Prism answers 422 by itself']],
  ['another status', {}, { status: 500 }, ['Prism changes the response: 500 []']],
  ['another answer', {}, { responseBody: '{}' }, ['Prism changes the response: 200 {}']],
  ['a wrong answer', {}, { violations: [noTitle] }, ['response/body: no title']],
  ['a wrong refusal', { status: 429 }, { violations: [noTitle] }, ['response/body: no title']],
  ['a wrong request that was taken', {}, { violations: [wrongLimit] }, ['accepted, but request/query/limit: too much']],
  [
    'one whose resource was looked for',
    { status: 404 },
    { violations: [wrongLimit] },
    ['accepted, but request/query/limit: too much'],
  ],
  ['nothing where both refuse', refusal('must be less'), { violations: [wrongLimit] }, []],
  ['nothing where it was refused for something else before', { status: 429 }, { violations: [wrongLimit] }, []],
  [
    'a good request that was refused',
    refusal('is ugly'),
    {},
    ['refused, but Prism finds nothing: /query/limit is ugly'],
  ],
  [
    'one fault that is not explained',
    refusal(unknown, 'is ugly'),
    {},
    ['refused, but Prism finds nothing: /query/limit is ugly'],
  ],
  ['nothing where no schema can state the rule', refusal(unknown), {}, []],
  ['nothing in a refusal for a missing key', { status: 401 }, { violations: [noKey] }, []],
  [
    'a missing key that was overlooked',
    refusal('must be less'),
    { violations: [noKey, wrongLimit] },
    ['answered 400 without a key'],
  ],
  ['a missing body', {}, { violations: [noBody] }, ['accepted, but request: Body parameter is required']],
  ['nothing in the body of a GET', { unread: true }, { violations: [noBody] }, []],
  ['an operation that Prism does not find', {}, { violations: [noRoute] }, ['Prism finds no operation']],
  ['nothing where neither finds an operation', outside, { violations: [noRoute] }, []],
  [
    'an operation that the service does not find',
    outside,
    {},
    ['Prism finds an operation where the service finds none'],
  ],
  ['nothing in an empty segment', { ...outside, url: '/projects//modules' }, { violations: [noKey] }, []],
])('finds %s', (_, of, how, findings) => {
  const { status = 200, responseBody = '[]' } = { ...of }
  expect(findingsOf({ ...exchange, ...of }, { ...replayed, status, responseBody, ...how })).toEqual(findings)
})

test('an answer can be judged without its request', () => {
  const sent = { ...replayed, violations: [wrongLimit, noTitle] }
  expect(responseFindings(exchange, sent)).toEqual(['response/body: no title'])
})

test.each<[string, Partial<Exchange>]>([
  ['HEAD', { method: 'HEAD' }],
  ['a lone %', { url: '/projects/%/modules' }],
  ['.. segments', { url: '/projects/%2E./modules?limit=1' }],
  ['a request line of 16 KiB', { url: `/projects/demo/modules?${'x'.repeat(16_000)}` }],
  ['an empty parameter of Content-Type', { headers: { 'content-type': 'application/json;' } }],
])('does not send %s', (_, of) => {
  expect(reasonNotReplayable(exchange)).toBe(undefined)
  expect(reasonNotReplayable({ ...exchange, ...of })).toEqual(expect.any(String))
})
