import { readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { compare, type Redocly, reportedChanges } from '../../openapi/diff/compare.ts'
import type { Change } from '../../openapi/diff/judge.ts'
import { ratingOf } from '../../openapi/diff/version.ts'
import { startRedocly } from './redocly.ts'

const text = readFileSync(new URL('../../generated/openapi.json', import.meta.url), 'utf8')
type Node = Record<string, unknown>
const document = JSON.parse(text) as { paths: Record<string, Record<string, { operationId: string }>> }

/** The document with another value at a pointer: `undefined` removes, a function maps the present value. */
function edited(pointer: string, value: unknown): string {
  const root = { '#': JSON.parse(text) as Node }
  const names = pointer.split('/').map((key) => key.replaceAll('~1', '/'))
  const parent = names.slice(0, -1).reduce<Node>((node, name) => node[name] as Node, root)
  const name = names.at(-1) ?? ''
  if (value === undefined) {
    expect(parent).toHaveProperty([name])
    if (Array.isArray(parent)) parent.splice(Number(name), 1)
    else delete parent[name]
  } else {
    parent[name] = typeof value === 'function' ? value(parent[name]) : value
  }
  return JSON.stringify(root['#'])
}

let directory: string
let redocly: Redocly
let stop: () => Promise<void>
beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-diff-'))
  ;({ redocly, stop } = startRedocly())
})
afterAll(async () => {
  await stop()
  await rm(directory, { recursive: true })
})

let files = 0
async function changesOf(pointer: string, value: unknown, base = text): Promise<Change[]> {
  const contents = [base, edited(pointer, value)] as const
  const [older, newer] = contents.map((content) => JSON.parse(content))
  const [olderFile, newerFile] = contents.map(() => path.join(directory, `${++files}.json`)) as [string, string]
  await writeFile(olderFile, contents[0])
  await writeFile(newerFile, contents[1])
  return compare(older, newer, await reportedChanges(olderFile, newerFile, redocly))
}

const GONE = undefined
const STRING = { type: 'string' }
const plus =
  (...items: unknown[]) =>
  (list: unknown[]) => [...list, ...items]
const less = (item: unknown) => (list: unknown[]) => list.filter((member) => member !== item)
const reversed = (list: unknown[]) => list.toReversed()
const renamed = (from: string, to: string) => (node: Node) => {
  expect(node).toHaveProperty([from])
  return Object.fromEntries(Object.entries(node).map(([key, value]) => [key === from ? to : key, value]))
}
/** The whole document with every occurrence of a name replaced. */
const everywhere = (from: string, to: string) => (root: Node) => {
  expect(text).toContain(from)
  return JSON.parse(JSON.stringify(root).replaceAll(from, to))
}

/** The pointer to an operation. */
function of(operationId: string): string {
  const pointers = Object.entries(document.paths).flatMap(([route, item]) =>
    Object.entries(item)
      .filter(([, operation]) => operation.operationId === operationId)
      .map(([method]) => `#/paths/${route.replaceAll('/', '~1')}/${method}`),
  )
  expect(pointers).toHaveLength(1)
  return `${pointers[0]}`
}
const [entry, events, record, modules] = ['getEntry', 'listEntryEvents', 'recordCustomEvent', 'listModules'].map(
  of,
) as [string, string, string, string]
const BODY = 'content/application~1json'
const schema = (name: string) => `#/components/schemas/${name.replace('.', '/properties/')}`
const parameter = (name: string) => `#/components/parameters/${name}`
const header = (name: string) => `#/components/headers/${name}`
const examples = (name: string) => `#/components/responses/${name}/${BODY}/examples`
const optional = { name: 'expand', in: 'query', schema: STRING }
const required = { ...optional, required: true }

/** @property where the pointer of the reported break, if not that of the edit */
type Break = [name: string, pointer: string, value: unknown, what: RegExp, where?: string]

