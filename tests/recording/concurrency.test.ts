import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { kill, type Service, startService } from '../support/service.ts'
import { type CustomEventInput, customEvent, fillFixture, freshValue } from './fixture.ts'

let database: TestDatabase
let db: Database
let key: string
let services: Service[]
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 2 })
  await fillFixture(database.url)
  key = await createKey(db, 'demo', { name: 'test', scopes: SCOPES, expires_at: null })
  services = await Promise.all([1, 2].map(() => startService({ DATABASE_URL: database.url })))
})
afterAll(async () => {
  await Promise.all(services.map(kill))
  await db.destroy()
  await database.drop()
})

/** Sends an event to one server process or the other. */
async function postTo(i: number, changes: Partial<CustomEventInput>, headers: Record<string, string> = {}) {
  const response = await fetch(`${services[i % services.length]?.address}/projects/demo/events`, {
    method: 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json', ...headers },
    body: JSON.stringify(customEvent(changes)),
  })
  const body = (await response.json()) as { contact_id: string; entry_id: string; module_id: string }
  return { status: response.status, body, replayed: response.headers.has('idempotent-replayed') }
}

const eventsNamed = (prefix: string) =>
  db
    .selectFrom('events')
    .select(['custom_event_name as name', 'entry_id'])
    .where('custom_event_name', 'like', `${prefix}%`)
    .execute()

describe('two server processes on one database', () => {
  test('create one contact and one entry for 50 concurrent events of an unknown contact', async () => {
    const identifiers = [{ key: 'email', value: freshValue() }]
    const responses = await Promise.all(
      Array.from({ length: 50 }, (_, i) => postTo(i, { identifiers, custom_event_name: `newcomer ${i}` })),
    )
    expect(responses.map(({ status }) => status)).toEqual(Array(50).fill(200))
    const [contactIds, entryIds] = [
      responses.map(({ body }) => body.contact_id),
      responses.map(({ body }) => body.entry_id),
    ]
    expect(new Set(contactIds).size).toBe(1)
    expect(new Set(entryIds).size).toBe(1)
    const entries = db
      .selectFrom('entries')
      .select('entry_id')
      .where('contact_id', '=', contactIds[0] ?? '')
    expect(await entries.execute()).toEqual([{ entry_id: entryIds[0] }])
    const events = await eventsNamed('newcomer ')
    expect(new Set(events.map(({ name }) => name)).size).toBe(50)
    expect(events).toHaveLength(50)
  })

  test('record one event for 20 concurrent requests with one Idempotency-Key', async () => {
    const changes = { identifiers: [{ key: 'email', value: freshValue() }], custom_event_name: 'repeated' }
    const responses = await Promise.all(
      Array.from({ length: 20 }, (_, i) => postTo(i, changes, { 'idempotency-key': 'repeated-key' })),
    )
    expect(responses.map(({ status }) => status)).toEqual(Array(20).fill(200))
    expect(responses.filter(({ replayed }) => !replayed)).toHaveLength(1)
    expect(new Set(responses.map(({ body }) => JSON.stringify(body))).size).toBe(1)
    expect(await eventsNamed('repeated')).toHaveLength(1)
  })

  test.each<[string, string[][]]>([
    [
      'a ring',
      [
        ['A', 'B'],
        ['B', 'C'],
        ['A', 'C'],
      ],
    ],
    [
      'a chain, end to end',
      [
        ['A', 'B'],
        ['B', 'C'],
        ['C', 'D'],
        ['D', 'E'],
      ],
    ],
    ['separate ones that others would join', [['A'], ['B'], ['C'], ['A', 'B'], ['B', 'C'], ['A', 'C']]],
    ['the same ones twice', [['A', 'B'], ['A', 'B'], ['A'], ['B'], ['B', 'A']]],
  ])('resolve overlapping identifiers as in some serial order of the requests: %s', async (name, posts) => {
    const possible = new Set(permutations(posts.map((_, i) => i)).map((order) => expected(posts, order)))
    for (let round = 0; round < 20; round += 1) {
      const values = new Map(posts.flat().map((label) => [label, freshValue()]))
      const responses = await Promise.all(
        posts.map((labels, i) => {
          const identifiers = labels.map((label) => ({ key: label, value: values.get(label) ?? '' }))
          // The processes get them in a different order in each round.
          return postTo(i + round, { identifiers, custom_event_name: `${name}, round ${round}, post ${i}` })
        }),
      )
      expect(possible).toContain(await observed(responses, values))
      const stored = (await eventsNamed(`${name}, round ${round},`)).map((event) => event.name).sort()
      const accepted = responses.flatMap(({ status }, i) =>
        status === 200 ? [`${name}, round ${round}, post ${i}`] : [],
      )
      expect(stored).toEqual(accepted)
    }
  })

  test('leave no contact without identifiers or with two entries in a module', async () => {
    const idle = db
      .selectFrom('contacts as c')
      .select('c.contact_id')
      .where((eb) =>
        eb.not(
          eb.exists(
            eb
              .selectFrom('contact_identifiers as i')
              .select('i.key')
              .whereRef('i.project_id', '=', 'c.project_id')
              .whereRef('i.contact_id', '=', 'c.contact_id'),
          ),
        ),
      )
    expect(await idle.execute()).toEqual([])
    const doubled = db
      .selectFrom('entries')
      .select(['project_id', 'contact_id', 'module_id'])
      .groupBy(['project_id', 'contact_id', 'module_id'])
      .having((eb) => eb.fn.countAll(), '>', 1)
    expect(await doubled.execute()).toEqual([])
  })
})

function permutations<T>(items: T[]): T[][] {
  if (items.length === 0) return [[]]
  return items.flatMap((item, i) => permutations(items.toSpliced(i, 1)).map((rest) => [item, ...rest]))
}

/** The outcome of requests in this order: the owner of each identifier, and each request's contact or conflict. */
function expected(posts: string[][], order: number[]): string {
  const owners = new Map<string, number>()
  const results: (number | undefined)[] = []
  for (const i of order) {
    const labels = posts[i] ?? []
    const known = new Set(labels.flatMap((label) => owners.get(label) ?? []))
    if (known.size > 1) continue
    const [contact = i] = known
    for (const label of labels) owners.set(label, contact)
    results[i] = contact
  }
  return describeOutcome(
    owners,
    Array.from(posts, (_, i) => results[i]),
  )
}

async function observed(responses: { status: number; body: { contact_id: string } }[], values: Map<string, string>) {
  const rows = await db
    .selectFrom('contact_identifiers')
    .select(['key', 'contact_id'])
    .where('value', 'in', [...values.values()])
    .execute()
  expect(new Set(rows.map(({ key }) => key)).size).toBe(rows.length)
  for (const { status } of responses) expect([200, 409]).toContain(status)
  return describeOutcome(
    new Map(rows.map(({ key, contact_id }) => [key, contact_id])),
    responses.map(({ status, body }) => (status === 200 ? body.contact_id : undefined)),
  )
}

/** An outcome independent of contact ids: each contact is named after its identifiers. */
function describeOutcome<Contact>(owners: Map<string, Contact>, results: (Contact | undefined)[]): string {
  const names = new Map<Contact, string>()
  for (const [label, contact] of [...owners].sort()) names.set(contact, (names.get(contact) ?? '') + label)
  return results.map((contact) => (contact === undefined ? 'conflict' : names.get(contact))).join(' ')
}
