import fastify from 'fastify'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createPool } from '../../src/database/pool.ts'
import { Page } from '../../src/domain/cursor.ts'
import { ApiError, entryNotFound } from '../../src/domain/errors.ts'
import { Followers } from '../../src/feed/followers.ts'
import { handlers } from '../../src/handlers/index.ts'
import { Authenticator } from '../../src/http/auth.ts'
import { readDocument } from '../../src/http/document.ts'
import { errorHandler } from '../../src/http/error-handler.ts'
import { logRequests } from '../../src/http/logging.ts'
import { ReadGate } from '../../src/http/read-gate.ts'
import { registerRoutes } from '../../src/http/routes.ts'
import { Recorder } from '../../src/recording/recorder.ts'
import { Importer } from '../../src/transfer/importer.ts'
import { createTestApp, PLAIN_CONFIG, type TestApp } from '../support/app.ts'
import { responseViolations, watchResponses } from '../support/contract.ts'
import { exampleCall } from '../support/example-call.ts'
import { foreignContent, type Watermarks } from '../support/twins.ts'
import { type Answer, examples, planted } from './validators/planted.ts'

const version = { module_id: 'quiz', version_number: 2, saved_at: '2026-01-12T10:00:00.000Z', json_string: '{}' }
const readHeaders = {
  'content-type': 'application/json; charset=utf-8',
  'x-request-id': 'r1',
  etag: '"e1"',
  'cache-control': 'private, no-cache',
  vary: 'X-Api-Key',
}
const errorHeaders = {
  'content-type': 'application/json; charset=utf-8',
  'x-request-id': 'r1',
  'cache-control': 'no-store',
}
const error = { error: { code: 'rate_limited', message: 'Wait.' }, projectId: 'demo' }

describe('responseViolations', () => {
  const violations = (status: number, headers: Record<string, unknown>, body?: unknown) =>
    responseViolations('getModuleVersion', status, headers, body === undefined ? '' : JSON.stringify(body))

  test.each([
    ['a version', violations(200, readHeaders, version)],
    ['a 304', violations(304, readHeaders)],
    ['an error', violations(429, { ...errorHeaders, 'retry-after': '7' }, error)],
    ['an error outside the document', responseViolations(undefined, 404, errorHeaders, JSON.stringify(error))],
  ])('finds nothing in %s', (_, found) => {
    expect(found).toEqual([])
  })

  const without = <T extends object>(value: T, name: keyof T) => ({ ...value, [name]: undefined })
  test.each([
    ['an undocumented status', violations(404.5, errorHeaders, error), 'status 404.5 is not documented'],
    ['a missing field', violations(200, readHeaders, without(version, 'saved_at')), "required property 'saved_at'"],
    ['an extra field', violations(200, readHeaders, { ...version, note: '' }), '"additionalProperty":"note"'],
    ['null', violations(200, readHeaders, { ...version, json_string: null }), '/json_string must be string'],
    ['text for an integer', violations(200, readHeaders, { ...version, version_number: '2' }), 'must be integer'],
    ['a fraction', violations(200, readHeaders, { ...version, version_number: 1.7 }), 'must be integer'],
    [
      'more than 32 bits',
      violations(200, readHeaders, { ...version, version_number: 2 ** 31 }),
      'must match format "int32"',
    ],
    [
      'a date without milliseconds',
      violations(200, readHeaders, { ...version, saved_at: '2026-01-12T10:00:00Z' }),
      'date-time',
    ],
    ['an offset', violations(200, readHeaders, { ...version, saved_at: '2026-01-12T10:00:00.000+01:00' }), 'date-time'],
    [
      'a day that is not',
      violations(200, readHeaders, { ...version, saved_at: '2026-02-30T10:00:00.000Z' }),
      'date-time',
    ],
    ['an array for an object', violations(200, readHeaders, [version]), 'must be object'],
    ['an unwrapped error', violations(429, { ...errorHeaders, 'retry-after': '7' }, error.error), "property 'error'"],
    [
      'an extra field deep in an error',
      violations(429, { ...errorHeaders, 'retry-after': '7' }, { error: { ...error.error, hint: '' } }),
      '"hint"',
    ],
    ['a missing header', violations(200, without(readHeaders, 'etag'), version), 'header etag is missing'],
    ['a weak ETag', violations(200, { ...readHeaders, etag: 'W/"e1"' }, version), 'header etag'],
    [
      'an undocumented header',
      violations(200, { ...readHeaders, 'x-powered-by': 'us' }, version),
      'x-powered-by is not documented',
    ],
    [
      'a Retry-After in words',
      violations(429, { ...errorHeaders, 'retry-after': 'soon' }, error),
      'header retry-after',
    ],
    ['a Retry-After of nothing', violations(429, { ...errorHeaders, 'retry-after': '0' }, error), 'header retry-after'],
    [
      'another media type',
      violations(200, { ...readHeaders, 'content-type': 'text/html' }, version),
      'content-type is text/html',
    ],
    [
      'another charset',
      violations(200, { ...readHeaders, 'content-type': 'application/json; charset=latin1' }, version),
      'content-type',
    ],
    [
      'a body that is not JSON',
      responseViolations('getModuleVersion', 200, readHeaders, '{"module_id":'),
      'the body is not JSON',
    ],
    ['a 304 with a body', violations(304, readHeaders, version), 'a body where there should be none'],
    [
      'an error of another shape outside the document',
      responseViolations(undefined, 404, errorHeaders, '{"message":"Not Found"}'),
      "property 'error'",
    ],
  ])('finds %s', (_, found, violation) => {
    expect(found.join('\n')).toContain(violation)
  })
})

