import type { ZodType } from 'zod'
import { following, type Outcome, projectId, takeJourney } from '../typescript.ts'
import * as api from './generated/client.ts'
import type { ErrorBody } from './generated/model/index.ts'
import * as schemas from './generated/schemas.ts'

/** What a function returns: one member of a union, by status. */
type Result = { headers: Headers } & (
  | { status: 200; data: unknown }
  | { status: 304; data: unknown }
  | { status: 400 | 401 | 403 | 404 | 409 | 413 | 415 | 422 | 429 | 500 | 503; data: ErrorBody }
)
type DataOf<R extends Result> = Extract<R, { status: 200 }>['data']

/** The data as the generated schema returns it, which refuses what does not fit the document. */
async function outcome<R extends Result>(call: Promise<R>, schema: ZodType<DataOf<R>>): Promise<Outcome<DataOf<R>>> {
  const response = await call
  if (response.status === 200) return { data: schema.parse(response.data), response }
  return response.status === 304 ? { response } : { error: response.data, response }
}

await takeJourney({
  name: 'orval',
  timeOf: (date) => date.toISOString(),
  clientWith: (key, baseUrl) => {
    const options = { headers: { 'X-Api-Key': key } }
    const sendTo =
      (link?: string): typeof fetch =>
      (path, init) =>
        following(link)(`${baseUrl}${path}`, init)
    const send = sendTo()
    return {
      listModules: () => outcome(api.listModules(projectId, options, send), schemas.ListModulesResponse),
      getModule: (moduleId, ifNoneMatch) => {
        const headers = ifNoneMatch ? { 'If-None-Match': ifNoneMatch } : {}
        return outcome(api.getModule(projectId, moduleId, headers, options, send), schemas.GetModuleResponse)
      },
      listModuleVersions: (moduleId) =>
        outcome(api.listModuleVersions(projectId, moduleId, {}, options, send), schemas.ListModuleVersionsResponse),
      getModuleVersion: (moduleId, versionNumber) =>
        outcome(
          api.getModuleVersion(projectId, moduleId, versionNumber, {}, options, send),
          schemas.GetModuleVersionResponse,
        ),
      getEntry: (entryId) => outcome(api.getEntry(projectId, entryId, {}, options, send), schemas.GetEntryResponse),
      listEntryEvents: (entryId, query) =>
        outcome(api.listEntryEvents(projectId, entryId, query, options, send), schemas.ListEntryEventsResponse),
      listEntryPageViews: (query, link) =>
        outcome(api.listEntryPageViews(projectId, query, options, sendTo(link)), schemas.ListEntryPageViewsResponse),
      listProjectEvents: (query) =>
        outcome(api.listProjectEvents(projectId, query, options, send), schemas.ListProjectEventsResponse),
      listErasures: (query) => outcome(api.listErasures(projectId, query, options, send), schemas.ListErasuresResponse),
      recordCustomEvent: (body, idempotencyKey) =>
        outcome(
          api.recordCustomEvent(projectId, body, { 'Idempotency-Key': idempotencyKey }, options, send),
          schemas.RecordCustomEventResponse,
        ),
      recordCustomEvents: (body) =>
        outcome(api.recordCustomEvents(projectId, body, options, send), schemas.RecordCustomEventsResponse),
    }
  },
})
