import fc from 'fast-check'
import { encodeCursor } from '../../../src/domain/cursor.ts'
import { EVENT } from '../../http/requests.ts'
import { document } from '../../support/contract.ts'

// What a hostile client sends, as fast-check makes it. Every case is JSON, so that finds can be kept in a file.

/** A request as an HTTP client sends it. The body is text, each of whose characters is a byte. */
export interface HttpCase {
  method: string
  target: string
  headers: [string, string][]
  body?: string | undefined
}
/** Bytes of a connection, after which the client sends no more. */
export interface RawCase {
  bytes: string
}
/** The lines of an import, each of whose characters is a byte. */
export interface ImportCase {
  lines: string
}
/** The arguments of a command line. */
export interface CommandCase {
  args: string[]
}

/** Texts that are at a limit, mean something elsewhere, or cannot be stored. */
const TEXTS = [
  '',
  ' ',
  '.',
  '..',
  '%',
  '%00',
  '%2e%2e',
  '\0',
  'a\0b',
  '\ud800',
  '\udc00\ud800',
  '\ufeff',
  '\u0085',
  '\u2028',
]
  .concat([
    '__proto__',
    'constructor',
    'toString',
    'hasOwnProperty',
    'then',
    'null',
    'true',
    '[]',
    '{}',
    '""',
    '"a"',
    '1 2',
  ])
  .concat([
    "' OR 1=1; --",
    '$1',
    '\\',
    '\\N',
    '\\.',
    '{{7*7}}',
    '$' + '{7*7}',
    '<script>',
    '\u202e',
    '\r\n',
    'a\nb',
    '\t',
  ])
  .concat([
    '0',
    '-0',
    '-1',
    '1e309',
    '1e-999999999',
    'NaN',
    'Infinity',
    '0x10',
    '1_000',
    '9007199254740993',
    '2147483648',
  ])
  .concat([
    '-2147483649',
    '99999999999999999999',
    'é',
    'e\u0301',
    '🦉',
    'ﷺ',
    'İ',
    'a'.repeat(128),
    'a'.repeat(129),
    '🦉'.repeat(129),
  ])
  .concat(['9999-12-31T23:59:59.999Z', '0001-01-01T00:00:00Z', '0000-01-01T00:00:00Z', '10000-01-01T00:00:00Z'])
  .concat(['0001-01-01T00:00:00+23:59', '9999-12-31T23:59:59-23:59', '2026-02-30T00:00:00Z', '2016-12-31T23:59:60Z'])
  .concat([
    '2026-03-01T09:30:00+24:00',
    '2026-03-01t09:30:00.1234567890123456789z',
    '-2026-01-01T00:00:00Z',
    'infinity',
    'now',
  ])
const text = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(...TEXTS) },
  { weight: 2, arbitrary: fc.string({ unit: 'binary', maxLength: 20 }) },
  { weight: 1, arbitrary: fc.string({ unit: 'grapheme', maxLength: 20 }) },
  {
    weight: 1,
    arbitrary: fc.tuple(fc.constantFrom('a', '🦉', '"', '\\', '%'), fc.nat(2_000)).map(([c, n]) => c.repeat(n)),
  },
)

/** Percent-encoded, which a lone surrogate cannot be. */
const encoded = (value: string) => encodeURIComponent(value.toWellFormed())
/** What a client can send in a request line: others are for raw cases. */
const visible = (value: string) => value.replace(/[^\x21-\x7e]/g, (character) => encoded(character))
const segment = fc.oneof({ weight: 3, arbitrary: text.map(encoded) }, { weight: 1, arbitrary: text.map(visible) })

const IDS: Record<string, string> = {
  projectId: 'demo',
  moduleId: 'skin-quiz',
  versionNumber: '2',
  entryId: '019ca8bb-b5c0-7000-8000-000000000001',
}
const TEMPLATES = Object.keys(document.paths)
const ROUTES = [
  '/',
  '/docs',
  '/docs/',
  '/docs/static/',
  '/docs/json',
  '/openapi.yaml',
  '/openapi.json',
  '/livez',
  '/metrics',
]
const PARAMETERS = ['limit', 'direction', 'cursor', 'updated_after', 'updated_before', '__proto__', 'constructor']

