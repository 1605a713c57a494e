import { once } from 'node:events'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setImmediate } from 'node:timers/promises'
import fastify, { type FastifyServerOptions } from 'fastify'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from 'vitest'
import { acceptJsonOnly, NDJSON } from '../../src/http/body.ts'
import { clientErrorHandler } from '../../src/http/client-errors.ts'
import { createTestApp, type TestApp } from '../support/app.ts'
import { openConnection } from '../support/connection.ts'
import { EVENT, eventWith, expectIssues, rowCounts } from './requests.ts'

// recordCustomEvent responds to every invalid body with a 4xx that says how to fix it, and writes nothing.

let api: TestApp
let before: Record<string, number>
beforeAll(async () => {
  api = await createTestApp()
})
beforeEach(async () => {
  before = await rowCounts(api.db)
})
afterAll(() => api.close())

const post = (body: unknown, headers?: Record<string, string>) =>
  api.call({ method: 'POST', path: '/projects/demo/events', body, headers })

async function expectNothingWritten(): Promise<void> {
  expect(await rowCounts(api.db)).toEqual(before)
}

const KNOWN = 'module_id, timestamp, custom_event_name, custom_event_props, identifiers'
const TOO_MANY = 'The body must have at most 200 fields and items in all.'
const deep = (levels: number) => '['.repeat(levels) + ']'.repeat(levels)
const bytes = (before: string, odd: number[], after: string) =>
  Buffer.concat([Buffer.from(before), Buffer.from(odd), Buffer.from(after)])

test.each<[string, unknown, string]>([
  ['no body', undefined, 'A JSON body is required; the request has none.'],
  ['an empty body', '', 'A JSON body is required; the request has none.'],
  ['only a byte order mark', Buffer.from('\ufeff'), 'A JSON body is required; the request has none.'],
  ['white space', ' \n', 'The body is not valid JSON: unexpected end of input.'],
  ['half of an object', '{"module_id":', 'The body is not valid JSON: unexpected end of input.'],
  ['half of a string', '{"module_id', 'The body is not valid JSON (at position 11).'],
  ['single quotes', "{'module_id': 1}", 'The body is not valid JSON (at position 1).'],
  ['a trailing comma', '{"module_id": "x",}', 'The body is not valid JSON (at position 18).'],
  ['a stray token', '{"module_id":}', 'The body is not valid JSON: unexpected token "}".'],
  ['NaN', '{"module_id": NaN}', 'The body is not valid JSON: unexpected token "N".'],
  ['two values', '{} {}', 'The body is not valid JSON (at position 3).'],
  ['a raw NUL', `{"module_id":"\0"}`, 'The body is not valid JSON (at position 14).'],
  ['a raw line feed in a string', '{"module_id":"\n"}', 'The body is not valid JSON (at position 14).'],
  ['form data', 'module_id=skin-quiz', 'The body is not valid JSON: unexpected token "m".'],
  ['100 open brackets', '['.repeat(100), 'The body is not valid JSON: unexpected end of input.'],
  ['100,000 open brackets', '['.repeat(100_000), TOO_MANY],
  ['an array 100,000 deep', deep(100_000), TOO_MANY],
  ['20,000 numbers', `[${Array(20_000)}]`, TOO_MANY],
  ['201 objects', `[${Array(200).fill('{}')}]`, TOO_MANY],
  ['201 fields', JSON.stringify({ ...EVENT, ...Object.fromEntries(Array(197).fill(0).entries()) }), TOO_MANY],
  ['fields after a quotation mark', JSON.stringify({ 'a\\"': [...'"'.repeat(200)] }), TOO_MANY],
  [
    'a byte that is not UTF-8',
    bytes('{"module_id":"', [0xff], '"}'),
    'The body is not valid UTF-8; encode it as UTF-8.',
  ],
  ['Latin-1', Buffer.from('{"module_id":"é"}', 'latin1'), 'The body is not valid UTF-8; encode it as UTF-8.'],
  [
    'a raw lone surrogate',
    bytes('{"a":"', [0xed, 0xa0, 0x80], '"}'),
    'The body is not valid UTF-8; encode it as UTF-8.',
  ],
  ['an overlong NUL', bytes('{"a":"', [0xc0, 0x80], '"}'), 'The body is not valid UTF-8; encode it as UTF-8.'],
  ['UTF-16', Buffer.from('\ufeff{}', 'utf16le'), 'The body is not valid UTF-8; encode it as UTF-8.'],
])('recordCustomEvent refuses a body that is %s', async (_, body, message) => {
  const response = await post(body)
  expect(response.json()).toEqual({ error: { code: 'invalid_request', message }, projectId: 'demo' })
  expect(response.statusCode).toBe(400)
  await expectNothingWritten()
})

