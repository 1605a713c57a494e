import { type AxiosResponse, isAxiosError } from 'axios'
import { axiosResponse, type Outcome, projectId, takeJourney } from '../typescript.ts'
import { createApiClient, schemas } from './generated/client.ts'

await takeJourney({
  name: 'openapi-zod-client',
  timeOf: (date) => date.toISOString(),
  impossible: { 'error-413': 'it checks the lengths in the request before it sends anything' },
  clientWith: (key, baseUrl) => {
    const client = createApiClient(baseUrl, { axiosConfig: { headers: { 'X-Api-Key': key } } })

    // A call returns the data only; the response, and the request's URL, are reachable in interceptors of axios.
    let last: AxiosResponse | undefined
    let target: string | undefined
    client.axios.interceptors.response.use((response) => {
      last = response
      return response
    })
    client.axios.interceptors.request.use((config) => (target ? { ...config, url: target, params: {} } : config))

    async function outcome<Data>(call: Promise<Data>): Promise<Outcome<Data>> {
      try {
        const data = await call
        return { data, response: last && axiosResponse(last) }
      } catch (error) {
        if (!isAxiosError(error) || !error.response) throw error
        const response = axiosResponse(error.response)
        return response.status === 304
          ? { response }
          : { error: schemas.ErrorBody.parse(error.response.data), response }
      }
    }

    return {
      listModules: () => outcome(client.listModules({ params: { projectId } })),
      getModule: (moduleId, ifNoneMatch) => {
        const headers = ifNoneMatch ? { 'If-None-Match': ifNoneMatch } : {}
        return outcome(client.getModule({ params: { projectId, moduleId }, headers }))
      },
      listModuleVersions: (moduleId) => outcome(client.listModuleVersions({ params: { projectId, moduleId } })),
      getModuleVersion: (moduleId, versionNumber) =>
        outcome(client.getModuleVersion({ params: { projectId, moduleId, versionNumber } })),
      getEntry: (entryId) => outcome(client.getEntry({ params: { projectId, entryId } })),
      listEntryEvents: (entryId, queries) =>
        outcome(client.listEntryEvents({ params: { projectId, entryId }, queries })),
      listEntryPageViews: (queries, link) => {
        target = link
        return outcome(client.listEntryPageViews({ params: { projectId }, queries })).finally(() => {
          target = undefined
        })
      },
      listProjectEvents: (queries) => outcome(client.listProjectEvents({ params: { projectId }, queries })),
      listErasures: (queries) => outcome(client.listErasures({ params: { projectId }, queries })),
      recordCustomEvent: (body, idempotencyKey) =>
        outcome(
          client.recordCustomEvent(body, { params: { projectId }, headers: { 'Idempotency-Key': idempotencyKey } }),
        ),
      recordCustomEvents: (body) => outcome(client.recordCustomEvents(body, { params: { projectId } })),
    }
  },
})
