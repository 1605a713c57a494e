import { following, projectId, takeJourney } from '../typescript.ts'
import { createClient, createConfig } from './generated/client/index.ts'
import {
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

await takeJourney({
  name: 'hey-api',
  timeOf: (date) => date,
  clientWith: (key, baseUrl) => {
    const client = createClient(createConfig({ baseUrl, auth: key }))
    return {
      listModules: () => listModules({ client, path: { projectId } }),
      getModule: (moduleId, ifNoneMatch) =>
        getModule({ client, path: { projectId, moduleId }, headers: { 'If-None-Match': ifNoneMatch } }),
      listModuleVersions: (moduleId) => listModuleVersions({ client, path: { projectId, moduleId } }),
      getModuleVersion: (moduleId, versionNumber) =>
        getModuleVersion({ client, path: { projectId, moduleId, versionNumber } }),
      getEntry: (entryId) => getEntry({ client, path: { projectId, entryId } }),
      listEntryEvents: (entryId, query) => listEntryEvents({ client, path: { projectId, entryId }, query }),
      listEntryPageViews: (query, link) =>
        listEntryPageViews({ client, path: { projectId }, query, fetch: following(link) }),
      listProjectEvents: (query) => listProjectEvents({ client, path: { projectId }, query }),
      listErasures: (query) => listErasures({ client, path: { projectId }, query }),
      recordCustomEvent: (body, idempotencyKey) =>
        recordCustomEvent({ client, path: { projectId }, headers: { 'Idempotency-Key': idempotencyKey }, body }),
      recordCustomEvents: (body) => recordCustomEvents({ client, path: { projectId }, body }),
    }
  },
})
