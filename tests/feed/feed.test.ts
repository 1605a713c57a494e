import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { request } from 'node:http'
import { setTimeout } from 'node:timers/promises'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import type { components } from '../../generated/api.ts'
import { createKey } from '../../src/cli/keys.ts'
import { encodeCursor, fingerprint } from '../../src/domain/cursor.ts'
import { Followers } from '../../src/feed/followers.ts'
import { createTestApp, importInto, type TestApp, type TestAppOptions } from '../support/app.ts'

type ProjectEvent = components['schemas']['ProjectEvent']
type Feed = Awaited<ReturnType<typeof feed>>

const FEED = '/projects/demo/events'

let api: TestApp
beforeAll(async () => {
  api = await createTestApp()
})
afterAll(() => api.close())

async function appFor(options: TestAppOptions = {}): Promise<TestApp> {
  const own = await createTestApp({ twins: false, ...options })
  onTestFinished(() => own.close())
  return own
}

const searchOf = (query: object) =>
  new URLSearchParams(Object.entries(query).map(([name, value]): [string, string] => [name, String(value)]))

async function feed(app: TestApp, query: Record<string, string | number> = {}) {
  const { statusCode, headers, ...response } = await app.call({ path: `${FEED}?${searchOf(query)}` })
  const body = response.json()
  expect([statusCode, body]).toEqual([200, expect.any(Array)])
  return { events: body as ProjectEvent[], cursor: headers['next-cursor'] as string, link: headers.link, headers }
}

async function record(app: TestApp, custom_event_name: string, timestamp = '2026-03-01T10:00:00.000Z', headers = {}) {
  const response = await app.call({
    method: 'POST',
    path: FEED,
    headers,
    body: {
      module_id: 'skin-quiz',
      timestamp,
      custom_event_name,
      identifiers: [{ key: 'email', value: '"amara.okafor@example.com"' }],
    },
  })
  expect(response.statusCode).toBe(200)
  return response.json() as components['schemas']['CustomEventResult']
}

const namesOf = ({ events }: Feed) => events.map(({ custom_event_name }) => custom_event_name)
const positionsOf = ({ events }: Feed) => events.map(({ position }) => position)

