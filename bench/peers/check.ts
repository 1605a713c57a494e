// node bench/peers/check.ts PEER OURS THEIRS KEY: whether a peer responds as Flowtrail does on the same data (README.md).
import assert from 'node:assert'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { type IncomingMessage, request } from 'node:http'
import { text } from 'node:stream/consumers'
import { DEMO } from '../../src/demo/project.ts'
import { formatKey, generateKey } from '../../src/domain/api-key.ts'
import { callsFor, type Task, type Visit } from '../calls.ts'
import type { Call } from '../load.ts'
import { PEERS, type PeerName, peerCalls } from './peers.ts'

/** Two servers on one database. */
export interface Pair {
  name: PeerName
  /** Addresses. */
  ours: string
  theirs: string
  /** A key of the demo project with both scopes. */
  key: string
  /** What the races request, so that exactly those requests are compared. */
  visits?: readonly Visit[]
}

type Request = Omit<Call, 'method'> & { method: string }

interface Response {
  status: number
  headers: IncomingMessage['headers']
  // biome-ignore lint/suspicious/noExplicitAny: JSON of any shape, which is only compared
  body: any
}

/** The part of a response that is compared. */
type View = (response: Response) => unknown

const CONTRACT_HEADERS = [
  'allow',
  'cache-control',
  'content-type',
  'etag',
  'idempotent-replayed',
  'link',
  'next-cursor',
  'vary',
  'www-authenticate',
]

const all: View = (response) => response
const bodyAlone: View = ({ status, body }) => ({ status, body })
/** Another validator words its messages differently. */
const code: View = ({ status, body: { error } }) => ({
  status,
  code: error?.code,
  pointer: error?.details?.[0]?.pointer,
})
/** Of a recorded event, whose id is new each time. */
const recorded: View = ({ body: { event_id, ...body }, ...response }) => ({ ...response, body })
const recordedBody: View = ({ status, body: { event_id, ...body } }) => ({ status, body })
const withoutIds: View = ({ body: { contact_id, entry_id, event_id, ...body }, ...response }) => ({ ...response, body })

class Comparison {
  readonly differences: string[] = []
  comparisons = 0
  readonly #pair: Pair

  constructor(pair: Pair) {
    this.#pair = pair
  }

