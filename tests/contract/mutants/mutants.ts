import { randomUUID } from 'node:crypto'
import { sql } from 'kysely'
import { parseKey } from '../../../src/domain/api-key.ts'
import { ApiError, internalError, unauthorized } from '../../../src/domain/errors.ts'
import type { OperationId } from '../../../src/http/operations.ts'
import { findKeyById } from '../../../src/queries/api-keys.ts'
import { findEntry } from '../../../src/queries/entries.ts'
import { selectModules } from '../../../src/queries/modules.ts'
import { projectExists, selectProjects } from '../../../src/queries/projects.ts'
import { operations } from '../../support/contract.ts'
import type { Killer } from './killers.ts'
import {
  answering,
  checkingKeys,
  handling,
  insteadOf,
  type Mutation,
  operationOf,
  type Row,
  receiving,
  refusing,
  sendingBody,
  sendingHead,
  sendingLast,
} from './mutations.ts'

/** A server that is wrong in one way. */
export interface Mutant {
  /** What it does. */
  does: string
  mutate: Mutation
  /** The test files that guard against it, below tests/. */
  guards: string[]
  /** Where else to look for it: an operation that it is seen at. */
  operation: OperationId
  /** The checks that see it, and must go on seeing it. */
  seenBy: Killer[]
  /** What a check says that sees it, so that no other breakage passes for that: a finding, or a test's title and error. */
  told: RegExp
}

/** The last bytes of a date-time on the wire. */
const MILLISECONDS = /\.\d{3}Z$/

/** The query as sent, before validation. */
const queryOf = ({ query }: { query: unknown }) => query as Record<string, string[]>
const bodyOf = ({ body }: { body: unknown }) => (body ?? {}) as Row
const dropHeader = (name: string) => receiving(({ raw }) => void delete raw.headers[name])