const path = fc.oneof(
  {
    weight: 6,
    arbitrary: fc
      .tuple(fc.constantFrom(...TEMPLATES), fc.array(fc.option(segment, { freq: 2 }), { minLength: 4, maxLength: 4 }))
      .map(([template, segments]) => {
        let i = 0
        // Of a foreign project there is only a 401.
        const idOf = (name: string) => (name === 'projectId' ? undefined : segments[i++]) ?? IDS[name] ?? ''
        return template.replace(/\{(\w+)\}/g, (_, name) => idOf(name))
      }),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.constantFrom(...TEMPLATES), segment)
      .map(([template, id]) => template.replace('{projectId}', id).replace(/\{(\w+)\}/g, (_, name) => IDS[name] ?? '')),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.constantFrom(...ROUTES), fc.array(segment, { maxLength: 3 }))
      .map(([route, segments]) => [route, ...segments].join('/')),
  },
)

/** Cursors: as the service gave them, damaged, and forged with any sort key. */
const cursorOf = (genuine: string[]) => {
  const key = fc.oneof(
    fc.tuple(fc.oneof(fc.constant('2026-03-01T09:31:10.250Z'), text), text),
    fc.tuple(fc.oneof(fc.integer(), fc.maxSafeInteger(), fc.double(), text)),
    fc.jsonValue({ maxDepth: 2 }),
  )
  return fc.oneof(
    fc.constantFrom(...genuine),
    fc
      .tuple(fc.constantFrom(...genuine), key)
      .map(([cursor, key]) => encodeCursor(Buffer.from(cursor, 'base64url').subarray(1, 13), key as never)),
    fc
      .tuple(fc.constantFrom(...genuine), fc.nat(200), fc.nat(3), fc.base64String({ maxLength: 4 }))
      .map(([cursor, at, removed, added]) => cursor.slice(0, at) + added + cursor.slice(at + removed)),
  )
}

const query = (genuine: string[]) => {
  const cursor = cursorOf(genuine)
  const parameter = fc.oneof(
    fc.tuple(fc.constantFrom(...PARAMETERS), segment),
    fc.tuple(fc.constant('cursor'), cursor),
    fc.constantFrom<[string, string]>(['direction', 'ASC'], ['direction', 'DESC'], ['limit', '1'], ['limit', '1000']),
    fc.tuple(segment, segment),
  )
  return fc
    .array(parameter, { maxLength: 3, size: 'small' })
    .map((all) => (all.length > 0 ? `?${all.map(([name, value]) => `${name}=${value}`).join('&')}` : ''))
}

/** Without control characters and beyond Latin-1, which HTTP clients refuse to send. */
const headerValue = text.map((value) => value.replace(/[^\t\x20-\x7e\x80-\xff]/g, '?').slice(0, 4_000))
const header = fc.oneof(
  fc.tuple(
    fc
      .constantFrom('Accept', 'Accept-Encoding', 'Content-Type', 'Content-Encoding', 'Idempotency-Key', 'If-None-Match')
      .map(String),
    headerValue,
  ),
  fc.tuple(
    fc
      .constantFrom('X-Request-Id', 'Origin', 'Range', 'If-Match', 'If-Modified-Since', 'X-Forwarded-For', 'X-Api-Key')
      .map(String),
    headerValue,
  ),
  fc.constantFrom<[string, string]>(
    ['Accept-Encoding', 'gzip'],
    ['Accept-Encoding', 'gzip;q=0, *'],
    ['If-None-Match', '*'],
    ['If-None-Match', 'W/"x", "'],
    ['Range', 'bytes=-0,9-1'],
    ['Expect', 'a-miracle'],
    ['Content-Type', 'application/json; charset=utf-7'],
    ['Content-Type', 'application/json;'],
    ['Host', '[::1'],
    ['Host', 'a"b<script>'],
    ['Accept', 'text/html'],
    ['X-Forwarded-Host', '"><script>'],
  ),
)

