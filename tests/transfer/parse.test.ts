import { describe, expect, test } from 'vitest'
import { LineSplitter, MAX_LINE_bytes } from '../../src/transfer/lines.ts'
import { limitsAt, parseLine } from '../../src/transfer/records.ts'

const NOW = new Date('2026-03-01T09:30:00.000Z')
const parse = (record: object | string) =>
  parseLine(typeof record === 'string' ? record : JSON.stringify(record), limitsAt(NOW))

const PROJECT = { type: 'project', project_id: 'acme' }
const VERSION = {
  type: 'module_version',
  project_id: 'acme',
  module_id: 'quiz',
  version_number: 1,
  saved_at: '2026-01-01T00:00:00Z',
  json_string: '{}',
}
const CONTACT = { type: 'contact', project_id: 'acme', contact_id: 'c1', identifiers: [] }
const EVENT = {
  type: 'event',
  project_id: 'acme',
  entry_id: 'e1',
  event_id: 'v1',
  timestamp: '2026-02-01T00:00:00Z',
}
const VIEW = {
  ...EVENT,
  event_type: 'flowpage.viewed',
  view_type: 'flowpage',
  page_id: 'p1',
  page_key: 'intro',
  page_index: 0,
}
/** Longer than any text of a page. */
const LONG = '🦉'.repeat(1_025)
const FURTHEST = { max_page_id: 'p1', max_page_key: 'k', max_page_index: 1 }
const CUSTOM = { ...EVENT, event_type: 'custom_event:triggered', custom_event_name: 'clicked' }

const without = (record: object, field: string) =>
  Object.fromEntries(Object.entries(record).filter(([name]) => name !== field))

describe('parseLine returns the record', () => {
  test('as given, with its timestamps in UTC and truncated to milliseconds', () => {
    expect(parse({ ...VERSION, saved_at: '2026-01-01T01:00:00.1239+01:00' })).toEqual({
      ok: true,
      record: { ...VERSION, saved_at: '2026-01-01T00:00:00.123Z' },
    })
  })

  test('with the canonical value of each identifier', () => {
    expect(parse({ ...CONTACT, identifiers: [{ key: 'email', value: '"\\u0061"' }] })).toMatchObject({
      ok: true,
      record: { identifiers: [{ key: 'email', value: '"\\u0061"', canonical: 'sa' }] },
    })
  })

  test('with {} for the properties that a custom event leaves out', () => {
    expect(parse(CUSTOM)).toMatchObject({ record: { custom_event_props: '{}' } })
  })

  test('with null fields of an event distinguished from fields left out', () => {
    const unknown = { max_page_id: null, max_page_key: null, max_page_index: null, total_pages: null }
    expect(parse({ ...CUSTOM, ...unknown })).toMatchObject({ record: unknown })
    expect(parse(CUSTOM)).not.toHaveProperty('record.total_pages')
  })

  test('with an event_id that depends on the fields given and not on their order or spelling', () => {
    const idOf = (record: object) => (parse(record) as { record: { event_id: string } }).record.event_id
    const view = without(VIEW, 'event_id')
    const reordered = Object.fromEntries(Object.entries(view).reverse())
    expect(idOf(view)).toMatch(/^[\w-]{43}$/)
    expect(idOf(reordered)).toBe(idOf(view))
    expect(idOf({ ...view, timestamp: '2026-02-01T01:00:00.000+01:00' })).toBe(idOf(view))
    expect(idOf({ ...view, total_pages: null })).not.toBe(idOf(view))
    expect(idOf({ ...view, page_index: 1 })).not.toBe(idOf(view))
  })

  test('with any optional field on an event of an unknown type', () => {
    const open = { ...EVENT, event_type: 'survey.answered' }
    expect(parse(open)).toEqual({ ok: true, record: { ...open, timestamp: '2026-02-01T00:00:00.000Z' } })
    expect(parse({ ...open, page_index: 3, custom_event_name: 'x', custom_event_props: '{"a":1}' })).toMatchObject({
      ok: true,
    })
  })

  test.for([
    ['a carriage return before the line break', `${JSON.stringify(PROJECT)}\r`],
    ['a name of any storable text', { ...PROJECT, name: '\t"\\\u2028🦉' }],
    ['an id of 128 astral characters', { ...PROJECT, project_id: '🦉'.repeat(128) }],
    ['the first and the last year', { ...VERSION, saved_at: '0001-01-01T00:00:00Z' }],
    ['publication at this very moment', { ...VERSION, published_at: NOW.toISOString() }],
    ['a definition that holds any JSON', { ...VERSION, json_string: ' "\\ud800\\u0000" ' }],
    ['an event 24 hours ahead', { ...VIEW, timestamp: '2026-03-02T09:30:00.000Z' }],
    ['no pages', { ...VIEW, page_index: 0, total_pages: 0 }],
    ['page texts of 1,024 astral characters', { ...VIEW, page_id: LONG.slice(2), page_key: LONG.slice(2) }],
    ['the greatest integers', { ...VIEW, page_index: 2_147_483_647, total_pages: 2_147_483_647 }],
    ['properties of 32 KiB', { ...CUSTOM, custom_event_props: `{"a":"${'x'.repeat(32 * 1024 - 8)}"}` }],
    ['properties 64 deep', { ...CUSTOM, custom_event_props: `{"a":${'['.repeat(63)}${']'.repeat(63)}}` }],
    ['several values of one key', { ...CONTACT, identifiers: ['1', '2'].map((value) => ({ key: 'phone', value })) }],
  ] as const)('of %s', ([, line]) => {
    expect(parse(line)).toMatchObject({ ok: true })
  })
})