const BREAKS: Break[] = [
  // Operations
  ['an operation removed', record, GONE, /was removed/],
  [
    'a path renamed',
    '#/paths',
    renamed('/projects/{projectId}/events', '/events'),
    /was removed/,
    record.replace('/post', ''),
  ],
  ['an operationId', `${entry}/operationId`, 'readEntry', /'getEntry' to 'readEntry'/],
  ['a tag', `${entry}/tags`, ['Runs'], /generated clients name their modules/],
  ['another scope', `${entry}/x-required-scope`, 'events:write', /a key that had access/],
  ['another server', '#/servers/0/url', '/v2', /`http:\/\/127.0.0.1:3000` became `\/v2`/],
  ['another OpenAPI', '#/openapi', '3.0.4', /tools may not read it/],
  ['another title', '#/info/title', 'Flow API', /generated clients name their modules/],

  // Keys
  ['another header of the key', '#/components/securitySchemes/ApiKey/name', 'X-Key', /'X-Api-Key' to 'X-Key'/],
  ['keys no longer required', '#/security', [], /security requirement removed/, '#/security/0'],
  ['keys no longer required for an operation', `${entry}/security`, [], /new security requirement list/],
  ['a second credential', '#/security/0/Other', [], /now requires `Other`/],

  // Parameters
  ['a parameter removed', `${events}/parameters/2`, GONE, /`limit` query parameter was removed/],
  ['a parameter renamed', `${parameter('Limit')}/name`, 'size', /renamed to `size`/],
  [
    'a path parameter renamed',
    '#',
    everywhere('{entryId}', '{runId}'),
    /name their arguments/,
    entry.replace('entryId', 'runId').replace('/get', ''),
  ],
  ['a parameter in another place', `${parameter('Limit')}/in`, 'header', /is now a header parameter/],
  ['a parameter now required', `${parameter('Limit')}/required`, true, /became required/],
  [
    'a new required parameter',
    `${entry}/parameters`,
    plus(required),
    /Required `expand` .* was added/,
    `${entry}/parameters/3`,
  ],
  [
    'a new parameter before others',
    `${entry}/parameters`,
    (list: unknown[]) => [optional, ...list],
    /take them by position/,
  ],
  ['parameters in another order', `${events}/parameters`, reversed, /take them by position/],
  ['a parameter in another style', `${parameter('Limit')}/explode`, false, /`explode` of `limit`/],
  [
    "a parameter component's name",
    '#',
    everywhere('IfNoneMatch"', 'Known"'),
    /name a type after it/,
    parameter('IfNoneMatch'),
  ],

  // Defaults
  ['a changed default', `${parameter('Limit')}/schema/default`, 20, /`10` to `20`: .* gets another response/],
  ['a changed default of a shared type', `${schema('SortDirection')}/default`, 'ASC', /gets another response/],
  [
    'a default removed',
    `${parameter('Limit')}/schema/default`,
    GONE,
    /gets another response/,
    `${parameter('Limit')}/schema`,
  ],
  ['a default set', `${schema('ContactIdentifier.key')}/default`, 'email', /gets another response/],

  // Types' names
  [
    'a renamed schema',
    '#',
    everywhere('FlowEntry"', 'Run"'),
    /type FlowEntry is now Run/,
    `${entry}/responses/200/${BODY}/schema`,
  ],
  [
    'a renamed schema, where it was',
    '#',
    everywhere('FlowEntry"', 'Run"'),
    /name a type after it/,
    schema('FlowEntry'),
  ],
  [
    'a schema inlined',
    `${schema('EntryPageViews.page_views')}/items`,
    { ...STRING },
    /type PageView is now \(unnamed\)/,
  ],
  [
    'a schema given a name',
    `${schema('ErrorInfo.message')}`,
    { $ref: schema('ResourceId') },
    /type \(unnamed\) is now ResourceId/,
  ],
  ['a schema with a title', `${schema('FlowEntry')}/title`, 'Run', /make another type of it/],

  // Requests
  ['a value no longer accepted', `${schema('SortDirection')}/enum`, less('ASC'), /lost values: 'ASC'/],
  ['known values only', `${schema('CustomEventInput.custom_event_name')}/enum`, ['a'], /was set to 'a'/],
  ['a lower maximum', `${parameter('Limit')}/schema/maximum`, 100, /'<= 1000' to '<= 100'/],
  ['a higher minimum', `${parameter('Limit')}/schema/minimum`, 2, /'>= 1' to '>= 2'/],
  ['a shorter text', `${schema('CustomEventInput.custom_event_name')}/maxLength`, 100, /'200' to '100'/],
  ['a longer text', `${schema('CustomEventInput.custom_event_name')}/minLength`, 2, /'1' to '2'/],
  ['a pattern', `${schema('ContactIdentifier.key')}/pattern`, '^[a-z]+$', /`pattern` of `key`/],
  ['fewer items', `${schema('CustomEventInput.identifiers')}/maxItems`, 5, /'10' to '5'/],
  ['unique items only', `${schema('CustomEventInput.identifiers')}/uniqueItems`, true, /`uniqueItems`/],
  ['multiples only', `${parameter('Limit')}/schema/multipleOf`, 10, /`multipleOf`/],
  ['another format of a field sent', `${schema('CustomEventInput.timestamp')}/format`, 'date', /'date-time' to 'date'/],
  [
    'no format of a field sent',
    `${schema('CustomEventInput.timestamp')}/format`,
    GONE,
    /make another type of it/,
    schema('CustomEventInput.timestamp'),
  ],
  [
    'another type of a field sent',
    `${schema('CustomEventInput.custom_event_props')}/type`,
    'object',
    /narrowed from 'string'/,
  ],
  ['a field no longer accepted', schema('CustomEventInput.custom_event_props'), GONE, /was removed/],
  [
    'a field now required',
    `${schema('CustomEventInput')}/required`,
    plus('custom_event_props'),
    /became required: `custom_event_props`/,
  ],
  [
    'a new required field',
    schema('CustomEventInput'),
    withRequired('source'),
    /became required: `source`/,
    `${schema('CustomEventInput')}/required`,
  ],
  [
    'a field that must not be sent',
    `${schema('CustomEventInput.timestamp')}/readOnly`,
    true,
    /not known to be harmless/,
  ],
  ['a further condition', `${schema('CustomEventInput.custom_event_name')}/not`, { enum: ['a'] }, /`not` .* was added/],
  [
    'another media type of a request',
    `${record}/requestBody/content`,
    renamed('application/json', 'text/json'),
    /`application\/json` was removed/,
    `${record}/requestBody/${BODY}`,
  ],
  [
    'a body where there was none',
    `${entry}/requestBody`,
    { content: { 'application/json': { schema: STRING } } },
    /new request body/,
  ],

  // Responses
  ['a field removed', schema('EntryEvent.page_id'), GONE, /Property `page_id` of `EntryEvent` was removed/],
  [
    'a field renamed',
    `${schema('FlowEntry')}/properties`,
    renamed('entry_data', 'data'),
    /was removed/,
    schema('FlowEntry.entry_data'),
  ],
  [
    'a field that may be missing',
    `${schema('FlowEntry')}/required`,
    less('entry_data'),
    /no longer required: `entry_data`/,
  ],
  ['a field that may be null', `${schema('FlowEntry.entry_data')}/nullable`, true, /to 'string \| null'/],
  ['another type of a field', `${schema('FlowEntry.entry_data')}/type`, 'object', /widened from 'string'/],
  ['a number for an integer', `${schema('ModuleVersion.version_number')}/type`, 'number', /widened from 'integer'/],
  ['a longer integer', `${schema('ModuleVersion.version_number')}/format`, 'int64', /'int32' to 'int64'/],
  [
    'a date that is any text',
    `${schema('FlowEntry.created_at')}/format`,
    GONE,
    /`format` .* was removed/,
    schema('FlowEntry.created_at'),
  ],
  ['a text that is a UUID', `${schema('FlowEntry.entry_id')}/format`, 'uuid', /make another type of it/],
  [
    'a closed set for an open one',
    `${schema('EntryEvent.event_type')}/enum`,
    ['flowpage.viewed'],
    /make another type of it/,
  ],
  [
    'a new value of a closed set',
    `${header('IdempotentReplayed')}/schema/enum`,
    plus('false'),
    /gained values: 'false'/,
  ],
  ['a choice of types', `${schema('FlowEntry.entry_data')}/oneOf`, [STRING], /new one of/],
  ['an object that cannot grow', `${schema('FlowEntry')}/additionalProperties`, false, /not known to be harmless/],
  ['no schema', `${entry}/responses/200/${BODY}/schema`, GONE, /schema removed/],
  [
    'an envelope around a list',
    `${modules}/responses/200/${BODY}/schema`,
    { type: 'object', properties: {} },
    /from 'array' to 'object'/,
    `${modules}/responses/200/${BODY}/schema/type`,
  ],
  [
    'another media type of a response',
    `${entry}/responses/200/content`,
    renamed('application/json', 'text/json'),
    /`application\/json` was removed/,
    `${entry}/responses/200/${BODY}`,
  ],
  [
    'one media type more',
    `${entry}/responses/200/content/text~1csv`,
    { schema: STRING },
    /mistakes it for the response/,
  ],
  ['a status removed', `${entry}/responses/404`, GONE, /Response `404` was removed/],
  ['another status', `${record}/responses`, renamed('200', '201'), /`200` became `201`/, `${record}/responses/201`],
  ['a second success', `${record}/responses/202`, { description: 'Later.' }, /mistakes it for the response/],
  ['a header removed', `${events}/responses/200/headers/Next-Cursor`, GONE, /`Next-Cursor` was removed/],
  ['a header that may be missing', `${header('ETag')}/required`, GONE, /may lack it/, header('ETag')],
  ['another type of a header', `${header('RetryAfter')}/schema/type`, 'string', /from 'integer' to 'string'/],
  [
    'an example under another name',
    examples('InvalidEvent'),
    renamed('malformedJson', 'badJson'),
    /ask their mock/,
    `${examples('InvalidEvent')}/malformedJson`,
  ],
  ['an example removed', `${examples('InvalidEvent')}/malformedJson`, GONE, /ask their mock/],
  [
    'another error code',
    '#/components/examples/EntryNotFound/value/error/code',
    'gone',
    /`code` entry_not_found no longer has an example/,
    `${entry}/responses/404`,
  ],
  [
    'an event type that is not mentioned',
    '#',
    everywhere('"flowpage.viewed"', '"page.viewed"'),
    /`event_type` flowpage.viewed no longer has an example/,
    `${events}/responses/200`,
  ],

  // Anything else
  ['a part that no rule mentions', `${record}/callbacks`, { done: {} }, /not known to be harmless/],
  ['an unknown extension', '#/x-limits', { entries: 5 }, /not known to be harmless/],
]
function withRequired(name: string) {
  return (node: { required: string[]; properties: Node }) => ({
    ...node,
    required: [...node.required, name],
    properties: { ...node.properties, [name]: STRING },
  })
}

