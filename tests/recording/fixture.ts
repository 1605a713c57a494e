/** Projects with modules for the tests of recording, and calls that the tests share. Each test has contacts of its own. */
import { randomUUID } from 'node:crypto'
import { crc32 } from 'node:zlib'
import pg from 'pg'
import { expect, onTestFinished, vi } from 'vitest'
import type { components } from '../../generated/api.ts'
import { parseTimestamp } from '../../src/domain/timestamp.ts'
import { type ParsedEvent, parseCustomEvent } from '../../src/recording/custom-event.ts'
import { NO_OBSERVER, type RecorderObserver } from '../../src/recording/observer.ts'
import { Recorder } from '../../src/recording/recorder.ts'
import { createTestApp, importInto, type TestApp } from '../support/app.ts'
import { isOnCitus } from '../support/citus.ts'
import { type HeldLock, holdLock, holdProject } from '../support/waiting.ts'

/** A custom event as clients send it: before validation the timestamp is any text. */
export type CustomEventInput = Omit<components['schemas']['CustomEventInput'], 'timestamp'> & { timestamp: string }
export type CustomEventResult = components['schemas']['CustomEventResult']
export type EntryEvent = components['schemas']['EntryEvent']

const PROJECT_ID = 'demo'
export const IMPORTED_ENTRY = 'imported-entry'
export const IMPORTED_CONTACT = 'imported-contact'
export const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

export const module = (module_id: string, group_id = 'growth') => ({
  type: 'module',
  project_id: PROJECT_ID,
  module_id,
  group_id,
  title: module_id,
  created_at: '2026-01-01T00:00:00Z',
})

export const version = (module_id: string, version_number: number, published_at?: string) => ({
  type: 'module_version',
  project_id: PROJECT_ID,
  module_id,
  version_number,
  saved_at: '2026-01-01T00:00:00Z',
  published_at,
  json_string: '{}',
})

export const contact = (contact_id: string, ...identifiers: CustomEventInput['identifiers']) => ({
  type: 'contact',
  project_id: PROJECT_ID,
  contact_id,
  created_at: '2026-01-01T00:00:00Z',
  identifiers,
})

export const entry = (entry_id: string, contact_id: string, module_id: string, created_at: string) => ({
  type: 'entry',
  project_id: PROJECT_ID,
  entry_id,
  module_id,
  contact_id,
  created_at,
  updated_at: '2026-01-31T12:00:00.000Z',
  entry_data: '{"imported":true}',
})

export const pageView = (
  entry_id: string,
  event_id: string,
  timestamp: string,
  page_index: number,
  total_pages: number | null,
) => ({
  type: 'event',
  project_id: PROJECT_ID,
  entry_id,
  event_id,
  timestamp,
  event_type: 'flowpage.viewed',
  view_type: 'flowpage',
  page_id: `page-of-${event_id}`,
  page_key: `key-of-${event_id}`,
  page_index,
  total_pages,
})

const RECORDS = [
  { type: 'project', project_id: PROJECT_ID, name: 'Demo' },
  { type: 'project', project_id: 'other', name: 'Other' },
  { type: 'project', project_id: 'third', name: 'Third' },
  ...[PROJECT_ID, 'other', 'third'].flatMap((project_id) => [
    { type: 'group', project_id, group_id: 'growth', name: 'Growth' },
    { ...module('quiz'), project_id },
    { ...version('quiz', 1, '2026-01-05T00:00:00Z'), project_id },
  ]),
  { type: 'group', project_id: PROJECT_ID, group_id: 'clinic', name: 'Clinic' },
  module('booking', 'clinic'),
  version('booking', 1, '2026-01-05T00:00:00Z'),
  contact(IMPORTED_CONTACT, { key: 'email', value: '"imported@example.com"' }),
  entry(IMPORTED_ENTRY, IMPORTED_CONTACT, 'quiz', '2026-01-10T00:00:00Z'),
]

export const fillFixture = (databaseUrl: string) => importInto(databaseUrl, RECORDS)

export const createRecordingApp = () => createTestApp({ fill: fillFixture })

/** A value that no other test uses, as JSON text. */
export const freshValue = () => JSON.stringify(randomUUID())

/** A custom event of a new contact. */
export const customEvent = (changes: Partial<CustomEventInput> = {}): Partial<CustomEventInput> => ({
  module_id: 'quiz',
  timestamp: '2026-03-01T09:30:00.000Z',
  custom_event_name: 'signed up',
  identifiers: [{ key: 'email', value: freshValue() }],
  ...changes,
})

/** A custom event as validation passes it to the recorder. */
export function parsedEvent(changes: Partial<CustomEventInput> = {}): ParsedEvent {
  const { timestamp = '', ...event } = { custom_event_props: '{}', ...customEvent(changes) } as CustomEventInput
  const parsed = parseTimestamp(timestamp)
  if (!parsed.ok) throw new Error(parsed.issue)
  return parseCustomEvent({ ...event, timestamp: parsed.iso } as Parameters<typeof parseCustomEvent>[0], new Date())
}

export const post = (api: TestApp, body: object, headers: Record<string, string> = {}) =>
  api.call({ method: 'POST', path: `/projects/${PROJECT_ID}/events`, body, headers })

/** Records an event; the test fails when that does. */
export async function record(api: TestApp, changes: Partial<CustomEventInput> = {}): Promise<CustomEventResult> {
  const response = await post(api, customEvent(changes))
  expect(response.statusCode, response.body).toBe(200)
  return response.json()
}