describe('parseLine, for records of one project,', () => {
  const parseIn = (record: object, limits: object = {}) =>
    parseLine(JSON.stringify(record), { ...limitsAt(NOW), project_id: 'acme', ...limits })

  test('fills in the project, or accepts it', () => {
    expect(parseIn(without(CONTACT, 'project_id'))).toEqual(parse(CONTACT))
    expect(parseIn(CONTACT)).toEqual(parse(CONTACT))
  })

  test.for([
    ['another project', { ...CONTACT, project_id: 'other' }, '/project_id', 'must be the project in the path'],
    ['the project itself', PROJECT, '/type', 'must be one of group, module, module_version, contact, entry, event'],
  ] as const)('rejects %s', ([, record, field, message]) => {
    expect(parseIn(record)).toEqual({ ok: false, issue: { field, message: expect.stringContaining(message) } })
  })

  test('counts fields and items up to its limit', () => {
    const values = Object.keys(CONTACT).length + 3
    const contact = { ...CONTACT, identifiers: [{ key: 'phone', value: '1' }] }
    expect(parseIn(contact, { maxValues: values })).toMatchObject({ ok: true })
    expect(parseIn(contact, { maxValues: values - 1 })).toEqual({
      ok: false,
      issue: { field: '', message: `must have at most ${values - 1} fields and items` },
    })
  })
})

