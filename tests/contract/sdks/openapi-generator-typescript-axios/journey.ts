import axios, { type AxiosResponse } from 'axios'
import { axiosResponse, type Outcome, projectId, takeJourney } from '../typescript.ts'
import { Configuration, EntriesApi, ErasuresApi, type ErrorBody, EventsApi, ModulesApi } from './generated/index.ts'

/** The client throws errors, and their data has no type. */
async function outcome<Data>(call: Promise<AxiosResponse<Data>>): Promise<Outcome<Data>> {
  try {
    const response = await call
    return { data: response.data, response: axiosResponse(response) }
  } catch (error) {
    if (!axios.isAxiosError<ErrorBody>(error) || !error.response) throw error
    return { error: error.response.data, response: axiosResponse(error.response) }
  }
}

/** An axios that sends the request to the URL of a `Link` instead. */
function axiosFollowing(link: string) {
  const instance = axios.create()
  instance.interceptors.request.use((config) => ({ ...config, url: new URL(link, config.url).href }))
  return instance
}

await takeJourney({
  name: 'openapi-generator-typescript-axios',
  timeOf: (date) => date.toISOString(),
  clientWith: (key, basePath) => {
    const configuration = new Configuration({ basePath, apiKey: key })
    const modules = new ModulesApi(configuration)
    const entries = new EntriesApi(configuration)
    const events = new EventsApi(configuration)
    const erasures = new ErasuresApi(configuration)
    return {
      listModules: () => outcome(modules.listModules({ projectId })),
      getModule: (moduleId, ifNoneMatch) => outcome(modules.getModule({ projectId, moduleId, ifNoneMatch })),
      listModuleVersions: (moduleId) => outcome(modules.listModuleVersions({ projectId, moduleId })),
      getModuleVersion: (moduleId, versionNumber) =>
        outcome(modules.getModuleVersion({ projectId, moduleId, versionNumber })),
      getEntry: (entryId) => outcome(entries.getEntry({ projectId, entryId })),
      listEntryEvents: (entryId, query) => outcome(entries.listEntryEvents({ projectId, entryId, ...query })),
      listEntryPageViews: ({ updated_after, ...query }, link) => {
        const api = link ? new EntriesApi(configuration, undefined, axiosFollowing(link)) : entries
        return outcome(api.listEntryPageViews({ projectId, ...query, updatedAfter: updated_after }))
      },
      listProjectEvents: (query) => outcome(events.listProjectEvents({ projectId, ...query })),
      listErasures: (query) => outcome(erasures.listErasures({ projectId, ...query })),
      recordCustomEvent: (customEventInput, idempotencyKey) =>
        outcome(events.recordCustomEvent({ projectId, customEventInput, idempotencyKey })),
      recordCustomEvents: (customEventBatch) => outcome(events.recordCustomEvents({ projectId, customEventBatch })),
    }
  },
})
