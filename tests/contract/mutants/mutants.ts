import { randomUUID } from 'node:crypto'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { FastifyRequest } from 'fastify'
import { sql } from 'kysely'
import { parseKey } from '../../../src/domain/api-key.ts'
import { ApiError, internalError, unauthorized } from '../../../src/domain/errors.ts'
import type { OperationId } from '../../../src/http/operations.ts'
import { findKeyById } from '../../../src/queries/api-keys.ts'
import { findEntry } from '../../../src/queries/entries.ts'
import { projectExists, selectProjects } from '../../../src/queries/projects.ts'
import { operations } from '../../support/contract.ts'
import { UNLIMITED } from '../../support/lease.ts'
import type { Detector } from './detectors.ts'
import {
  changeHead,
  changeRequest,
  type Mutation,
  mapBody,
  mapErrors,
  mapPayload,
  mapRecords,
  onError,
  operationOf,
  type Row,
  wrapHandler,
  wrapKeyCheck,
} from './mutations.ts'

/** A server with one defect. */
export interface Mutant {
  /** What it does, to follow "The service". */
  does: string
  mutate: Mutation
  /** The test files that should detect it, below tests/. */
  guards: string[]
  /** An operation that shows it, for the checks that try only one. */
  operation: OperationId
  /** The checks that detect it, and must continue to. */
  detectedBy: Detector[]
  /** Matches a finding, or the title and error of a test, that is due to this defect and not to a side effect. */
  evidence: RegExp
}

/** The end of a date-time in a response. */
const MILLISECONDS = /\.\d{3}Z$/

/** The query as sent, before validation. */
const queryOf = ({ query }: { query: unknown }) => query as Record<string, string[]>
const bodyOf = ({ body }: { body: unknown }) => (body ?? {}) as Row
/** Changes the events of ascending pages of the feed. */
const mapFeed = (change: (events: Row[]) => Row[]): Mutation =>
  mapBody(({ request, reply }, body) => {
    const { direction } = request.query as { direction?: string }
    const isPage = operationOf(request.routeOptions) === 'listProjectEvents' && reply.statusCode === 200
    return isPage && direction === 'ASC' ? change(body as Row[]) : body
  })
const isOfErasures = ({ routeOptions }: FastifyRequest) => operationOf(routeOptions) === 'listErasures'
/** Changes the results of batches. */
const mapResults = (change: (results: Row[]) => unknown): Mutation =>
  mapRecords('recordCustomEvents', ({ results }) => ({ results: change(results as Row[]) }))
/** Changes the events of batches, once they are valid. */
const changeEvents = (change: (events: Row[]) => unknown): Mutation =>
  changeRequest((request) => {
    if (operationOf(request.routeOptions) === 'recordCustomEvents') change(bodyOf(request).events as Row[])
  }, 'preHandler')
const isImport = ({ routeOptions }: FastifyRequest) => operationOf(routeOptions) === 'importRecords'
/** The lines of an import, which can be read once. */
const readLines = async ({ body }: FastifyRequest) => (await text(body as AsyncIterable<Buffer>)).split('\n')
const sendLines = (request: FastifyRequest, lines: string[]) => {
  request.body = Readable.from([Buffer.from(lines.join('\n'))])
}
const dropHeader = (name: string) => changeRequest(({ raw }) => void delete raw.headers[name])