/** All events of an entry, oldest first, as the service lists them. */
export async function eventsOf(api: TestApp, entryId: string): Promise<EntryEvent[]> {
  const path = `/projects/${PROJECT_ID}/entries/${encodeURIComponent(entryId)}/events?direction=ASC&limit=1000`
  const response = await api.call({ path })
  expect(response.statusCode, response.body).toBe(200)
  return response.json()
}

/** The number of rows of each table, to see that nothing was stored. */
export async function rowCounts({ db }: TestApp): Promise<Record<string, number>> {
  const tables = ['contacts', 'contact_identifiers', 'entries', 'events', 'idempotency_keys'] as const
  const counts = tables.map((table) =>
    db
      .selectFrom(table)
      .select((eb) => eb.fn.countAll<number>().as('count'))
      .executeTakeFirstOrThrow(),
  )
  return Object.fromEntries((await Promise.all(counts)).map(({ count }, i) => [tables[i], count]))
}

function summaryOf(text: string): string {
  const [verb = ''] = text.split(' ')
  const [, table] = /"(projects|modules|contacts|contact_identifiers|entries|events|idempotency_keys)"/.exec(text) ?? []
  // It looks up the owner of an identifier first.
  if (text.includes('"entries"')) return `${verb} entries`
  return table === undefined ? verb : `${verb} ${table}`
}

/** A recorder in the form for the server of the tests. The arguments are those of its constructor. */
export function recorderOn(...[pool, options, observer]: ConstructorParameters<typeof Recorder>): Recorder {
  return new Recorder(pool, { isDistributed: isOnCitus, ...options }, observer)
}

/** A recorder for a distributed database, and the distinct projects of each batch that it has begun. */
export function watchShards(pool: pg.Pool): { recorder: Recorder; batches: string[][] } {
  const batches: string[][] = []
  const aroundBatch: RecorderObserver['aroundBatch'] = ({ events }, record) => {
    const queued = events as unknown as { event: { project_id: string } }[]
    batches.push([...new Set(queued.map(({ event }) => event.project_id))])
    return record()
  }
  const options = { isDistributed: true, turnTimeout_ms: 10_000, lockTimeout_ms: 10_000 }
  return { recorder: new Recorder(pool, options, { ...NO_OBSERVER, aroundBatch }), batches }
}

/** Records an event in a project that another session has locked at first. */
export async function recordLocked(recorder: Recorder, databaseUrl: string, projectId: string): Promise<void> {
  const locked = await holdProject(databaseUrl, projectId)
  onTestFinished(() => locked.release())
  const recorded = recorder.record(projectId, parsedEvent())
  await locked.waiting(1)
  await locked.release()
  await recorded
}

/** Holds the recording lock of a shard; a plain database is one. */
export async function holdTurn(databaseUrl: string, shard = 'projects'): Promise<HeldLock> {
  const turn = await holdLock(databaseUrl, `SELECT pg_advisory_xact_lock(${0x666c6f77}, ${crc32(shard) | 0})`)
  onTestFinished(() => turn.release())
  return turn
}

/** Counts, from now until the test ends, what all connections of this process send and get. */
export function watchStatements() {
  const { mock, mockRestore } = vi.spyOn(pg.Client.prototype, 'query')
  onTestFinished(() => mockRestore())
  // The same spy, if the test watches already.
  const earlier = mock.calls.length
  const texts = () =>
    mock.calls
      .slice(earlier)
      .map(([statement]) => {
        const sent = statement as unknown as string | { text: string }
        return typeof sent === 'string' ? sent : sent.text
      })
      // The last uses of keys are written a while after the requests, also those of earlier tests.
      .filter((text) => !text.startsWith('update "api_keys"'))
  const statements = () =>
    texts()
      .map(summaryOf)
      // Settings for the nodes of a cluster.
      .filter((summary) => !isOnCitus || summary !== 'SET')
  return {
    /** Each statement as it was sent. */
    texts,
    /** Each statement as its verb and the first table that it names, such as `insert events`. */
    statements,
    transactions: () => statements().filter((statement) => statement === 'BEGIN').length,
    /** How many statements PostgreSQL ended because they waited too long for a lock. */
    lockTimeouts: () =>
      mock.settledResults
        .slice(earlier)
        .filter(({ type, value }) => type === 'rejected' && (value as { code?: string }).code === '55P03').length,
  }
}

/** Stops the clock of performance.now() until the test ends: it shows what the test makes of it. */
export function stopClock() {
  // Whole, so that sums are exact.
  let now_ms = Math.ceil(performance.now())
  const clock = vi.spyOn(performance, 'now').mockImplementation(() => now_ms)
  onTestFinished(() => clock.mockRestore())
  return {
    advance: (by_ms: number) => {
      now_ms += by_ms
    },
    goOn: () => clock.mockRestore(),
  }
}

const WAITERS = isOnCitus
  ? 'SELECT count(DISTINCT waiting_gpid)::integer AS waiters FROM citus_lock_waits WHERE blocking_gpid = citus_backend_gpid()'
  : `SELECT count(DISTINCT pid)::integer AS waiters FROM pg_locks
     WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))`

/** How many sessions wait for this lock, not for another one. */
export async function waitersFor({ query }: HeldLock): Promise<number> {
  const { rows } = await query(WAITERS)
  return rows[0].waiters
}