  /** Sends both the same call, or each its own. @returns the responses, ours first */
  async compare(
    what: string,
    call: Request | [Request, Request],
    ours: View = all,
    theirs = ours,
  ): Promise<[Response, Response]> {
    const [toUs, toThem] = Array.isArray(call) ? call : [call, call]
    const ourResponse = this.#request(this.#pair.ours, toUs)
    // Each locks in its own way, so that one cannot see what the other is about to record.
    if (toUs.method !== 'GET') await ourResponse
    const responses = await Promise.all([ourResponse, this.#request(this.#pair.theirs, toThem)])
    this.#same(what, theirs(responses[1]), ours(responses[0]))
    return responses
  }

  /** Sends the peer concurrent calls that must all have the same response. */
  async alike(what: string, calls: Request[], view: View = all): Promise<void> {
    const [first, ...others] = await Promise.all(calls.map((call) => this.#request(this.#pair.theirs, call)))
    for (const response of others) this.#same(what, view(response), view(first as Response))
  }

  #same(what: string, actual: unknown, expected: unknown): void {
    this.comparisons += 1
    try {
      assert.deepStrictEqual(actual, expected)
    } catch (error) {
      this.differences.push(`${what}: ${(error as Error).message}`)
    }
  }

  // Not by fetch, which sends `Cache-Control: no-cache` along with If-None-Match.
  async #request(address: string, { method, path, headers, body }: Request): Promise<Response> {
    const type = body !== undefined && { 'content-type': 'application/json' }
    const sent = request(address + path, { method, headers: { 'x-api-key': this.#pair.key, ...type, ...headers } })
    const [response]: [IncomingMessage] = await (once(sent.end(body), 'response') as Promise<never>)
    const content = await text(response)
    return {
      status: response.statusCode ?? 0,
      headers: Object.fromEntries(CONTRACT_HEADERS.map((name) => [name, response.headers[name]])),
      body: content && JSON.parse(content),
    }
  }
}

const PROJECT = `/projects/${DEMO.projectId}`
const MODULE = `${PROJECT}/modules/${DEMO.moduleId}`
const ENTRY = `${PROJECT}/entries/${DEMO.entryId}`
const WINDOW = 'updated_after=2026-02-01T00:00:00Z&updated_before=2026-03-01T01:00:00%2B01:00'

const NOON = '2026-02-01T12:00:00Z'

const get = (path: string, headers?: Record<string, string>): Call => ({ method: 'GET', path, headers })

/** Reads of peers with the whole contract. */
const READS = [
  `${PROJECT}/modules`,
  MODULE,
  `${MODULE}/versions`,
  `${MODULE}/versions?limit=1&direction=ASC`,
  `${MODULE}/versions/${DEMO.versionNumber}`,
  ENTRY,
  `${ENTRY}/events`,
  `${ENTRY}/events?limit=100`,
  `${ENTRY}/events?limit=3&direction=ASC`,
  `${PROJECT}/entries?limit=100`,
  `${PROJECT}/entries?limit=5&direction=ASC&${WINDOW}`,
  `${PROJECT}/events?limit=5`,
  `${PROJECT}/events?limit=5&direction=ASC`,
  `${PROJECT}/events?limit=5&direction=ASC&after=1`,
  `${PROJECT}/events?direction=ASC&after=9007199254740991&wait=1`,
  `${PROJECT}/entries-page-views?limit=100`,
  `${PROJECT}/entries-page-views?limit=5&direction=ASC&${WINDOW}`,
]

const OTHERS: [what: string, call: Request, view: View][] = [
  ['no key', get(MODULE, { 'x-api-key': '' }), all],
  ['an unknown key', get(MODULE, { 'x-api-key': formatKey(generateKey()) }), all],
  ['another project', get('/projects/other/modules'), all],
  ['no such module', get(`${PROJECT}/modules/nothing`), all],
  ['versions of no such module', get(`${PROJECT}/modules/nothing/versions`), all],
  ['no such version', get(`${MODULE}/versions/99`), all],
  ['no such entry', get(`${PROJECT}/entries/nobody`), all],
  ['events of no such entry', get(`${PROJECT}/entries/nobody/events`), all],
  ['no such path', get(`${PROJECT}/nothing`), all],
  ['no such method', { method: 'POST', path: MODULE, body: '{}' }, all],
  ['a HEAD request', { method: 'HEAD', path: MODULE }, all],
  ['a version that is no number', get(`${MODULE}/versions/two`), code],
  ['a limit out of range', get(`${ENTRY}/events?limit=0`), code],
  ['an unknown direction', get(`${ENTRY}/events?direction=up`), code],
  ['an unknown parameter', get(`${ENTRY}/events?sort=name`), code],
  ['a cursor of another list', get(`${ENTRY}/events?cursor=AAAA`), all],
  ['a wait without direction', get(`${PROJECT}/events?wait=1`), code],
  ['an empty window', get(`${PROJECT}/entries-page-views?updated_after=${NOON}&updated_before=${NOON}`), all],
]

/** How a peer's responses differ from ours, and how many were compared. */
export interface Verdict {
  comparisons: number
  differences: string[]
}

/** Compares two processes of Flowtrail: the whole contract. */
export const checkFlowtrail = (pair: Omit<Pair, 'name'>): Promise<Verdict> => checkPeer({ ...pair, name: 'express' })

export async function checkPeer(pair: Pair): Promise<Verdict> {
  const comparison = new Comparison(pair)
  if ('recordNew' in PEERS[pair.name].tasks) {
    await compareReads(comparison)
    await compareRecording(comparison)
  }
  await compareTasks(comparison, pair)
  return comparison
}

async function compareReads(comparison: Comparison): Promise<void> {
  for (const path of READS) {
    const [{ headers }] = await comparison.compare(path, get(path))
    if (headers.etag) await comparison.compare(`${path}, unchanged`, get(path, { 'if-none-match': headers.etag }))
    // The next page, as a client of either would request it.
    const next = /^<(.+)>/.exec(String(headers.link))?.[1]
    if (next) await comparison.compare(next, get(next))
  }
  for (const [what, call, view] of OTHERS) await comparison.compare(what, call, view)
}

interface Post {
  [field: string]: unknown
  identifiers: { key: string; value: string }[]
}

/** Records with both; each must see what the other has stored. */
async function compareRecording(comparison: Comparison): Promise<void> {
  const run = randomUUID()
  const identifier = (key: string, who: string) => ({ key, value: JSON.stringify(`${key}-${who}-${run}`) })
  const event = (...identifiers: Post['identifiers']): Post => ({
    module_id: DEMO.moduleId,
    timestamp: '2026-03-01T09:41:12.3456+01:00',
    custom_event_name: 'coupon_applied',
    custom_event_props: '{"code": "OAK10"}',
    identifiers,
  })
  const post = (body: object, key?: string): Call => ({
    method: 'POST',
    path: `${PROJECT}/events`,
    body: JSON.stringify(body),
    headers: { ...(key && { 'idempotency-key': `${key}-${run}` }) },
  })
  const ours = identifier('email', 'ours')
  const theirs = identifier('email', 'theirs')
  const phone = identifier('phone', 'theirs')

  const [{ body: oursNew }, { body: theirsNew }] = await comparison.compare(
    'a new contact',
    [post(event(ours)), post(event(theirs))],
    withoutIds,
  )
  await comparison.compare('our contact', post(event(ours)), recorded)
  await comparison.compare('their contact', post(event(theirs)), recorded)
  await comparison.compare('one more identifier', [post(event(theirs)), post(event(theirs, phone))], recorded)
  await comparison.compare('the added identifier', post(event(phone)), recorded)
  await comparison.compare(
    'a contact by its id',
    post(event({ key: 'contact_id', value: `"${theirsNew.contact_id}"` })),
    recorded,
  )
  for (const { entry_id } of [oursNew, theirsNew]) {
    await comparison.compare('what was recorded', get(`${PROJECT}/entries/${entry_id}/events`))
  }

  const crowd = Array.from({ length: 20 }, (_, i) =>
    post(event(identifier('email', 'crowd'), identifier('crm', `${i % 2}`))),
  )
  await comparison.alike('concurrent events of a new contact', crowd, recorded)

  const keyed: [Call, Call] = [post(event(ours), 'ours'), post(event(ours), 'theirs')]
  await comparison.compare('with a key', keyed, recorded)
  await comparison.compare('again', keyed, recorded)
  const other = { ...event(ours), custom_event_props: '{}' }
  await comparison.compare('the key for another event', [post(other, 'ours'), post(other, 'theirs')])

  const repeats = Array.from({ length: 5 }, () => post(event(ours), 'repeats'))
  await comparison.alike('concurrent requests with one key', repeats, ({ status, body }) => ({ status, body }))

  // Unlike the others they have an entry with page views, so that the event has a furthest page.
  const [{ body: entry }] = await comparison.compare('an entry', get(ENTRY))
  const ofEntry = event({ key: 'contact_id', value: JSON.stringify(entry.contact_id) })
  await comparison.compare('a contact with page views', post(ofEntry), recorded)
  await comparison.compare('and early', post({ ...ofEntry, timestamp: entry.created_at }), recorded)
  await comparison.compare('what both recorded there', get(`${ENTRY}/events?limit=100`))

  await comparison.compare('identifiers of two contacts', post(event(ours, phone)))
  await comparison.compare('no such module', post({ ...event(ours), module_id: 'nothing' }))
  await comparison.compare('an identifier that is no JSON', post(event({ key: 'email', value: 'a@b' })))
  await comparison.compare('a timestamp that is none', post({ ...event(ours), timestamp: 'today' }), code)
  await comparison.compare('an unknown field', post({ ...event(ours), name: 'x' }), code)
  await comparison.compare('no JSON', { ...post({}), body: '{' }, code)
  await comparison.compare('no body', { method: 'POST', path: `${PROJECT}/events` }, code)
  await comparison.compare('a body that is too large', { ...post({}), body: '0'.repeat(300_000) })
  await comparison.compare('another media type', { ...post(event(ours)), headers: { 'content-type': 'text/plain' } })
  await comparison.compare('an event of tomorrow', post({ ...event(ours), timestamp: '9999-01-01T00:00:00Z' }), code)
  await comparison.compare('props that are no object', post({ ...event(ours), custom_event_props: '[]' }), code)
}

const DEMO_VISIT: Visit = {
  project_id: DEMO.projectId,
  module_id: DEMO.moduleId,
  entry_id: DEMO.entryId,
  created_at: '2026-03-01T08:30:00.000Z',
  key: 'email',
  value: '"check@mail.example.com"',
}

/** Compares the peer's responses to the calls of the races. */
async function compareTasks(comparison: Comparison, { name, key, visits = [DEMO_VISIT] }: Pair): Promise<void> {
  const keys = new Map([[DEMO.projectId, key]])
  for (const task of Object.keys(PEERS[name].tasks) as Task[]) {
    const theirs = peerCalls(name, task, visits, keys, 100)
    for (const [i, ours] of callsFor(task, visits, keys, 100).entries()) {
      const view = ours.method === 'POST' ? recordedBody : bodyAlone
      const views = (name === 'platformatic' && PLATFORMATIC[task]) || { ours: view, theirs: view }
      await comparison.compare(ours.path, [ours, theirs[i] as Call], views.ours, views.theirs)
    }
  }
}

/** The part of our responses that Platformatic DB has, and how its own map to it. */
const PLATFORMATIC: Partial<Record<Task, { ours: View; theirs: View }>> = {
  getModule: {
    ours: ({ body: { title, group_id, ...module } }) => module,
    theirs: ({ body: [{ projectId, moduleId, jsonString }] }) => ({
      module_id: moduleId,
      project_id: projectId,
      json_string_prod: jsonString,
    }),
  },
  listEntryEvents: {
    ours: ({ body }) => body.map(({ contact_id, group_id, module_id, ...event }: Row) => event),
    theirs: ({ body }) => body.map(({ position, recordedAt, ...columns }: Row) => inOurNames(columns)),
  },
}

type Row = Record<string, unknown>

const inOurNames = (columns: Row): Row => {
  const applying = Object.entries(columns).filter(([, value]) => value !== null)
  return Object.fromEntries(
    applying.map(([name, value]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), value]),
  )
}

if (process.argv[1] === import.meta.filename) {
  const [name = '', ours = '', theirs = '', key = ''] = process.argv.slice(2)
  if (!(name in PEERS) || key === '') throw new Error('usage: check.ts PEER OURS THEIRS KEY')
  const { comparisons, differences } = await checkPeer({ name: name as PeerName, ours, theirs, key })
  for (const difference of differences) console.error(difference)
  console.log(`${name}: ${differences.length} of ${comparisons} responses differ`)
  if (differences.length > 0) process.exitCode = 1
}
