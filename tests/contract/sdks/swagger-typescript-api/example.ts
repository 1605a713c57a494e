import { Projects } from './generated/Projects.ts'

const client = new Projects({
  baseUrl: process.env.FLOWTRAIL_URL ?? 'http://127.0.0.1:3000',
  baseApiParams: { headers: { 'X-Api-Key': process.env.FLOWTRAIL_KEY ?? '' } },
})
const projectId = 'demo'

// Every entry with its page views, page by page.
const query: { limit: number; cursor?: string } = { limit: 100 }
for (;;) {
  const page = await client.listEntryPageViews({ projectId, ...query })
  if (!page.ok) throw new Error(page.error.error.message)
  for (const entry of page.data) console.log(entry.entry_id, entry.page_views.length)
  const cursor = page.headers.get('Next-Cursor')
  if (!cursor) break
  query.cursor = cursor
}

// A custom event, recorded once however often this is sent.
const order = {
  module_id: 'skin-quiz',
  timestamp: '2026-03-01T09:41:12.345Z',
  custom_event_name: 'order_placed',
  identifiers: [{ key: 'email', value: JSON.stringify('amara.okafor@example.com') }],
}
const once = { headers: { 'Idempotency-Key': 'order-10042' } }
const recorded = await client.recordCustomEvent({ projectId }, order, once)
if (recorded.ok) console.log(recorded.data.entry_id)
else if (recorded.status === 429) console.log('wait', recorded.headers.get('Retry-After'))
else console.log(recorded.error.error.code, recorded.error.error.details)
