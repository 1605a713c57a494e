import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { RecorderOptions } from '../../src/config.ts'
import { openWritePool } from '../../src/database/open.ts'
import type { PoolOptions } from '../../src/database/pool.ts'
import { toApiError } from '../../src/http/error-handler.ts'
import type { Recorder } from '../../src/recording/recorder.ts'
import { importInto, type TestApp } from '../support/app.ts'
import { isOnCitus } from '../support/citus.ts'
import { type HeldLock, holdProject } from '../support/waiting.ts'
import {
  contact,
  createRecordingApp,
  customEvent,
  type EntryEvent,
  entry,
  eventsOf,
  freshValue,
  IMPORTED_CONTACT,
  IMPORTED_ENTRY,
  module,
  pageView,
  parsedEvent,
  post,
  record,
  recorderOn,
  rowCounts,
  stopClock,
  UUID_V7,
  version,
} from './fixture.ts'

let api: TestApp
beforeAll(async () => {
  api = await createRecordingApp()
})
afterAll(() => api.close())

const getEntry = async (entryId: string) => (await api.call({ path: `/projects/demo/entries/${entryId}` })).json()
const named = (contactId: string) => [{ key: 'contact_id', value: JSON.stringify(contactId) }]

describe('a recorded event', () => {
  test('is returned exactly as recorded, and is in the next list', async () => {
    const response = await post(api, customEvent({ module_id: 'booking', custom_event_props: '{"plan":"pro"}' }))
    const recorded = response.json()
    expect(recorded).toEqual({
      event_id: expect.stringMatching(UUID_V7),
      group_id: 'clinic',
      project_id: 'demo',
      module_id: 'booking',
      module_version_number: 1,
      contact_id: expect.stringMatching(UUID_V7),
      entry_id: expect.stringMatching(UUID_V7),
      timestamp: '2026-03-01T09:30:00.000Z',
      event_type: 'custom_event:triggered',
      custom_event_name: 'signed up',
      custom_event_props: '{"plan":"pro"}',
    })
    expect(response.headers).not.toHaveProperty('idempotent-replayed')
    expect(await eventsOf(api, recorded.entry_id)).toEqual([recorded])
  })

  test('is separate from an equal one without an Idempotency-Key', async () => {
    const body = customEvent()
    const responses = [await post(api, body), await post(api, body)]
    expect(responses.map((response) => response.statusCode)).toEqual([200, 200])
    expect(await eventsOf(api, responses[0]?.json().entry_id)).toHaveLength(2)
  })

  test('of a module that does not exist is a 404 and stores nothing', async () => {
    const before = await rowCounts(api)
    const response = await post(api, customEvent({ module_id: 'absent' }))
    expect(response.statusCode).toBe(404)
    expect(response.json()).toMatchObject({
      error: { code: 'module_does_not_exist' },
      projectId: 'demo',
      moduleId: 'absent',
    })
    expect(await rowCounts(api)).toEqual(before)
  })

  const wide = 'x'.repeat(32 * 1024 - '{"a":""}'.length)
  test.each([
    '{}',
    ' \t\r\n{ "b" : 1.0 , "a" : [ ] } \n',
    '{"a":1,"a":2}',
    '{"__proto__":{"polluted":true},"constructor":null}',
    '{"nul":"\\u0000","lone":"\\ud800","slash":"\\/","\\u0061":"\\u0062"}',
    '{"raw":"😀 é ‮\u2028\u2029\u007f\u0085\ufeff"}',
    '{"number":[1e999999999,-0,12345678901234567890,0.10]}',
    '{"html":"<script>&amp;\'\\"</script>","percent":"%s $1 \\\\"}',
    `{"a":"${wide}"}`,
    `{"a":${'['.repeat(63)}${']'.repeat(63)}}`,
  ])('keeps its props byte for byte: %.60j', async (custom_event_props) => {
    const recorded = await record(api, { custom_event_props })
    expect(recorded.custom_event_props).toBe(custom_event_props)
    expect((await eventsOf(api, recorded.entry_id))[0]?.custom_event_props).toBe(custom_event_props)
  })

  test('has the props {} when none are sent, and its name exactly', async () => {
    const custom_event_name = `  ${'😀'.repeat(196)}é `
    const recorded = await record(api, { custom_event_name })
    expect(recorded).toMatchObject({ custom_event_name, custom_event_props: '{}' })
    expect(await eventsOf(api, recorded.entry_id)).toMatchObject([{ custom_event_name, custom_event_props: '{}' }])
  })

  test.each([
    ['2026-03-01T09:30:00Z', '2026-03-01T09:30:00.000Z'],
    ['2026-03-01T09:30:00.9999999Z', '2026-03-01T09:30:00.999Z'],
    ['2026-03-01T09:30:00.0005Z', '2026-03-01T09:30:00.000Z'],
    ['2026-03-01t10:30:00.5+01:00', '2026-03-01T09:30:00.500Z'],
    ['2025-12-31T20:00:00.001-05:30', '2026-01-01T01:30:00.001Z'],
    ['0001-01-01T00:00:00.0019Z', '0001-01-01T00:00:00.001Z'],
  ])('at %s is stored as at %s', async (timestamp, stored) => {
    const recorded = await record(api, { timestamp })
    expect(recorded.timestamp).toBe(stored)
    expect(await eventsOf(api, recorded.entry_id)).toMatchObject([{ timestamp: stored }])
    expect(await getEntry(recorded.entry_id)).toMatchObject({ created_at: stored })
  })
})

