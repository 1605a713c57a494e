import { setConfig } from './generated/.kubb/fetch.ts'
import { type ErrorBody, listEntryPageViews, recordCustomEvent } from './generated/index.ts'

setConfig({
  baseURL: process.env.FLOWTRAIL_URL ?? 'http://127.0.0.1:3000',
  headers: { 'X-Api-Key': process.env.FLOWTRAIL_KEY ?? '', 'Content-Type': 'application/json' },
})
const projectId = 'demo'
const errorOf = (data: unknown) => (data as ErrorBody).error

// Every entry with its page views, page by page.
const params: { limit: number; cursor?: string } = { limit: 100 }
for (;;) {
  const { status, data, headers } = await listEntryPageViews({ projectId, params })
  if (status !== 200) throw new Error(errorOf(data).message)
  for (const entry of data) console.log(entry.entry_id, entry.page_views.length)
  const cursor = headers.get('Next-Cursor')
  if (!cursor) break
  params.cursor = cursor
}

// A custom event, recorded once however often this is sent.
const { status, data, headers } = await recordCustomEvent({
  projectId,
  headers: { 'Idempotency-Key': 'order-10042' },
  data: {
    module_id: 'skin-quiz',
    timestamp: '2026-03-01T09:41:12.345Z',
    custom_event_name: 'order_placed',
    identifiers: [{ key: 'email', value: JSON.stringify('amara.okafor@example.com') }],
  },
})
if (status === 200) console.log(data.entry_id)
else if (status === 429) console.log('wait', headers.get('Retry-After'))
else console.log(errorOf(data).code, errorOf(data).details)
