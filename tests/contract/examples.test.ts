import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadDemo } from '../../src/cli/demo.ts'
import { DEMO } from '../../src/demo/project.ts'
import { encodeCursor, fingerprint } from '../../src/domain/cursor.ts'
import type { OperationId } from '../../src/http/operations.ts'
import { eraseContact } from '../../src/queries/erasures.ts'
import { createTestApp } from '../support/app.ts'
import { document, operations } from '../support/contract.ts'
import { ERASED } from '../support/demo-service.ts'
import { exampleCall, operationIds } from '../support/example-call.ts'
import { type Case, States } from './states.ts'

const otherEvent = {
  module_id: 'clinic-booking',
  timestamp: '2026-03-01T09:20:30Z',
  custom_event_name: 'slot_chosen',
  identifiers: [{ key: 'phone', value: '"+1 555 0100"' }],
}

const feedReplays = (operationId: OperationId) => {
  const cursor = encodeCursor(fingerprint([operationId, 'demo', 'ASC']), [0])
  return {
    afterWithCursor: { query: { direction: 'ASC', after: '0', cursor } },
    cursorWithoutAsc: { query: { cursor } },
  }
}

/** How to produce each example of a response, by its name: the differences from the operation's example request. */
const replays: Record<string, Case> = {
  modules: {},
  module: {},
  versions: {},
  version: {},
  entry: {},
  events: {},
  pageViews: {},
  entries: {},
  erasures: {},
  recorded: {},
  recordedBatch: {},

  unknownParameter: { query: { sort: 'title' } },
  invalidVersionNumber: { path: { versionNumber: 'two' } },
  invalidLimit: { query: { limit: '5000' } },
  invalidDirection: { query: { direction: 'asc' } },
  invalidCursor: {
    query: { cursor: encodeCursor(fingerprint(['listModuleVersions', 'demo', 'skin-quiz', 'ASC']), [1]) },
  },
  // The issues of the previous request are not repeated.
  misspeltParameter: { first: { query: { direction: 'asc' } }, query: { limt: '20' } },
  // URLSearchParams encodes the space as a plus, which is what an unencoded plus of an offset means.
  invalidTimestamp: { query: { updated_after: '2026-03-01T09:30:00 01:00' } },
  emptyWindow: { query: { updated_after: '2026-03-01T00:00:00Z', updated_before: '2026-03-01T00:00:00Z' } },
  invalidWait: { query: { wait: '31' } },
  waitWithoutAsc: { query: { wait: '30' } },
  ...feedReplays('listProjectEvents'),
  unquotedIdentifier: {
    body: { ...otherEvent, identifiers: [{ key: 'email', value: 'amara.okafor@example.com' }] },
  },
  missingFields: { body: { module_id: 'skin-quiz', custom_event_name: 'opened', event_name: 'opened' } },
  malformedJson: { body: '{"timestamp": 1,}' },

  emptyBatch: { body: { events: [] } },
  headerOfSingleEvents: { headers: { 'idempotency-key': 'once' } },
  batchTooLarge: { body: ' '.repeat(4 * 1024 * 1024 + 1) },

  importedVisit: {},
  invalidRecord: {
    body: `{"type":"group","group_id":"g"}\n{"type":"event","entry_id":"e","timestamp":"2026-03-01T09:52:00Z","event_type":"flowpage.viewed","view_type":"flowpage"}`,
  },
  emptyImport: { body: '' },
  recordConflict: { body: `{"type":"event","entry_id":"e","timestamp":"2026-03-01T09:52:00Z","event_type":"opened"}` },
  importTooLarge: { body: ' '.repeat(16 * 1024 * 1024 + 1) },
  importScopeMissing: { scope: 'events:write' },
  unsupportedImport: { headers: { 'content-type': 'application/json' } },

  unauthorized: { key: null },
  readScopeMissing: { scope: 'events:write' },
  writeScopeMissing: { scope: 'read' },
  moduleDoesNotExist: { path: { moduleId: 'hair-quiz' } },
  moduleVersionDoesNotExist: { path: { versionNumber: '99' } },
  entryNotFound: { path: { entryId: 'nobody' } },
  identifierConflict: {
    body: {
      ...otherEvent,
      identifiers: [{ key: 'email', value: '"amara.okafor@example.com"' }, ...otherEvent.identifiers],
    },
  },
  payloadTooLarge: { body: { ...otherEvent, custom_event_props: `{"note":"${'x'.repeat(256 * 1024)}"}` } },
  unsupportedMediaType: { headers: { 'content-type': 'application/x-www-form-urlencoded' } },
  idempotencyKeyReused: {
    first: { headers: { 'idempotency-key': 'once' }, body: otherEvent },
    headers: { 'idempotency-key': 'once' },
  },
  rateLimited: { at: 'busy' },
  internalError: { at: 'faulty' },
  serviceUnavailable: { at: 'away' },
}