test.each([
  ['null', 'null'],
  ['a number', '1'],
  ['a string', '"{}"'],
  ['an array', '[]'],
  ['an array 200 deep', deep(200)],
  ['an array of strings', JSON.stringify(['[{,'.repeat(200), '\\"[{,'.repeat(200)])],
])('recordCustomEvent refuses %s', async (_, body) => {
  const response = await post(body)
  expect(response.json().error).toEqual({ code: 'invalid_request', message: 'The body must be a JSON object.' })
  expect(response.statusCode).toBe(400)
  await expectNothingWritten()
})

/** A field, the JSON text it is set to, the pointer of the issue below the field, and its message. */
const FIELD_ISSUES: [keyof typeof EVENT, string, string, string][] = [
  ['module_id', '1', '', 'must be a string; as a string this value is "1"'],
  ['module_id', 'null', '', 'must be a string'],
  ['module_id', 'true', '', 'must be a string; as a string this value is "true"'],
  ['module_id', '""', '', 'must be 1 to 128 characters long'],
  ['module_id', `"${'a'.repeat(129)}"`, '', 'must be 1 to 128 characters long'],
  ['module_id', `"${'😀'.repeat(129)}"`, '', 'must be 1 to 128 characters long'],
  ['module_id', '"."', '', 'must not be "." or ".."'],
  ['module_id', '".."', '', 'must not be "." or ".."'],
  ['module_id', '"a\\u0000"', '', 'must not hold control characters'],
  ['module_id', '"a\\n"', '', 'must not hold control characters'],
  ['module_id', '"\\u0085"', '', 'must not hold control characters'],
  ['module_id', '"\\ud800"', '', 'must not hold NUL or a lone surrogate'],
  ['module_id', '"\\udc00\\ud800"', '', 'must not hold NUL or a lone surrogate'],
  ['module_id', deep(90), '', `must be a string; as a string this value is "${deep(90)}"`],
  ['timestamp', '1772357472345', '', 'must be a string; for example "2026-03-01T09:30:00.000Z"'],
  ['timestamp', '1e400', '', 'must be a string; for example "2026-03-01T09:30:00.000Z"'],
  ['timestamp', '""', '', 'must be an RFC 3339 date-time with an offset or Z; for example 2026-03-01T09:30:00.000Z'],
  [
    'timestamp',
    '"2026-03-01"',
    '',
    'must be an RFC 3339 date-time with an offset or Z (a time is required); for example 2026-03-01T00:00:00Z',
  ],
  [
    'timestamp',
    '"2026-02-30T10:00:00Z"',
    '',
    'the day must be 01 to 28 in that month; for example 2026-02-28T10:00:00.000Z',
  ],
  [
    'timestamp',
    '"2016-12-31T23:59:60Z"',
    '',
    'the second must be 00 to 59 (leap seconds are not accepted); for example 2016-12-31T23:59:59.000Z',
  ],
  ['timestamp', '"0000-01-01T00:00:00Z"', '', 'the year must be 0001 to 9999; for example 0001-01-01T00:00:00.000Z'],
  [
    'timestamp',
    '"2026-03-01T09:30:00Z\\u0000"',
    '',
    'must be an RFC 3339 date-time with an offset or Z; for example 2026-03-01T09:30:00.000Z',
  ],
  ['custom_event_name', '""', '', 'must be 1 to 200 characters long'],
  ['custom_event_name', `"${'n'.repeat(201)}"`, '', 'must be 1 to 200 characters long'],
  ['custom_event_name', '"a\\u0000"', '', 'must not hold control characters'],
  ['custom_event_name', '"a\\tb"', '', 'must not hold control characters'],
  ['custom_event_name', '"\\udfff"', '', 'must not hold NUL or a lone surrogate'],
  ['custom_event_name', '"\\udfff\\t"', '', 'must not hold control characters'],
  ['custom_event_name', '{}', '', 'must be a string; as a string this value is "{}"'],
  ['custom_event_props', 'null', '', 'must be the text of a JSON object, for example "{\\"plan\\":\\"pro\\"}"'],
  ['custom_event_props', '5', '', 'must be the text of a JSON object, for example "{\\"plan\\":\\"pro\\"}"'],
  ['custom_event_props', '[1]', '', 'must be the text of a JSON object, for example "{\\"plan\\":\\"pro\\"}"'],
  ['custom_event_props', '{"plan":"pro"}', '', 'must be a string; as a string this value is "{\\"plan\\":\\"pro\\"}"'],
  ['custom_event_props', '""', '', 'must be the text of a JSON object, for example "{\\"plan\\":\\"pro\\"}"'],
  ['custom_event_props', '"5"', '', 'must be the text of a JSON object, for example "{\\"plan\\":\\"pro\\"}"'],
  ['custom_event_props', '"{plan:1}"', '', 'must be the text of a JSON object, for example "{\\"plan\\":\\"pro\\"}"'],
  ['custom_event_props', `"{'a':1}"`, '', 'must be the text of a JSON object, for example "{\\"plan\\":\\"pro\\"}"'],
  ['custom_event_props', '"[]"', '', 'must be the text of a JSON object, for example "{\\"plan\\":\\"pro\\"}"'],
  ['custom_event_props', '"null"', '', 'must be the text of a JSON object, for example "{\\"plan\\":\\"pro\\"}"'],
  ['custom_event_props', '"{\\"a\\":\\"\\u0000\\"}"', '', 'must not hold NUL or a lone surrogate'],
  ['custom_event_props', '"{\\"a\\":\\"\\ud83d\\"}"', '', 'must not hold NUL or a lone surrogate'],
  ['custom_event_props', `"{\\"a\\":\\"${'x'.repeat(32_768)}\\"}"`, '', 'must be 2 to 32768 characters long'],
  ['custom_event_props', `"{\\"a\\":\\"${'é'.repeat(16_384)}\\"}"`, '', 'must be at most 32768 bytes of UTF-8'],
  ['custom_event_props', `"{\\"a\\":${deep(64)}}"`, '', 'must be nested at most 64 levels deep'],
  ['custom_event_props', `"{\\"a\\":${deep(16_000)}}"`, '', 'must be nested at most 64 levels deep'],
  ['identifiers', 'null', '', 'must be a JSON array'],
  ['identifiers', '{}', '', 'must be a JSON array'],
  ['identifiers', '"email"', '', 'must be a JSON array'],
  ['identifiers', '[]', '', 'must hold 1 to 10 items'],
  ['identifiers', '[[]]', '/0', 'must be a JSON object'],
  ['identifiers', deep(90), '/0', 'must be a JSON object'],
  ['identifiers', '[{"value":"1"}]', '/0/key', 'is required'],
  ['identifiers', '[{"key":"a"}]', '/0/value', 'is required'],
  ['identifiers', '[{"key":"a","value":"1","type":"x"}]', '/0/type', 'is not a known field; known fields: key, value'],
  [
    'identifiers',
    '[{"key":"a","value":"1","__proto__":{}}]',
    '/0/__proto__',
    'is not a known field; known fields: key, value',
  ],
  ['identifiers', '[{"key":"","value":"1"}]', '/0/key', 'must be 1 to 128 characters long'],
  ['identifiers', `[{"key":"${'k'.repeat(129)}","value":"1"}]`, '/0/key', 'must be 1 to 128 characters long'],
  ['identifiers', '[{"key":"\\u0000","value":"1"}]', '/0/key', 'must not hold NUL or a lone surrogate'],
  ['identifiers', '[{"key":"\\ud800","value":"1"}]', '/0/key', 'must not hold NUL or a lone surrogate'],
  ['identifiers', '[{"key":"a","value":40000}]', '/0/value', 'must be a string; as a string this value is "40000"'],
  ['identifiers', '[{"key":"a","value":true}]', '/0/value', 'must be a string; as a string this value is "true"'],
  ...['""', 'null', '{"a":1}', '["x"]'].map((value): (typeof FIELD_ISSUES)[number] => [
    'identifiers',
    `[{"key":"a","value":${value}}]`,
    '/0/value',
    'must be JSON text of a non-empty string, a number or a boolean',
  ]),
  ['identifiers', `[{"key":"a","value":"${'1'.repeat(1025)}"}]`, '/0/value', 'must be 1 to 1024 characters long'],
  [
    'identifiers',
    '[{"key":"a","value":"amara@example.com"}]',
    '/0/value',
    'must be JSON text; to send it as a string, quote it: "amara@example.com"',
  ],
  [
    'identifiers',
    '[{"key":"a","value":"01"}]',
    '/0/value',
    'must be JSON text; to send it as a string, quote it: "01"',
  ],
  ...['null', '\\"\\"', '{}', '[]', '[1]'].map((value): [keyof typeof EVENT, string, string, string] => [
    'identifiers',
    `[{"key":"a","value":"${value}"}]`,
    '/0/value',
    'must be JSON text of a non-empty string, a number or a boolean',
  ]),
  ['identifiers', '[{"key":"a","value":"\\"\\u0000\\""}]', '/0/value', 'must not hold NUL or a lone surrogate'],
  ['identifiers', '[{"key":"a","value":"\\"\\ud800\\""}]', '/0/value', 'must not hold NUL or a lone surrogate'],
  [
    'identifiers',
    '[{"key":"a","value":"\\"\\\\u0000\\""}]',
    '/0/value',
    'must not hold NUL or a lone surrogate, escaped or not',
  ],
  [
    'identifiers',
    '[{"key":"a","value":"\\"\\\\ud800\\""}]',
    '/0/value',
    'must not hold NUL or a lone surrogate, escaped or not',
  ],
  [
    'identifiers',
    '[{"key":"a","value":"1"},{"key":"a","value":"2"}]',
    '/1/key',
    'is the same as identifiers/0/key; send each key once',
  ],
]

