import { following, type Outcome, projectId, takeJourney } from '../typescript.ts'
import type { ErrorBody } from './generated/data-contracts.ts'
import type { HttpResponse } from './generated/http-client.ts'
import { Projects } from './generated/Projects.ts'

/** The response has both data and error, one of which is null, contrary to its type. */
async function outcome<Data>(call: Promise<HttpResponse<Data, ErrorBody>>): Promise<Outcome<Data>> {
  const response = await call
  return response.ok ? { data: response.data, response } : { error: response.error, response }
}

await takeJourney({
  name: 'swagger-typescript-api',
  timeOf: (date) => date.toISOString(),
  clientWith: (key, baseUrl) => {
    const config = { baseUrl, baseApiParams: { headers: { 'X-Api-Key': key } } }
    const client = new Projects(config)
    return {
      listModules: () => outcome(client.listModules({ projectId })),
      getModule: (moduleId, ifNoneMatch) =>
        outcome(
          client.getModule({ projectId, moduleId }, ifNoneMatch ? { headers: { 'If-None-Match': ifNoneMatch } } : {}),
        ),
      listModuleVersions: (moduleId) => outcome(client.listModuleVersions({ projectId, moduleId })),
      getModuleVersion: (moduleId, versionNumber) =>
        outcome(client.getModuleVersion({ projectId, moduleId, versionNumber })),
      getEntry: (entryId) => outcome(client.getEntry({ projectId, entryId })),
      listEntryEvents: (entryId, query) => outcome(client.listEntryEvents({ projectId, entryId, ...query })),
      listEntryPageViews: (query, link) =>
        outcome(new Projects({ ...config, customFetch: following(link) }).listEntryPageViews({ projectId, ...query })),
      listProjectEvents: (query) => outcome(client.listProjectEvents({ projectId, ...query })),
      listErasures: (query) => outcome(client.listErasures({ projectId, ...query })),
      recordCustomEvent: (body, idempotencyKey) =>
        outcome(
          client.recordCustomEvent({ projectId }, body, {
            headers: { 'Idempotency-Key': idempotencyKey },
          }),
        ),
      recordCustomEvents: (body) => outcome(client.recordCustomEvents({ projectId }, body)),
    }
  },
})