describe('the feed', () => {
  test('has recorded events in the order of recording, whatever their timestamps', async () => {
    const [newest] = (await feed(api, { limit: 1 })).events
    const recorded = [
      await record(api, 'now'),
      await record(api, 'long ago', '2001-01-01T00:00:00.000Z'),
      await record(api, 'then'),
    ]
    const page = await feed(api, { direction: 'ASC', after: newest?.position ?? 0 })
    expect(page.events).toMatchObject(recorded)
    expect(positionsOf(page)).toEqual(positionsOf(page).toSorted())
    const [first] = page.events
    expect(Math.abs(Date.parse(first?.recorded_at ?? '') - Date.now())).toBeLessThan(60_000)
    expect(namesOf(await feed(api, { limit: 3 }))).toEqual(['then', 'long ago', 'now'])
  })

  test('has each event as the list of its entry has it', async () => {
    const { events } = await feed(api, { limit: 1000 })
    for (const { position: _, recorded_at: __, ...event } of events) {
      const list = await api.call({ path: `/projects/demo/entries/${event.entry_id}/events?limit=1000` })
      expect(list.json()).toContainEqual(event)
    }
  })

  test('does not move an event that is posted or imported again', async () => {
    const post = () => record(api, 'once', undefined, { 'idempotency-key': 'once' })
    await post()
    const before = await feed(api, { limit: 1000 })
    const [event] = before.events.filter(({ custom_event_name }) => custom_event_name === 'newsletter_opt_in')
    const {
      contact_id: _,
      group_id: __,
      module_id: ___,
      position: ____,
      recorded_at: _____,
      ...line
    } = event as ProjectEvent
    await importInto(api.databaseUrl, [{ type: 'event', ...line }])
    await post()
    expect((await feed(api, { limit: 1000 })).events).toEqual(before.events)
  })

  test('has the events of an import by entry, timestamp and id', async () => {
    const app = await appFor()
    const [newest] = (await feed(app, { limit: 1 })).events
    const entry = { project_id: 'demo', module_id: 'skin-quiz', contact_id: '019ca8bb-b5c0-7000-9000-000000000001' }
    const at = { created_at: '2026-02-01T00:00:00Z', updated_at: '2026-02-01T00:00:00Z' }
    const event = (entry_id: string, event_id: string, second: number) => ({
      ...{ type: 'event', project_id: 'demo', entry_id, event_id, timestamp: `2026-02-01T00:00:0${second}Z` },
      ...{ event_type: 'custom_event:triggered', custom_event_name: event_id, custom_event_props: '{}' },
    })
    const complete = {
      module_version_number: 2,
      max_page_id: null,
      max_page_key: null,
      max_page_index: null,
      total_pages: null,
    }
    await importInto(app.databaseUrl, [
      ...['E', 'e', 'd'].map((entry_id) => ({ type: 'entry', ...entry, entry_id, ...at })),
      event('e', 'e-2', 2),
      { ...event('e', 'e-1', 1), ...complete },
      event('d', 'd-1', 1),
      { ...event('E', 'E-B', 1), ...complete },
      event('E', 'E-a', 1),
    ])
    const page = await feed(app, { direction: 'ASC', after: newest?.position ?? 0 })
    expect(namesOf(page)).toEqual(['E-B', 'E-a', 'd-1', 'e-1', 'e-2'])
    await record(app, 'afterwards')
    expect(namesOf(await feed(app, { direction: 'ASC', cursor: page.cursor }))).toEqual(['afterwards'])
  })

  test('goes on behind every position that was seen, whatever the clock says', async () => {
    const app = await appFor()
    const ahead = (Date.now() + 3_600_000) * 1_000
    const [newest = 0] = positionsOf(await feed(app, { limit: 1 }))
    await sql`UPDATE events SET position = ${ahead} WHERE project_id = 'demo' AND position = ${newest}`.execute(app.db)
    await record(app, 'one')
    await record(app, 'two')
    expect(positionsOf(await feed(app, { limit: 2 }))).toEqual([ahead + 2, ahead + 1])
    const entry_id = '019ca8bb-b5c0-7000-8000-000000000001'
    const line = { type: 'event', project_id: 'demo', entry_id, event_type: 'survey.answered' }
    await importInto(app.databaseUrl, [{ ...line, timestamp: '2026-03-01T10:00:00Z' }])
    expect(positionsOf(await feed(app, { limit: 1 }))).toEqual([ahead + 3])
    await record(app, 'three')
    expect(positionsOf(await feed(app, { limit: 1 }))).toEqual([ahead + 4])
  })

  test('has no new event at or before a position that was seen before an old backup was restored', async () => {
    const app = await appFor()
    const ids = { project_id: 'demo', entry_id: '019ca8bb-b5c0-7000-8000-000000000001' }
    const line = { type: 'event', ...ids, event_type: 'survey.answered', timestamp: '2026-03-01T11:00:00Z' }
    for (const add of [() => record(app, 'new'), () => importInto(app.databaseUrl, [line])]) {
      await record(app, 'lost')
      const [seen] = positionsOf(await feed(app, { limit: 1 }))
      await sql`DELETE FROM events WHERE position = ${seen}`.execute(app.db)
      await add()
      const [position] = positionsOf(await feed(app, { limit: 1 }))
      expect(position).toBeGreaterThan(seen as number)
    }
  })
})

describe('an ascending page', () => {
  test('always has a cursor, and a link as long as there is more', async () => {
    const { events } = await feed(api, { limit: 1000 })
    const walked: ProjectEvent[] = []
    let page = await feed(api, { direction: 'ASC', limit: 2 })
    for (;;) {
      walked.push(...page.events)
      expect(page.cursor).toMatch(/^[\w-]+$/)
      expect(page.link !== undefined).toBe(walked.length < events.length)
      if (page.link === undefined) break
      expect(page.link).toBe(`<${FEED}?cursor=${page.cursor}&direction=ASC&limit=2>; rel="next"`)
      page = await feed(api, { direction: 'ASC', limit: 2, cursor: page.cursor })
    }
    expect(walked).toEqual(events.toReversed())
    const empty = await feed(api, { direction: 'ASC', cursor: page.cursor })
    expect([empty.events, empty.cursor, empty.link]).toEqual([[], page.cursor, undefined])
    const event = await record(api, 'later')
    const { events: later } = await feed(api, { direction: 'ASC', cursor: empty.cursor, limit: 1, wait: 5 })
    expect(later).toMatchObject([event])
  })

  test('begins behind `after`, which its link and its cursor replace', async () => {
    const all = (await feed(api, { direction: 'ASC', limit: 1000 })).events
    const page = await feed(api, { direction: 'ASC', after: all[0]?.position ?? 0, limit: 1 })
    expect(page.events).toEqual([all[1]])
    expect(page.link).toBe(`<${FEED}?cursor=${page.cursor}&direction=ASC&limit=1>; rel="next"`)
    const beyond = await feed(api, { direction: 'ASC', after: Number.MAX_SAFE_INTEGER })
    expect(beyond.events).toEqual([])
    expect((await feed(api, { direction: 'ASC', cursor: beyond.cursor })).events).toEqual([])
    expect((await feed(api, { direction: 'ASC', after: 0, limit: 1000 })).events).toEqual(all)
  })
})