const titled = FIELD_ISSUES.map(
  ([field, json, ...rest]) => [`"${field}":${json.slice(0, 60)}`, field, json, ...rest] as const,
)

test.each(titled)('recordCustomEvent refuses %s', async (_, field, json, below, message) => {
  expectIssues(await post(eventWith(field, json)), [`/body/${field}${below} ${message}`])
  await expectNothingWritten()
})

test.each([
  ['an empty object', '{}', ['module_id', 'timestamp', 'custom_event_name', 'identifiers']],
  ['the values in a list', '{"0":"skin-quiz"}', ['module_id', 'timestamp', 'custom_event_name', 'identifiers', '0']],
])('recordCustomEvent lists every invalid field of %s', async (_, body, invalid) => {
  expectIssues(
    await post(body),
    invalid.map(
      (field) => `/body/${field} ${field === '0' ? `is not a known field; known fields: ${KNOWN}` : 'is required'}`,
    ),
  )
  await expectNothingWritten()
})

test.each([
  ['__proto__', '/body/__proto__'],
  ['constructor', '/body/constructor'],
  ['toString', '/body/toString'],
  ['', '/body/'],
  ['a/b~c', '/body/a~1b~0c'],
  ['Module_ID', '/body/Module_ID'],
  ['\\u0000', '/body/\0'],
  ['\\ud800', '/body/\ufffd'],
])('recordCustomEvent refuses the unknown field "%s"', async (name, pointer) => {
  const body = `${JSON.stringify(EVENT).slice(0, -1)},"${name}":{"module_id":"x"}}`
  expectIssues(await post(body), [`${pointer} is not a known field; known fields: ${KNOWN}`])
  await expectNothingWritten()
})

