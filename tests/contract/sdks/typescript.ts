import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'

/** The journey of the TypeScript clients, which differ only in how a call is made: nothing that a generator should provide. */

function setting(name: string): string {
  const value = process.env[name]
  assert(value, `${name} is not set; see tests/support/with-demo-service.ts`)
  return value
}

export const projectId = 'demo'
const moduleId = 'skin-quiz'

/** What a call returned: a client that throws errors or hides the response is wrapped to give this. */
export interface Outcome<Data> {
  data?: Data | undefined
  error?: ErrorBody | undefined
  response?: { status: number; headers?: { get(name: string): string | null } } | undefined
}

/** The least that a client's types must have. `Time` is its type of a date-time. */
interface ErrorBody {
  error: { code: string; message: string; details?: { pointer: string; message: string }[] | undefined }
  projectId?: string | undefined
  moduleId?: string | undefined
  versionNumber?: number | undefined
  entryId?: string | undefined
}
interface ModuleVersion<Time> {
  module_id: string
  version_number: number
  saved_at: Time
}
interface Entry<Time> {
  entry_id: string
  module_id: string
  contact_id: string
  created_at: Time
  updated_at: Time
}
interface EntryPageViews<Time> extends Entry<Time> {
  page_views: { timestamp: Time; page_id: string; page_index: number }[]
}
interface EntryEvent<Time> {
  entry_id: string
  timestamp: Time
  event_type: string
  page_id?: string | undefined
  custom_event_name?: string | undefined
}
interface ProjectEvent<Time> {
  event_id: string
  recorded_at: Time
  position: number
}
interface CustomEvent<Time> {
  module_id: string
  timestamp: Time
  custom_event_name: string
  custom_event_props?: string
  identifiers: { key: string; value: string }[]
}
interface CustomEventResult<Time> {
  event_id: string
  entry_id: string
  contact_id: string
  module_version_number: number
  timestamp: Time
  custom_event_name: string
  custom_event_props: string
}
interface CustomEventBatch<Time> {
  events: (CustomEvent<Time> & { idempotency_key?: string })[]
}
interface CustomEventBatchResult<Time> {
  results: {
    status: number
    event?: CustomEventResult<Time> | undefined
    replayed?: boolean | undefined
    error?: ErrorBody['error'] | undefined
    projectId?: string | undefined
    moduleId?: string | undefined
  }[]
}
interface Erasure<Time> {
  contact_id: string
  entry_ids: string[]
  position: number
  erased_at: Time
}
interface PageQuery {
  limit?: number
  direction?: 'ASC' | 'DESC'
  cursor?: string
}
interface FeedQuery extends PageQuery {
  after?: number
  wait?: number
}

/** The URL of the next page of a list, and its cursor. */
interface Next {
  link: string
  cursor: string
}

type Call<Data> = Promise<Outcome<Data>>

/** The operations, as calls of a generated client. */
interface Client<Time> {
  listModules(): Call<{ module_id: string; title: string }[]>
  getModule(moduleId: string, ifNoneMatch?: string): Call<{ module_id: string; json_string_prod: string }>
  listModuleVersions(moduleId: string): Call<ModuleVersion<Time>[]>
  getModuleVersion(moduleId: string, versionNumber: number): Call<ModuleVersion<Time> & { json_string: string }>
  getEntry(entryId: string): Call<Entry<Time> & { entry_data: string }>
  listEntryEvents(entryId: string, query: PageQuery): Call<EntryEvent<Time>[]>
  /** With `link`, requests that URL instead. */
  listEntryPageViews(query: PageQuery & { updated_after?: Time }, link?: string): Call<EntryPageViews<Time>[]>
  listProjectEvents(query: FeedQuery): Call<ProjectEvent<Time>[]>
  listErasures(query: FeedQuery): Call<Erasure<Time>[]>
  recordCustomEvent(body: CustomEvent<Time>, idempotencyKey: string): Call<CustomEventResult<Time>>
  recordCustomEvents(body: CustomEventBatch<Time>): Call<CustomEventBatchResult<Time>>
}

