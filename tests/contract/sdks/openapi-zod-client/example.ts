import { isAxiosError } from 'axios'
import { createApiClient, schemas } from './generated/client.ts'

const client = createApiClient(process.env.FLOWTRAIL_URL ?? 'http://127.0.0.1:3000', {
  axiosConfig: { headers: { 'X-Api-Key': process.env.FLOWTRAIL_KEY } },
})
const params = { projectId: 'demo' }

// Calls return the data only: an interceptor sees the headers.
let cursor: string | undefined
client.axios.interceptors.response.use((response) => {
  cursor = response.headers['next-cursor']
  return response
})

// Every entry with its page views, page by page.
do {
  const queries = { limit: 100, ...(cursor && { cursor }) }
  for (const entry of await client.listEntryPageViews({ params, queries })) {
    console.log(entry.entry_id, entry.page_views.length)
  }
} while (cursor)

// A custom event, recorded once however often this is sent.
const order = {
  module_id: 'skin-quiz',
  timestamp: '2026-03-01T09:41:12.345Z',
  custom_event_name: 'order_placed',
  identifiers: [{ key: 'email', value: JSON.stringify('amara.okafor@example.com') }],
}
try {
  const recorded = await client.recordCustomEvent(order, { params, headers: { 'Idempotency-Key': 'order-10042' } })
  console.log(recorded.entry_id)
} catch (failure) {
  if (!isAxiosError(failure) || !failure.response) throw failure
  const { error } = schemas.ErrorBody.parse(failure.response.data)
  if (error.code === 'rate_limited') console.log('wait', failure.response.headers['retry-after'])
  else console.log(error.message, error.details)
}