describe('parseLine rejects', () => {
  test.for([
    ['an empty line', '', '', 'empty lines'],
    ['a blank line', ' \r', '', 'empty lines'],
    ['invalid JSON', '{"type":', '', 'must be one JSON object'],
    ['a byte order mark', `\ufeff${JSON.stringify(PROJECT)}`, '', 'byte order mark'],
    ['two records on a line', `${JSON.stringify(PROJECT)}{}`, '', 'must be one JSON object'],
    ['an array', '[]', '', 'must be one JSON object'],
    ['null', 'null', '', 'must be one JSON object'],
    ['a record without type', without(PROJECT, 'type'), '/type', 'must be one of project, group'],
    ['an unknown type', { ...PROJECT, type: 'user' }, '/type', 'must be one of project, group'],
    ['a property of every object as type', { ...PROJECT, type: 'constructor' }, '/type', 'must be one of'],
    ['a type that is not a string', { ...PROJECT, type: 1 }, '/type', 'must be one of'],
    ['an unknown field', { ...PROJECT, title: 'x' }, '/title', 'the fields are type, project_id, name'],
    [
      'an unknown field of 100 characters',
      { ...PROJECT, ['x'.repeat(100)]: 1 },
      `/${'x'.repeat(100)}`,
      'is not a known',
    ],
    ['a longer one', { ...PROJECT, ['x'.repeat(101)]: 1 }, `/${'x'.repeat(100)}…`, 'is not a known field'],
    [
      'an unknown field that needs escaping',
      '{"type":"project","project_id":"a","a/~\\u0000\\ud800":1}',
      '/a~1~0\\u0000\\ud800',
      'not a known field',
    ],
    ['__proto__', '{"type":"project","project_id":"a","__proto__":{}}', '/__proto__', 'not a known field'],
    ['a missing field', { type: 'project' }, '/project_id', 'is required'],
    ['null for a name', { ...PROJECT, name: null }, '/name', 'must be a string'],
    ['a number for a name', { ...PROJECT, name: 7 }, '/name', 'must be a string'],
    ['NUL in a name', { ...PROJECT, name: 'a\0' }, '/name', 'NUL'],
    ['a lone surrogate in a name', { ...PROJECT, name: 'a\ud800' }, '/name', 'lone surrogate'],
    ['an empty id', { ...PROJECT, project_id: '' }, '/project_id', '1 to 128'],
    ['an id of 129 characters', { ...PROJECT, project_id: 'x'.repeat(129) }, '/project_id', '1 to 128'],
    ['an id of two dots', { ...PROJECT, project_id: '..' }, '/project_id', '".."'],
    ['a control character in an id', { ...PROJECT, project_id: 'a\n' }, '/project_id', 'control'],
    ['a version 0', { ...VERSION, version_number: 0 }, '/version_number', 'from 1 to 2147483647'],
    ['a version in a string', { ...VERSION, version_number: '1' }, '/version_number', 'must be an integer'],
    ['half a version', { ...VERSION, version_number: 1.5 }, '/version_number', 'must be an integer'],
    ['a version beyond 32 bits', { ...VERSION, version_number: 2_147_483_648 }, '/version_number', 'to 2147483647'],
    ['a definition that is not JSON', { ...VERSION, json_string: '{' }, '/json_string', 'must be JSON text'],
    ['a definition given as JSON', { ...VERSION, json_string: {} }, '/json_string', 'must be a string'],
    ['a day without time', { ...VERSION, saved_at: '2026-01-01' }, '/saved_at', 'for example 2026-01-01T00:00:00Z'],
    ['30 February', { ...VERSION, saved_at: '2026-02-30T00:00:00Z' }, '/saved_at', '2026-02-28'],
    ['a future publication', { ...VERSION, published_at: '2026-03-01T09:30:00.001Z' }, '/published_at', 'future'],
    ['an event too far ahead', { ...VIEW, timestamp: '2026-03-02T09:30:00.001Z' }, '/timestamp', '24 hours'],
    ['identifiers that are not an array', { ...CONTACT, identifiers: {} }, '/identifiers', 'must be an array'],
    ['an identifier that is not an object', { ...CONTACT, identifiers: ['a'] }, '/identifiers/0', 'must be an object'],
    ['an identifier without key', { ...CONTACT, identifiers: [{ value: '1' }] }, '/identifiers/0/key', 'a string'],
    [
      'an identifier with an unknown field',
      { ...CONTACT, identifiers: [{ key: 'a', value: '1', x: 1 }] },
      '/identifiers/0/x',
      'key, value',
    ],
    ['an unquoted value', { ...CONTACT, identifiers: [{ key: 'a', value: 'b' }] }, '/identifiers/0/value', '"b"'],
    ['an empty key', { ...CONTACT, identifiers: [{ key: '', value: '1' }] }, '/identifiers/0/key', '1 to 128'],
    ['a view without view_type', without(VIEW, 'view_type'), '/view_type', 'is required on'],
    ['a view without page_id', without(VIEW, 'page_id'), '/page_id', 'is required on'],
    ['a view without page_key', without(VIEW, 'page_key'), '/page_key', 'is required on'],
    ['a view without page_index', without(VIEW, 'page_index'), '/page_index', 'is required on'],
    ['a view with an event name', { ...VIEW, custom_event_name: 'x' }, '/custom_event_name', 'does not apply'],
    ['a view with properties', { ...VIEW, custom_event_props: '{}' }, '/custom_event_props', 'does not apply'],
    ['a custom event without name', without(CUSTOM, 'custom_event_name'), '/custom_event_name', 'is required on'],
    ['a custom event with a page', { ...CUSTOM, page_id: 'p1' }, '/page_id', 'does not apply'],
    ['a custom event with a view type', { ...CUSTOM, view_type: 'flowpage' }, '/view_type', 'does not apply'],
    ['a custom event with a page key', { ...CUSTOM, page_key: 'k1' }, '/page_key', 'does not apply'],
    ['a custom event with a page index', { ...CUSTOM, page_index: 0 }, '/page_index', 'does not apply'],
    ['an empty event name', { ...CUSTOM, custom_event_name: '' }, '/custom_event_name', '1 to 200'],
    ['a long event name', { ...CUSTOM, custom_event_name: 'x'.repeat(201) }, '/custom_event_name', '1 to 200'],
    ['a control character in an event name', { ...CUSTOM, custom_event_name: 'a\tb' }, '/custom_event_name', 'control'],
    ['properties in an array', { ...CUSTOM, custom_event_props: '[]' }, '/custom_event_props', 'a JSON object'],
    [
      'properties that are not JSON',
      { ...CUSTOM, custom_event_props: '{a:1}' },
      '/custom_event_props',
      'text of a JSON object',
    ],
    [
      'properties over 32 KiB',
      { ...CUSTOM, custom_event_props: `{"a":"${'é'.repeat(16 * 1024)}"}` },
      '/custom_event_props',
      '32768 bytes',
    ],
    [
      'properties 65 deep',
      { ...CUSTOM, custom_event_props: `{"a":${'['.repeat(64)}${']'.repeat(64)}}` },
      '/custom_event_props',
      '64 levels deep',
    ],
    ['part of a furthest page', { ...VIEW, max_page_id: 'p1' }, '/max_page_id', 'all three'],
    ['a long page_id', { ...VIEW, page_id: LONG }, '/page_id', 'at most 1024'],
    ['a long page_key', { ...VIEW, page_key: LONG }, '/page_key', 'at most 1024'],
    ['a long max_page_id', { ...VIEW, ...FURTHEST, max_page_id: LONG }, '/max_page_id', 'at most 1024'],
    ['a long max_page_key', { ...VIEW, ...FURTHEST, max_page_key: LONG }, '/max_page_key', 'at most 1024'],
    [
      'a furthest page half null',
      { ...VIEW, max_page_id: 'p1', max_page_key: 'k', max_page_index: null },
      '/max_page_id',
      'all three',
    ],
    ['a negative page', { ...VIEW, page_index: -1 }, '/page_index', 'from 0'],
    ['a negative number of pages', { ...VIEW, total_pages: -1 }, '/total_pages', 'from 0'],
  ] as const)('%s', ([, line, field, message]) => {
    expect(parse(line)).toEqual({ ok: false, issue: { field, message: expect.stringContaining(message) } })
  })
})

