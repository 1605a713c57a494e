// The whole contract on Express 5, express-openapi-validator and pg, as a team that knows them would write it. The pure
// rules of the product (forms of keys, instants, identifiers and cursors, the catalogue of errors) are the service's own.
import { randomUUID } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { setTimeout } from 'node:timers/promises'
import express from 'express'
import * as openApiValidator from 'express-openapi-validator'
import pg from 'pg'
import {
  isInstantAndId,
  isInt32,
  isPosition,
  type Keyset,
  Page,
  type PageQuery,
  paginate,
} from '../../src/domain/cursor.ts'
import {
  entryNotFound,
  invalidRequest,
  malformedRequest,
  moduleDoesNotExist,
  moduleVersionDoesNotExist,
  routeNotFound,
} from '../../src/domain/errors.ts'
import { parseTimestamp, toIsoTimestamp } from '../../src/domain/timestamp.ts'
import { checkKey } from './express/keys.ts'
import { Reads, windowOf } from './express/reads.ts'
import { record } from './express/record.ts'
import { sendError, sendPage, sendResource } from './express/responses.ts'
import { DATABASE_URL, HOST, PORT, ready } from './process.ts'

const document = JSON.parse(await readFile(new URL('../../generated/openapi.json', import.meta.url), 'utf8'))
// Otherwise the validator refuses unencoded colons in a query, which RFC 3986, 3.4, allows and date-times contain.
for (const name of ['UpdatedAfter', 'UpdatedBefore']) document.components.parameters[name].allowReserved = true

const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 10 })
const reads = new Reads(pool)
const app = express()

app.disable('x-powered-by')
// Lists have no entity tag; single resources get theirs in sendResource.
app.disable('etag')
app.use((request, response, next) => {
  response.set('X-Request-Id', request.get('X-Request-Id') ?? randomUUID())
  // The validator knows only the document's methods; Node omits the body of a HEAD response anyway.
  if (request.method === 'HEAD') request.method = 'GET'
  next()
})
app.use('/projects/:projectId', checkKey(pool))
app.use(express.json({ limit: '256kb' }))
app.use((request, _response, next) => {
  // The validator would respond with 415.
  if (request.method === 'POST' && request.get('Content-Length') === '0') throw malformedRequest('The body is missing.')
  next()
})
app.use(
  openApiValidator.middleware({
    apiSpec: document,
    validateRequests: true,
    // By the hook above: a failure of the database is no 401.
    validateSecurity: false,
    formats: { 'date-time': { type: 'string', validate: (text: string) => parseTimestamp(text).ok } },
  }),
)

app.get('/projects/:projectId/modules', async (request, response) => {
  sendPage(
    request,
    response,
    new Page(await reads.modules(request.params.projectId), undefined, () => ({ cursor: undefined, more: false })),
  )
})

app.get('/projects/:projectId/modules/:moduleId', async ({ params }, response) => {
  const found = await reads.module(params.projectId, params.moduleId)
  if (!found) throw moduleDoesNotExist(params.moduleId)
  sendResource(response, found)
})

app.get('/projects/:projectId/modules/:moduleId/versions', async (request, response) => {
  const { projectId, moduleId } = request.params
  const page = await paginate(
    {
      scope: ['listModuleVersions', projectId, moduleId],
      isKey: isInt32,
      select: (keyset) => reads.moduleVersions(projectId, moduleId, keyset),
      keyOf: (row) => [row.version_number],
    },
    request.query as never,
  )
  if (page.rows.length === 0 && !(await reads.moduleExists(projectId, moduleId))) throw moduleDoesNotExist(moduleId)
  sendPage(request, response, page)
})

app.get('/projects/:projectId/modules/:moduleId/versions/:versionNumber', async ({ params }, response) => {
  const { projectId, moduleId } = params
  const versionNumber = Number(params.versionNumber)
  const found = isInt32([versionNumber]) ? await reads.moduleVersion(projectId, moduleId, versionNumber) : undefined
  if (found) return sendResource(response, found)
  if (!(await reads.moduleExists(projectId, moduleId))) throw moduleDoesNotExist(moduleId)
  throw moduleVersionDoesNotExist(moduleId, versionNumber)
})

