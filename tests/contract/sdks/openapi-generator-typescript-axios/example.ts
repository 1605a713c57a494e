import { isAxiosError } from 'axios'
import { Configuration, EntriesApi, type ErrorBody, EventsApi } from './generated/index.ts'

const configuration = new Configuration({
  basePath: process.env.FLOWTRAIL_URL ?? 'http://127.0.0.1:3000',
  apiKey: process.env.FLOWTRAIL_KEY,
})
const projectId = 'demo'

// Every entry with its page views, page by page.
const entries = new EntriesApi(configuration)
let cursor: string | undefined
do {
  const page = await entries.listEntryPageViews({ projectId, limit: 100, cursor })
  for (const entry of page.data) console.log(entry.entry_id, entry.page_views.length)
  cursor = page.headers['next-cursor']
} while (cursor)

// A custom event, recorded once however often this is sent.
try {
  const recorded = await new EventsApi(configuration).recordCustomEvent({
    projectId,
    idempotencyKey: 'order-10042',
    customEventInput: {
      module_id: 'skin-quiz',
      timestamp: '2026-03-01T09:41:12.345Z',
      custom_event_name: 'order_placed',
      identifiers: [{ key: 'email', value: JSON.stringify('amara.okafor@example.com') }],
    },
  })
  console.log(recorded.data.entry_id)
} catch (failure) {
  if (!isAxiosError<ErrorBody>(failure) || !failure.response) throw failure
  const { error } = failure.response.data
  if (error.code === 'rate_limited') console.log('wait', failure.response.headers['retry-after'])
  else console.log(error.message, error.details)
}