/** JSON in which any value may be hostile; a lone surrogate and NUL are written as escapes. */
const value = fc.oneof(
  text,
  fc.jsonValue({ maxDepth: 3 }),
  fc.constantFrom<unknown>(null, true, -0, 1e300, [], {}, [[]], { a: { b: {} } }),
)
/** Identifiers of the two contacts that there are, and unknown ones. */
const KNOWN = fc.constantFrom<unknown>(
  '"amara.okafor@example.com"',
  '"grace@example.com"',
  '1e999999999',
  '-0',
  ' 1 ',
  'true',
)
const identifier = (values: fc.Arbitrary<unknown>) =>
  fc.record({
    key: fc.oneof(
      { weight: 5, arbitrary: fc.constantFrom('email', 'phone', 'contact_id') },
      { weight: 1, arbitrary: text },
    ),
    value: fc.oneof(
      values,
      text.map((one) => JSON.stringify(one)),
      fc.constantFrom('"\\ud800"', '"\\u0000"', 'null', '[]'),
    ),
  })
/** Fields of a custom event; of those that clients vary, most are valid. */
const overrides = fc
  .tuple(
    fc.record(
      {
        custom_event_name: fc.constantFrom('a', 'b', 'é'.repeat(200)),
        timestamp: fc.constantFrom('0001-01-01T00:00:00Z', '2026-03-01T10:30:00.5+01:00', '2026-01-01t00:00:00z'),
        identifiers: fc.uniqueArray(identifier(KNOWN), { minLength: 1, maxLength: 3, selector: ({ key }) => key }),
        custom_event_props: fc.nat(70).map((n) => `${'{"a":'.repeat(n)}{}${'}'.repeat(n)}`),
      },
      { requiredKeys: [] },
    ),
    fc.option(fc.tuple(fc.constantFrom(...Object.keys(EVENT), 'unknown', '__proto__'), fc.oneof(value, text)), {
      freq: 1,
    }),
    fc.option(fc.array(identifier(value), { maxLength: 12 }), { freq: 1 }),
  )
  .map(([valid, replaced, identifiers]) => ({
    ...valid,
    ...(identifiers && { identifiers }),
    ...(replaced && Object.fromEntries([replaced])),
  }))
/** JSON text as bytes. */
const bytesOf = (json: string) => Buffer.from(json.toWellFormed()).toString('latin1')
const damage = (bytes: fc.Arbitrary<string>, insertable: fc.Arbitrary<string>) =>
  fc
    .tuple(bytes, fc.array(fc.tuple(fc.nat(2_000), fc.nat(4), insertable), { maxLength: 4, size: 'small' }))
    .map(([all, edits]) =>
      edits.reduce((text, [at, removed, added]) => {
        const start = at % (text.length + 1)
        return text.slice(0, start) + added + text.slice(start + removed)
      }, all),
    )
const json = fc.oneof(
  { weight: 6, arbitrary: overrides.map((fields) => bytesOf(JSON.stringify({ ...EVENT, ...fields }))) },
  { weight: 1, arbitrary: fc.jsonValue().map((any) => bytesOf(JSON.stringify(any))) },
  { weight: 1, arbitrary: fc.nat(300_000).map((depth) => '['.repeat(depth)) },
  {
    weight: 1,
    arbitrary: fc.constantFrom('{"module_id":1,"module_id":2}', '{"__proto__":{"a":1}}', '\xef\xbb\xbf{}', '\xff', ''),
  },
)
const fragment = fc.constantFrom(
  '"',
  '\\',
  '\\u',
  '\\ud800',
  ',',
  '[',
  ']',
  '{',
  '}',
  ':',
  '\xff',
  '\xc0\x80',
  '\xed\xa0\x80',
  '1e',
  '-',
  '\0',
  '\n',
)
const body = fc.oneof({ weight: 3, arbitrary: json }, { weight: 1, arbitrary: damage(json, fragment) })

