import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { components } from '../../generated/api.ts'
import { eraseContact } from '../../src/queries/erasures.ts'
import { createTestApp, importInto, insertErasures, type TestApp } from '../support/app.ts'

// What the feed of erasures has of its own; tests/feed/feed.test.ts has what both feeds have in common.

type Erasure = components['schemas']['Erasure']
type ProjectEvent = components['schemas']['ProjectEvent']

const AMARA = '019ca8bb-b5c0-7000-9000-000000000001'
const ENTRY = '019ca8bb-b5c0-7000-8000-000000000001'
const EMAIL = { key: 'email', value: '"amara.okafor@example.com"' }

let api: TestApp
beforeAll(async () => {
  api = await createTestApp({ twins: false })
})
afterAll(() => api.close())

async function appOfItsOwn(): Promise<TestApp> {
  const own = await createTestApp({ twins: false })
  onTestFinished(() => own.close())
  return own
}

async function read<Row>(app: TestApp, path: string) {
  const { statusCode, headers, ...response } = await app.call({ path: `/projects/demo/${path}` })
  const rows = response.json() as Row[]
  expect([statusCode, rows]).toEqual([200, expect.any(Array)])
  return { rows, cursor: headers['next-cursor'], link: headers.link }
}
const erasures = (app: TestApp, query: string) => read<Erasure>(app, `erasures?${query}`)
const events = (app: TestApp, query: string) => read<ProjectEvent>(app, `events?${query}`)

const record = (app: TestApp) =>
  app.call({
    method: 'POST',
    path: '/projects/demo/events',
    body: {
      ...{ module_id: 'skin-quiz', timestamp: '2026-03-01T10:00:00Z', custom_event_name: 'back' },
      identifiers: [EMAIL],
    },
  })

test('an erased contact is in the feed by its ids alone, behind its events and before those that come back', async () => {
  const app = await appOfItsOwn()
  const { rows: before } = await events(app, 'limit=1000')
  const erased = await eraseContact(app.db, 'demo', AMARA)
  expect((await record(app)).statusCode).toBe(200)
  const [erasure] = (await erasures(app, 'limit=1')).rows
  expect(erasure).toEqual({
    erasure_id: erased?.erasure_id,
    position: expect.any(Number),
    contact_id: AMARA,
    entry_ids: [ENTRY],
    erased_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z$/),
  })
  const { position } = erasure as Erasure
  expect(Math.max(...before.map((event) => event.position))).toBeLessThan(position)
  const { rows: after } = await events(app, `direction=ASC&after=${position}`)
  expect(after).toMatchObject([{ custom_event_name: 'back' }])
  // It is a contact anew.
  expect(after[0]?.contact_id).not.toBe(AMARA)
})

test('an ascending page always has a cursor, which leads to what is erased later', async () => {
  const app = await appOfItsOwn()
  const first = await erasures(app, 'direction=ASC')
  expect([first.rows.length, first.link]).toEqual([1, undefined])
  const empty = await erasures(app, `direction=ASC&cursor=${first.cursor}`)
  expect(empty).toEqual({ rows: [], cursor: first.cursor, link: undefined })
  await eraseContact(app.db, 'demo', AMARA)
  const later = await erasures(app, `direction=ASC&cursor=${first.cursor}`)
  expect(later.rows).toMatchObject([{ contact_id: AMARA }])
})

test('a request that waits gets the erasure, and no event ends its wait', async () => {
  const app = await appOfItsOwn()
  const [last] = (await erasures(app, 'limit=1')).rows
  const waiting = erasures(app, `direction=ASC&after=${last?.position}&wait=30`)
  const [newest] = (await events(app, 'limit=1')).rows
  const waitingForEvent = events(app, `direction=ASC&after=${newest?.position}&wait=30`)
  // The look-up that ends this wait is of both feeds.
  await record(app)
  expect((await waitingForEvent).rows).toHaveLength(1)
  await eraseContact(app.db, 'demo', AMARA)
  expect((await waiting).rows).toMatchObject([{ contact_id: AMARA }])
})