/** Where one name needs different requests. */
const replaysOf: Partial<Record<OperationId, Record<string, Case>>> = {
  listErasures: feedReplays('listErasures'),
  recordCustomEvent: { moduleDoesNotExist: { body: { ...otherEvent, module_id: 'hair-quiz' } } },
  recordCustomEvents: { internalError: { at: 'keyless' } },
}

const responses = operationIds.flatMap((operationId) =>
  Object.entries(operations[operationId]?.responses ?? {}).flatMap(([status, { content }]) =>
    Object.entries(content?.['application/json']?.examples ?? {}).map(([name, { value }]) => ({
      operationId,
      status: Number(status),
      name,
      value,
    })),
  ),
)

const requests = operationIds.flatMap((operationId) =>
  Object.values(operations[operationId]?.requestBody?.content ?? {}).flatMap(({ examples = {} }) =>
    Object.entries(examples).map(([name, { value }]) => ({ operationId, name, value })),
  ),
)

/** The example, but for what is new each time: the place of events in the feed, and the ids of recorded ones. */
function asProduced(operationId: OperationId, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((row) => asProduced(operationId, row))
  const { position, recorded_at, event_id, results, event } = value as Record<string, unknown>
  return {
    ...(value as object),
    ...(results !== undefined && { results: asProduced(operationId, results) }),
    ...(event !== undefined && { event: asProduced(operationId, event) }),
    ...(position !== undefined && { position: expect.any(Number) }),
    ...(recorded_at !== undefined && { recorded_at: expect.any(String) }),
    ...(operationId === 'importRecords' &&
      'added' in (value as object) && { added: expect.any(Number), unchanged: expect.any(Number) }),
    ...(event_id !== undefined && operationId.startsWith('record') && { event_id: expect.any(String) }),
  }
}

let states: States
beforeAll(async () => {
  states = await States.start()
})
afterAll(() => states.close())

test('every example has a replay, and every replay an example', () => {
  expect(Object.keys(replays).sort()).toEqual([...new Set(responses.map(({ name }) => name))].sort())
  const used = [...responses, ...requests].map(({ value }) => value)
  for (const { value } of Object.values(document.components.examples)) expect(used).toContainEqual(value)
})

test.each(responses)(
  '$operationId responds with $status as in the example $name',
  async ({ operationId, status, name, value }) => {
    const response = await states.produce(operationId, replaysOf[operationId]?.[name] ?? replays[name] ?? {})
    expect(response.statusCode).toBe(status)
    expect(response.json()).toEqual(asProduced(operationId, value))
  },
)

test.each(requests)('$operationId accepts the example $name', async ({ operationId, value }) => {
  const response = await states.produce(operationId, { body: value })
  expect(response.statusCode).toBe(200)
})

test("the parameters' examples are ids that every demo project has", () => {
  const shown = Object.values(operations).flatMap(({ parameters }) => parameters.filter(({ name }) => name in DEMO))
  for (const { name, example } of shown)
    expect({ [name]: example }).toEqual({ [name]: DEMO[name as keyof typeof DEMO] })
  expect(new Set(shown.map(({ name }) => name)).size).toBe(Object.keys(DEMO).length)
})

test('every example request, which /docs fills in, succeeds on a demo project', async () => {
  const api = await createTestApp({
    fill: async (databaseUrl, db) => {
      await loadDemo(databaseUrl, { entries: 7 })
      await eraseContact(db, 'demo', ERASED)
    },
  })
  for (const operationId of operationIds) {
    const response = await api.call(exampleCall(operationId))
    expect([operationId, response.statusCode]).toEqual([operationId, 200])
    expect(response.json()).not.toEqual([])
  }
  await api.close()
})