const METHODS = ['POST', 'PUT', 'OPTIONS', 'DELETE', 'PATCH', 'TRACE', 'PROPFIND', 'QUERY']

/** Requests; half of those with a body are recordings. @param genuine cursors of the service */
export const httpCase = (genuine: string[]): fc.Arbitrary<HttpCase> =>
  fc.oneof(
    {
      weight: 5,
      arbitrary: fc.record({
        method: fc.oneof(
          { weight: 5, arbitrary: fc.constantFrom('GET', 'HEAD') },
          { weight: 1, arbitrary: fc.constantFrom(...METHODS) },
        ),
        target: fc.tuple(path, query(genuine)).map((parts) => parts.join('').slice(0, 12_000)),
        headers: fc.array(header, { maxLength: 3, size: 'small' }),
        body: fc.option(body, { nil: undefined, freq: 4 }),
      }),
    },
    {
      weight: 3,
      arbitrary: fc.record({
        method: fc.constant('POST'),
        target: fc.constant('/projects/demo/events'),
        headers: fc.array(fc.tuple(fc.constant('Idempotency-Key'), fc.oneof(fc.constantFrom('a', 'b'), headerValue)), {
          maxLength: 1,
        }),
        body,
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        method: fc.constant('GET'),
        target: fc
          .tuple(
            fc.constantFrom('modules/skin-quiz/versions', `entries/${IDS.entryId}/events`, 'entries-page-views'),
            cursorOf(genuine),
            fc.constantFrom('', '&direction=ASC', '&limit=1000'),
          )
          .map(([list, cursor, rest]) => `/projects/demo/${list}?cursor=${visible(cursor)}${rest}`),
        headers: fc.constant<[string, string][]>([]),
      }),
    },
  )

