import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import createClient from 'openapi-fetch'
import { assertError, dataOf, following, headerOf, ok, service, walk } from '../typescript.ts'
import type { components, operations, paths } from './generated/types.ts'

type CustomEventInput = components['schemas']['CustomEventInput']

const clientWith = (key: string, baseUrl = service.url) =>
  createClient<paths>({ baseUrl, headers: { 'X-Api-Key': key } })

const client = clientWith(service.key)
const projectId = 'demo'
const moduleId = 'skin-quiz'

const modules = dataOf(await client.GET('/projects/{projectId}/modules', { params: { path: { projectId } } }))
assert(modules.some(({ module_id }) => module_id === moduleId))
ok('list-modules')

const getModule = (id: string, ifNoneMatch?: string) =>
  client.GET('/projects/{projectId}/modules/{moduleId}', {
    params: {
      path: { projectId, moduleId: id },
      ...(ifNoneMatch && { header: { 'If-None-Match': ifNoneMatch } }),
    },
  })
const module = await getModule(moduleId)
JSON.parse(dataOf(module).json_string_prod)
ok('get-module')

const versions = dataOf(
  await client.GET('/projects/{projectId}/modules/{moduleId}/versions', { params: { path: { projectId, moduleId } } }),
)
const newest = versions[0]
assert(newest)
ok('list-versions')

const getVersion = (versionNumber: number) =>
  client.GET('/projects/{projectId}/modules/{moduleId}/versions/{versionNumber}', {
    params: { path: { projectId, moduleId, versionNumber } },
  })
const { json_string, ...version } = dataOf(await getVersion(newest.version_number))
JSON.parse(json_string)
assert.deepEqual(version, newest)
ok('get-version')

type PageViewsQuery = NonNullable<operations['listEntryPageViews']['parameters']['query']>
const listPageViews = (query: PageViewsQuery, fetcher = fetch) =>
  client.GET('/projects/{projectId}/entries-page-views', { params: { path: { projectId }, query }, fetch: fetcher })
const byLink = await walk((next) => listPageViews({ limit: 50 }, next && following(next)))
const byCursor = await walk((next) =>
  listPageViews({ limit: 30, direction: 'ASC', ...(next && { cursor: next.cursor }) }),
)
const idsByLink = new Set(byLink.map(({ entry_id }) => entry_id))
assert(byLink.length >= 200)
assert.equal(idsByLink.size, byLink.length)
assert.deepEqual(new Set(byCursor.map(({ entry_id }) => entry_id)), idsByLink)
const updated_after = byCursor[150]?.updated_at
assert(updated_after)
assert.deepEqual(
  dataOf(await listPageViews({ limit: 1000, direction: 'ASC', updated_after })),
  byCursor.filter(({ updated_at }) => updated_at >= updated_after),
)
ok('page-through')

const first = byCursor[0]
assert(first)
const getEntry = (entryId: string) =>
  client.GET('/projects/{projectId}/entries/{entryId}', { params: { path: { projectId, entryId } } })
const { entry_data, ...entry } = dataOf(await getEntry(first.entry_id))
JSON.parse(entry_data)
// This generator converts nothing: a date-time is a string.
assert.equal(new Date(entry.created_at).toISOString(), entry.created_at)
assert.deepEqual({ ...entry, page_views: first.page_views }, first)
ok('get-entry')

type EventsQuery = NonNullable<operations['listEntryEvents']['parameters']['query']>
const listEvents = (entryId: string, query: EventsQuery) =>
  client.GET('/projects/{projectId}/entries/{entryId}/events', { params: { path: { projectId, entryId }, query } })
const inPairs = await walk((next) => listEvents(first.entry_id, { limit: 2, ...(next && { cursor: next.cursor }) }))
assert(inPairs.length >= first.page_views.length)
assert.deepEqual(inPairs, dataOf(await listEvents(first.entry_id, { limit: 1000 })))
ok('list-events')

const event = (change: Partial<CustomEventInput> = {}): CustomEventInput => ({
  module_id: moduleId,
  timestamp: new Date().toISOString(),
  custom_event_name: 'journey_taken',
  custom_event_props: '{"by":"openapi-fetch"}',
  identifiers: [{ key: 'email', value: JSON.stringify(`${randomUUID()}@example.com`) }],
  ...change,
})
const record = (body: CustomEventInput, idempotencyKey: string = randomUUID(), as = client) =>
  as.POST('/projects/{projectId}/events', {
    params: { path: { projectId }, header: { 'Idempotency-Key': idempotencyKey } },
    body,
  })
const taken = event()
const idempotencyKey = randomUUID()
const recorded = dataOf(await record(taken, idempotencyKey))
assert(recorded.contact_id)
const [found] = dataOf(await listEvents(recorded.entry_id, {}))
assert.deepEqual(found, { ...recorded, custom_event_name: taken.custom_event_name })
ok('record')

const replayed = await record(taken, idempotencyKey)
assert.deepEqual(dataOf(replayed), recorded)
assert.equal(headerOf(replayed, 'Idempotent-Replayed'), 'true')
ok('replay')

const unchanged = await getModule(moduleId, headerOf(module, 'ETag'))
assert.equal(unchanged.response.status, 304)
ok('conditional')

const invalid = assertError(await listEvents(first.entry_id, { cursor: 'AWJ4' }), 400, 'invalid_request')
assert.equal(invalid.error.details?.[0]?.pointer, '/query/cursor')
ok('error-400')

assertError(await record(event(), randomUUID(), clientWith(service.otherKey)), 401, 'unauthorized')
ok('error-401')

assertError(await record(event(), randomUUID(), clientWith(service.readKey)), 403, 'insufficient_scope')
ok('error-403')

assertError(await getModule('hair-quiz'), 404, 'module_does_not_exist', { moduleId: 'hair-quiz' })
ok('error-404-module')

assertError(await getVersion(99), 404, 'module_version_does_not_exist', { moduleId, versionNumber: 99 })
ok('error-404-version')

assertError(await getEntry('nobody'), 404, 'entry_not_found', { entryId: 'nobody' })
ok('error-404-entry')

const [mine, yours] = ['crm_id', 'phone'].map((key) => ({ key, value: JSON.stringify(randomUUID()) }))
assert(mine && yours)
for (const identifier of [mine, yours]) dataOf(await record(event({ identifiers: [identifier] })))
assertError(await record(event({ identifiers: [mine, yours] })), 409, 'identifier_conflict')
ok('error-409')

assertError(await record(event({ custom_event_name: 'x'.repeat(256 * 1024) })), 413, 'payload_too_large')
ok('error-413')

assertError(await record(event(), idempotencyKey), 422, 'idempotency_key_reused')
ok('error-422')

const limited = clientWith(service.key, service.limitedUrl)
const list = () => limited.GET('/projects/{projectId}/modules', { params: { path: { projectId } } })
await list()
const refused = await list()
assertError(refused, 429, 'rate_limited')
assert(Number(headerOf(refused, 'Retry-After')) > 0)
ok('error-429')
