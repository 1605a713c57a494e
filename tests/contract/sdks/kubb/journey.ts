import { type Outcome, projectId, takeJourney } from '../typescript.ts'
import type { ResponseConfig } from './generated/.kubb/fetch.ts'
import {
  type ErrorBody,
  getEntry,
  getModule,
  getModuleVersion,
  listEntryEvents,
  listEntryPageViews,
  listErasures,
  listModules,
  listModuleVersions,
  listProjectEvents,
  recordCustomEvent,
  recordCustomEvents,
} from './generated/index.ts'

/** The data of an error has the type of a success. */
async function outcome<Data>(call: Promise<ResponseConfig<Data>>): Promise<Outcome<Data>> {
  const response = await call
  return response.status === 200
    ? { data: response.data, response }
    : { error: response.data as unknown as ErrorBody, response }
}

await takeJourney({
  name: 'kubb',
  timeOf: (date) => date.toISOString(),
  clientWith: (key, baseURL) => {
    const config = { baseURL, headers: { 'X-Api-Key': key, 'Content-Type': 'application/json' } }
    return {
      listModules: () => outcome(listModules({ projectId }, config)),
      getModule: (moduleId, ifNoneMatch) => {
        const headers = ifNoneMatch ? { 'If-None-Match': ifNoneMatch } : {}
        return outcome(getModule({ projectId, moduleId, headers }, config))
      },
      listModuleVersions: (moduleId) => outcome(listModuleVersions({ projectId, moduleId }, config)),
      getModuleVersion: (moduleId, versionNumber) =>
        outcome(getModuleVersion({ projectId, moduleId, versionNumber }, config)),
      getEntry: (entryId) => outcome(getEntry({ projectId, entryId }, config)),
      listEntryEvents: (entryId, params) => outcome(listEntryEvents({ projectId, entryId, params }, config)),
      listEntryPageViews: (params, link) => {
        const target = link ? { url: link, params: undefined } : {}
        return outcome(listEntryPageViews({ projectId, params }, { ...config, ...target }))
      },
      listProjectEvents: (params) => outcome(listProjectEvents({ projectId, params }, config)),
      listErasures: (params) => outcome(listErasures({ projectId, params }, config)),
      recordCustomEvent: (data, idempotencyKey) =>
        outcome(recordCustomEvent({ projectId, data, headers: { 'Idempotency-Key': idempotencyKey } }, config)),
      recordCustomEvents: (data) => outcome(recordCustomEvents({ projectId, data }, config)),
    }
  },
})