describe('the entry', () => {
  beforeAll(() =>
    importInto(api.databaseUrl, [
      contact('visitor'),
      entry('first', 'visitor', 'quiz', '2026-01-10T00:00:00.000Z'),
      entry('second-Z', 'visitor', 'quiz', '2026-01-20T00:00:00.000Z'),
      entry('second-a', 'visitor', 'quiz', '2026-01-20T00:00:00.000Z'),
      entry('elsewhere', 'visitor', 'booking', '2026-01-19T00:00:00.000Z'),
      contact('ties'),
      entry('tie-Z', 'ties', 'quiz', '2026-01-10T00:00:00.000Z'),
      entry('tie-a', 'ties', 'quiz', '2026-01-10T00:00:00.000Z'),
      entry('after-ties', 'ties', 'quiz', '2026-01-11T00:00:00.000Z'),
      contact('without-quiz'),
      entry('only-booking', 'without-quiz', 'booking', '2026-01-10T00:00:00.000Z'),
    ]),
  )

  test.each([
    ['visitor', '2025-01-01T00:00:00.000Z', 'first', 'before all: the oldest'],
    ['visitor', '2026-01-09T23:59:59.999Z', 'first', 'before all: the oldest'],
    ['visitor', '2026-01-10T00:00:00.000Z', 'first', 'created at that instant'],
    ['visitor', '2026-01-19T23:59:59.999Z', 'first', 'the newest created before'],
    ['visitor', '2026-01-20T00:00:00.0009Z', 'second-a', 'of several the greatest id, bytewise'],
    ['visitor', '2026-03-01T00:00:00.000Z', 'second-a', 'of several the greatest id, bytewise'],
    ['ties', '2026-01-01T00:00:00.000Z', 'tie-a', 'of the oldest the greatest id, bytewise'],
    ['ties', '2026-01-10T12:00:00.000Z', 'tie-a', 'of several the greatest id, bytewise'],
    ['ties', '2026-01-11T00:00:00.000Z', 'after-ties', 'the newest'],
  ])('of %s at %s is %s (%s)', async (contactId, timestamp, expected) => {
    const recorded = await record(api, { timestamp, identifiers: named(contactId) })
    expect(recorded).toMatchObject({ contact_id: contactId, entry_id: expected })
  })

  test('is in the module of the event, new when the contact has none there', async () => {
    const before = new Date().toISOString()
    const recorded = await record(api, { identifiers: named('without-quiz') })
    const after = new Date().toISOString()
    expect(recorded.contact_id).toBe('without-quiz')
    const created = await getEntry(recorded.entry_id)
    expect(created).toEqual({
      entry_id: recorded.entry_id,
      group_id: 'growth',
      project_id: 'demo',
      module_id: 'quiz',
      contact_id: 'without-quiz',
      created_at: recorded.timestamp,
      updated_at: expect.any(String),
      entry_data: '{}',
    })
    expect(created.updated_at >= before && created.updated_at <= after, created.updated_at).toBe(true)
    expect((await record(api, { identifiers: named('without-quiz') })).entry_id).toBe(recorded.entry_id)
  })

  test('is created at server time for an event in the future', async () => {
    const timestamp = new Date(Date.now() + 60 * 60_000).toISOString()
    const before = new Date().toISOString()
    const recorded = await record(api, { timestamp })
    const after = new Date().toISOString()
    expect(recorded.timestamp).toBe(timestamp)
    const { created_at, updated_at } = await getEntry(recorded.entry_id)
    expect(created_at).toBe(updated_at)
    expect(created_at >= before && created_at <= after, created_at).toBe(true)
  })

  test('is not changed by a custom event', async () => {
    const before = await getEntry(IMPORTED_ENTRY)
    const recorded = await record(api, { identifiers: named(IMPORTED_CONTACT) })
    expect(recorded.entry_id).toBe(IMPORTED_ENTRY)
    expect(await getEntry(IMPORTED_ENTRY)).toEqual(before)
    expect(before.updated_at).toBe('2026-01-31T12:00:00.000Z')
  })
})

