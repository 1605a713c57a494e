import { Configuration, EntriesApi, ErrorBodyFromJSON, EventsApi, ResponseError } from './generated/index.ts'

const configuration = new Configuration({
  basePath: process.env.FLOWTRAIL_URL ?? 'http://127.0.0.1:3000',
  apiKey: process.env.FLOWTRAIL_KEY,
})
const projectId = 'demo'

// Every entry with its page views, page by page.
const entries = new EntriesApi(configuration)
let cursor: string | undefined
do {
  const page = await entries.listEntryPageViewsRaw({ projectId, limit: 100, cursor })
  for (const entry of await page.value()) {
    console.log(entry.entry_id, entry.created_at.getFullYear(), entry.page_views.length)
  }
  cursor = page.raw.headers.get('Next-Cursor') ?? undefined
} while (cursor)

// A custom event, recorded once however often this is sent.
try {
  const recorded = await new EventsApi(configuration).recordCustomEvent({
    projectId,
    idempotencyKey: 'order-10042',
    customEventInput: {
      module_id: 'skin-quiz',
      timestamp: new Date('2026-03-01T09:41:12.345Z'),
      custom_event_name: 'order_placed',
      identifiers: [{ key: 'email', value: JSON.stringify('amara.okafor@example.com') }],
    },
  })
  console.log(recorded.entry_id)
} catch (failure) {
  if (!(failure instanceof ResponseError)) throw failure
  const { error } = ErrorBodyFromJSON(await failure.response.json())
  if (error.code === 'rate_limited') console.log('wait', failure.response.headers.get('Retry-After'))
  else console.log(error.message, error.details)
}