describe('the strict document', () => {
  /** Without the headers, which are another check's. */
  const issuesOf = ({ operationId, status, body }: Answer) =>
    responseViolations(operationId, status, { 'content-type': 'application/json' }, JSON.stringify(body)).filter(
      (violation) => !violation.startsWith('header '),
    )

  test.each(planted)('refuses $kind', (answer) => {
    expect(issuesOf(answer)).not.toEqual([])
  })

  test.each(examples)('accepts the examples of $operationId $status', (answer) => {
    expect(issuesOf(answer)).toEqual([])
  })
})

describe('foreignContent', () => {
  const watermarks: Watermarks = new Map([
    ['DEMO', { text: '@of DEMO@', millions: 7, millennium: 1 }],
    ['demo/x', { text: '@of demo/x@', millions: 8, millennium: 3 }],
  ])
  const find = (project: string, body: unknown, headers: Record<string, string> = {}, sent: unknown[] = []) =>
    foreignContent(project, watermarks, headers, JSON.stringify(body), sent).join('\n')

  test.each([
    [
      'content of its own',
      'demo',
      [{ project_id: 'demo', title: 'Quiz', page_index: 7, at: '2026-01-01T00:00:00.000Z' }],
    ],
    ['a watermark of its own', 'demo/x', { project_id: 'demo/x', title: 'Quiz@of demo/x@', page_index: 8_000_001 }],
    ['a number that the request has', 'demo', { projectId: 'demo', versionNumber: 8_000_001 }],
    ['a watermark that the request has', 'demo', { projectId: 'demo', message: 'no module quiz@of DEMO@' }],
    ['a text that is no JSON', 'demo', 'Quiz'],
  ])('finds nothing in %s', (_, project, body) => {
    expect(find(project, body, {}, [8_000_001, 'quiz@of DEMO@'])).toBe('')
  })

  const cursor = Buffer.from('AAAA["2026-01-01T00:00:00.000Z","e@of DEMO@"]').toString('base64url')
  test.each([
    ['a project_id', 'demo', [{ project_id: 'DEMO' }], {}, 'project_id is "DEMO"'],
    ['the projectId of an error', 'demo', { projectId: 'demo/x' }, {}, 'projectId is "demo/x"'],
    ['a text', 'demo', { title: 'Quiz@of DEMO@' }, {}, 'title is of another project'],
    [
      'a text deep in a list',
      'demo',
      [{ page_views: [{ page_id: 'p@of DEMO@' }] }],
      {},
      'page_id is of another project',
    ],
    ['a text in a twin', 'DEMO', { title: 'Quiz@of demo/x@' }, {}, 'title is of another project'],
    ['JSON in a text', 'demo', { json_string: '{"content":"@of DEMO@"}' }, {}, 'json_string is of another project'],
    ['a number', 'demo', [{ version_number: 8_000_001 }], {}, 'version_number is of another project'],
    ['an instant', 'demo', [{ saved_at: '3026-01-01T00:00:00.000Z' }], {}, 'saved_at is of another project'],
    ['a cursor', 'demo', [], { 'next-cursor': cursor }, 'header next-cursor is of another project'],
    ['a link', 'demo', [], { link: '</projects/demo/modules/m%40of%20DEMO%40>' }, 'header link is of another project'],
  ])('finds %s of another project', (_, project, body, headers, violation) => {
    expect(find(project, body, headers)).toContain(violation)
  })
})