test('recordCustomEvent lists strings that cannot be stored in the order of the body', async () => {
  const identifiers = [
    { key: 'a\ud800', value: '"x\ud800"' },
    { key: 'b', value: '"\ud800"' },
  ]
  const response = await post({
    ...EVENT,
    custom_event_name: 'x\ud800',
    custom_event_props: '"\ud800"',
    identifiers,
  })
  const pointers = response.json().error.details.map(({ pointer }: { pointer: string }) => pointer)
  expect(pointers).toEqual([
    '/body/custom_event_name',
    '/body/custom_event_props',
    '/body/identifiers/0/key',
    '/body/identifiers/0/value',
    '/body/identifiers/1/value',
  ])
})

test('recordCustomEvent lists at most twenty issues and counts them all', async () => {
  const unknown = Object.fromEntries(Array.from({ length: 30 }, (_, i) => [`field_${i}`, i]))
  const response = await post({ ...EVENT, ...unknown })
  expect(response.json().error.details).toHaveLength(20)
  expect(response.json().error.message).toContain('29 more issues, see details')
  await expectNothingWritten()
})

test('recordCustomEvent lists every issue that only shows after the schema', async () => {
  const response = await post({
    ...EVENT,
    timestamp: new Date(Date.now() + 25 * 3_600_000).toISOString(),
    custom_event_props: '[]',
    identifiers: [
      { key: 'a', value: 'x' },
      { key: 'a', value: 'null' },
    ],
  })
  const pointers = response.json().error.details.map(({ pointer }: { pointer: string }) => pointer)
  expect(pointers).toEqual([
    '/body/timestamp',
    '/body/custom_event_props',
    '/body/identifiers/0/value',
    '/body/identifiers/1/key',
    '/body/identifiers/1/value',
  ])
  expect(response.json().error.details[0].message).toMatch(
    /^must be at most 24 hours ahead of the server's clock, which is at \d{4}-\d\d-\d\dT[\d:.]+Z$/,
  )
  await expectNothingWritten()
})

