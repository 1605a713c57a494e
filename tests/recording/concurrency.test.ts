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

/** Posts to one server process or the other. */
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
  test('make one contact and one entry of 50 posts at once about a contact never seen', async () => {
    const identifiers = [{ key: 'email', value: freshValue() }]
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, i) => postTo(i, { identifiers, custom_event_name: `newcomer ${i}` })),
    )
    expect(answers.map(({ status }) => status)).toEqual(Array(50).fill(200))
    const [contactIds, entryIds] = [
      answers.map(({ body }) => body.contact_id),
      answers.map(({ body }) => body.entry_id),
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

  test('make one event of 20 twins at once with one Idempotency-Key', async () => {
    const changes = { identifiers: [{ key: 'email', value: freshValue() }], custom_event_name: 'twin' }
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => postTo(i, changes, { 'idempotency-key': 'twins' })),
    )
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200))
    expect(answers.filter(({ replayed }) => !replayed)).toHaveLength(1)
    expect(new Set(answers.map(({ body }) => JSON.stringify(body))).size).toBe(1)
    expect(await eventsNamed('twin')).toHaveLength(1)
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
    ['loose ends that some would tie', [['A'], ['B'], ['C'], ['A', 'B'], ['B', 'C'], ['A', 'C']]],
    ['the same twice', [['A', 'B'], ['A', 'B'], ['A'], ['B'], ['B', 'A']]],
  ])('decide on overlapping identifiers as in some order of the posts: %s', async (name, posts) => {
    const possible = new Set(permutations(posts.map((_, i) => i)).map((order) => expected(posts, order)))
    for (let round = 0; round < 20; round += 1) {
      const values = new Map(posts.flat().map((label) => [label, freshValue()]))
      const answers = await Promise.all(
        posts.map((labels, i) => {
          const identifiers = labels.map((label) => ({ key: label, value: values.get(label) ?? '' }))
          // Each process gets them in another order.
          return postTo(i + round, { identifiers, custom_event_name: `${name}, round ${round}, post ${i}` })
        }),
      )
      expect(possible).toContain(await observed(answers, values))
      const stored = (await eventsNamed(`${name}, round ${round},`)).map((event) => event.name).sort()
      const accepted = answers.flatMap(({ status }, i) =>
        status === 200 ? [`${name}, round ${round}, post ${i}`] : [],
      )
      expect(stored).toEqual(accepted)
    }
  })

  test('leave no contact without identifiers and none with two entries of a module', async () => {
    const idle = db
      .selectFrom('contacts as c')
      .select('c.contact_id')
      .where((eb) =>
        eb.not(
          eb.exists(
            eb.selectFrom('contact_identifiers as i').select('i.key').whereRef('i.contact_id', '=', 'c.contact_id'),
          ),
        ),
      )
    expect(await idle.execute()).toEqual([])
    const doubled = db
      .selectFrom('entries')
      .select(['contact_id', 'module_id'])
      .groupBy(['contact_id', 'module_id'])
      .having((eb) => eb.fn.countAll(), '>', 1)
    expect(await doubled.execute()).toEqual([])
  })
})

function permutations<T>(items: T[]): T[][] {
  if (items.length === 0) return [[]]
  return items.flatMap((item, i) => permutations(items.toSpliced(i, 1)).map((rest) => [item, ...rest]))
}

/** The outcome of posts one after another: whose each identifier is, and of each post its contact or a conflict. */
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

async function observed(answers: { status: number; body: { contact_id: string } }[], values: Map<string, string>) {
  const rows = await db
    .selectFrom('contact_identifiers')
    .select(['key', 'contact_id'])
    .where('value', 'in', [...values.values()])
    .execute()
  expect(new Set(rows.map(({ key }) => key)).size).toBe(rows.length)
  for (const { status } of answers) expect([200, 409]).toContain(status)
  return describeOutcome(
    new Map(rows.map(({ key, contact_id }) => [key, contact_id])),
    answers.map(({ status, body }) => (status === 200 ? body.contact_id : undefined)),
  )
}

/** An outcome in words that do not depend on what contacts are called: each is named after its identifiers. */
function describeOutcome<Contact>(owners: Map<string, Contact>, results: (Contact | undefined)[]): string {
  const names = new Map<Contact, string>()
  for (const [label, contact] of [...owners].sort()) names.set(contact, (names.get(contact) ?? '') + label)
  return results.map((contact) => (contact === undefined ? 'conflict' : names.get(contact))).join(' ')
}