const response = { description: 'Gone.', content: {} }
const ADDITIONS: [name: string, pointer: string, value: unknown][] = [
  ['an operation on a new path', '#/paths/~1health', { get: { operationId: 'health', responses: { 200: response } } }],
  [
    'an operation on a known path',
    record.replace('/post', '/put'),
    { operationId: 'putEvents', responses: { 200: response } },
  ],
  ['an optional parameter', `${entry}/parameters`, plus(optional)],
  ['a parameter no longer required', `${parameter('ProjectId')}/required`, false],
  ['another way to authenticate', '#/security', plus({})],
  ['an optional field of a request', schema('CustomEventInput.source'), STRING],
  ['a field no longer required', `${schema('CustomEventInput')}/required`, less('timestamp')],
  ['one more value to send', `${schema('SortDirection')}/enum`, plus('NONE')],
  ['a higher maximum', `${parameter('Limit')}/schema/maximum`, 2000],
  ['a longer text', `${schema('CustomEventInput.custom_event_name')}/maxLength`, 400],
  ['no pattern', `${schema('CustomEventInput.custom_event_name')}/pattern`, GONE],
  ['a field of a response', schema('FlowEntry.note'), STRING],
  ['a field always there', schema('FlowEntry'), withRequired('note')],
  ['a known field now always there', `${schema('EntryEvent')}/required`, plus('page_id')],
  ['a header', `${entry}/responses/200/headers/Age`, { schema: STRING }],
  ['a header now always there', `${header('NextCursor')}/required`, true],
  ['an error', `${entry}/responses/410`, response],
  ['a deprecation', `${entry}/deprecated`, true],
]