test('says where the JSON of a line ends, without its line, which the issue has', () => {
  expect(parse('{"type":1 x}')).toEqual({
    ok: false,
    issue: { field: '', message: expect.stringMatching(/^must be one JSON object: .* in JSON at position 10$/) },
  })
})

describe('LineSplitter', () => {
  const split = (...chunks: (Buffer | string)[]) => {
    const splitter = new LineSplitter()
    const lines = chunks.flatMap((chunk) => [...splitter.push(Buffer.from(chunk))])
    return [...lines, ...splitter.end()]
  }

  test('joins lines of a thousand parts', () => {
    const numbers = Array.from({ length: 300 }, (_, i) => i)
    const text = `${numbers.join('é')}\n${numbers.join('🦉')}\nb`
    const bytes = [...Buffer.from(text)].map((byte) => Buffer.of(byte))
    expect(split(...bytes).join('\n')).toBe(text)
  })

  test('joins lines that chunks split, even inside characters', () => {
    const bytes = Buffer.from('añb\n🦉\nc')
    for (let at = 0; at <= bytes.length; at++) {
      expect(split(bytes.subarray(0, at), bytes.subarray(at))).toEqual(['añb', '🦉', 'c'])
    }
  })

  test('returns empty lines, but none after the last line break', () => {
    expect(split('\na\n\n')).toEqual(['', 'a', ''])
    expect(split('')).toEqual([])
  })

  test('reports the line that is not UTF-8', () => {
    expect(() => split(Buffer.from('a\n\xff\n', 'latin1'))).toThrow('line 2: must be UTF-8')
  })

  test('accepts lines of 16 MiB, also with what an export adds, and reports a longer one before its end', () => {
    const longest = Buffer.alloc(MAX_LINE_bytes, 'x')
    expect(split(longest, '\n')[0]).toHaveLength(MAX_LINE_bytes)
    expect(() => split('a\n', longest, 'x')).toThrow('line 2: must be at most 16842752 bytes long')
  })
})