describe('the version in effect', () => {
  beforeAll(() =>
    importInto(api.databaseUrl, [
      module('versioned'),
      version('versioned', 1, '2026-01-05T00:00:00Z'),
      version('versioned', 2, '2026-02-01T00:00:00Z'),
      version('versioned', 3, '2026-02-01T00:00:00Z'),
      version('versioned', 4),
      // Greater, but published before 2 and 3.
      version('versioned', 5, '2026-01-20T00:00:00Z'),
      module('published-at-once'),
      version('published-at-once', 1, '2026-01-05T00:00:00Z'),
      version('published-at-once', 2, '2026-01-05T00:00:00Z'),
      version('published-at-once', 3, '2026-01-06T00:00:00Z'),
    ]),
  )

  test.each([
    ['versioned', '0001-01-01T00:00:00.000Z', 1, 'before the first: the first'],
    ['versioned', '2026-01-04T23:59:59.999Z', 1, 'before the first: the first'],
    ['versioned', '2026-01-05T00:00:00.000Z', 1, 'published at that instant'],
    ['versioned', '2026-01-19T23:59:59.999Z', 1, 'until the next one'],
    ['versioned', '2026-01-20T00:00:00.000Z', 5, 'by publication time, not number'],
    ['versioned', '2026-01-31T23:59:59.999Z', 5, 'until the next one'],
    ['versioned', '2026-02-01T00:00:00.000Z', 3, 'of several the greatest number'],
    ['versioned', '2026-03-01T00:00:00.000Z', 3, 'never a draft'],
    ['published-at-once', '2026-01-01T00:00:00.000Z', 2, 'of the first the greatest number'],
    ['published-at-once', '2026-01-05T00:00:00.000Z', 2, 'of several the greatest number'],
  ])('of %s at %s is %i (%s)', async (module_id, timestamp, expected) => {
    const recorded = await record(api, { module_id, timestamp })
    expect(recorded.module_version_number).toBe(expected)
    expect((await eventsOf(api, recorded.entry_id))[0]?.module_version_number).toBe(expected)
  })

  test('of a recorded event does not change when another is published later', async () => {
    await importInto(api.databaseUrl, [module('growing'), version('growing', 1, '2026-01-05T00:00:00Z')])
    const recorded = await record(api, { module_id: 'growing' })
    await importInto(api.databaseUrl, [version('growing', 2, '2026-02-01T00:00:00Z')])
    expect((await eventsOf(api, recorded.entry_id))[0]?.module_version_number).toBe(1)
    expect((await record(api, { module_id: 'growing' })).module_version_number).toBe(2)
  })
})