describe('watchResponses', () => {
  let api: TestApp
  beforeAll(async () => {
    api = await createTestApp()
  })
  afterAll(() => api.close())

  /** The violations found when a handler returns this result, with these headers on every response. */
  async function watch(result: () => unknown, headers: Record<string, string> = {}): Promise<string> {
    const app = fastify()
    const violations: string[] = []
    logRequests(app, Number.POSITIVE_INFINITY)
    app.setErrorHandler(errorHandler)
    watchResponses(app, violations, new Map([['DEMO', { text: '@of DEMO@', millions: 7, millennium: 1 }]]))
    app.addHook('onSend', async (_, reply) => void reply.headers({ 'x-request-id': 'r1', ...headers }))
    await registerRoutes(app, {
      document: (await readDocument()).json,
      handlers: { ...handlers, listModuleVersions: async () => result() as never },
      context: {
        db: api.db,
        recorder: new Recorder(createPool(api.databaseUrl)),
        followers: new Followers(api.db, { maxFollowers: 1 }),
        importer: new Importer(createPool(api.databaseUrl)),
      },
      authenticator: new Authenticator(api.db, undefined, () => {}),
      gate: new ReadGate(),
      maxImport_bytes: PLAIN_CONFIG.maxImport_bytes,
      basePath: '',
    })
    await app.inject({ url: exampleCall('listModuleVersions').path, headers: { 'x-api-key': api.key } })
    await app.close()
    return violations.join('\n')
  }
  const { json_string: _, ...summary } = version
  const page = (row: object) => () => new Page([row], undefined, () => ({ cursor: undefined, more: false }))

  test('finds nothing in a documented response', async () => {
    expect(await watch(page(summary))).toBe('')
  })

  test.each([
    ['a missing field', page({ ...summary, saved_at: undefined }), 'before serialization /0 must have'],
    ['null for an integer', page({ ...summary, version_number: null }), 'before serialization'],
    ['text for an integer', page({ ...summary, version_number: '2' }), 'before serialization'],
    ['a fraction for an integer', page({ ...summary, version_number: 1.7 }), 'before serialization'],
    ['an undocumented field', page({ ...summary, json_string: '{}' }), 'before serialization'],
    ['a bad date', page({ ...summary, saved_at: 'yesterday' }), 'must match format "date-time"'],
    ['a Date, which is serialized as text', page({ ...summary, saved_at: new Date(0) }), 'before serialization'],
    [
      'an error that is not documented for the operation',
      () => Promise.reject(new ApiError('identifier_conflict', '')),
      'status 409 is not documented',
    ],
    ['a text of another project', page({ ...summary, module_id: 'quiz@of DEMO@' }), 'module_id is of another project'],
    [
      'an error of another project',
      () => Promise.reject(entryNotFound('e1@of DEMO@')),
      'entryId is of another project',
    ],
    [
      'an error with an undocumented field',
      () => Promise.reject(new ApiError('invalid_request', '', { resource: { note: '' } })),
      '"note"',
    ],
  ])('finds %s', async (_, result, violation) => {
    expect(await watch(result)).toContain(violation)
  })

  test.each([
    ['an undocumented header', { 'x-powered-by': 'us' }, 'header x-powered-by is not documented'],
    ['another media type', { 'content-type': 'text/html' }, 'content-type is text/html'],
  ])('finds %s', async (_, headers, violation) => {
    expect(await watch(page(summary), headers)).toContain(violation)
    expect(await watch(() => Promise.reject(entryNotFound('e1')), headers)).toContain(violation)
  })
})