/** Damaged requests, one or several on a connection. */
export const rawCase = (key: string): fc.Arbitrary<RawCase> => {
  const body = JSON.stringify(EVENT)
  const lines = (...all: string[]) => `${[...all, 'Host: x', `X-Api-Key: ${key}`].join('\r\n')}\r\n`
  const whole = fc.constantFrom(
    `${lines('GET /projects/demo/modules HTTP/1.1')}\r\n`,
    `${lines('GET /docs HTTP/1.1', 'Range: bytes=0-1')}\r\n`,
    `${lines('POST /projects/demo/events HTTP/1.1', 'Content-Type: application/json', `Content-Length: ${body.length}`)}\r\n${body}`,
    `${lines('POST /projects/demo/events HTTP/1.1', 'Content-Type: application/json', 'Transfer-Encoding: chunked')}\r\n` +
      `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
    `${lines('GET /livez HTTP/1.1', 'Expect: 100-continue', 'Connection: close')}\r\n`,
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
  )
  const inserted = fc.oneof(
    fc.constantFrom(
      '\r\n',
      '\n',
      '\r',
      ' ',
      '\0',
      ':',
      '\t',
      '\x7f',
      '\xff',
      'Content-Length: 1\r\n',
      'Transfer-Encoding: chunked\r\n',
    ),
    fc.constantFrom(
      'Content-Length: -1\r\n',
      'Transfer-Encoding: gzip, chunked\r\n',
      'Upgrade: h2c\r\nConnection: Upgrade\r\n',
    ),
    fc.constantFrom(
      'Trailer: X-Api-Key\r\n',
      '0\r\n\r\n',
      'ffffffffffffffff\r\n',
      'HTTP/1.1',
      ' HTTP/0.9',
      'Host: y\r\n',
      ' folded\r\n',
    ),
    fc.string({ unit: fc.nat(255).map((code) => String.fromCharCode(code)), maxLength: 5 }),
  )
  return damage(
    fc.array(whole, { minLength: 1, maxLength: 3 }).map((all) => all.join('')),
    inserted,
  ).map((bytes) => ({ bytes }))
}

const of = { project_id: 'imported' }
const instant = '2026-02-01T00:00:00.000Z'
const RECORDS: object[] = [
  { type: 'project', ...of, name: 'Imported' },
  { type: 'group', ...of, group_id: 'g', name: 'G' },
  { type: 'module', ...of, module_id: 'm', group_id: 'g', title: 'M', created_at: instant },
  {
    type: 'module_version',
    ...of,
    module_id: 'm',
    version_number: 1,
    saved_at: instant,
    published_at: instant,
    json_string: '{}',
  },
  { type: 'contact', ...of, contact_id: 'c', created_at: instant, identifiers: [{ key: 'email', value: '"a"' }] },
  {
    type: 'entry',
    ...of,
    entry_id: 'e',
    module_id: 'm',
    contact_id: 'c',
    created_at: instant,
    updated_at: instant,
    entry_data: '{}',
  },
  {
    type: 'event',
    ...of,
    entry_id: 'e',
    event_id: 'v',
    timestamp: instant,
    event_type: 'flowpage.viewed',
    view_type: 'flowpage',
    page_id: 'p',
    page_key: 'k',
    page_index: 0,
    total_pages: 2,
  },
  {
    type: 'event',
    ...of,
    entry_id: 'e',
    event_id: 'w',
    timestamp: instant,
    event_type: 'custom_event:triggered',
    custom_event_name: 'n',
    custom_event_props: '{}',
  },
]
const FIELDS = [...new Set(RECORDS.flatMap(Object.keys))]

/** Import files with some fields replaced, some lines damaged, left out or repeated. */
export const importCase: fc.Arbitrary<ImportCase> = fc
  .tuple(
    fc.array(
      fc.tuple(
        fc.nat(RECORDS.length - 1),
        fc.constantFrom(...FIELDS),
        fc.oneof(value, fc.array(identifier(value), { maxLength: 3 })),
      ),
      {
        maxLength: 3,
        size: 'small',
      },
    ),
    fc.array(fc.nat(RECORDS.length - 1), { maxLength: 2 }),
    fc.constantFrom('\n', '\n', '\r\n', '\n\n'),
  )
  .chain(([replaced, moved, end]) => {
    const records = RECORDS.map((record, i) => ({
      ...record,
      ...Object.fromEntries(replaced.filter(([at]) => at === i).map(([, field, any]) => [field, any])),
    }))
    const all = [...records, ...moved.map((i) => records[i])].map((record) => JSON.stringify(record)).join(end)
    const whole = fc.constant(bytesOf(all))
    return fc.oneof({ weight: 3, arbitrary: whole }, { weight: 1, arbitrary: damage(whole, fragment) })
  })
  .map((lines) => ({ lines }))

const COMMANDS = [
  ['projects', 'create'],
  ['projects', 'list'],
  ['keys', 'create'],
  ['keys', 'list'],
  ['keys', 'revoke'],
].concat([['keys', 'rotate'], ['import'], ['export'], ['migrate'], ['help'], ['projects'], ['keys'], []])
const OPTIONS = [
  '--project',
  '--name',
  '--scope',
  '--expires',
  '--overlap',
  '--json',
  '--status',
  '--help',
  '--version',
  '--',
]
/** What the operating system can hand to a process. */
const argument = text.map((one) => one.toWellFormed().replaceAll('\0', '').slice(0, 1_000))

/** Command lines of all commands but `serve` and `demo`. */
export const commandCase: fc.Arbitrary<CommandCase> = fc
  .tuple(
    fc.constantFrom(...COMMANDS),
    fc.array(
      fc.oneof(
        argument,
        fc.constantFrom(...OPTIONS, 'demo', 'read', '90d', '/', '/dev/null'),
        fc.tuple(fc.constantFrom(...OPTIONS), argument).map((pair) => pair.join('=')),
      ),
      { maxLength: 5 },
    ),
  )
  .map(([command, rest]) => ({ args: [...command, ...rest] }))