export const MUTANTS: Record<string, Mutant> = {
  // Bodies of successes
  'field-missing': {
    does: 'leaves the title out of a module',
    mutate: answering('getModule', ({ title: _, ...module }) => module),
    guards: ['contract/examples'],
    operation: 'getModule',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /title/,
  },
  'field-undocumented': {
    does: 'adds a field to an entry',
    mutate: answering('getEntry', (entry) => ({ ...entry, internal_id: 7 })),
    guards: ['contract/examples'],
    operation: 'getEntry',
    seenBy: ['document', 'tests'],
    told: /internal_id/,
  },
  'null-for-string': {
    does: 'gives null for the definition of a version',
    mutate: answering('getModuleVersion', (version) => ({ ...version, json_string: null })),
    guards: ['contract/examples'],
    operation: 'getModuleVersion',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /json_string|null is not of type "string"/,
  },
  'null-for-absent': {
    does: 'gives null for fields that do not apply to an event',
    mutate: answering('listEntryEvents', (event) => ({ custom_event_name: null, custom_event_props: null, ...event })),
    guards: ['contract/examples'],
    operation: 'listEntryEvents',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /custom_event_name|null is not of type "string"/,
  },
  'integer-as-text': {
    does: 'gives version numbers as strings',
    mutate: answering('listModuleVersions', (version) => ({ ...version, version_number: `${version.version_number}` })),
    guards: ['contract/examples'],
    operation: 'listModuleVersions',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /version_number|"3" is not of type "integer"/,
  },
  'integer-with-fraction': {
    does: 'gives page_index as 1.5',
    mutate: answering('listEntryEvents', (event) => ({ ...event, ...('page_index' in event && { page_index: 1.5 }) })),
    guards: ['contract/examples'],
    operation: 'listEntryEvents',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /page_index|1\.5 is not of type "integer"/,
  },
  'date-without-milliseconds': {
    does: 'leaves the milliseconds out of saved_at',
    mutate: answering('getModuleVersion', (version) => ({
      ...version,
      saved_at: String(version.saved_at).replace(MILLISECONDS, 'Z'),
    })),
    guards: ['contract/examples'],
    operation: 'getModuleVersion',
    seenBy: ['document', 'tests'],
    told: /saved_at/,
  },
  'date-with-offset': {
    does: 'writes updated_at with an offset for Z',
    mutate: answering('getEntry', (entry) => ({
      ...entry,
      updated_at: String(entry.updated_at).replace('Z', '+00:00'),
    })),
    guards: ['contract/examples'],
    operation: 'getEntry',
    seenBy: ['document', 'tests'],
    told: /updated_at/,
  },
  'date-that-is-not': {
    does: 'gives February 30 as the timestamp of an event',
    mutate: answering('recordCustomEvent', (event) => ({ ...event, timestamp: '2026-02-30T09:41:12.000Z' })),
    guards: ['contract/examples'],
    operation: 'recordCustomEvent',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /timestamp|2026-02-30/,
  },
  'list-wrapped': {
    does: 'wraps the list of modules in an object',
    mutate: sendingBody(({ request }, body) =>
      operationOf(request.routeOptions) === 'listModules' && Array.isArray(body) ? { data: body } : body,
    ),
    guards: ['contract/examples'],
    operation: 'listModules',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /must be array|data/,
  },
  'props-rewritten': {
    does: 'parses custom_event_props and writes them anew',
    mutate: answering('recordCustomEvent', (event) => ({
      ...event,
      custom_event_props: JSON.stringify(JSON.parse(String(event.custom_event_props))),
    })),
    guards: ['recording/recorder'],
    operation: 'recordCustomEvent',
    seenBy: ['tests'],
    told: /props/,
  },
  'null-hidden-by-serializer': {
    does: 'loses the title of modules, which the serializer writes as ""',
    mutate: (app) =>
      app.addHook('preSerialization', async ({ routeOptions }, _, payload) =>
        operationOf(routeOptions) === 'listModules' && Array.isArray(payload)
          ? payload.map((module: Row) => ({ ...module, title: null }))
          : payload,
      ),
    guards: ['contract/examples'],
    operation: 'listModules',
    seenBy: ['document', 'tests'],
    told: /title/,
  },

  // Statuses and errors
  'status-undocumented': {
    does: 'answers 201 where an event is recorded',
    mutate: sendingHead(({ request, reply }) => {
      if (operationOf(request.routeOptions) === 'recordCustomEvent' && reply.statusCode === 200) reply.code(201)
    }),
    guards: ['contract/matrix'],
    operation: 'recordCustomEvent',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /201/,
  },
  'missing-body-as-500': {
    does: 'fails with 500 where there is no body',
    mutate: receiving((request) => {
      if (request.method === 'POST' && request.body === undefined) throw internalError()
    }, 'preValidation'),
    guards: ['http/body'],
    operation: 'recordCustomEvent',
    seenBy: ['tests', 'schemathesis'],
    told: /no body|an empty body|Missing request body/,
  },
  'outage-as-401': {
    does: 'takes a database that is away for a wrong key',
    mutate: checkingKeys(async (own) => {
      try {
        await own()
      } catch (error) {
        throw error instanceof ApiError ? error : unauthorized()
      }
    }),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['tests'],
    told: /service_unavailable|503/,
  },
  'fault-told': {
    does: "tells the database's message in a 500",
    mutate: refusing((envelope, { reply }) =>
      reply.statusCode === 500
        ? { ...envelope, error: { ...(envelope.error as Row), message: 'relation "modules" does not exist' } }
        : envelope,
    ),
    guards: ['contract/examples'],
    operation: 'getModule',
    seenBy: ['tests'],
    told: /internalError/,
  },
  'error-without-code': {
    does: 'leaves the code out of errors',
    mutate: refusing(({ error, ...rest }) => ({ ...rest, error: { ...(error as Row), code: undefined } })),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /code/,
  },
  'error-of-the-framework': {
    does: "answers errors in Fastify's own shape",
    mutate: refusing((envelope, { reply }) => ({
      statusCode: reply.statusCode,
      error: 'Error',
      message: (envelope.error as Row).message,
    })),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /code|error must be object|"Error" is not of type "object"/,
  },
  'error-without-project': {
    does: 'leaves projectId out of errors',
    mutate: refusing(({ projectId: _, ...envelope }) => envelope),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['tests'],
    told: /projectId/,
  },

  // Heads
  'content-type-html': {
    does: 'says that its JSON is HTML',
    mutate: sendingHead(({ reply }) => reply.type('text/html; charset=utf-8')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['document', 'prism', 'schemathesis'],
    told: /text\/html/,
  },
  'charset-latin1': {
    does: 'writes Latin-1',
    mutate: sendingLast(({ reply }, payload) => {
      reply.type('application/json; charset=iso-8859-1')
      return Buffer.from(String(payload ?? ''), 'latin1')
    }),
    guards: ['contract/examples'],
    operation: 'getModule',
    seenBy: ['document'],
    told: /charset=iso-8859-1/,
  },
  'header-undocumented': {
    does: 'says X-Powered-By',
    mutate: sendingHead(({ reply }) => reply.header('x-powered-by', 'Fastify')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['document', 'schemathesis'],
    told: /x-powered-by/,
  },
  'request-id-missing': {
    does: 'leaves X-Request-Id out',
    mutate: sendingHead(({ reply }) => reply.removeHeader('x-request-id')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /x-request-id/i,
  },
  'request-id-replaced': {
    does: "gives an X-Request-Id of its own for the caller's",
    mutate: sendingHead(({ reply }) => reply.header('x-request-id', randomUUID())),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['tests'],
    told: /x-request-id/i,
  },
  'cache-public': {
    does: 'lets shared caches keep what a key opens',
    mutate: sendingHead(({ reply }) => reply.header('cache-control', 'public, max-age=60')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['tests'],
    told: /cache-control/,
  },
  'vary-missing': {
    does: 'does not say that answers depend on the key',
    mutate: sendingHead(({ reply }) => reply.removeHeader('vary')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /vary|X-Api-Key/i,
  },
  'retry-after-missing': {
    does: 'does not say when to try again',
    mutate: sendingHead(({ reply }) => reply.removeHeader('retry-after')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['document', 'tests', 'prism'],
    told: /retry-after/,
  },
  'challenge-missing': {
    does: 'leaves WWW-Authenticate out of a 401',
    mutate: sendingHead(({ reply }) => reply.removeHeader('www-authenticate')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /www-authenticate|ApiKey realm/i,
  },
  'allow-missing': {
    does: 'leaves Allow out of a 405',
    mutate: sendingHead(({ reply }) => reply.removeHeader('allow')),
    guards: ['http/order'],
    operation: 'getModule',
    seenBy: ['tests', 'schemathesis'],
    told: /a 405 names the methods|without required `Allow` header/,
  },
  'origins-all-allowed': {
    does: 'lets pages of every origin read without CORS_ORIGINS',
    mutate: sendingHead(({ reply }) => reply.header('access-control-allow-origin', '*')),
    guards: ['http/cors'],
    operation: 'getModule',
    seenBy: ['tests', 'schemathesis'],
    told: /without CORS_ORIGINS|access-control-allow-origin/,
  },

  // Conditional reads
  'etag-missing': {
    does: 'gives no ETag',
    mutate: sendingHead(({ reply }) => reply.removeHeader('etag')),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /etag/i,
  },
  'etag-weak': {
    does: 'gives weak ETags',
    mutate: sendingHead(({ reply }) => {
      if (reply.hasHeader('etag')) reply.header('etag', `W/${reply.getHeader('etag')}`)
    }),
    guards: ['http/conditional'],
    operation: 'getModule',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /etag|strong entity tag|"W\//,
  },
  'etag-of-the-path': {
    does: 'gives the same ETag after a change',
    mutate: sendingHead(({ request, reply }) => {
      if (reply.hasHeader('etag')) reply.header('etag', `"${Buffer.from(request.url).toString('base64url')}"`)
    }),
    guards: ['http/conditional'],
    operation: 'getModule',
    seenBy: ['tests'],
    told: /another entity tag/,
  },
  'not-modified-never': {
    does: 'ignores If-None-Match',
    mutate: dropHeader('if-none-match'),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['tests', 'schemathesis'],
    told: /304|parameter `If-None-Match`/,
  },
  'not-modified-always': {
    does: 'takes every If-None-Match for a match',
    mutate: receiving(({ raw: { headers } }) => {
      if (headers['if-none-match']) headers['if-none-match'] = '*'
    }),
    guards: ['http/conditional'],
    operation: 'getModule',
    seenBy: ['tests'],
    told: /a 200 for another tag/,
  },

  // Keys
  'auth-ignored': {
    does: 'checks no key',
    mutate: checkingKeys(async () => {}),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['tests', 'prism', 'schemathesis'],
    told: /401|without a key/,
  },
  'scope-ignored': {
    does: 'does not look at the scopes of a key',
    mutate: checkingKeys(insteadOf('insufficient_scope', () => {})),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['tests', 'schemathesis'],
    told: /403/,
  },
  'rate-ignored': {
    does: 'counts requests and lets all pass',
    mutate: checkingKeys(insteadOf('rate_limited', () => {})),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['tests'],
    told: /429/,
  },
  'key-of-any-project': {
    does: "takes every project's key for every project",
    mutate: checkingKeys(async (own, { request }, db) => {
      const { params } = request
      const key = parseKey(String(request.headers['x-api-key']))
      const owner = key && (await findKeyById(db, key.key_id))
      if (owner) request.params = { ...(params as object), projectId: owner.project_id }
      await own()
      request.params = params
    }),
    guards: ['http/keys'],
    operation: 'getModule',
    seenBy: ['tests', 'schemathesis'],
    told: /one of another project|FLOWTRAIL_OTHER_KEY/,
  },
  'key-remembered': {
    does: 'asks the database once for each key',
    mutate: (app, db) => {
      const known = new Set<string>()
      checkingKeys(async (own, { request }) => {
        const asked = JSON.stringify([request.params, request.headers['x-api-key']])
        if (!known.has(asked)) await own()
        known.add(asked)
      })(app, db)
    },
    guards: ['http/keys'],
    operation: 'getModule',
    seenBy: ['tests'],
    told: /revoking and expiring take effect within a second/,
  },
  'unknown-project-told': {
    does: 'tells a project that does not exist from a wrong key',
    mutate: checkingKeys(
      insteadOf('unauthorized', async ({ request }, _, db) => {
        const { projectId } = request.params as { projectId: string }
        if (await projectExists(db, projectId)) throw unauthorized()
        throw new ApiError('unauthorized', 'There is no such project.', unauthorized().parts)
      }),
    ),
    guards: ['http/keys'],
    operation: 'getModule',
    seenBy: ['tests'],
    told: /a project that does not exist/,
  },

  // What is let in
  'body-unchecked': {
    does: 'records bodies without holding them against the schema',
    mutate: (app) => app.addHook('onRoute', ({ schema }) => void delete schema?.body),
    guards: ['http/body'],
    operation: 'recordCustomEvent',
    seenBy: ['document', 'tests', 'prism', 'schemathesis'],
    told: /refuses the unknown field|"module_id":1|module_?Id must be|Server error/i,
  },
  'body-coerced': {
    does: 'takes numbers for strings in a body',
    mutate: receiving((request) => {
      const body = bodyOf(request)
      for (const [name, value] of Object.entries(body)) if (typeof value === 'number') body[name] = String(value)
    }, 'preValidation'),
    guards: ['http/body'],
    operation: 'recordCustomEvent',
    seenBy: ['tests', 'schemathesis'],
    told: /"module_id":1|Incorrect type/,
  },
  'body-field-ignored': {
    does: 'drops fields of a body that it does not know',
    mutate: receiving((request) => {
      const body = bodyOf(request)
      const { properties = {} } = operations.recordCustomEvent?.requestBody?.content['application/json']?.schema ?? {}
      for (const name of Object.keys(body)) if (!Object.hasOwn(properties, name)) delete body[name]
    }, 'preValidation'),
    guards: ['http/body'],
    operation: 'recordCustomEvent',
    seenBy: ['tests'],
    told: /unknown field/,
  },
  'media-type-ignored': {
    does: 'reads every body as JSON',
    mutate: receiving(({ raw: { headers } }) => {
      if (headers['content-type'] !== undefined) headers['content-type'] = 'application/json'
    }),
    guards: ['contract/matrix'],
    operation: 'recordCustomEvent',
    seenBy: ['tests', 'schemathesis'],
    told: /415|text\/plain/,
  },
  'future-accepted': {
    does: 'records events of next year as of now',
    mutate: receiving((request) => {
      const body = bodyOf(request)
      if (Date.parse(String(body.timestamp)) > Date.now()) body.timestamp = new Date().toISOString()
    }, 'preValidation'),
    guards: ['http/body'],
    operation: 'recordCustomEvent',
    seenBy: ['tests'],
    told: /only shows after the schema|24 hours/,
  },
  'parameter-ignored': {
    does: 'ignores query parameters that it does not know',
    mutate: receiving((request) => {
      const operation = operations[operationOf(request.routeOptions) ?? '']
      const known = operation?.parameters.map(({ name }) => name)
      for (const name of Object.keys(queryOf(request))) if (!known?.includes(name)) delete queryOf(request)[name]
    }),
    guards: ['contract/matrix'],
    operation: 'getModule',
    seenBy: ['tests'],
    told: /400/,
  },
  'limit-clamped': {
    does: 'takes a limit over 1000 for 1000',
    mutate: receiving((request) => {
      const { limit } = queryOf(request)
      if (Number(limit?.[0]) > 1000) queryOf(request).limit = ['1000']
    }),
    guards: ['http/query'],
    operation: 'listEntryPageViews',
    seenBy: ['tests', 'prism', 'schemathesis'],
    told: /limit=1001|greater than maximum/,
  },
  'cursor-of-any-list': {
    does: 'begins anew on a cursor that is not its own',
    mutate: handling(
      insteadOf('invalid_request', ({ request }, own) => {
        if (!('cursor' in queryOf(request))) throw internalError()
        delete queryOf(request).cursor
        return own()
      }),
    ),
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    seenBy: ['tests'],
    told: /refuses a cursor of/,
  },

  // Lists
  'link-missing': {
    does: 'gives no Link and no Next-Cursor',
    mutate: sendingHead(({ reply }) => reply.removeHeader('link').removeHeader('next-cursor')),
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    seenBy: ['tests'],
    told: /once in pages/,
  },
  'link-on-last-page': {
    does: 'gives a Link to an empty page after an exactly full last one',
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
        await reply.headers({ 'cache-control': 'private, no-cache', vary: 'X-Api-Key' }).send([])
      })
    },
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    seenBy: ['tests'],
    told: /once in pages/,
  },
  'row-repeated': {
    does: 'begins a page with the last row of the page before',
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
    seenBy: ['tests'],
    told: /once in pages/,
  },
  'row-skipped': {
    does: 'leaves out the first row of each page but the first',
    mutate: sendingBody(({ request }, body) =>
      Array.isArray(body) && 'cursor' in queryOf(request) ? body.slice(1) : body,
    ),
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    seenBy: ['tests'],
    told: /once in pages/,
  },
  'page-too-long': {
    does: 'gives one row more than limit',
    mutate: receiving((request) => {
      const { limit } = queryOf(request)
      if (limit) queryOf(request).limit = [String(Number(limit[0]) + 1)]
    }),
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    seenBy: ['tests', 'schemathesis'],
    told: /once in pages|parameter `limit`/,
  },
  'direction-ignored': {
    does: 'sorts descending whatever is asked',
    mutate: receiving((request) => void delete queryOf(request).direction),
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    seenBy: ['tests', 'schemathesis'],
    told: /once in pages|parameter `direction`/,
  },
  'direction-default-changed': {
    does: 'sorts ascending by default',
    mutate: receiving((request) => {
      if (request.url.includes('versions?') || request.url.endsWith('versions')) queryOf(request).direction ??= ['ASC']
    }),
    guards: ['http/paging'],
    operation: 'listModuleVersions',
    seenBy: ['tests'],
    told: /by default/,
  },
  'window-end-included': {
    does: 'gives what was updated at updated_before too',
    mutate: receiving((request) => {
      const { updated_before } = queryOf(request)
      if (updated_before) updated_before[0] = updated_before[0]?.replace('.000Z', '.001Z') ?? ''
    }),
    guards: ['http/paging'],
    operation: 'listEntryPageViews',
    seenBy: ['tests'],
    told: /does not hold its end/,
  },
  'foreign-rows': {
    does: 'lists the modules of all projects',
    mutate: handling(async (own, { request }, db) => {
      const answer = await own()
      if (operationOf(request.routeOptions) !== 'listModules') return answer
      const projects = await selectProjects(db)
      return (await Promise.all(projects.map(({ project_id }) => selectModules(db, project_id)))).flat()
    }),
    guards: ['http/keys'],
    operation: 'listModules',
    seenBy: ['tests', 'schemathesis'],
    told: /another project, with a key of its own, > has no rows|project_id is 'other'/,
  },
  'foreign-entry': {
    does: "reads every project's entries with any project's key",
    mutate: handling(
      insteadOf('entry_not_found', async ({ request }, own, db) => {
        const { entryId } = request.params as { entryId: string }
        for (const { project_id } of await selectProjects(db)) {
          if (await findEntry(db, project_id, entryId)) request.params = { projectId: project_id, entryId }
        }
        return own()
      }),
    ),
    guards: ['http/keys'],
    operation: 'getEntry',
    seenBy: ['tests'],
    told: /another project, with a key of its own, > has no entries/,
  },

  // Recording
  'event-lost': {
    does: 'answers 200 and stores nothing',
    mutate: sendingBody(async ({ request, reply }, body, db) => {
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
    seenBy: ['tests', 'schemathesis'],
    told: /length|does not show the event/,
  },
  'replay-unmarked': {
    does: 'leaves Idempotent-Replayed out',
    mutate: sendingHead(({ reply }) => reply.removeHeader('idempotent-replayed')),
    guards: ['recording/idempotency'],
    operation: 'recordCustomEvent',
    seenBy: ['tests'],
    told: /the same event again/,
  },
  'replay-recorded': {
    does: 'records an event again with the same Idempotency-Key',
    mutate: dropHeader('idempotency-key'),
    guards: ['recording/idempotency'],
    operation: 'recordCustomEvent',
    seenBy: ['tests', 'schemathesis'],
    told: /recorded once|parameter `Idempotency-Key`/,
  },
  'key-reuse-accepted': {
    does: 'records another event under a used Idempotency-Key',
    mutate: handling(
      insteadOf('idempotency_key_reused', ({ request }, own) => {
        request.headers = { 'Idempotency-Key': undefined }
        return own()
      }),
    ),
    guards: ['contract/matrix'],
    operation: 'recordCustomEvent',
    seenBy: ['tests'],
    told: /422/,
  },
  'conflict-accepted': {
    does: 'takes the first of two contacts instead of a 409',
    mutate: handling(
      insteadOf('identifier_conflict', ({ request }, own) => {
        const { identifiers } = request.body as { identifiers: unknown[] }
        identifiers.length = 1
        return own()
      }),
    ),
    guards: ['contract/matrix'],
    operation: 'recordCustomEvent',
    seenBy: ['tests'],
    told: /409/,
  },
  'identifier-case-folded': {
    does: 'takes identifiers that differ in case for the same',
    mutate: receiving((request) => {
      const { identifiers } = bodyOf(request)
      for (const identifier of Array.isArray(identifiers) ? identifiers : []) {
        if (typeof identifier?.value === 'string') identifier.value = identifier.value.toLowerCase()
      }
    }, 'preValidation'),
    guards: ['recording/contacts'],
    operation: 'recordCustomEvent',
    seenBy: ['tests'],
    told: /case/,
  },
}

/** @throws Error when there is no mutant of that name */
export function mutationOf(name: string | undefined): Mutation | undefined {
  if (!name) return undefined
  const mutant = MUTANTS[name]
  if (!mutant) throw new Error(`there is no mutant ${name}; there are ${Object.keys(MUTANTS).join(', ')}`)
  return mutant.mutate
}