describe('the furthest page', () => {
  const at = (minute: number) => `2026-02-01T10:0${minute}:00.000Z`
  beforeAll(() =>
    importInto(api.databaseUrl, [
      contact('reader'),
      entry('read', 'reader', 'quiz', at(0)),
      pageView('read', 'v1', at(1), 0, 5),
      pageView('read', 'v2', at(2), 2, 5),
      pageView('read', 'v3', at(3), 1, 6),
      pageView('read', 'v4', at(4), 2, 7),
      pageView('read', 'v5-Z', at(5), 3, 8),
      pageView('read', 'v5-a', at(5), 3, 9),
      pageView('read', 'v6', at(6), 0, null),
    ]),
  )

  /** The furthest page of an event at this time, as the service lists it. */
  async function furthestAt(timestamp: string, custom_event_name: string) {
    const { entry_id } = await record(api, { timestamp, custom_event_name, identifiers: named('reader') })
    expect(entry_id).toBe('read')
    return furthestOf(custom_event_name)
  }
  async function furthestOf(name: string) {
    const event = (await eventsOf(api, 'read')).find(({ custom_event_name }) => custom_event_name === name)
    const { max_page_id, max_page_key, max_page_index, total_pages } = event as EntryEvent
    return { max_page_id, max_page_key, max_page_index, total_pages }
  }
  const page = (event_id: string, max_page_index: number, total_pages?: number) => ({
    max_page_id: `page-of-${event_id}`,
    max_page_key: `key-of-${event_id}`,
    max_page_index,
    total_pages,
  })

  test.each<[string, Partial<ReturnType<typeof page>>, string]>([
    [at(0), {}, 'no view yet'],
    ['2026-02-01T10:00:59.999Z', {}, 'no view yet'],
    [at(1), page('v1', 0, 5), 'a view at that instant'],
    [at(2), page('v2', 2, 5), 'the highest index'],
    [at(3), page('v2', 2, 6), 'the highest index; the total of the latest view'],
    [at(4), page('v2', 2, 7), 'of equal indexes the earliest view'],
    [at(5), page('v5-Z', 3, 9), 'of views at one instant the least id is the earliest'],
    [at(6), page('v5-Z', 3), 'no total when the latest view has none'],
    ['2026-03-01T00:00:00.000Z', page('v5-Z', 3), 'of all views'],
  ])('at %s is %j (%s)', async (timestamp, expected) => {
    expect(await furthestAt(timestamp, `at ${timestamp}`)).toEqual(expected)
  })

  test('omits unknown fields instead of sending null', async () => {
    const { entry_id } = await record(api)
    const [event] = await eventsOf(api, entry_id)
    expect(Object.keys(event ?? {})).not.toContain('max_page_id')
    expect(Object.keys(event ?? {})).not.toContain('total_pages')
  })

  test('of a recorded event does not change with later imports', async () => {
    const timestamp = '2026-02-02T00:00:00.000Z'
    const before = await furthestAt(timestamp, 'before the import')
    await importInto(api.databaseUrl, [pageView('read', 'late', '2026-02-01T12:00:00Z', 9, 10)])
    expect(await furthestOf('before the import')).toEqual(before)
    expect(await furthestAt(timestamp, 'after the import')).toEqual(page('late', 9, 10))
  })

  test('ignores page views of other entries', async () => {
    const { entry_id } = await record(api, { module_id: 'booking', identifiers: named('reader') })
    expect((await eventsOf(api, entry_id))[0]).not.toHaveProperty('max_page_index')
  })
})