test('a descending walk ends as other lists do', async () => {
  const { events } = await feed(api, { limit: 1000 })
  const first = await feed(api, { limit: events.length - 1 })
  expect(first.link).toContain(first.cursor)
  const last = await feed(api, { limit: 1, cursor: first.cursor })
  expect([last.events, last.cursor, last.link]).toEqual([events.slice(-1), undefined, undefined])
})

const cursorOf = (list: string, project: string, direction: string, key: [number]) =>
  encodeCursor(fingerprint([list, project, direction]), key)
const ASCENDING = cursorOf('listProjectEvents', 'demo', 'ASC', [1])
const FOREIGN = 'is not a cursor of this list'
const ONLY_ASCENDING = 'is only possible with direction=ASC'
const WAIT = 'must be an integer from 0 to 30'
const AFTER = 'must be an integer from 0 to 9007199254740991'

test.each([
  [{ cursor: ASCENDING }, 'cursor', 'is a cursor of direction=ASC; send direction=ASC with it'],
  [{ cursor: ASCENDING, direction: 'DESC' }, 'cursor', 'send direction=ASC with it'],
  [{ cursor: cursorOf('listProjectEvents', 'demo', 'DESC', [1]), direction: 'ASC' }, 'cursor', FOREIGN],
  [{ cursor: cursorOf('listProjectEvents', 'other', 'ASC', [1]), direction: 'ASC' }, 'cursor', FOREIGN],
  [{ cursor: cursorOf('listProjectEvents', 'other', 'ASC', [1]) }, 'cursor', FOREIGN],
  [{ cursor: cursorOf('listModules', 'demo', 'ASC', [1]), direction: 'ASC' }, 'cursor', FOREIGN],
  [{ cursor: cursorOf('listProjectEvents', 'demo', 'ASC', [-1]), direction: 'ASC' }, 'cursor', FOREIGN],
  [{ cursor: cursorOf('listProjectEvents', 'demo', 'ASC', [1.5]), direction: 'ASC' }, 'cursor', FOREIGN],
  [{ cursor: cursorOf('listProjectEvents', 'demo', 'ASC', [2 ** 53]), direction: 'ASC' }, 'cursor', FOREIGN],
  [{ after: 1, cursor: ASCENDING, direction: 'ASC' }, 'after', 'cannot be combined with cursor'],
  [{ after: 1, cursor: ASCENDING }, 'after', ONLY_ASCENDING],
  [{ after: 1 }, 'after', ONLY_ASCENDING],
  [{ after: 0, direction: 'DESC' }, 'after', ONLY_ASCENDING],
  [{ after: -1, direction: 'ASC' }, 'after', AFTER],
  [{ after: 1.5, direction: 'ASC' }, 'after', AFTER],
  [{ after: '9007199254740992', direction: 'ASC' }, 'after', AFTER],
  [{ after: '', direction: 'ASC' }, 'after', 'is empty'],
  [{ wait: 1 }, 'wait', ONLY_ASCENDING],
  [{ wait: 30, direction: 'DESC' }, 'wait', ONLY_ASCENDING],
  [{ wait: 31, direction: 'ASC' }, 'wait', WAIT],
  [{ wait: 0.5, direction: 'ASC' }, 'wait', WAIT],
  [{ wait: -1, direction: 'ASC' }, 'wait', WAIT],
])('%j is refused with a pointer to %s: %s', async (query, name, message) => {
  const response = await api.call({ path: `${FEED}?${searchOf(query)}` })
  expect(response.statusCode).toBe(400)
  expect(response.json().error.details).toEqual([
    { pointer: `/query/${name}`, message: expect.stringContaining(message) },
  ])
})