app.get('/projects/:projectId/entries/:entryId', async ({ params }, response) => {
  const found = await reads.entry(params.projectId, params.entryId)
  if (!found) throw entryNotFound(params.entryId)
  sendResource(response, found)
})

app.get('/projects/:projectId/entries/:entryId/events', async (request, response) => {
  const { projectId, entryId } = request.params
  const page = await paginate(
    {
      scope: ['listEntryEvents', projectId, entryId],
      isKey: isInstantAndId,
      select: (keyset) => reads.events(projectId, entryId, keyset),
      keyOf: (row) => [toIsoTimestamp(row.timestamp), row.event_id],
    },
    request.query as never,
  )
  if (page.rows.length === 0 && !(await reads.entryExists(projectId, entryId))) throw entryNotFound(entryId)
  sendPage(request, response, page.map(withoutNulls))
})

app.get('/projects/:projectId/events', async (request, response) => {
  const { projectId } = request.params
  const query = request.query as unknown as PageQuery & { after?: number; wait: number }
  const list = {
    scope: ['listProjectEvents', projectId],
    isKey: isPosition,
    select: (keyset: Keyset<readonly [number]>) => reads.projectEvents(projectId, keyset),
    keyOf: (row: { position: string }) => [Number(row.position)] as const,
    origin: [0] as const,
  }
  checkPlace(query)
  const end_ms = Date.now() + query.wait * 1_000
  const start = query.after === undefined ? undefined : ([query.after] as const)
  for (;;) {
    const page = await paginate(list, query, start)
    if (page.rows.length > 0 || Date.now() >= end_ms || response.destroyed) {
      sendPage(
        request,
        response,
        page.map((row) => ({ ...withoutNulls(row), position: Number(row.position) })),
      )
      return
    }
    await setTimeout(200)
  }
})

app.get('/projects/:projectId/entries', async (request, response) => {
  const { projectId } = request.params
  const window = windowOf(request.query)
  const page = await paginate(
    {
      scope: ['listEntries', projectId, window.after, window.before],
      isKey: isInstantAndId,
      select: (keyset) => reads.entries(projectId, window, keyset),
      keyOf: (row) => [toIsoTimestamp(row.updated_at), row.entry_id],
    },
    request.query as never,
  )
  sendPage(request, response, page)
})

app.get('/projects/:projectId/entries-page-views', async (request, response) => {
  const { projectId } = request.params
  const window = windowOf(request.query)
  const page = await paginate(
    {
      scope: ['listEntryPageViews', projectId, window.after, window.before],
      isKey: isInstantAndId,
      select: (keyset) => reads.entryPageViews(projectId, window, keyset),
      keyOf: (row) => [toIsoTimestamp(row.updated_at), row.entry_id],
    },
    request.query as never,
  )
  sendPage(request, response, page)
})

app.post('/projects/:projectId/events', async (request, response) => {
  const { projectId } = request.params
  const { body, replayed } = await record(pool, projectId, request.body, request.get('Idempotency-Key'))
  if (replayed) response.set('Idempotent-Replayed', 'true')
  response.set('Cache-Control', 'no-store').json(body)
})

app.use(() => {
  throw routeNotFound()
})
app.use(sendError)

/** @throws ApiError invalid_request for parameters of the feed that exclude each other */
function checkPlace({ after, cursor, direction, wait }: PageQuery & { after?: number; wait: number }): void {
  const misplaced = [
    ...(after !== undefined && cursor !== undefined ? ['after'] : []),
    ...(direction === 'DESC' ? [...(after === undefined ? [] : ['after']), ...(wait > 0 ? ['wait'] : [])] : []),
  ]
  if (misplaced.length === 0) return
  throw invalidRequest(misplaced.map((name) => ({ pointer: `/query/${name}`, message: 'is not possible here' })))
}

const withoutNulls = (row: object) => Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null))

const server = app.listen(PORT, HOST, () =>
  ready(async () => {
    server.close()
    server.closeIdleConnections()
    await pool.end()
  }),
)