describe('under load', () => {
  const codeOf = (error: unknown) => toApiError(error).errorCode

  function createRecorder(options: Partial<RecorderOptions>, connections: PoolOptions = {}): Recorder {
    const pool = openWritePool(api.databaseUrl, { max: 2, ...connections })
    onTestFinished(() => pool.end())
    return recorderOn(pool, options)
  }

  async function hold(projectId: string): Promise<HeldLock> {
    const obstacle = await holdProject(api.databaseUrl, projectId)
    onTestFinished(() => obstacle.release())
    return obstacle
  }

  test('a transaction whose statements were planned before a column changed is repeated', async () => {
    const recorder = createRecorder({}, { max: 8 })
    for (const type of ['varchar(128)', 'text']) {
      const event = parsedEvent({ identifiers: named(IMPORTED_CONTACT) })
      const record = () => recorder.record('demo', event)
      await Promise.all(Array.from({ length: 8 }, record))
      await sql.raw(`ALTER TABLE events ALTER page_key TYPE ${type}`).execute(api.db)
      expect(await Promise.all(Array.from({ length: 8 }, record))).toHaveLength(8)
    }
  })

  test('a full queue refuses the next event at once, of any project', async () => {
    const recorder = createRecorder({ maxQueuedEvents: 4 })
    const obstacles = [await hold('demo'), await hold('other')]
    const accepted = ['demo', 'demo', 'other', 'other'].map((id) => recorder.record(id, parsedEvent()))
    for (const projectId of ['demo', 'other', 'third']) {
      await expect(recorder.record(projectId, parsedEvent()).catch(codeOf)).resolves.toBe('service_unavailable')
    }
    for (const obstacle of obstacles) await obstacle.release()
    await Promise.all(accepted)
    await recorder.record('demo', parsedEvent())
  })

  test('a locked project occupies at most half of the queue', async () => {
    const recorder = createRecorder({ maxQueuedEvents: 4 })
    const obstacle = await hold('demo')
    const accepted = [recorder.record('demo', parsedEvent()), recorder.record('demo', parsedEvent())]
    await expect(recorder.record('demo', parsedEvent()).catch(codeOf)).resolves.toBe('service_unavailable')
    await recorder.record('other', parsedEvent())
    await obstacle.release()
    await Promise.all(accepted)
  })

  test('events that are being recorded count towards the half of their project', async () => {
    const recorder = createRecorder({ maxQueuedEvents: 4 })
    const obstacle = await hold('demo')
    const recorded = [recorder.record('demo', parsedEvent()), recorder.record('demo', parsedEvent())]
    await obstacle.waiting(1)
    const refused = [recorder.record('demo', parsedEvent()), recorder.record('demo', parsedEvent())]
    recorded.push(recorder.record('other', parsedEvent()))
    const codes = Promise.all([...recorded, ...refused].map((one) => one.then(() => 'recorded', codeOf)))
    await obstacle.release()
    expect(await codes).toEqual([...Array(3).fill('recorded'), ...Array(2).fill('service_unavailable')])
  })

  test('an event that waited too long is refused and not recorded', async () => {
    const { advance } = stopClock()
    const recorder = createRecorder({ maxQueueWait_ms: 1_000, lockTimeout_ms: 10_000 })
    const obstacle = await hold('demo')
    const before = await rowCounts(api)
    const first = recorder.record('demo', parsedEvent())
    await obstacle.waiting(1)
    const second = recorder.record('demo', parsedEvent()).catch(codeOf)
    advance(1_001)
    await obstacle.release()
    await first
    expect(await second).toBe('service_unavailable')
    expect((await rowCounts(api)).events).toBe((before.events ?? 0) + 1)
  })

  test('events of locked projects that no batch takes meanwhile are refused in time, too', async () => {
    // One batch of a locked project at a time.
    const recorder = createRecorder({ maxQueueWait_ms: 2_000, lockTimeout_ms: 30_000 })
    // Connects, so that the first one is soon with a batch.
    await Promise.all([recorder.record('demo', parsedEvent()), recorder.record('other', parsedEvent())])
    const obstacles = [await hold('demo'), await hold('other')]
    const first = recorder.record('demo', parsedEvent())
    first.catch(() => {})
    await obstacles[0]?.waiting(1)
    const second = recorder.record('other', parsedEvent()).catch(codeOf)
    expect(await second).toBe('service_unavailable')
    expect(recorder.pending).toEqual({ events: 1, projects: 1 })
    for (const obstacle of obstacles) await obstacle.release()
    await first
    await recorder.record('other', parsedEvent())
  })

  test('an event may wait until the last moment', async () => {
    stopClock()
    await createRecorder({ maxQueueWait_ms: 0 }).record('demo', parsedEvent())
  })

  test('a lock wait past the statement timeout fails the event, but not the ones behind it', async () => {
    const recorder = createRecorder(
      { lockTimeout_ms: 30_000 },
      { statementTimeout_ms: 3_000, idleTransactionTimeout_ms: 60_000 },
    )
    const obstacle = await hold('demo')
    const waiting = [recorder.record('demo', parsedEvent()), recorder.record('other', parsedEvent())]
    await expect(waiting[0]?.catch(codeOf)).resolves.toBe('service_unavailable')
    await waiting[1]
    await obstacle.release()
    await recorder.record('demo', parsedEvent())
  })
})

