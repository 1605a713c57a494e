import { type Outcome, projectId, takeJourney } from '../typescript.ts'
import { ApiError, type CancelablePromise, type ErrorBody, Flowtrail } from './generated/index.ts'

/** The client throws errors, and their bodies have no type. */
async function outcome<Data>(call: CancelablePromise<Data>): Promise<Outcome<Data>> {
  try {
    return { data: await call }
  } catch (error) {
    if (!(error instanceof ApiError)) throw error
    return { error: error.body as ErrorBody, response: error }
  }
}

const why = 'it does not give access to the headers of a response'
await takeJourney({
  name: 'openapi-typescript-codegen',
  timeOf: (date) => date.toISOString(),
  impossible: {
    'page-through': why,
    'list-events': why,
    replay: why,
    'follow-feed': why,
    'list-erasures': why,
    conditional: why,
    'error-429': why,
  },
  clientWith: (key, baseUrl) => {
    const client = new Flowtrail({ BASE: baseUrl, HEADERS: { 'X-Api-Key': key } })
    return {
      listModules: () => outcome(client.modules.listModules({ projectId })),
      getModule: (moduleId) => outcome(client.modules.getModule({ projectId, moduleId })),
      listModuleVersions: (moduleId) => outcome(client.modules.listModuleVersions({ projectId, moduleId })),
      getModuleVersion: (moduleId, versionNumber) =>
        outcome(client.modules.getModuleVersion({ projectId, moduleId, versionNumber })),
      getEntry: (entryId) => outcome(client.entries.getEntry({ projectId, entryId })),
      listEntryEvents: (entryId, query) => outcome(client.entries.listEntryEvents({ projectId, entryId, ...query })),
      listEntryPageViews: ({ updated_after, ...query }) =>
        outcome(
          client.entries.listEntryPageViews({
            projectId,
            ...query,
            ...(updated_after && { updatedAfter: updated_after }),
          }),
        ),
      listProjectEvents: (query) => outcome(client.events.listProjectEvents({ projectId, ...query })),
      listErasures: (query) => outcome(client.erasures.listErasures({ projectId, ...query })),
      recordCustomEvent: (requestBody, idempotencyKey) =>
        outcome(client.events.recordCustomEvent({ projectId, requestBody, idempotencyKey })),
      recordCustomEvents: (requestBody) => outcome(client.events.recordCustomEvents({ projectId, requestBody })),
    }
  },
})
