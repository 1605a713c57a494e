import { listEntryPageViews, recordCustomEvent } from './generated/client.ts'
import { ListEntryPageViewsResponse } from './generated/schemas.ts'

const options = { headers: { 'X-Api-Key': process.env.FLOWTRAIL_KEY ?? '' } }
const send: typeof fetch = (path, init) => fetch(`${process.env.FLOWTRAIL_URL ?? 'http://127.0.0.1:3000'}${path}`, init)

// Every entry with its page views, page by page, checked against the schema.
const query: { limit: number; cursor?: string } = { limit: 100 }
for (;;) {
  const page = await listEntryPageViews('demo', query, options, send)
  if (page.status !== 200) throw new Error(page.data.error.message)
  for (const entry of ListEntryPageViewsResponse.parse(page.data)) console.log(entry.entry_id, entry.page_views.length)
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
const recorded = await recordCustomEvent('demo', order, { 'Idempotency-Key': 'order-10042' }, options, send)
if (recorded.status === 200) console.log(recorded.data.entry_id)
else if (recorded.status === 429) console.log('wait', recorded.headers.get('Retry-After'))
else console.log(recorded.data.error.code, recorded.data.error.details)