// By triggers, which Citus refuses.
describe.skipIf(isOnCitus)('when PostgreSQL fails,', () => {
  /** Makes inserting events fail this many times with this SQLSTATE. @returns what ends it and counts the attempts */
  async function failing(sqlstate: string, times: number) {
    await sql
      .raw(`CREATE SEQUENCE attempts; CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('attempts') <= ${times} THEN RAISE EXCEPTION USING ERRCODE = '${sqlstate}'; END IF; RETURN NEW;
      END $$; CREATE TRIGGER fail BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION fail()`)
      .execute(api.db)
    return async () => {
      const { rows } = await sql<{ attempts: number }>`SELECT last_value AS attempts FROM attempts`.execute(api.db)
      await sql.raw('DROP TRIGGER fail ON events; DROP FUNCTION fail; DROP SEQUENCE attempts').execute(api.db)
      return rows[0]?.attempts
    }
  }

  test.each(['40001', '40P01'])('a transaction that fails with %s is retried', async (sqlstate) => {
    const attempts = await failing(sqlstate, 2)
    const before = await rowCounts(api)
    expect((await post(api, customEvent())).statusCode).toBe(200)
    expect((await rowCounts(api)).events).toBe((before.events ?? 0) + 1)
    expect(await attempts()).toBe(3)
  })

  test.each(['40001', '40P01'])(
    'a transaction that keeps failing with %s is a 503 and stores nothing',
    async (sqlstate) => {
      const attempts = await failing(sqlstate, 1_000)
      const before = await rowCounts(api)
      const response = await post(api, customEvent(), { 'idempotency-key': `failed-with-${sqlstate}` })
      expect(response.statusCode).toBe(503)
      expect(await rowCounts(api)).toEqual(before)
      expect(await attempts()).toBe(5)
    },
  )

  test('a commit with a warning, as when a node of a cluster breaks off, is a 503 and is not repeated', async () => {
    await sql
      .raw(`CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'node lost'; RETURN NULL; END $$;
        CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION warn()`)
      .execute(api.db)
    onTestFinished(async () => {
      await sql.raw('DROP TRIGGER warn ON events; DROP FUNCTION warn').execute(api.db)
    })
    const before = await rowCounts(api)
    const responses = await Promise.all([post(api, customEvent()), post(api, customEvent())])
    expect(responses.map(({ statusCode }) => statusCode)).toEqual([503, 503])
    expect((await rowCounts(api)).events).toBe((before.events ?? 0) + 2)
  })

  test('a bug in an insert is a 500, is not retried and stores nothing', async () => {
    const attempts = await failing('22012', 1_000)
    const before = await rowCounts(api)
    expect((await post(api, customEvent({ identifiers: [{ key: 'k', value: freshValue() }] }))).statusCode).toBe(500)
    expect(await rowCounts(api)).toEqual(before)
    expect(await attempts()).toBe(1)
  })
})
