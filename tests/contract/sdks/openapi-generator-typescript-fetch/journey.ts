import { following, type Outcome, projectId, takeJourney } from '../typescript.ts'
import {
  type ApiResponse,
  Configuration,
  EntriesApi,
  ErasuresApi,
  ErrorBodyFromJSON,
  EventsApi,
  ModulesApi,
  ResponseError,
} from './generated/index.ts'

async function outcome<Data>(call: Promise<ApiResponse<Data>>): Promise<Outcome<Data>> {
  try {
    const response = await call
    return { data: await response.value(), response: response.raw }
  } catch (error) {
    if (!(error instanceof ResponseError)) throw error
    const { response } = error
    return response.status === 304 ? { response } : { error: ErrorBodyFromJSON(await response.json()), response }
  }
}

await takeJourney({
  name: 'openapi-generator-typescript-fetch',
  timeOf: (date) => date,
  clientWith: (key, basePath) => {
    const configurationWith = (link?: string) => new Configuration({ basePath, apiKey: key, fetchApi: following(link) })
    const modules = new ModulesApi(configurationWith())
    const entries = new EntriesApi(configurationWith())
    const events = new EventsApi(configurationWith())
    const erasures = new ErasuresApi(configurationWith())
    return {
      listModules: () => outcome(modules.listModulesRaw({ projectId })),
      getModule: (moduleId, ifNoneMatch) => outcome(modules.getModuleRaw({ projectId, moduleId, ifNoneMatch })),
      listModuleVersions: (moduleId) => outcome(modules.listModuleVersionsRaw({ projectId, moduleId })),
      getModuleVersion: (moduleId, versionNumber) =>
        outcome(modules.getModuleVersionRaw({ projectId, moduleId, versionNumber })),
      getEntry: (entryId) => outcome(entries.getEntryRaw({ projectId, entryId })),
      listEntryEvents: (entryId, query) => outcome(entries.listEntryEventsRaw({ projectId, entryId, ...query })),
      listEntryPageViews: ({ updated_after, ...query }, link) =>
        outcome(
          new EntriesApi(configurationWith(link)).listEntryPageViewsRaw({
            projectId,
            ...query,
            updatedAfter: updated_after,
          }),
        ),
      listProjectEvents: (query) => outcome(events.listProjectEventsRaw({ projectId, ...query })),
      listErasures: (query) => outcome(erasures.listErasuresRaw({ projectId, ...query })),
      recordCustomEvent: (customEventInput, idempotencyKey) =>
        outcome(events.recordCustomEventRaw({ projectId, customEventInput, idempotencyKey })),
      recordCustomEvents: (customEventBatch) => outcome(events.recordCustomEventsRaw({ projectId, customEventBatch })),
    }
  },
})