describe('a request that waits', () => {
  const followers = async (app: TestApp) => {
    const { body } = await app.call({ path: '/metrics', key: null })
    return Number(/^flowtrail_feed_followers (\d+)$/m.exec(body)?.[1])
  }
  const untilWaiting = (app: TestApp, count: number) =>
    vi.waitFor(async () => expect(await followers(app)).toBe(count), { timeout: 30_000, interval: 10 })
  /** Sends a request that finds nothing, and has begun to wait. */
  const beginWaiting = async <T>(send: () => Promise<T>): Promise<{ waiting: Promise<T> }> => {
    const wait = vi.spyOn(Followers.prototype, 'wait')
    const waiting = send()
    await expect.poll(() => wait).toHaveBeenCalled()
    wait.mockRestore()
    return { waiting }
  }
  const end = async (app: TestApp) => ({ direction: 'ASC', after: positionsOf(await feed(app, { limit: 1 }))[0] ?? 0 })

  test('gets the event as soon as another process has committed it', async () => {
    const app = await appFor()
    const { db } = app
    const query = await end(app)
    const waiting = feed(app, { ...query, wait: 30 })
    await untilWaiting(app, 1)
    // By SQL, as any process does it.
    await db.transaction().execute(async (transaction) => {
      await sql`INSERT INTO events SELECT (e).* FROM (
        SELECT jsonb_populate_record(e, jsonb_build_object('event_id', ${randomUUID()}::text, 'position', e.position + 1)) AS e
        FROM events e WHERE project_id = 'demo' ORDER BY position DESC LIMIT 1) row`.execute(transaction)
    })
    const { events, cursor } = await waiting
    expect(events).toHaveLength(1)
    expect(cursor).toBeDefined()
  })

  test('waits on through an event that is gone before it is read', async () => {
    const app = await appFor()
    const query = await end(app)
    const wait = vi.spyOn(Followers.prototype, 'wait')
    wait.mockReturnValueOnce({ ended: Promise.resolve(query.after + 1), cancel: () => {} })
    const waiting = feed(app, { ...query, wait: 30 })
    await expect.poll(() => wait).toHaveBeenCalledTimes(2)
    wait.mockRestore()
    const event = await record(app, 'there')
    const { events } = await waiting
    expect(events).toMatchObject([event])
  })

  test('gets an empty page with a cursor when the time is over', async () => {
    const query = await end(api)
    const begin_ms = performance.now()
    const { events, cursor, link } = await feed(api, { ...query, wait: 1 })
    expect(performance.now() - begin_ms).toBeGreaterThan(990)
    expect([events, link]).toEqual([[], undefined])
    expect(cursor).toBeDefined()
  })

  test('gets what is there at once, and then at most 16 events', async () => {
    const app = await appFor()
    const query = await end(app)
    const { waiting } = await beginWaiting(() => feed(app, { ...query, limit: 1000, wait: 30 }))
    const entry_id = '019ca8bb-b5c0-7000-8000-000000000001'
    const line = { type: 'event', project_id: 'demo', entry_id, event_type: 'survey.answered' }
    const timestamps = Array.from({ length: 20 }, (_, i) => `2026-03-02T00:00:${String(i).padStart(2, '0')}.000Z`)
    await importInto(
      app.databaseUrl,
      timestamps.map((timestamp) => ({ ...line, timestamp })),
    )
    const awaited = await waiting
    expect(awaited.events.map(({ timestamp }) => timestamp)).toEqual(timestamps.slice(0, 16))
    expect(awaited.link).toContain(awaited.cursor)
    const next = await feed(app, { direction: 'ASC', cursor: awaited.cursor, wait: 30, limit: 1000 })
    expect(next.events.map(({ timestamp }) => timestamp)).toEqual(timestamps.slice(16))
  })

  test('is over when its client goes', async () => {
    const app = await appFor()
    const address = await app.listen()
    const { after } = await end(app)
    const sent = request(`${address}${FEED}?direction=ASC&after=${after}&wait=30`, {
      headers: { 'x-api-key': app.key },
    }).end()
    await untilWaiting(app, 1)
    sent.destroy()
    await once(sent, 'error')
    await untilWaiting(app, 0)
  })

  test('ends with an empty page when the service stops', async () => {
    const app = await createTestApp({ twins: false })
    const query = await end(app)
    const { waiting } = await beginWaiting(() => feed(app, { ...query, wait: 30 }))
    const [{ events, cursor, headers }] = await Promise.all([waiting, app.close()])
    expect(events).toEqual([])
    expect(cursor).toBeDefined()
    expect(headers.connection).toBe('close')
  })

  test('is refused when too many wait, in all and in its project', async () => {
    const app = await appFor({ config: { maxFollowers: 3 } })
    const query = { ...(await end(app)), wait: 30 }
    const waiting = [feed(app, query), feed(app, query)]
    await untilWaiting(app, 2)
    const refused = await app.call({ path: `${FEED}?direction=ASC&after=${query.after}&wait=30` })
    expect([refused.statusCode, refused.headers['retry-after']]).toEqual([503, '1'])
    const other = await createKey(app.db, 'other', { name: 'other', scopes: ['read'], expires_at: null })
    const newest = (await app.call({ path: '/projects/other/events?limit=1', key: other })).json()[0]?.position ?? 0
    const path = `/projects/other/events?direction=ASC&after=${newest}&wait=30`
    const third = app.call({ path, key: other })
    await untilWaiting(app, 3)
    expect((await app.call({ path, key: other })).statusCode).toBe(503)
    const event = await record(app, 'for all')
    for (const one of waiting) expect((await one).events).toMatchObject([event])
    await app.app.close()
    expect((await third).json()).toEqual([])
  })

  test('waits with a thousand others, for one event after another, and holds no place among the reads', async () => {
    // Reading for all of them may take longer than reads wait.
    const app = await appFor({ readGate: { maxWait_ms: 60_000 } })
    let query = { ...(await end(app)), limit: 1000, wait: 30 }
    for (const name of ['first', 'second']) {
      const waiting = Array.from({ length: 1_000 }, () => feed(app, query))
      await untilWaiting(app, 1_000)
      const { body } = await app.call({ path: '/metrics', key: null })
      expect(body).toMatch(/^flowtrail_reads_under_way 0$/m)
      expect((await feed(app, { limit: 1 })).events).toHaveLength(1)
      const event = await record(app, name)
      const pages = await Promise.all(waiting)
      for (const page of pages) expect(page.events).toMatchObject([event])
      query = { ...query, after: pages[0]?.events[0]?.position ?? 0 }
    }
  })

  test('gets a whole page when it is far behind', async () => {
    const all = (await feed(api, { direction: 'ASC', limit: 1000 })).events
    const missing = 20 - all.length
    for (let i = 0; i < missing; i += 1) await record(api, `filler ${i}`)
    const now = (await feed(api, { direction: 'ASC', limit: 1000 })).events
    expect(now.length).toBeGreaterThan(16)
    expect((await feed(api, { direction: 'ASC', limit: 1000, wait: 30 })).events).toEqual(now)
    expect((await feed(api, { direction: 'ASC', limit: 17, wait: 30 })).events).toEqual(now.slice(0, 17))
  })

  test('gets a whole page of large events when it is far behind', async () => {
    const app = await appFor()
    const { after } = await end(app)
    const names = Array.from({ length: 20 }, (_, i) => `large ${i}`)
    for (const name of names) await record(app, name)
    await sql`UPDATE events SET custom_event_props = ${JSON.stringify({ text: 'x'.repeat(5_000) })}
      WHERE custom_event_name LIKE 'large %'`.execute(app.db)
    expect(namesOf(await feed(app, { direction: 'ASC', after, limit: 1000, wait: 30 }))).toEqual(names)
  })

  test('gets a 401 when its key is revoked before there is an event', async () => {
    const app = await appFor()
    const key = await createKey(app.db, 'demo', { name: 'short', scopes: ['read'], expires_at: null })
    const { after } = await end(app)
    const path = `${FEED}?direction=ASC&after=${after}&wait=30`
    const { waiting } = await beginWaiting(() => app.call({ path, key }))
    await sql`UPDATE api_keys SET revoked_at = now() WHERE name = 'short'`.execute(app.db)
    // A service may know of a key what it was a second ago.
    await setTimeout(1_100)
    await record(app, 'secret')
    expect((await waiting).statusCode).toBe(401)
  })
})