const WORDING: [name: string, pointer: string, value: unknown][] = [
  ['a description of the service', '#/info/description', 'Flows.'],
  ['a description of a field', `${schema('FlowEntry.entry_data')}/description`, 'Data.'],
  ['a summary', `${entry}/summary`, 'Read an entry'],
  ['a license', '#/info/license/name', 'MIT-0'],
  ["a tag's description", '#/tags/0/description', 'Flows.'],
  ["a parameter's example", `${parameter('EntryId')}/example`, 'e1'],
  ['a text in an example', '#/components/examples/EntryNotFound/value/error/message', 'None.'],
  ['a new example', `${examples('InvalidEvent')}/other`, { value: {} }],
  ['a link', `${entry}/responses/200/links/again`, { operationId: 'getEntry' }],
  ['the order of required fields', `${schema('FlowEntry')}/required`, reversed],
  ["a response component's name", '#', everywhere('EntryNotFound"', 'NoEntry"')],
]

describe('a break is refused, and its place reported', () => {
  test.concurrent.for(BREAKS)('%s', async ([, pointer, value, what, where = pointer]) => {
    const breaking = (await changesOf(pointer, value)).filter(({ rating }) => rating === 'breaking')
    expect(breaking).toContainEqual(expect.objectContaining({ pointer: where, what: expect.stringMatching(what) }))
  })
})

test('a difference that no check covers is refused', async () => {
  const inline = (value: unknown) => [`${modules}/responses/200/${BODY}/examples/inline`, { value: { value } }] as const
  expect(await changesOf(...inline(2), edited(...inline(1)))).toMatchObject([{ rating: 'breaking', pointer: '#' }])
})

describe('an addition is a minor step', () => {
  test.concurrent.for(ADDITIONS)('%s', async ([, pointer, value]) => {
    expect(ratingOf(await changesOf(pointer, value))).toBe('minor')
  })
})

describe('wording is a patch', () => {
  test.concurrent.for(WORDING)('%s', async ([, pointer, value]) => {
    expect(ratingOf(await changesOf(pointer, value))).toBe('patch')
  })
})

test.concurrent.for([
  ['nothing', '#', (root: Node) => root],
  ['the version', '#/info/version', '9.9.9'],
  [
    'the order of fields',
    `${schema('FlowEntry')}/properties`,
    (node: Node) => Object.fromEntries(Object.entries(node).toReversed()),
  ],
] as const)('%s is not a change', async ([, pointer, value]) => {
  expect(await changesOf(pointer, value)).toEqual([])
})
