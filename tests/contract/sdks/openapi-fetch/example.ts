import createClient from 'openapi-fetch'
import type { paths } from './generated/types.ts'

const client = createClient<paths>({
  baseUrl: process.env.FLOWTRAIL_URL ?? 'http://127.0.0.1:3000',
  headers: { 'X-Api-Key': process.env.FLOWTRAIL_KEY },
})
const path = { projectId: 'demo' }

// Every entry with its page views, page by page.
const query: { limit: number; cursor?: string } = { limit: 100 }
for (;;) {
  const { data, error, response } = await client.GET('/projects/{projectId}/entries-page-views', {
    params: { path, query },
  })
  if (error) throw new Error(error.error.message)
  for (const entry of data) console.log(entry.entry_id, entry.page_views.length)
  const cursor = response.headers.get('Next-Cursor')
  if (!cursor) break
  query.cursor = cursor
}

// A custom event, recorded once however often this is sent.
const { data, error, response } = await client.POST('/projects/{projectId}/events', {
  params: { path, header: { 'Idempotency-Key': 'order-10042' } },
  body: {
    module_id: 'skin-quiz',
    timestamp: '2026-03-01T09:41:12.345Z',
    custom_event_name: 'order_placed',
    identifiers: [{ key: 'email', value: JSON.stringify('amara.okafor@example.com') }],
  },
})
if (data) console.log(data.entry_id)
else if (error.error.code === 'rate_limited') console.log('wait', response.headers.get('Retry-After'))
else console.log(error.error.message, error.error.details)
