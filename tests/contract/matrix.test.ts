import { afterAll, beforeAll, expect, test } from 'vitest'
import type { operations as ApiOperations } from '../../generated/api.ts'
import { formatKey, generateKey } from '../../src/domain/api-key.ts'
import { type ErrorCode, STATUS_OF } from '../../src/domain/errors.ts'
import type { OperationId } from '../../src/http/operations.ts'
import { operations, SECURITY_HEADERS } from '../support/contract.ts'
import { isWrite, operationIds } from '../support/example-call.ts'
import { type Case, States } from './states.ts'

type CodeOf<Status> = { [C in ErrorCode]: (typeof STATUS_OF)[C] extends Status ? C : never }[ErrorCode]

/** How to produce each status: a success by one request, an error by a request for each of its codes. */
type Requests<Status> = Status extends 200 | 304 ? Case : Partial<Record<CodeOf<Status>, Case>>

/** Every operation × each of its documented statuses: a missing or an invented cell does not compile. */
type Matrix = {
  [K in OperationId]: { [Status in keyof ApiOperations[K]['responses']]: Requests<Status> }
}

const errors = {
  401: { unauthorized: { key: null } },
  429: { rate_limited: { at: 'busy' } },
  500: { internal_error: { at: 'faulty' } },
  503: { service_unavailable: { at: 'away' } },
} as const
const readErrors = {
  ...errors,
  400: { invalid_request: { query: { sort: 'title' } } },
  403: { insufficient_scope: { scope: 'events:write' } },
} as const
const noModule = { module_does_not_exist: { path: { moduleId: 'hair-quiz' } } }
const noEntry = { entry_not_found: { path: { entryId: 'nobody' } } }
const unchanged = { headers: { 'if-none-match': '*' } }

const event = {
  module_id: 'skin-quiz',
  timestamp: '2026-03-01T09:41:12Z',
  custom_event_name: 'call_requested',
  identifiers: [{ key: 'email', value: '"amara.okafor@example.com"' }],
}
const twoContacts = [...event.identifiers, { key: 'phone', value: '"+1 555 0100"' }]
const onceOnly = { 'idempotency-key': 'once' }

const matrix: Matrix = {
  listModules: { 200: {}, ...readErrors },
  getModule: { 200: {}, 304: unchanged, ...readErrors, 404: noModule },
  listModuleVersions: { 200: {}, ...readErrors, 404: noModule },
  getModuleVersion: {
    200: {},
    304: unchanged,
    ...readErrors,
    404: { ...noModule, module_version_does_not_exist: { path: { versionNumber: '99' } } },
  },
  getEntry: { 200: {}, 304: unchanged, ...readErrors, 404: noEntry },
  listEntryEvents: { 200: {}, ...readErrors, 404: noEntry },
  listEntryPageViews: { 200: {}, ...readErrors },
  listEntries: { 200: {}, ...readErrors },
  listProjectEvents: { 200: {}, ...readErrors },
  listErasures: { 200: {}, ...readErrors },
  recordCustomEvent: {
    200: {},
    ...errors,
    400: { invalid_request: { body: { ...event, timestamp: 'yesterday' } } },
    403: { insufficient_scope: { scope: 'read' } },
    404: { module_does_not_exist: { body: { ...event, module_id: 'hair-quiz' } } },
    409: { identifier_conflict: { body: { ...event, identifiers: twoContacts } } },
    413: { payload_too_large: { body: ' '.repeat(256 * 1024 + 1) } },
    415: { unsupported_media_type: { headers: { 'content-type': 'text/plain' } } },
    422: {
      idempotency_key_reused: {
        first: { headers: onceOnly, body: event },
        headers: onceOnly,
        body: { ...event, custom_event_name: 'call_cancelled' },
      },
    },
  },
  recordCustomEvents: {
    200: {},
    ...errors,
    // What a defect does to events is in their results.
    500: { internal_error: { at: 'keyless' } },
    400: { invalid_request: { body: { events: [] } } },
    403: { insufficient_scope: { scope: 'read' } },
    413: { payload_too_large: { body: ' '.repeat(4 * 1024 * 1024 + 1) } },
    415: { unsupported_media_type: { headers: { 'content-type': 'text/plain' } } },
  },
  importRecords: {
    200: {},
    ...errors,
    400: { invalid_request: { body: '{}' } },
    403: { insufficient_scope: { scope: 'events:write' } },
    409: {
      record_conflict: {
        body: `{"type":"entry","entry_id":"e","module_id":"hair-quiz","contact_id":"c","updated_at":"2026-03-01T09:00:00Z"}`,
      },
    },
    413: { payload_too_large: { body: ' '.repeat(16 * 1024 * 1024 + 1) } },
    415: { unsupported_media_type: { headers: { 'content-type': 'application/json' } } },
  },
}