/** A generated client, and what it cannot do. */
interface Generated<Time> {
  name: string
  clientWith(key: string, baseUrl: string): Client<Time>
  /** A date-time as the client has it. */
  timeOf(date: Date): Time
  /** For each step that the client cannot perform the reason. */
  impossible?: Record<string, string>
}

/** A `fetch` that sends the request to the URL of a `Link` instead, if there is one. */
export const following =
  (link: string | undefined): typeof fetch =>
  (input, init) => {
    if (!link) return fetch(input, init)
    const request = new Request(input, init)
    return fetch(new Request(new URL(link, request.url), request))
  }

/** The response of a client over axios. */
export const axiosResponse = ({ status, headers }: { status: number; headers: object }) => ({
  status,
  headers: new Headers({ ...headers }),
})

/** The data of a call that must succeed. */
function dataOf<Data>({ data, error, response }: Outcome<Data>): Data {
  assert(data !== undefined, `the call failed: ${response?.status} ${JSON.stringify(error)}`)
  return data
}

/** A header that the response must have. */
function headerOf({ response }: Outcome<unknown>, name: string): string {
  const value = response?.headers?.get(name)
  assert(value, `the header ${name} is missing`)
  return value
}

/** Checks status, code and further fields of the error of a call that must fail. */
function assertError({ error, response }: Outcome<unknown>, status: number, code: string, context: object = {}) {
  assert.equal(response?.status, status)
  assert(error?.error.message)
  assert.equal(error.error.code, code)
  assert.partialDeepStrictEqual(error, { projectId, ...context })
  return error
}

function nextOf(outcome: Outcome<unknown>): Next | undefined {
  if (!outcome.response?.headers?.get('Link')) return undefined
  const [, link] = /^<([^>]+)>; rel="next"$/.exec(headerOf(outcome, 'Link')) ?? []
  assert(link)
  return { link, cursor: headerOf(outcome, 'Next-Cursor') }
}

/** All records of a list, read page by page. */
async function walk<Data>(getPage: (next?: Next) => Call<Data[]>): Promise<Data[]> {
  const records: Data[] = []
  let next: Next | undefined
  do {
    const outcome = await getPage(next)
    records.push(...dataOf(outcome))
    next = nextOf(outcome)
  } while (next)
  return records
}

/** Letters of several scripts, an emoji, and quotes: what a client may garble. */
const TEXT = 'Ärger 日本 🎉 say "hi"'