export const MUTANTS: Record<string, Mutant> = {
  // Bodies of successes
  'field-missing': {
    does: 'omits the title of a module',
    mutate: mapRecords('getModule', ({ title: _, ...module }) => module),
    guards: ['contract/examples'],
    operation: 'getModule',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /title/,
  },
  'field-undocumented': {
    does: 'adds a field to an entry',
    mutate: mapRecords('getEntry', (entry) => ({ ...entry, internal_id: 7 })),
    guards: ['contract/examples'],
    operation: 'getEntry',
    detectedBy: ['document', 'tests'],
    evidence: /internal_id/,
  },
  'null-for-string': {
    does: 'returns null as the definition of a version',
    mutate: mapRecords('getModuleVersion', (version) => ({ ...version, json_string: null })),
    guards: ['contract/examples'],
    operation: 'getModuleVersion',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /json_string|null is not of type "string"/,
  },
  'null-for-absent': {
    does: 'returns null for fields that do not apply to an event',
    mutate: mapRecords('listEntryEvents', (event) => ({ custom_event_name: null, custom_event_props: null, ...event })),
    guards: ['contract/examples'],
    operation: 'listEntryEvents',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /custom_event_name|null is not of type "string"/,
  },
  'integer-as-text': {
    does: 'returns version numbers as strings',
    mutate: mapRecords('listModuleVersions', (version) => ({
      ...version,
      version_number: `${version.version_number}`,
    })),
    guards: ['contract/examples'],
    operation: 'listModuleVersions',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /version_number|"3" is not of type "integer"/,
  },
  'integer-with-fraction': {
    does: 'returns page_index as 1.5',
    mutate: mapRecords('listEntryEvents', (event) => ({ ...event, ...('page_index' in event && { page_index: 1.5 }) })),
    guards: ['contract/examples'],
    operation: 'listEntryEvents',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /page_index|1\.5 is not of type "integer"/,
  },
  'date-without-milliseconds': {
    does: 'omits the milliseconds of saved_at',
    mutate: mapRecords('getModuleVersion', (version) => ({
      ...version,
      saved_at: String(version.saved_at).replace(MILLISECONDS, 'Z'),
    })),
    guards: ['contract/examples'],
    operation: 'getModuleVersion',
    detectedBy: ['document', 'tests'],
    evidence: /saved_at/,
  },
  'date-with-offset': {
    does: 'writes updated_at with an offset instead of Z',
    mutate: mapRecords('getEntry', (entry) => ({
      ...entry,
      updated_at: String(entry.updated_at).replace('Z', '+00:00'),
    })),
    guards: ['contract/examples'],
    operation: 'getEntry',
    detectedBy: ['document', 'tests'],
    evidence: /updated_at/,
  },
  'date-impossible': {
    does: 'returns February 30 as the timestamp of an event',
    mutate: mapRecords('recordCustomEvent', (event) => ({ ...event, timestamp: '2026-02-30T09:41:12.000Z' })),
    guards: ['contract/examples'],
    operation: 'recordCustomEvent',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /timestamp|2026-02-30/,
  },
  'list-wrapped': {
    does: 'wraps the list of modules in an object',
    mutate: mapBody(({ request }, body) =>
      operationOf(request.routeOptions) === 'listModules' && Array.isArray(body) ? { data: body } : body,
    ),
    guards: ['contract/examples'],
    operation: 'listModules',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /must be array|data/,
  },
  'props-rewritten': {
    does: 'parses and reserializes custom_event_props',
    mutate: mapRecords('recordCustomEvent', (event) => ({
      ...event,
      custom_event_props: JSON.stringify(JSON.parse(String(event.custom_event_props))),
    })),
    guards: ['recording/recorder'],
    operation: 'recordCustomEvent',
    detectedBy: ['tests'],
    evidence: /props/,
  },
  'null-before-serialization': {
    does: 'returns null titles from a preSerialization hook',
    mutate: (app) =>
      app.addHook('preSerialization', async ({ routeOptions }, _, payload) =>
        operationOf(routeOptions) === 'listModules' && Array.isArray(payload)
          ? payload.map((module: Row) => ({ ...module, title: null }))
          : payload,
      ),
    guards: ['contract/examples'],
    operation: 'listModules',
    detectedBy: ['document', 'tests'],
    evidence: /title/,
  },

  // Statuses and errors
  'status-undocumented': {
    does: 'responds with 201 when an event is recorded',
    mutate: changeHead(({ request, reply }) => {
      if (operationOf(request.routeOptions) === 'recordCustomEvent' && reply.statusCode === 200) reply.code(201)
    }),
    guards: ['contract/matrix'],
    operation: 'recordCustomEvent',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /201/,
  },
  'missing-body-as-500': {
    does: 'fails with 500 when there is no body',
    mutate: changeRequest((request) => {
      if (request.method === 'POST' && request.body === undefined) throw internalError()
    }, 'preValidation'),
    guards: ['http/body'],
    operation: 'recordCustomEvent',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /no body|an empty body|Missing request body/,
  },
  'outage-as-401': {
    does: 'responds to a database outage as to a wrong key',
    mutate: wrapKeyCheck(async (own) => {
      try {
        await own()
      } catch (error) {
        throw error instanceof ApiError ? error : unauthorized()
      }
    }),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['tests'],
    evidence: /service_unavailable|503/,
  },
  'internal-error-exposed': {
    does: "exposes the database's error message in a 500",
    mutate: mapErrors((envelope, { reply }) =>
      reply.statusCode === 500
        ? { ...envelope, error: { ...(envelope.error as Row), message: 'relation "modules" does not exist' } }
        : envelope,
    ),
    guards: ['contract/examples'],
    operation: 'getModule',
    detectedBy: ['tests'],
    evidence: /internalError/,
  },
  'error-without-code': {
    does: 'omits the code of errors',
    mutate: mapErrors(({ error, ...rest }) => ({ ...rest, error: { ...(error as Row), code: undefined } })),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /code/,
  },
  'error-framework-shape': {
    does: "sends errors in Fastify's own shape",
    mutate: mapErrors((envelope, { reply }) => ({
      statusCode: reply.statusCode,
      error: 'Error',
      message: (envelope.error as Row).message,
    })),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /code|error must be object|"Error" is not of type "object"/,
  },
  'error-without-project': {
    does: 'omits projectId from errors',
    mutate: mapErrors(({ projectId: _, ...envelope }) => envelope),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['tests'],
    evidence: /projectId/,
  },

  // Headers
  'content-type-html': {
    does: 'labels its JSON as HTML',
    mutate: changeHead(({ reply }) => reply.type('text/html; charset=utf-8')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['document', 'prism', 'schemathesis'],
    evidence: /text\/html/,
  },
  'charset-latin1': {
    does: 'encodes bodies as Latin-1',
    mutate: mapPayload(({ reply }, payload) => {
      reply.type('application/json; charset=iso-8859-1')
      return Buffer.from(String(payload ?? ''), 'latin1')
    }),
    guards: ['contract/examples'],
    operation: 'getModule',
    detectedBy: ['document'],
    evidence: /charset=iso-8859-1/,
  },
  'header-undocumented': {
    does: 'sends X-Powered-By',
    mutate: changeHead(({ reply }) => reply.header('x-powered-by', 'Fastify')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['document', 'schemathesis'],
    evidence: /x-powered-by/,
  },
  'request-id-missing': {
    does: 'omits X-Request-Id',
    mutate: changeHead(({ reply }) => reply.removeHeader('x-request-id')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /x-request-id/i,
  },
  'request-id-replaced': {
    does: "replaces the caller's X-Request-Id",
    mutate: changeHead(({ reply }) => reply.header('x-request-id', randomUUID())),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['tests'],
    evidence: /x-request-id/i,
  },
  'cache-public': {
    does: 'lets shared caches store responses that need a key',
    mutate: changeHead(({ reply }) => reply.header('cache-control', 'public, max-age=60')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['tests'],
    evidence: /cache-control/,
  },
  'vary-missing': {
    does: 'does not declare that responses vary by key',
    mutate: changeHead(({ reply }) => reply.removeHeader('vary')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /vary|X-Api-Key/i,
  },
  'retry-after-missing': {
    does: 'omits Retry-After',
    mutate: changeHead(({ reply }) => reply.removeHeader('retry-after')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['document', 'tests', 'prism'],
    evidence: /retry-after/,
  },
  'challenge-missing': {
    does: 'omits WWW-Authenticate from a 401',
    mutate: changeHead(({ reply }) => reply.removeHeader('www-authenticate')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /www-authenticate|ApiKey realm/i,
  },
  'allow-missing': {
    does: 'omits Allow from a 405',
    mutate: changeHead(({ reply }) => reply.removeHeader('allow')),
    guards: ['http/order'],
    operation: 'getModule',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /a 405 names the methods|without required `Allow` header/,
  },
  'origins-all-allowed': {
    does: 'allows every origin although CORS_ORIGINS is not set',
    mutate: changeHead(({ reply }) => reply.header('access-control-allow-origin', '*')),
    guards: ['http/cors'],
    operation: 'getModule',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /without CORS_ORIGINS|access-control-allow-origin/,
  },

  // Conditional reads
  'etag-missing': {
    does: 'sends no ETag',
    mutate: changeHead(({ reply }) => reply.removeHeader('etag')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /etag/i,
  },
  'etag-weak': {
    does: 'sends weak ETags',
    mutate: changeHead(({ reply }) => {
      if (reply.hasHeader('etag')) reply.header('etag', `W/${reply.getHeader('etag')}`)
    }),
    guards: ['http/conditional'],
    operation: 'getModule',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /etag|strong entity tag|"W\//,
  },
  'etag-from-path': {
    does: 'sends the same ETag after a change',
    mutate: changeHead(({ request, reply }) => {
      if (reply.hasHeader('etag')) reply.header('etag', `"${Buffer.from(request.url).toString('base64url')}"`)
    }),
    guards: ['http/conditional'],
    operation: 'getModule',
    detectedBy: ['tests'],
    evidence: /another entity tag/,
  },
  'not-modified-never': {
    does: 'ignores If-None-Match',
    mutate: dropHeader('if-none-match'),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /304|parameter `If-None-Match`/,
  },
  'not-modified-always': {
    does: 'treats every If-None-Match as a match',
    mutate: changeRequest(({ raw: { headers } }) => {
      if (headers['if-none-match']) headers['if-none-match'] = '*'
    }),
    guards: ['http/conditional'],
    operation: 'getModule',
    detectedBy: ['tests'],
    evidence: /a 200 for another tag/,
  },

  // Keys
  'auth-ignored': {
    does: 'checks no key',
    mutate: wrapKeyCheck(async () => {}),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['tests', 'prism', 'schemathesis'],
    evidence: /401|without a key/,
  },
  'scope-ignored': {
    does: 'ignores the scopes of a key',
    mutate: wrapKeyCheck(onError('insufficient_scope', () => {})),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /403/,
  },
  'rate-ignored': {
    does: 'counts requests but enforces no rate limit',
    mutate: wrapKeyCheck(onError('rate_limited', () => {})),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['tests'],
    evidence: /429/,
  },
  'key-of-any-project': {
    does: "accepts every project's key for every project",
    mutate: wrapKeyCheck(async (own, { request }, db) => {
      const { params } = request
      const key = parseKey(String(request.headers['x-api-key']))
      const owner = key && (await findKeyById(db, key.key_id))
      if (owner) request.params = { ...(params as object), projectId: owner.project_id }
      await own()
      request.params = params
    }),
    guards: ['http/keys'],
    operation: 'getModule',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /one of another project|FLOWTRAIL_OTHER_KEY/,
  },
  'key-cached-forever': {
    does: 'queries the database only once for each key',
    mutate: (app, db) => {
      const known = new Set<string>()
      wrapKeyCheck(async (own, { request }) => {
        const credentials = JSON.stringify([request.params, request.headers['x-api-key']])
        if (!known.has(credentials)) await own()
        known.add(credentials)
      })(app, db)
    },
    guards: ['http/keys'],
    operation: 'getModule',
    detectedBy: ['tests'],
    evidence: /revoking and expiring take effect within a second/,
  },
  'unknown-project-exposed': {
    does: 'distinguishes a project that does not exist from a wrong key',
    mutate: wrapKeyCheck(
      onError('unauthorized', async ({ request }, _, db) => {
        const { projectId } = request.params as { projectId: string }
        if (await projectExists(db, projectId)) throw unauthorized()
        throw new ApiError('unauthorized', 'There is no such project.', unauthorized().options)
      }),
    ),
    guards: ['http/keys'],
    operation: 'getModule',
    detectedBy: ['tests'],
    evidence: /a project that does not exist/,
  },

  // Request validation
  'body-unchecked': {
    does: 'records bodies without validating them',
    mutate: (app) => app.addHook('onRoute', ({ schema }) => void delete schema?.body),
    guards: ['http/body'],
    operation: 'recordCustomEvent',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /refuses the unknown field|"module_id":1|module_?Id must be|Server error/i,
  },
  'body-coerced': {
    does: 'converts numbers in a body to strings',
    mutate: changeRequest((request) => {
      const body = bodyOf(request)
      for (const [name, value] of Object.entries(body)) if (typeof value === 'number') body[name] = String(value)
    }, 'preValidation'),
    guards: ['http/body'],
    operation: 'recordCustomEvent',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /"module_id":1|Incorrect type/,
  },
  'body-field-ignored': {
    does: 'drops unknown fields of a body',
    mutate: changeRequest((request) => {
      const body = bodyOf(request)
      const { properties = {} } = operations.recordCustomEvent?.requestBody?.content['application/json']?.schema ?? {}
      for (const name of Object.keys(body)) if (!Object.hasOwn(properties, name)) delete body[name]
    }, 'preValidation'),
    guards: ['http/body'],
    operation: 'recordCustomEvent',
    detectedBy: ['tests'],
    evidence: /unknown field/,
  },
  'media-type-ignored': {
    does: 'parses every body as JSON, whatever its media type',
    mutate: changeRequest(({ raw: { headers } }) => {
      if (headers['content-type'] !== undefined) headers['content-type'] = 'application/json'
    }),
    guards: ['contract/matrix'],
    operation: 'recordCustomEvent',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /415|text\/plain/,
  },
  'future-accepted': {
    does: 'records events from the future as of now',
    mutate: changeRequest((request) => {
      const body = bodyOf(request)
      if (Date.parse(String(body.timestamp)) > Date.now()) body.timestamp = new Date().toISOString()
    }, 'preValidation'),
    guards: ['http/body'],
    operation: 'recordCustomEvent',
    detectedBy: ['tests'],
    evidence: /only shows after the schema|24 hours/,
  },
  'parameter-ignored': {
    does: 'ignores unknown query parameters',
    mutate: changeRequest((request) => {
      const operation = operations[operationOf(request.routeOptions) ?? '']
      const known = operation?.parameters.map(({ name }) => name)
      for (const name of Object.keys(queryOf(request))) if (!known?.includes(name)) delete queryOf(request)[name]
    }),
    guards: ['contract/matrix'],
    operation: 'getModule',
    detectedBy: ['tests'],
    evidence: /400/,
  },
  'limit-clamped': {
    does: 'clamps a limit over 1000 to 1000',
    mutate: changeRequest((request) => {
      const { limit } = queryOf(request)
      if (Number(limit?.[0]) > 1000) queryOf(request).limit = ['1000']
    }),
    guards: ['http/query'],
    operation: 'listEntryPageViews',
    detectedBy: ['tests', 'prism', 'schemathesis'],
    evidence: /limit=1001|greater than maximum/,
  },
  'cursor-of-any-list': {
    does: 'returns the first page for a cursor of another list',
    mutate: wrapHandler(
      onError('invalid_request', ({ request }, own) => {
        if (!('cursor' in queryOf(request))) throw internalError()
        delete queryOf(request).cursor
        return own()
      }),
    ),
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    detectedBy: ['tests'],
    evidence: /refuses a cursor of/,
  },

  // The feed
  'feed-event-twice': {
    does: 'has the first event of an ascending page twice',
    mutate: mapFeed((events) => [...events.slice(0, 1), ...events]),
    guards: ['feed/feed'],
    operation: 'listProjectEvents',
    detectedBy: ['tests'],
    evidence: /cursor, and a link|order of recording/,
  },
  'feed-gap-filled-later': {
    does: 'omits an event of the feed for a moment, and then has it before others',
    mutate: (app) => {
      const seen = new Set<unknown>()
      mapFeed((events) =>
        events.filter(({ event_id }, i) => i === events.length - 1 || seen.size === seen.add(event_id).size),
      )(app, undefined as never)
    },
    guards: ['feed/feed'],
    operation: 'listProjectEvents',
    detectedBy: ['tests'],
    evidence: /order of recording|cursor, and a link|by entry, timestamp/,
  },
  'feed-late-event-at-its-timestamp': {
    does: 'has a late event at the place of its timestamp',
    mutate: mapFeed((events) => events.toSorted((a, b) => (String(a.timestamp) < String(b.timestamp) ? -1 : 1))),
    guards: ['feed/feed'],
    operation: 'listProjectEvents',
    detectedBy: ['tests'],
    evidence: /order of recording/,
  },
  'feed-last-page-without-cursor': {
    does: 'sends no Next-Cursor with the last page of the feed',
    mutate: changeHead(({ reply }) => {
      if (!reply.hasHeader('link')) reply.removeHeader('next-cursor')
    }),
    guards: ['feed/feed'],
    operation: 'listProjectEvents',
    detectedBy: ['tests'],
    evidence: /cursor, and a link|with a cursor when/,
  },
  'feed-link-on-last-page': {
    does: 'links on from the last page of the feed',
    mutate: changeHead(({ request, reply }) => {
      const cursor = reply.getHeader('next-cursor')
      if (cursor !== undefined && !reply.hasHeader('link')) {
        reply.header('link', `<${request.url.split('?')[0]}?cursor=${cursor}&direction=ASC>; rel="next"`)
      }
    }),
    guards: ['feed/feed'],
    operation: 'listProjectEvents',
    detectedBy: ['tests'],
    evidence: /cursor, and a link/,
  },
  'feed-after-inclusive': {
    does: 'begins with the event at `after`, not behind it',
    mutate: changeRequest((request) => {
      const query = request.query as { after?: number }
      if (query.after) query.after -= 1
    }, 'preHandler'),
    guards: ['feed/feed'],
    operation: 'listProjectEvents',
    detectedBy: ['tests'],
    evidence: /begins behind/,
  },
  'feed-wait-ignored': {
    does: 'does not wait for events',
    mutate: changeRequest((request) => {
      const query = request.query as { wait?: number }
      if (query.wait !== undefined) query.wait = 0
    }, 'preHandler'),
    guards: ['feed/feed'],
    operation: 'listProjectEvents',
    detectedBy: ['tests'],
    evidence: /as soon as another process|when the time is over/,
  },
  'feed-wait-without-direction': {
    does: 'treats wait as direction=ASC',
    mutate: changeRequest((request) => {
      const query = request.query as { wait?: number; direction?: string }
      if (query.wait) query.direction = 'ASC'
    }, 'preHandler'),
    guards: ['feed/feed'],
    operation: 'listProjectEvents',
    detectedBy: ['tests'],
    evidence: /"wait":1/,
  },
  'feed-recorded-at-is-timestamp': {
    does: 'returns the timestamp of an event as recorded_at',
    mutate: mapRecords('listProjectEvents', (event) => ({ ...event, recorded_at: event.timestamp })),
    guards: ['feed/feed'],
    operation: 'listProjectEvents',
    detectedBy: ['tests'],
    evidence: /order of recording/,
  },
  'feed-position-as-text': {
    does: 'returns positions as strings',
    mutate: mapRecords('listProjectEvents', (event) => ({ ...event, position: `${event.position}` })),
    guards: ['contract/examples'],
    operation: 'listProjectEvents',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /position|is not of type "integer"/,
  },
  'event-id-missing': {
    does: 'omits the id of an event',
    mutate: mapRecords('listEntryEvents', ({ event_id: _, ...event }) => event),
    guards: ['contract/examples'],
    operation: 'listEntryEvents',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /event_id/,
  },
  'entries-without-data': {
    does: 'returns entries of a list without their user data',
    mutate: mapRecords('listEntries', (entry) => ({ ...entry, entry_data: '{}' })),
    guards: ['http/isolation'],
    operation: 'listEntries',
    detectedBy: ['tests'],
    evidence: /entry_data|entries/,
  },

  // The feed of erasures
  'erasure-without-entries': {
    does: 'omits which entries the erased contact had',
    mutate: mapRecords('listErasures', ({ entry_ids: _, ...erasure }) => erasure),
    guards: ['contract/examples'],
    operation: 'listErasures',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /entry_ids/,
  },
  'erasure-entry-forgotten': {
    does: 'omits one of the entries that the erased contact had',
    mutate: mapRecords('listErasures', (erasure) => ({
      ...erasure,
      entry_ids: (erasure.entry_ids as string[]).slice(1),
    })),
    guards: ['feed/erasures'],
    operation: 'listErasures',
    detectedBy: ['tests'],
    evidence: /by its ids alone/,
  },
  'erasure-date-without-milliseconds': {
    does: 'omits the milliseconds of erased_at',
    mutate: mapRecords('listErasures', (erasure) => ({
      ...erasure,
      erased_at: String(erasure.erased_at).replace(MILLISECONDS, 'Z'),
    })),
    guards: ['contract/examples'],
    operation: 'listErasures',
    detectedBy: ['document', 'tests'],
    evidence: /erased_at/,
  },
  'erasure-before-its-events': {
    does: 'has an erasure at a position before those of the erased events',
    mutate: mapRecords('listErasures', (erasure) => ({ ...erasure, position: 1 })),
    guards: ['feed/erasures'],
    operation: 'listErasures',
    detectedBy: ['tests'],
    evidence: /behind its events|has what the service has/,
  },
  'erasures-of-all-projects': {
    does: 'lists the erasures of all projects',
    mutate: mapBody(({ request, reply }, body, db) => {
      if (!isOfErasures(request) || reply.statusCode !== 200) return body
      const columns = ['erasure_id', 'position', 'contact_id', 'entry_ids', 'erased_at'] as const
      return db.selectFrom('erasures').select(columns).orderBy('position', 'desc').execute()
    }),
    guards: ['http/isolation'],
    operation: 'listErasures',
    detectedBy: ['document', 'tests'],
    evidence: /erased_at|listErasures > returns each project exactly its own rows/,
  },
  'erasures-newest-last': {
    does: 'has the erasures of each page the other way round',
    mutate: mapBody(({ request, reply }, body) =>
      isOfErasures(request) && reply.statusCode === 200 ? (body as Row[]).toReversed() : body,
    ),
    guards: ['http/isolation'],
    operation: 'listErasures',
    detectedBy: ['tests'],
    evidence: /listErasures > returns each project exactly its own rows/,
  },
  'erasures-last-page-without-cursor': {
    does: 'sends no Next-Cursor with the last page of erasures',
    mutate: changeHead(({ request, reply }) => {
      if (isOfErasures(request) && !reply.hasHeader('link')) reply.removeHeader('next-cursor')
    }),
    guards: ['feed/erasures'],
    operation: 'listErasures',
    detectedBy: ['tests'],
    evidence: /always has a cursor/,
  },
  'erasures-after-inclusive': {
    does: 'begins with the erasure at `after`, not behind it',
    mutate: changeRequest((request) => {
      const query = request.query as { after?: number }
      if (isOfErasures(request) && query.after) query.after -= 1
    }, 'preHandler'),
    guards: ['feed/erasures'],
    operation: 'listErasures',
    detectedBy: ['tests'],
    evidence: /a request that waits gets the erasure/,
  },
  'erasures-wait-ignored': {
    does: 'does not wait for erasures',
    mutate: changeRequest((request) => {
      if (isOfErasures(request)) Object.assign(request.query as object, { wait: 0 })
    }, 'preHandler'),
    guards: ['feed/erasures'],
    operation: 'listErasures',
    detectedBy: ['tests'],
    evidence: /a request that waits gets the erasure/,
  },

  // Lists
  'link-missing': {
    does: 'sends neither Link nor Next-Cursor',
    mutate: changeHead(({ reply }) => reply.removeHeader('link').removeHeader('next-cursor')),
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    detectedBy: ['tests'],
    evidence: /once in pages/,
  },
  'link-on-last-page': {
    does: 'links to an empty page after a last page that is exactly full',
    mutate: (app) => {
      const END = 'END'
      app.addHook('onSend', async (request, reply, payload) => {
        const { limit } = request.query as { limit?: number }
        if (reply.hasHeader('link') || typeof payload !== 'string' || limit === undefined) return payload
        const rows: unknown = JSON.parse(payload)
        if (!Array.isArray(rows) || rows.length !== limit) return payload
        const next = new URLSearchParams({ ...(request.query as object), cursor: END })
        reply.header('next-cursor', END).header('link', `<${request.url.split('?')[0]}?${next}>; rel="next"`)
        return payload
      })
      app.addHook('preValidation', async (request, reply) => {
        if (queryOf(request).cursor?.[0] !== END) return
        const headers = { 'cache-control': 'private, no-cache', vary: 'X-Api-Key, accept-encoding' }
        await reply.headers(headers).send([])
      })
    },
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    detectedBy: ['tests'],
    evidence: /once in pages/,
  },
  'row-repeated': {
    does: 'repeats the last row of a page on the next',
    mutate: (app) => {
      const lastRows = new Map<unknown, unknown>()
      app.addHook('onSend', async (request, reply, payload) => {
        if (reply.statusCode !== 200 || typeof payload !== 'string' || payload[0] !== '[') return payload
        const rows: unknown[] = JSON.parse(payload)
        lastRows.set(reply.getHeader('next-cursor'), rows.at(-1))
        const { cursor } = request.query as { cursor?: string }
        return cursor === undefined ? payload : JSON.stringify([lastRows.get(cursor), ...rows])
      })
    },
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    detectedBy: ['tests'],
    evidence: /once in pages/,
  },
  'row-skipped': {
    does: 'omits the first row of every page except the first',
    mutate: mapBody(({ request }, body) =>
      Array.isArray(body) && 'cursor' in queryOf(request) ? body.slice(1) : body,
    ),
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    detectedBy: ['tests'],
    evidence: /once in pages/,
  },
  'page-too-long': {
    does: 'returns one row more than limit',
    mutate: changeRequest((request) => {
      const { limit } = queryOf(request)
      if (limit) queryOf(request).limit = [String(Number(limit[0]) + 1)]
    }),
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /once in pages|parameter `limit`/,
  },
  'direction-ignored': {
    does: 'ignores direction and sorts descending',
    mutate: changeRequest((request) => void delete queryOf(request).direction),
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /once in pages|parameter `direction`/,
  },
  'direction-default-changed': {
    does: 'sorts ascending by default',
    mutate: changeRequest((request) => {
      if (request.url.includes('versions?') || request.url.endsWith('versions')) queryOf(request).direction ??= ['ASC']
    }),
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    detectedBy: ['tests'],
    evidence: /by default/,
  },
  'window-end-included': {
    does: 'includes what was updated exactly at updated_before',
    mutate: changeRequest((request) => {
      const { updated_before } = queryOf(request)
      if (updated_before) updated_before[0] = updated_before[0]?.replace('.000Z', '.001Z') ?? ''
    }),
    guards: ['http/paging'],
    operation: 'listEntryPageViews',
    detectedBy: ['tests'],
    evidence: /excludes its end/,
  },
  'foreign-rows': {
    does: 'lists the modules of all projects',
    mutate: wrapHandler(async (own, { request }, db) => {
      const result = await own()
      if (operationOf(request.routeOptions) !== 'listModules') return result
      return db.selectFrom('modules').select(['module_id', 'title', 'group_id', 'project_id']).execute()
    }),
    guards: ['http/keys'],
    operation: 'listModules',
    detectedBy: ['document', 'tests', 'schemathesis'],
    evidence: /another project, with a key of its own, > has no rows|project_id is ["']/,
  },
  'foreign-entry': {
    does: "reads every project's entries with any project's key",
    mutate: wrapHandler(
      onError('entry_not_found', async ({ request }, own, db) => {
        const { entryId } = request.params as { entryId: string }
        for (const { project_id } of await selectProjects(db)) {
          if (await findEntry(db, UNLIMITED, project_id, entryId)) request.params = { projectId: project_id, entryId }
        }
        return own()
      }),
    ),
    guards: ['http/keys'],
    operation: 'getEntry',
    detectedBy: ['document', 'tests'],
    evidence: /another project, with a key of its own, > has no entries|project_id is "/,
  },
  'foreign-group': {
    does: "takes a module's group from another project's module with the same id",
    mutate: mapBody(async ({ request }, body, db) => {
      if (operationOf(request.routeOptions) !== 'getModule') return body
      const { module_id = '' } = body as { module_id?: string }
      const modules = db.selectFrom('modules').select('group_id').where('module_id', '=', module_id)
      return { ...(body as Row), ...(await modules.orderBy('project_id', 'desc').executeTakeFirst()) }
    }),
    guards: ['http/isolation'],
    operation: 'getModule',
    detectedBy: ['document', 'tests'],
    evidence: /group_id/,
  },

  // Recording
  'event-lost': {
    does: 'responds with 200 but stores nothing',
    mutate: mapBody(async ({ request, reply }, body, db) => {
      const isKept = 'idempotency-key' in request.headers
      if (operationOf(request.routeOptions) === 'recordCustomEvent' && reply.statusCode === 200 && !isKept) {
        const { project_id, entry_id, timestamp, custom_event_name } = body as Row
        await sql`
          DELETE FROM events e WHERE (project_id, entry_id, timestamp, custom_event_name)
            = (${project_id}, ${entry_id}, ${timestamp}, ${custom_event_name}) AND NOT EXISTS
            (SELECT FROM idempotency_keys k WHERE k.project_id = e.project_id AND k.event_id = e.event_id)`.execute(db)
      }
      return body
    }),
    guards: ['recording/contacts'],
    operation: 'recordCustomEvent',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /length|does not show the event/,
  },
  'replay-unmarked': {
    does: 'omits Idempotent-Replayed',
    mutate: changeHead(({ reply }) => reply.removeHeader('idempotent-replayed')),
    guards: ['recording/idempotency'],
    operation: 'recordCustomEvent',
    detectedBy: ['tests'],
    evidence: /the same event again/,
  },
  'replay-recorded': {
    does: 'records an event again with the same Idempotency-Key',
    mutate: dropHeader('idempotency-key'),
    guards: ['recording/idempotency'],
    operation: 'recordCustomEvent',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /recorded once|parameter `Idempotency-Key`/,
  },
  'key-reuse-accepted': {
    does: 'records another event under a used Idempotency-Key',
    mutate: wrapHandler(
      onError('idempotency_key_reused', ({ request }, own) => {
        request.headers = { 'Idempotency-Key': undefined }
        return own()
      }),
    ),
    guards: ['contract/matrix'],
    operation: 'recordCustomEvent',
    detectedBy: ['tests'],
    evidence: /422/,
  },
  'conflict-accepted': {
    does: 'uses the first of two contacts instead of responding with 409',
    mutate: wrapHandler(
      onError('identifier_conflict', ({ request }, own) => {
        const { identifiers } = request.body as { identifiers: unknown[] }
        identifiers.length = 1
        return own()
      }),
    ),
    guards: ['contract/matrix'],
    operation: 'recordCustomEvent',
    detectedBy: ['tests'],
    evidence: /409/,
  },
  'identifier-case-folded': {
    does: 'treats identifiers that differ only in case as equal',
    mutate: changeRequest((request) => {
      const { identifiers } = bodyOf(request)
      for (const identifier of Array.isArray(identifiers) ? identifiers : []) {
        if (typeof identifier?.value === 'string') identifier.value = identifier.value.toLowerCase()
      }
    }, 'preValidation'),
    guards: ['recording/contacts'],
    operation: 'recordCustomEvent',
    detectedBy: ['tests'],
    evidence: /case/,
  },

  // Batches
  'batch-results-reversed': {
    does: 'returns the results of a batch in reverse order',
    mutate: mapResults((results) => results.toReversed()),
    guards: ['http/batch'],
    operation: 'recordCustomEvents',
    detectedBy: ['tests', 'prism', 'schemathesis'],
    evidence: /in their order|for event \d|is recorded as|request\/body\/events/,
  },
  'batch-recorded-reversed': {
    does: 'records the events of a batch in reverse order',
    mutate: (app, db) => {
      changeEvents((events) => events.reverse())(app, db)
      mapResults((results) => results.toReversed())(app, db)
    },
    guards: ['http/batch'],
    operation: 'recordCustomEvents',
    detectedBy: ['tests'],
    evidence: /in their order/,
  },
  'batch-refused-whole': {
    does: 'refuses a batch because of one event',
    mutate: mapBody(({ request, reply }, body) => {
      if (operationOf(request.routeOptions) !== 'recordCustomEvents' || reply.statusCode !== 200) return body
      const refused = (body as { results: Row[] }).results.find(({ status }) => status !== 200)
      if (!refused) return body
      const { status, ...envelope } = refused
      reply.code(Number(status))
      return envelope
    }),
    guards: ['http/batch'],
    operation: 'recordCustomEvents',
    detectedBy: ['document', 'tests', 'prism', 'schemathesis'],
    evidence: /status|404/,
  },
  'batch-results-of-recorded': {
    does: 'omits the results of events that are refused',
    mutate: mapResults((results) => results.filter(({ status }) => status === 200)),
    guards: ['http/batch'],
    operation: 'recordCustomEvents',
    detectedBy: ['tests', 'schemathesis'],
    evidence: /in their order|results of \d+ events/,
  },
  'batch-status-of-whole': {
    does: 'returns the status 200 for each event of a batch',
    mutate: mapResults((results) => results.map((result) => ({ ...result, status: 200 }))),
    guards: ['http/batch'],
    operation: 'recordCustomEvents',
    detectedBy: ['document', 'tests', 'prism'],
    evidence: /in their order|status|results|for event \d|request\/body\/events/,
  },
  'batch-replay-as-new': {
    does: 'returns a replayed event of a batch as a new one',
    mutate: mapResults((results) =>
      results.map((result) => ({ ...result, ...((result.event as object) && { replayed: false }) })),
    ),
    guards: ['http/batch'],
    operation: 'recordCustomEvents',
    detectedBy: ['tests'],
    evidence: /replayed/,
  },
  'batch-keys-ignored': {
    does: 'ignores the idempotency keys of a batch',
    mutate: changeEvents((events) => {
      for (const event of events) delete event.idempotency_key
    }),
    guards: ['http/batch'],
    operation: 'recordCustomEvents',
    detectedBy: ['tests'],
    evidence: /repeated batch/,
  },
  'batch-header-ignored': {
    does: 'ignores an Idempotency-Key beside a batch',
    mutate: changeRequest((request) => {
      if (operationOf(request.routeOptions) === 'recordCustomEvents') delete request.raw.headers['idempotency-key']
    }),
    guards: ['http/batch'],
    operation: 'recordCustomEvents',
    detectedBy: ['tests'],
    evidence: /with the header of single events/,
  },
  'batch-retry-after-missing': {
    does: 'omits Retry-After beside a result of 503',
    mutate: changeHead(({ reply }) => {
      if (reply.statusCode === 200) reply.removeHeader('retry-after')
    }),
    guards: ['http/batch'],
    operation: 'recordCustomEvents',
    detectedBy: ['tests'],
    evidence: /some get a 503, with Retry-After/,
  },
  'batch-unavailable-in-results': {
    does: 'responds with 200 to a batch of which nothing could be recorded',
    mutate: mapBody(({ request, reply }, body) => {
      if (operationOf(request.routeOptions) !== 'recordCustomEvents' || reply.statusCode !== 503) return body
      reply.code(200)
      return { results: [{ status: 503, ...(body as Row) }] }
    }),
    guards: ['http/batch'],
    operation: 'recordCustomEvents',
    detectedBy: ['tests'],
    evidence: /and none is, the response is a 503/,
  },
  'batch-pointers-of-single': {
    does: 'points to a fault in an event of a batch as if it had been sent alone',
    mutate: mapResults((results) =>
      results.map((result) => JSON.parse(JSON.stringify(result).replaceAll(/\/body\/events\/\d+\//g, '/body/'))),
    ),
    guards: ['http/batch'],
    operation: 'recordCustomEvents',
    detectedBy: ['tests'],
    evidence: /error that it gets alone/,
  },

  // Imports
  'import-good-lines-stored': {
    does: 'stores the lines before a bad one',
    mutate: wrapHandler(async (own, { request }) => {
      if (!isImport(request)) return own()
      const lines = await readLines(request)
      sendLines(request, lines)
      return own().catch(async (error: ApiError) => {
        const line = Number(error.options.issues?.[0]?.pointer.split('/')[2])
        sendLines(request, lines.slice(0, line - 1))
        await own().catch(() => {})
        throw error
      })
    }),
    guards: ['http/import'],
    operation: 'importRecords',
    detectedBy: ['tests'],
    evidence: /, and nothing is imported/,
  },
  'import-added-as-changed': {
    does: 'counts the records that an import adds as changed',
    mutate: mapRecords('importRecords', ({ added, changed, ...counts }) => ({
      ...counts,
      added: changed,
      changed: added,
    })),
    guards: ['http/import'],
    operation: 'importRecords',
    detectedBy: ['tests'],
    evidence: /a visit > is listed/,
  },
  'import-unchanged-not-counted': {
    does: 'omits what was stored already from the number of records',
    mutate: mapRecords('importRecords', (counts) => ({
      ...counts,
      records: Number(counts.added) + Number(counts.changed),
    })),
    guards: ['http/import'],
    operation: 'importRecords',
    detectedBy: ['tests'],
    evidence: /sent twice|does not add up|0 records of/,
  },
  'import-lines-from-zero': {
    does: 'counts the lines of an import from zero',
    mutate: mapErrors((envelope, { request }) =>
      isImport(request)
        ? JSON.parse(JSON.stringify(envelope).replaceAll(/(?<="\/body\/)\d+/g, (line) => String(Number(line) - 1)))
        : envelope,
    ),
    guards: ['http/import'],
    operation: 'importRecords',
    detectedBy: ['tests'],
    evidence: /reported by its number/,
  },
  'import-conflict-as-invalid': {
    does: 'responds with 400 to a record that contradicts what is stored',
    mutate: wrapHandler(
      onError('record_conflict', () => {
        throw new ApiError('invalid_request', 'The records contradict each other.')
      }),
    ),
    guards: ['http/import'],
    operation: 'importRecords',
    detectedBy: ['tests'],
    evidence: /contradiction is a conflict/,
  },
  'import-project-ignored': {
    does: 'imports records of another project into that of the path',
    mutate: wrapHandler(async (own, { request }) => {
      if (!isImport(request)) return own()
      const lines = await readLines(request)
      sendLines(
        request,
        lines.map((line) => line.replace(/,"project_id":"\w+"/, '')),
      )
      return own()
    }),
    guards: ['http/import'],
    operation: 'importRecords',
    detectedBy: ['tests'],
    evidence: /of another project/,
  },
  'import-unlimited': {
    does: 'imports a body of any size',
    mutate: (app) =>
      app.addHook('onRoute', (route) => {
        if (operationOf(route) === 'importRecords') route.bodyLimit = 2 ** 30
      }),
    guards: ['http/import'],
    operation: 'importRecords',
    detectedBy: ['tests'],
    evidence: /a body over the limit/,
  },
  'import-scope-of-events': {
    does: 'imports with a key that lacks the scope',
    mutate: wrapKeyCheck(onError('insufficient_scope', ({ request }, own) => (isImport(request) ? undefined : own()))),
    guards: ['http/import'],
    operation: 'importRecords',
    detectedBy: ['tests'],
    evidence: /needs the scope import|FLOWTRAIL_READ_KEY/,
  },
}

/** @throws Error when there is no mutant of that name */
export function mutationOf(name: string | undefined): Mutation | undefined {
  if (!name) return undefined
  const mutant = MUTANTS[name]
  if (!mutant) throw new Error(`unknown mutant ${name}; known are ${Object.keys(MUTANTS).join(', ')}`)
  return mutant.mutate
}
