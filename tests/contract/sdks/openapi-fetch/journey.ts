import createClient from 'openapi-fetch'
import { following, projectId, takeJourney } from '../typescript.ts'
import type { paths } from './generated/types.ts'

await takeJourney({
  name: 'openapi-fetch',
  // This generator converts nothing: a date-time is a string.
  timeOf: (date) => date.toISOString(),
  clientWith: (key, baseUrl) => {
    const client = createClient<paths>({ baseUrl, headers: { 'X-Api-Key': key } })
    return {
      listModules: () => client.GET('/projects/{projectId}/modules', { params: { path: { projectId } } }),
      getModule: (moduleId, ifNoneMatch) =>
        client.GET('/projects/{projectId}/modules/{moduleId}', {
          params: {
            path: { projectId, moduleId },
            ...(ifNoneMatch && { header: { 'If-None-Match': ifNoneMatch } }),
          },
        }),
      listModuleVersions: (moduleId) =>
        client.GET('/projects/{projectId}/modules/{moduleId}/versions', { params: { path: { projectId, moduleId } } }),
      getModuleVersion: (moduleId, versionNumber) =>
        client.GET('/projects/{projectId}/modules/{moduleId}/versions/{versionNumber}', {
          params: { path: { projectId, moduleId, versionNumber } },
        }),
      getEntry: (entryId) =>
        client.GET('/projects/{projectId}/entries/{entryId}', { params: { path: { projectId, entryId } } }),
      listEntryEvents: (entryId, query) =>
        client.GET('/projects/{projectId}/entries/{entryId}/events', {
          params: { path: { projectId, entryId }, query },
        }),
      listEntryPageViews: (query, link) =>
        client.GET('/projects/{projectId}/entries-page-views', {
          params: { path: { projectId }, query },
          fetch: following(link),
        }),
      listProjectEvents: (query) =>
        client.GET('/projects/{projectId}/events', { params: { path: { projectId }, query } }),
      listErasures: (query) => client.GET('/projects/{projectId}/erasures', { params: { path: { projectId }, query } }),
      recordCustomEvent: (body, idempotencyKey) =>
        client.POST('/projects/{projectId}/events', {
          params: { path: { projectId }, header: { 'Idempotency-Key': idempotencyKey } },
          body,
        }),
      recordCustomEvents: (body) =>
        client.POST('/projects/{projectId}/events/batch', { params: { path: { projectId } }, body }),
    }
  },
})