test.each([
  ['2026-03-02T09:30:00.123Z', 200],
  ['2026-03-02T10:30:00.123999+01:00', 200],
  ['2026-03-02T09:30:00.124Z', 400],
  ['2026-03-02T10:30:00.124+01:00', 400],
  ['2026-03-03T09:30:00.123Z', 400],
])(
  'an event at %s, when it is 2026-03-01T09:30:00.123Z, gets %i: 24 hours ahead is allowed',
  async (timestamp, status) => {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.parse('2026-03-01T09:30:00.123Z') })
    const response = await post({ ...EVENT, timestamp }).finally(() => vi.useRealTimers())
    expect(response.statusCode).toBe(status)
    if (status === 200) return
    expectIssues(response, [
      "/body/timestamp must be at most 24 hours ahead of the server's clock, which is at 2026-03-01T09:30:00.123Z",
    ])
    await expectNothingWritten()
  },
)

test.each([
  ['application/json', 200],
  ['Application/JSON', 200],
  ['application/json;charset=utf-8', 200],
  ['application/json; charset=UTF-8', 200],
  ['application/json; charset="utf-8"', 200],
  ['application/json; charset=utf8', 200],
  ['application/json ; charset=utf-8', 200],
  ['application/json;', 200],
  ['application/json; charset=latin1', 415],
  ['application/json; charset=utf-16', 415],
  ['application/json; charset=', 415],
  ['application/json; charset=utf-8; charset=latin1', 415],
  ['application/json; profile=x', 415],
  ['application/json, text/plain', 415],
  ['application/json; charset=latin1; as=application/json', 415],
  ['application/jsonp', 415],
  ['application/problem+json', 415],
  ['text/json', 415],
  ['text/plain', 415],
  ['application/x-www-form-urlencoded', 415],
  ['multipart/form-data; boundary=x', 415],
  ['application', 415],
  ['', 415],
])('recordCustomEvent responds to the Content-Type "%s" with %i', async (type, status) => {
  const response = await post(EVENT, { 'content-type': type })
  expect(response.statusCode).toBe(status)
  if (status === 200) return
  expect(response.json().error).toEqual({
    code: 'unsupported_media_type',
    message:
      'Send the body as UTF-8 JSON with the header Content-Type: application/json and without Content-Encoding or a Transfer-Encoding other than chunked.',
  })
  await expectNothingWritten()
})

test.each(['gzip', 'br', 'identity', ''])('recordCustomEvent refuses a Content-Encoding "%s"', async (encoding) => {
  const response = await post(EVENT, { 'content-encoding': encoding })
  expect(response.json().error.code).toBe('unsupported_media_type')
  expect(response.statusCode).toBe(415)
  await expectNothingWritten()
})

test.each([
  ['gzip, chunked', 415],
  ['chunked', 200],
  ['Chunked', 200],
])('recordCustomEvent responds to the Transfer-Encoding "%s" with %i', async (encoding, status) => {
  const response = await post(EVENT, { 'transfer-encoding': encoding })
  expect(response.statusCode).toBe(status)
  if (status === 200) return
  expect(response.json().error.code).toBe('unsupported_media_type')
  await expectNothingWritten()
})

test.each([
  ['at the limit', 256 * 1024, 200],
  ['a byte over it', 256 * 1024 + 1, 413],
  ['of a megabyte', 1024 * 1024, 413],
])('recordCustomEvent responds to a body %s by its size', async (_, size, status) => {
  const json = JSON.stringify(EVENT)
  const response = await post(json + ' '.repeat(size - json.length))
  expect(response.statusCode).toBe(status)
  if (status === 200) return
  expect(response.json().error).toEqual({
    code: 'payload_too_large',
    message: 'The body exceeds the limit of 262144 bytes.',
  })
  await expectNothingWritten()
})

test.each([
  ['', 'must be 1 to 255 characters long'],
  ['k'.repeat(256), 'must be 1 to 255 characters long'],
  ['two words', 'must hold visible ASCII characters only, and no spaces'],
  ['schlüssel', 'must hold visible ASCII characters only, and no spaces'],
])('recordCustomEvent refuses the Idempotency-Key "%s"', async (key, message) => {
  expectIssues(await post(EVENT, { 'idempotency-key': key }), [`/headers/Idempotency-Key ${message}`])
  await expectNothingWritten()
})

