import { ApiError, type ErrorBody, Flowtrail } from './generated/index.ts'

const client = new Flowtrail({
  BASE: process.env.FLOWTRAIL_URL ?? 'http://127.0.0.1:3000',
  HEADERS: { 'X-Api-Key': process.env.FLOWTRAIL_KEY ?? '' },
  ENCODE_PATH: encodeURIComponent,
})
const projectId = 'demo'

// The entries with their page views: only the first page, for the cursor of the next is in a header.
for (const entry of await client.entries.listEntryPageViews({ projectId, limit: 1000 })) {
  console.log(entry.entry_id, entry.page_views.length)
}

// A custom event, recorded once however often this is sent.
try {
  const recorded = await client.events.recordCustomEvent({
    projectId,
    idempotencyKey: 'order-10042',
    requestBody: {
      module_id: 'skin-quiz',
      timestamp: '2026-03-01T09:41:12.345Z',
      custom_event_name: 'order_placed',
      identifiers: [{ key: 'email', value: JSON.stringify('amara.okafor@example.com') }],
    },
  })
  console.log(recorded.entry_id)
} catch (failure) {
  if (!(failure instanceof ApiError)) throw failure
  const { error } = failure.body as ErrorBody
  console.log(failure.status, error.code, error.details)
}