/** Takes the journey of journey.md with a client. */
export async function takeJourney<Time extends string | Date>(generated: Generated<Time>): Promise<void> {
  const { name, clientWith, timeOf, impossible = {} } = generated
  const url = setting('FLOWTRAIL_URL')
  const client = clientWith(setting('FLOWTRAIL_KEY'), url)
  /** Ends a step. Of an impossible one, everything else has been checked. */
  const done = (step: string) => console.log(impossible[step] ? `-- ${step}: ${impossible[step]}` : `ok ${step}`)

  const modules = dataOf(await client.listModules())
  assert(modules.some(({ module_id }) => module_id === moduleId))
  done('list-modules')

  const module = await client.getModule(moduleId)
  JSON.parse(dataOf(module).json_string_prod)
  done('get-module')

  const [newest] = dataOf(await client.listModuleVersions(moduleId))
  assert(newest)
  done('list-versions')

  const { json_string, ...version } = dataOf(await client.getModuleVersion(moduleId, newest.version_number))
  JSON.parse(json_string)
  assert.deepEqual(version, newest)
  done('get-version')

  const everything = dataOf(await client.listEntryPageViews({ limit: 1000, direction: 'ASC' }))
  const ids = new Set(everything.map(({ entry_id }) => entry_id))
  assert(everything.length >= 200)
  assert.equal(ids.size, everything.length)
  if (!impossible['page-through']) {
    const byLink = await walk((next) => client.listEntryPageViews({ limit: 50 }, next?.link))
    assert.equal(byLink.length, ids.size)
    assert.deepEqual(new Set(byLink.map(({ entry_id }) => entry_id)), ids)
    const byCursor = await walk((next) =>
      client.listEntryPageViews({ limit: 30, direction: 'ASC', ...(next && { cursor: next.cursor }) }),
    )
    assert.deepEqual(byCursor, everything)
  }
  const updated_after = everything[150]?.updated_at
  assert(updated_after)
  assert.deepEqual(
    dataOf(await client.listEntryPageViews({ limit: 1000, direction: 'ASC', updated_after })),
    everything.filter(({ updated_at }) => updated_at >= updated_after),
  )
  done('page-through')

  const first = everything[0]
  assert(first)
  const { entry_data, ...entry } = dataOf(await client.getEntry(first.entry_id))
  JSON.parse(entry_data)
  assert.deepEqual(entry.created_at, timeOf(new Date(entry.created_at)))
  assert.deepEqual({ ...entry, page_views: first.page_views }, first)
  done('get-entry')

  const events = dataOf(await client.listEntryEvents(first.entry_id, { limit: 1000 }))
  assert(events.length >= first.page_views.length)
  if (!impossible['list-events']) {
    const inPairs = await walk((next) =>
      client.listEntryEvents(first.entry_id, { limit: 2, ...(next && { cursor: next.cursor }) }),
    )
    assert.deepEqual(inPairs, events)
  }
  done('list-events')

  const event = (change: Partial<CustomEvent<Time>> = {}): CustomEvent<Time> => ({
    module_id: moduleId,
    timestamp: timeOf(new Date()),
    custom_event_name: TEXT,
    custom_event_props: JSON.stringify({ by: name, said: TEXT }),
    identifiers: [
      { key: 'email', value: JSON.stringify(`${randomUUID()}@example.com`) },
      { key: TEXT, value: JSON.stringify(`${TEXT} ${randomUUID()}`) },
    ],
    ...change,
  })
  const record = (body: CustomEvent<Time>, idempotencyKey: string = randomUUID(), as = client) =>
    as.recordCustomEvent(body, idempotencyKey)
  const taken = event()
  const idempotencyKey = randomUUID()
  const recorded = dataOf(await record(taken, idempotencyKey))
  assert(recorded.contact_id)
  assert.deepEqual(recorded.timestamp, taken.timestamp)
  assert.equal(recorded.custom_event_name, TEXT)
  assert.equal(recorded.custom_event_props, taken.custom_event_props)
  const [found] = dataOf(await client.listEntryEvents(recorded.entry_id, {}))
  assert.partialDeepStrictEqual(found, recorded)
  // The service understood the identifier as it was meant: it is the same contact's.
  const again = dataOf(await record(event({ identifiers: taken.identifiers.slice(1) })))
  assert.equal(again.contact_id, recorded.contact_id)
  done('record')

  const replayed = await record(taken, idempotencyKey)
  assert.deepEqual(dataOf(replayed), recorded)
  if (!impossible.replay) assert.equal(headerOf(replayed, 'Idempotent-Replayed'), 'true')
  done('replay')

  const batch = {
    events: [taken, event({ module_id: 'hair-quiz' })].map((item) => ({ ...item, idempotency_key: randomUUID() })),
  }
  const [accepted, rejected, ...more] = dataOf(await client.recordCustomEvents(batch)).results
  assert.equal(accepted?.status, 200)
  assert.equal(accepted.event?.custom_event_name, TEXT)
  assert.deepEqual(accepted.event.timestamp, taken.timestamp)
  assert.equal(accepted.replayed, false)
  assert.equal(rejected?.status, 404)
  assert.equal(rejected.error?.code, 'module_does_not_exist')
  assert.deepEqual([rejected.projectId, rejected.moduleId], [projectId, 'hair-quiz'])
  assert.deepEqual(more, [])
  const [repeated] = dataOf(await client.recordCustomEvents(batch)).results
  assert.equal(repeated?.event?.event_id, accepted.event.event_id)
  assert.equal(repeated.replayed, true)
  done('record-batch')

  const [before] = dataOf(await client.listProjectEvents({ direction: 'DESC', limit: 1 }))
  assert(before)
  const { event_id } = dataOf(await record(event()))
  const page = await client.listProjectEvents({ direction: 'ASC', after: before.position, wait: 5, limit: 10 })
  const [latest, ...others] = dataOf(page)
  assert.equal(latest?.event_id, event_id)
  assert.deepEqual(others, [])
  assert(latest.position > before.position)
  assert.deepEqual(latest.recorded_at, timeOf(new Date(latest.recorded_at)))
  assert.equal(nextOf(page), undefined)
  const place = impossible['follow-feed'] ? { after: latest.position } : { cursor: headerOf(page, 'Next-Cursor') }
  assert.deepEqual(dataOf(await client.listProjectEvents({ direction: 'ASC', ...place })), [])
  done('follow-feed')

  const [erasure] = dataOf(await client.listErasures({ direction: 'DESC', limit: 1 }))
  assert(erasure?.contact_id)
  assert.equal(erasure.entry_ids.filter(Boolean).length, 2)
  assert.deepEqual(erasure.erased_at, timeOf(new Date(erasure.erased_at)))
  const none = await client.listErasures({ direction: 'ASC', after: erasure.position })
  assert.deepEqual(dataOf(none), [])
  assert.equal(nextOf(none), undefined)
  if (!impossible['list-erasures']) headerOf(none, 'Next-Cursor')
  done('list-erasures')

  if (!impossible.conditional) {
    const unchanged = await client.getModule(moduleId, headerOf(module, 'ETag'))
    assert.equal(unchanged.response?.status, 304)
  }
  done('conditional')

  const invalid = assertError(await client.listEntryEvents(first.entry_id, { cursor: 'AWJ4' }), 400, 'invalid_request')
  assert.equal(invalid.error.details?.[0]?.pointer, '/query/cursor')
  done('error-400')

  const as = (key: string) => clientWith(setting(key), url)
  assertError(await record(event(), randomUUID(), as('FLOWTRAIL_OTHER_KEY')), 401, 'unauthorized')
  done('error-401')

  assertError(await record(event(), randomUUID(), as('FLOWTRAIL_READ_KEY')), 403, 'insufficient_scope')
  done('error-403')

  assertError(await client.getModule('hair-quiz'), 404, 'module_does_not_exist', { moduleId: 'hair-quiz' })
  done('error-404-module')

  const noVersion = await client.getModuleVersion(moduleId, 99)
  assertError(noVersion, 404, 'module_version_does_not_exist', { moduleId, versionNumber: 99 })
  done('error-404-version')

  assertError(await client.getEntry('nobody'), 404, 'entry_not_found', { entryId: 'nobody' })
  done('error-404-entry')

  const [mine, yours] = ['crm_id', 'phone'].map((key) => ({ key, value: JSON.stringify(randomUUID()) }))
  assert(mine && yours)
  for (const identifier of [mine, yours]) dataOf(await record(event({ identifiers: [identifier] })))
  assertError(await record(event({ identifiers: [mine, yours] })), 409, 'identifier_conflict')
  done('error-409')

  if (!impossible['error-413']) {
    assertError(await record(event({ custom_event_name: 'x'.repeat(256 * 1024) })), 413, 'payload_too_large')
  }
  done('error-413')

  assertError(await record(event(), idempotencyKey), 422, 'idempotency_key_reused')
  done('error-422')

  const limited = clientWith(setting('FLOWTRAIL_KEY'), setting('FLOWTRAIL_LIMITED_URL'))
  await limited.listModules()
  const refused = await limited.listModules()
  assertError(refused, 429, 'rate_limited')
  if (!impossible['error-429']) assert(Number(headerOf(refused, 'Retry-After')) > 0)
  done('error-429')
}