test('recordCustomEvent accepts an Idempotency-Key of 255 characters, every visible one among them', async () => {
  const visible = String.fromCharCode(...Array.from({ length: 94 }, (_, i) => 0x21 + i))
  const response = await post(EVENT, { 'idempotency-key': visible.repeat(3).slice(0, 255) })
  expect(response.statusCode).toBe(200)
})

/** Unusual but valid: the body, and the fields of the response that show how it was parsed. */
test.each<[string, string | Buffer, Record<string, unknown>]>([
  ['a byte order mark', `\ufeff${JSON.stringify(EVENT)}`, {}],
  [
    'a name twice: the last counts',
    `{"module_id":"hair-quiz",${JSON.stringify(EVENT).slice(1)}`,
    { module_id: 'skin-quiz' },
  ],
  ['white space around', `\r\n\t ${JSON.stringify(EVENT)} \n`, {}],
  ['fields in another order', JSON.stringify(Object.fromEntries(Object.entries(EVENT).reverse())), {}],
  ['escaped names', JSON.stringify(EVENT).replace('"module_id"', '"\\u006dodule_id"'), {}],
  [
    'props of the prototype',
    eventWith('custom_event_props', '"{\\"__proto__\\":{\\"a\\":1}}"'),
    { custom_event_props: '{"__proto__":{"a":1}}' },
  ],
  [
    'an escaped NUL in props, which is plain text',
    eventWith('custom_event_props', '"{\\"a\\":\\"\\\\u0000\\\\ud800\\"}"'),
    { custom_event_props: '{"a":"\\u0000\\ud800"}' },
  ],
  [
    'props with duplicate names and odd spacing',
    eventWith('custom_event_props', '" {\\"a\\" : 1,\\n\\"a\\":1e999} "'),
    { custom_event_props: ' {"a" : 1,\n"a":1e999} ' },
  ],
  [
    'props 64 levels deep',
    eventWith('custom_event_props', `"{\\"a\\":${deep(63)}}"`),
    { custom_event_props: `{"a":${deep(63)}}` },
  ],
  ['props at the limit of bytes', eventWith('custom_event_props', JSON.stringify(`{"a":"${'é'.repeat(16_380)}"}`)), {}],
  [
    'a name of 200 characters outside the BMP',
    eventWith('custom_event_name', `"${'😀'.repeat(200)}"`),
    { custom_event_name: '😀'.repeat(200) },
  ],
  ['an offset', eventWith('timestamp', '"2026-03-01T10:41:12.3459+01:00"'), { timestamp: '2026-03-01T09:41:12.345Z' }],
  ['lower case', eventWith('timestamp', '"2026-03-01t09:41:12z"'), { timestamp: '2026-03-01T09:41:12.000Z' }],
  [
    'a second with a long fraction',
    eventWith('timestamp', `"2026-03-01T09:41:12.${'9'.repeat(1000)}Z"`),
    { timestamp: '2026-03-01T09:41:12.999Z' },
  ],
  ['the year 1', eventWith('timestamp', '"0001-01-01T00:00:00Z"'), { timestamp: '0001-01-01T00:00:00.000Z' }],
  ['an identifier of 20 digits', eventWith('identifiers', '[{"key":"crm","value":"12345678901234567890"}]'), {}],
  ['a huge exponent', eventWith('identifiers', '[{"key":"n","value":"1e999999999"}]'), {}],
  [
    'a key of 128 characters outside the BMP',
    eventWith('identifiers', `[{"key":"${'😀'.repeat(128)}","value":"1"}]`),
    {},
  ],
  ['a key with control characters', eventWith('identifiers', '[{"key":"a\\n","value":"1"}]'), {}],
  [
    'keys of the prototype',
    eventWith('identifiers', '[{"key":"__proto__","value":"1"},{"key":"constructor","value":"1"}]'),
    {},
  ],
])('recordCustomEvent accepts %s', async (_, body, fields) => {
  const response = await post(body)
  expect(response.json()).toMatchObject({ project_id: 'demo', ...fields })
  expect(response.statusCode).toBe(200)
})

test('recordCustomEvent distinguishes 20-digit identifiers by their last digit', async () => {
  const contactOf = async (value: string) =>
    (await post({ ...EVENT, identifiers: [{ key: 'ledger', value }] })).json().contact_id
  const [a, b, again] = [
    await contactOf('12345678901234567890'),
    await contactOf('12345678901234567891'),
    await contactOf('1234567890123456789.0e1'),
  ]
  expect(a).not.toBe(b)
  expect(again).toBe(a)
})