interface Cell {
  name: string
  operationId: OperationId
  status: number
  /** Absent for a success. */
  code?: ErrorCode
  how: Case
}

const cells = operationIds.flatMap((operationId) =>
  Object.entries(matrix[operationId]).flatMap(([text, requests]): Cell[] => {
    const status = Number(text)
    const name = `${operationId} responds with ${status}`
    if (status < 400) return [{ name, operationId, status, how: requests as Case }]
    const errors = Object.entries(requests) as [ErrorCode, Case][]
    return errors.map(([code, how]) => ({ name: `${name} ${code}`, operationId, status, code, how }))
  }),
)

let states: States
beforeAll(async () => {
  states = await States.start()
})
afterAll(() => states.close())

test.each(operationIds)('%s: the matrix has every documented status and code, and no other', (operationId) => {
  const documented = Object.entries(operations[operationId]?.responses ?? {}).flatMap(([status, { content }]) => {
    const examples = Object.values(content?.['application/json']?.examples ?? {})
    const codes = examples.map(({ value }) => (value as { error?: { code: string } }).error?.code)
    return codes.length > 0 ? codes.map((code) => ({ status: Number(status), code })) : [{ status: Number(status) }]
  })
  const key = (cell: { status: number; code?: string }) => `${cell.status} ${cell.code ?? ''}`
  const produced = cells.filter((cell) => cell.operationId === operationId)
  expect(produced.map(key).sort()).toEqual([...new Set(documented.map(key))].sort())
})

test.each(cells)('$name', async ({ operationId, status, code, how }) => {
  const requestId = `${operationId}-${status}`
  const response = await states.produce(operationId, { ...how, headers: { ...how.headers, 'x-request-id': requestId } })
  const isRead = !isWrite(operationId)
  const isSuccess = code === undefined

  expect(response.statusCode).toBe(status)
  if (status === 304) {
    const { headers } = await states.produce(operationId, {})
    expect([response.body, response.headers.etag]).toEqual(['', headers.etag])
  } else expect(response.json()).toMatchObject(isSuccess ? {} : { error: { code }, projectId: 'demo' })
  expect(response.headers).toMatchObject({
    'x-request-id': requestId,
    ...SECURITY_HEADERS,
    'cache-control': isRead && isSuccess ? 'private, no-cache' : 'no-store',
  })
  const isList = !('304' in (operations[operationId]?.responses ?? {}))
  const vary = isList ? 'X-Api-Key, accept-encoding' : 'X-Api-Key'
  expect(response.headers.vary).toBe(isRead && isSuccess ? vary : undefined)
  expect(response.headers['www-authenticate']).toBe(status === 401 ? 'ApiKey realm="flowtrail"' : undefined)
  const optional = ['etag', 'ratelimit', 'ratelimit-policy', 'retry-after']
  expect(optional.filter((name) => name in response.headers)).toEqual([
    ...(isSuccess && 304 in matrix[operationId] ? ['etag'] : []),
    ...(how.at === 'busy' ? ['ratelimit', 'ratelimit-policy'] : []),
    ...(status === 429 || status === 503 ? ['retry-after'] : []),
  ])
})

test('every error code that an operation can respond with is in the matrix', () => {
  const routing: ErrorCode[] = ['route_not_found', 'method_not_allowed']
  const produced = cells.flatMap(({ code }) => code ?? [])
  expect([...new Set([...produced, ...routing])].sort()).toEqual(Object.keys(STATUS_OF).sort())
})

test.each(operationIds)('%s: during an outage only malformed keys are refused', async (operationId) => {
  const statusWith = async (key: string | null) => (await states.produce(operationId, { at: 'away', key })).statusCode
  expect(await statusWith(null)).toBe(401)
  expect(await statusWith(`ft_0123456789ab_${'0'.repeat(33)}`)).toBe(401)
  expect(await statusWith(formatKey(generateKey()))).toBe(503)
})