test('no erasure ends the wait for an event', async () => {
  const app = await appOfItsOwn()
  const [newest] = (await events(app, 'limit=1')).rows
  const waitingForEvent = events(app, `direction=ASC&after=${newest?.position}&wait=30`)
  const [last] = (await erasures(app, 'limit=1')).rows
  const waiting = erasures(app, `direction=ASC&after=${last?.position}&wait=30`)
  await eraseContact(app.db, 'demo', AMARA)
  expect((await waiting).rows).toHaveLength(1)
  await record(app)
  expect((await waitingForEvent).rows).toMatchObject([{ custom_event_name: 'back' }])
})

test('contacts with very many entries are in pages of at most 8 MiB', async () => {
  const ids = Array.from({ length: 90_000 }, (_, i) => `019ca8bb-b5c0-7000-8000-${String(i).padStart(12, '0')}`)
  const many = [1, 2, 3, 4, 5].map((position) => ({
    ...{ erasure_id: `many-${position}`, position, contact_id: 'c', entry_ids: position === 2 ? ['e'] : ids },
    erased_at: '2026-03-01T09:00:00.000Z' as Erasure['erased_at'],
  }))
  await insertErasures(api.db, 'demo', many)
  const walked: Erasure[] = []
  const sizes_bytes: number[] = []
  for (let query: string | undefined = 'direction=ASC&after=0'; query !== undefined; ) {
    const { rows, cursor, link } = await erasures(api, query)
    walked.push(...rows)
    sizes_bytes.push(JSON.stringify(rows).length)
    query = link && `direction=ASC&cursor=${cursor}`
  }
  expect(sizes_bytes).toHaveLength(2)
  expect(Math.max(...sizes_bytes)).toBeLessThanOrEqual(8 * 1024 * 1024)
  expect(walked.slice(0, many.length)).toEqual(many)
})

describe('a copy that applies erasures after the events that it has read', () => {
  /** As the document describes it. */
  class Copy {
    readonly events = new Map<string, ProjectEvent>()
    #erased = 0

    async synchronize(app: TestApp): Promise<void> {
      const after = Math.max(0, ...[...this.events.values()].map(({ position }) => position))
      for (const event of (await events(app, `direction=ASC&limit=1000&after=${after}`)).rows) {
        this.events.set(event.event_id, event)
      }
      for (const { contact_id, position } of (await erasures(app, `direction=ASC&after=${this.#erased}`)).rows) {
        for (const event of this.events.values()) {
          if (event.contact_id === contact_id && event.position < position) this.events.delete(event.event_id)
        }
        this.#erased = position
      }
    }
  }

  test('has what the service has, also when the contact was imported again', async () => {
    const app = await appOfItsOwn()
    const copy = new Copy()
    const expectEqual = async () => {
      const { rows } = await events(app, 'limit=1000')
      expect([...copy.events.values()].toSorted((a, b) => b.position - a.position)).toEqual(rows)
    }
    await copy.synchronize(app)
    await expectEqual()
    const size = copy.events.size
    await eraseContact(app.db, 'demo', AMARA)
    await copy.synchronize(app)
    expect(copy.events.size).toBeLessThan(size)
    await expectEqual()

    await importInto(app.databaseUrl, [
      {
        type: 'contact',
        project_id: 'demo',
        contact_id: AMARA,
        created_at: '2026-03-01T09:00:00Z',
        identifiers: [EMAIL],
      },
      {
        ...{ type: 'entry', project_id: 'demo', entry_id: ENTRY, module_id: 'skin-quiz', contact_id: AMARA },
        ...{ created_at: '2026-03-01T09:30:00Z', updated_at: '2026-03-01T09:30:00Z', entry_data: '{}' },
      },
    ])
    await record(app)
    // Reads the events of the contact's return before its erasure.
    const late = new Copy()
    await late.synchronize(app)
    await copy.synchronize(app)
    await expectEqual()
    expect([...copy.events.values()].filter(({ contact_id }) => contact_id === AMARA)).toHaveLength(1)
    expect(late.events).toEqual(copy.events)
  })
})