afterEach(async () => {
  // The service still responds.
  expect((await api.call({ path: '/projects/demo/modules' })).statusCode).toBe(200)
})

/** An app that only reads bodies. It is closed when the test ends. */
function bodyReader(limit?: Parameters<typeof acceptJsonOnly>[1], options: FastifyServerOptions = {}) {
  // Also the connections of a test that has failed.
  const app = fastify({ forceCloseConnections: true, ...options })
  onTestFinished(() => app.close())
  acceptJsonOnly(app, limit)
  app.post('/projects/:projectId', async () => 'read')
  const send = async (projectId: string, payload: Readable | string) => {
    const headers = { 'content-type': 'application/json' }
    return (await app.inject({ method: 'POST', url: `/projects/${projectId}`, headers, payload })).statusCode
  }
  return { app, send }
}

/** JSON of this length. */
const jsonOf = (length: number) => JSON.stringify('x'.repeat(length - 2))

test('bodies that are still arriving have a limit in all, and of each project', async () => {
  const { send } = bodyReader({ all: 100, project: 60 })
  const rest = Promise.withResolvers<void>()
  const slow = send(
    'a',
    Readable.from(
      (async function* () {
        yield Buffer.from(jsonOf(50).slice(0, -1))
        await rest.promise
        yield Buffer.from('"')
      })(),
    ),
  )
  // Once its beginning has arrived.
  await expect.poll(() => send('a', jsonOf(20))).toBe(503)
  expect(await send('a', jsonOf(10))).toBe(200)
  expect(await send('b', jsonOf(40))).toBe(200)
  expect(await send('b', jsonOf(60))).toBe(503)
  rest.resolve()
  expect(await slow).toBe(200)
  expect(await send('a', jsonOf(60))).toBe(200)
  // All that was taken is given back, and no more.
  expect(await send('a', Readable.from([jsonOf(61).slice(0, 60), '"'].map(Buffer.from)))).toBe(503)
})

test('a body that is refused before its end takes nothing of the limit any more', async () => {
  const { send } = bodyReader({ all: 100, project: 60 })
  const discarded = Promise.withResolvers<void>()
  const payload = Readable.from(
    (async function* () {
      yield Buffer.alloc(60, ' ')
      yield Buffer.alloc(1, ' ')
      await setImmediate()
      yield Buffer.alloc(10, ' ')
      discarded.resolve()
    })(),
  )
  expect(await send('a', payload)).toBe(503)
  await discarded.promise
  expect(await send('a', jsonOf(60))).toBe(200)
})

test('a body whose client leaves takes nothing of the limit any more', async () => {
  const { app, send } = bodyReader({ all: 100, project: 60 })
  const { client } = await openConnection(app, { allowHalfOpen: true })
  client.write(
    'POST /projects/a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 60\r\n\r\n"1234567890',
  )
  await expect.poll(() => send('a', jsonOf(60))).toBe(503)
  client.destroy()
  await expect.poll(() => send('a', jsonOf(60))).toBe(200)
})

