import fc from 'fast-check'
import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createKey } from '../../../src/cli/keys.ts'
import { connect } from '../../../src/database/open.ts'
import { createPool, type Database } from '../../../src/database/pool.ts'
import { SCOPES } from '../../../src/domain/api-key.ts'
import { contact, entry, module, version } from '../../recording/fixture.ts'
import { type Post, Project, type RecordedEvent } from '../../recording/model.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { asJsonLines } from '../../support/properties.ts'
import { kill, type Service, startService } from '../../support/service.ts'
import { load } from '../../transfer/fixture.ts'
import { runsInForm, size } from './trial.ts'

// Clients record and read at once through two processes on one database. For each history there must be an order of its
// requests, one after another, in which the model of docs/semantics.md gives every response that they had; a request that
// began after another had its response comes after it.

const TIMEOUT_ms = size(300_000, 3_600_000)

let database: TestDatabase
let db: Database
let pool: pg.Pool
let services: Service[]
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 })
  pool = createPool(database.url, { max: 1 })
  services = await Promise.all([1, 2].map(() => startService({ DATABASE_URL: database.url })))
})
afterAll(async () => {
  await Promise.all(services.map(kill))
  await pool.end()
  await db.destroy()
  await database.drop()
})

const at = (second: number) => `2026-02-01T00:00:0${second}.000Z`
const second = fc.nat(5)

/** So few that most requests are about the same contact. */
const VALUES: [value: string, meaning: string][] = [
  ['"a"', 'string:a'],
  ['"\\u0061"', 'string:a'],
  ['1', 'number 1'],
  ['1.0', 'number 1'],
  ['"c1"', 'string:c1'],
  ['true', 'true'],
]
const identifier = fc.record({
  key: fc.constantFrom('email', 'phone', 'contact_id'),
  value: fc.constantFrom(...VALUES),
})
const service = fc.nat(1)
const post = fc.record({
  service,
  module_id: fc.constantFrom('m1', 'm1', 'm2'),
  second,
  name: fc.constantFrom('x', 'y'),
  identifiers: fc.uniqueArray(identifier, { minLength: 1, maxLength: 2, selector: ({ key }) => key }),
  key: fc.option(fc.constantFrom('K', 'k'), { nil: undefined, freq: 3 }),
})
/** Of one key, and mostly of one event. */
const repeated = fc.record({
  service,
  module_id: fc.constant('m2'),
  second: fc.constantFrom(1, 1, 1, 2),
  name: fc.constant('x'),
  identifiers: fc.constant([{ key: 'email', value: ['1', 'number 1'] as [string, string] }]),
  key: fc.constant('K'),
})
const read = fc.record({ service, read: fc.constantFrom('e1', 'e2') })
const request = fc.oneof(
  { weight: 4, arbitrary: post },
  { weight: 2, arbitrary: repeated },
  { weight: 1, arbitrary: read },
)
type Request = typeof request extends fc.Arbitrary<infer T> ? T : never
/** The requests of each client, one after another. */
const clients = asJsonLines(
  fc.array(fc.array(request, { minLength: 1, maxLength: 4 }), { minLength: 2, maxLength: 5, size: 'max' }),
)

type Observed =
  | { refused: string }
  | { recorded: Omit<RecordedEvent, Unseen>; replayed: boolean }
  | { events: string[] }
/** What a response to a recording does not show. */
type Unseen = 'max_page_index' | 'max_page_event' | 'total'

/** A request with its response, and when it began and ended. */
interface Operation {
  request: Request
  began: number
  ended: number
  observed: Observed
}

const ENTRIES = [
  ['e1', 'm1', 2],
  ['e2', 'm1', 4],
] as const

let projects = 0
const prepared: { projectId: string; key: string }[] = []

/** A new project and its key. Many are imported at once, which is as quick as one. */
async function newProject(): Promise<{ projectId: string; key: string }> {
  const next = prepared.pop()
  if (next) return next
  const records = [
    { type: 'project' },
    { type: 'group', group_id: 'growth' },
    ...['m1', 'm2'].flatMap((id) => [module(id), version(id, 1, at(3)), version(id, 2, at(4))]),
    contact('c1', { key: 'email', value: '"a"' }),
    contact('c2', { key: 'phone', value: '1' }),
    ...ENTRIES.map(([entry_id, module_id, second]) => entry(entry_id, 'c1', module_id, at(second))),
  ]
  const ids = Array.from({ length: 50 }, () => `p${projects++}`)
  await load(
    pool,
    ids.flatMap((project_id) => records.map((record) => ({ ...record, project_id }))),
  )
  for (const projectId of ids) {
    prepared.push({ projectId, key: await createKey(db, projectId, { name: '', scopes: SCOPES, expires_at: null }) })
  }
  return newProject()
}

/** The model of a new project, in which what is new gets the ids that the service gave it. */
function modelOf(newId: (kind: 'contact' | 'entry') => string): Project {
  const model = new Project(newId)
  for (const id of ['m1', 'm2']) {
    model.versions.set(id, [
      { version_number: 1, published_at: at(3) },
      { version_number: 2, published_at: at(4) },
    ])
  }
  model.contacts.push('c1', 'c2')
  model.identifiers.push({ contact_id: 'c1', key: 'email', value: '"a"', meaning: 'string:a' })
  model.identifiers.push({ contact_id: 'c2', key: 'phone', value: '1', meaning: 'number 1' })
  for (const [entry_id, module_id, second] of ENTRIES) {
    model.entries.push({ entry_id, module_id, contact_id: 'c1', created_at: at(second) })
  }
  return model
}

async function send(projectId: string, key: string, request: Request): Promise<Observed> {
  const base = `${services[request.service]?.address}/projects/${projectId}`
  const headers = { 'x-api-key': key }
  if ('read' in request) {
    const response = await fetch(`${base}/entries/${request.read}/events?limit=1000`, { headers })
    expect(response.status).toBe(200)
    const events = (await response.json()) as { timestamp: string; custom_event_name: string }[]
    return { events: events.map((event) => `${event.timestamp} ${event.custom_event_name}`).sort() }
  }
  const { module_id, name, identifiers } = request
  const response = await fetch(`${base}/events`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json', ...(request.key && { 'idempotency-key': request.key }) },
    body: JSON.stringify({
      ...{ module_id, timestamp: at(request.second), custom_event_name: name },
      identifiers: identifiers.map(({ key, value: [value] }) => ({ key, value })),
    }),
  })
  const body = (await response.json()) as Record<string, string> & { error: { code: string } }
  if (response.status !== 200) return { refused: body.error.code }
  const { entry_id, contact_id, timestamp, module_version_number, custom_event_name, custom_event_props } = body
  const recorded = { entry_id, contact_id, timestamp, module_version_number, module_id: body.module_id }
  return {
    recorded: { ...recorded, name: custom_event_name, props: custom_event_props } as never,
    replayed: response.headers.get('idempotent-replayed') === 'true',
  }
}

/** What the model does with the request. */
function apply(model: Project, request: Request): Observed {
  if ('read' in request) {
    const events = model.events.filter(({ entry_id }) => entry_id === request.read)
    return { events: events.map(({ timestamp, name }) => `${timestamp} ${name}`).sort() }
  }
  const { module_id, name, second, identifiers, key } = request
  const post: Post = {
    ...{ module_id, name, props: '{}', timestamp: at(second), idempotency_key: key },
    identifiers: identifiers.map(({ key, value: [value, meaning] }) => ({ key, value, meaning })),
  }
  const response = model.record(post)
  if ('refused' in response) return response
  const { max_page_index: _, max_page_event: _event, total: _total, ...recorded } = response.recorded
  return { recorded, replayed: response.replayed }
}

/** Applies operations one after another. @returns the model, unless it gives one of them another response */
function replay(operations: Operation[]): Project | undefined {
  let observed: Observed | undefined
  const model: Project = modelOf((kind) => {
    const id = observed && 'recorded' in observed ? observed.recorded[`${kind}_id`] : ''
    // What exists is not new.
    const isKnown = model.contacts.includes(id) || model.entries.some(({ entry_id }) => entry_id === id)
    return isKnown ? `not ${id}` : id
  })
  for (const operation of operations) {
    observed = operation.observed
    if (JSON.stringify(sorted(apply(model, operation.request))) !== JSON.stringify(sorted(observed))) return undefined
  }
  return model
}
const sorted = (observed: Observed) =>
  'recorded' in observed
    ? [observed.replayed, Object.entries(observed.recorded).sort(([a], [b]) => (a < b ? -1 : 1))]
    : observed

/** Looks for an order of a history's operations that explains their responses, as Wing and Gong do (1993). */
function linearize(history: Operation[]): Operation[] | undefined {
  const seen = new Set<string>()
  const search = (order: Operation[]): Operation[] | undefined => {
    const model = replay(order)
    if (!model) return undefined
    const rest = history.filter((operation) => !order.includes(operation))
    if (rest.length === 0) return order
    // Besides the set of operations, which have given their responses, only these depend on the order.
    const state = JSON.stringify([
      rest.map((operation) => history.indexOf(operation)),
      model.entries.map((one) => `${one.entry_id} ${one.created_at}`).sort(),
    ])
    if (seen.has(state)) return undefined
    seen.add(state)
    const firstEnd = Math.min(...rest.map(({ ended }) => ended))
    for (const next of rest.filter(({ began }) => began <= firstEnd)) {
      const found = search([...order, next])
      if (found) return found
    }
    return undefined
  }
  return search([])
}

test('every history of concurrent requests through two processes has a serial order', {
  timeout: TIMEOUT_ms,
}, async () => {
  const figures = { histories: 0, requests: 0, concurrent: 0, reordered: 0, refused: 0, replayed: 0 }
  await fc.assert(
    fc.asyncProperty(clients, async (clients) => {
      figures.histories += 1
      const { projectId, key } = await newProject()
      const history: Operation[] = []
      const run = async (requests: Request[]) => {
        for (const request of requests) {
          const began = performance.now()
          const observed = await send(projectId, key, request)
          history.push({ request, began, ended: performance.now(), observed })
        }
      }
      await Promise.all(clients.map(run))
      // What is stored in the end must be explained, too.
      await run(ENTRIES.map(([read]) => ({ service: 0, read })))

      history.sort((a, b) => a.began - b.began)
      const order = linearize(history)
      if (!order) expect.unreachable(`no serial order of\n${history.map((one) => JSON.stringify(one)).join('\n')}`)
      figures.requests += history.length
      figures.concurrent += history.filter((one, i) =>
        history.some((other, k) => k < i && other.ended > one.began),
      ).length
      figures.reordered += order?.some((one, i) => one !== history[i]) ? 1 : 0
      figures.refused += history.filter(({ observed }) => 'refused' in observed).length
      figures.replayed += history.filter(({ observed }) => 'replayed' in observed && observed.replayed).length
    }),
    runsInForm(250, 10_000),
  )
  console.log(`linearizability: ${JSON.stringify(figures)}`)
  // Else it would show nothing.
  for (const count of Object.values(figures)) expect(count).toBeGreaterThan(0)
})