describe('lines', () => {
  /** Requests lines of an app, the first ones of which are sent. @param read what the app does with them */
  async function begin(head: string[], first: string, read: (body: Readable) => Promise<unknown>) {
    const { app } = bodyReader(undefined, { clientErrorHandler })
    const [begun, done] = [Promise.withResolvers<void>(), Promise.withResolvers<unknown>()]
    app.post('/lines', { config: { mediaType: NDJSON } }, async ({ body }) => {
      begun.resolve()
      done.resolve(await read(body as Readable).catch((error: unknown) => error))
      return 'read'
    })
    const { client, connection } = await openConnection(app, { allowHalfOpen: true })
    client.write(
      `${['POST /lines HTTP/1.1', 'Host: x', `Content-Type: ${NDJSON}`, ...head].join('\r\n')}\r\n\r\n${first}`,
    )
    await begun.promise
    return { app, client, connection, done: done.promise }
  }

  test('that are complete only after their client was told that its time is up are refused', async () => {
    const { app, client, connection, done } = await begin(['Content-Length: 5'], '{}\n', text)
    app.server.emit('clientError', Object.assign(new Error(), { code: 'ERR_HTTP_REQUEST_TIMEOUT' }), connection)
    const [told] = await once(client, 'data')
    expect(String(told)).toMatch(/^HTTP\/1.1 400 .*The request was not complete within 30 seconds./s)
    client.write('{}')
    expect(await done).toMatchObject({ message: 'The request was not complete within 30 seconds.' })
  })

  test("that end before their length are refused, which is the client's fault", async () => {
    const { client, done } = await begin(['Content-Length: 5'], '{}\n', text)
    client.destroy()
    expect(await done).toMatchObject({ status: 400, message: 'The body is cut off.' })
  })

  test('that are not read are discarded, and the connection serves the next request', async () => {
    const readOne = async (body: Readable) => {
      for await (const _ of body) return
    }
    const chunk = `10000\r\n${'x'.repeat(0x10000)}\r\n`
    const { client } = await begin(['Transfer-Encoding: chunked'], chunk, readOne)
    client.write(`${chunk.repeat(10)}0\r\n\r\nGET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)
    expect(await text(client)).toMatch(/^HTTP\/1.1 200 .*HTTP\/1.1 404 /s)
  })
})

test.each([
  [1_017, 200],
  [1_018, 400],
])(
  'of %i chunks, all but one of a byte, a body may have a thousand and one for each 64 bytes',
  async (count, status) => {
    const { send } = bodyReader()
    const first = jsonOf(72)
    const chunks = [first, ...Array<string>(count - 1).fill(' ')]
    expect(await send('a', Readable.from(chunks.map((chunk) => Buffer.from(chunk))))).toBe(status)
  },
)

test('a body in hundreds of chunks is one body, and copied twice at the most', async () => {
  const { app } = bodyReader()
  app.post('/whole', async ({ body }) => body)
  const json = JSON.stringify(Array.from({ length: 199 }, (_, i) => 1_000 + i))
  const headers = { 'content-type': 'application/json' }
  const payload = Readable.from([...json].map((character) => Buffer.from(character)))
  const concat = vi.spyOn(Buffer, 'concat')
  onTestFinished(() => concat.mockRestore())
  const response = await app.inject({ method: 'POST', url: '/whole', headers, payload })
  expect(response.body).toBe(json)
  const copied = concat.mock.results.map(({ value }) => value.length).filter((length) => length < json.length)
  expect(copied.length).toBeGreaterThan(0)
  expect(copied.reduce((sum, length) => sum + length)).toBeLessThan(json.length)
})

/** What the service sends until it closes the connection, to a request of recordCustomEvent. */
async function exchange(headers: string[], body = '', version = '1.1'): Promise<string> {
  const { client } = await openConnection(api.app, { allowHalfOpen: true })
  const head = [`POST /projects/demo/events HTTP/${version}`, 'Host: x', 'Connection: close', ...headers]
  client.write(`${head.join('\r\n')}\r\n\r\n${body}`)
  return text(client)
}

const JSON_TYPE = 'Content-Type: application/json'
const keyed = () => `X-Api-Key: ${api.key}`

test('100 Continue is sent after the key and the length are checked, and not before', async () => {
  const expecting = [JSON_TYPE, 'Expect: 100-continue', 'Content-Length: 2']
  expect(await exchange(expecting, '{}')).toMatch(/^HTTP\/1.1 401 /)
  expect(await exchange([keyed(), ...expecting], '{}')).toMatch(/^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 400 /)
  const large = [keyed(), JSON_TYPE, 'Expect: 100-continue', 'Content-Length: 1000000']
  expect(await exchange(large)).toMatch(/^HTTP\/1.1 413 /)
})

test('100 Continue is expected in any case of letters, and not by HTTP/1.0', async () => {
  const expecting = [keyed(), JSON_TYPE, 'Expect: 100-Continue', 'Content-Length: 2']
  expect(await exchange(expecting, '{}')).toMatch(/^HTTP\/1.1 100 Continue\r\n\r\nHTTP\/1.1 400 /)
  expect(await exchange(expecting, '{}', '1.0')).toMatch(/^HTTP\/1.1 400 /)
})

test('an unknown expectation is ignored', async () => {
  const refused = await exchange([keyed(), JSON_TYPE, 'Expect: a-miracle', 'Content-Length: 2'], '{}')
  expect(refused).toMatch(/^HTTP\/1.1 400 .*module_id/s)
})

test('two Content-Types are refused', async () => {
  const body = JSON.stringify(EVENT)
  const sent = [keyed(), JSON_TYPE, 'Content-Type: text/plain', `Content-Length: ${body.length}`]
  expect(await exchange(sent, body)).toMatch(/^HTTP\/1.1 415 /)
  await expectNothingWritten()
})
