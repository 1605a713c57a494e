// A small flow runtime: it shows a quiz, and tells Flowtrail what its visitors do (docs/recording.md#from-a-flow-runtime).
// Usage: FLOWTRAIL_URL=… FLOWTRAIL_PROJECT=… FLOWTRAIL_KEY=… node docs/flow-runtime.mjs

import { randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

const { FLOWTRAIL_URL, FLOWTRAIL_PROJECT = '', FLOWTRAIL_KEY = '', PORT = '8080' } = process.env

const PAGES = [
  { key: 'welcome', text: 'Which tea are you?', choices: ['Begin'] },
  { key: 'taste', text: 'What do you like?', choices: ['Sweet', 'Bitter'] },
  { key: 'time', text: 'When do you drink it?', choices: ['Morning', 'Night'] },
  { key: 'result', text: 'Assam, of course.', choices: [] },
]
const MODULE_ID = 'tea-quiz'
// A saved version never changes: with other pages, count on and set the time.
const VERSION = { version_number: 1, saved_at: '2026-11-01T00:00:00Z', published_at: '2026-11-01T00:00:00Z' }

/** Records that Flowtrail does not have yet, in their order. A real runtime keeps them on disk, or in its own database. */
const waiting = [
  { type: 'group', group_id: 'quizzes', name: 'Quizzes' },
  { type: 'module', module_id: MODULE_ID, group_id: 'quizzes', title: 'Tea quiz', created_at: VERSION.saved_at },
  { type: 'module_version', module_id: MODULE_ID, ...VERSION, json_string: JSON.stringify({ pages: PAGES }) },
]

/** Sends what is waiting. @returns how many milliseconds to wait until the next time */
async function send() {
  const records = waiting.slice(0, 500)
  if (records.length === 0) return 200
  const response = await fetch(`${FLOWTRAIL_URL}/projects/${encodeURIComponent(FLOWTRAIL_PROJECT)}/records`, {
    method: 'POST',
    headers: { 'x-api-key': FLOWTRAIL_KEY, 'content-type': 'application/x-ndjson' },
    body: records.map((record) => JSON.stringify(record)).join('\n'),
  }).catch(() => undefined)
  if (response?.ok) {
    waiting.splice(0, records.length)
    return 200
  }
  const { error } = (await response?.json().catch(() => undefined)) ?? {}
  // The line that is to blame; all others are sent again.
  const [, line] = /^\/body\/(\d+)/.exec(error?.details?.[0].pointer ?? '') ?? []
  if (line !== undefined) console.error('not imported:', error.message, waiting.splice(Number(line) - 1, 1)[0])
  else console.error('not imported yet:', error?.message ?? 'Flowtrail cannot be reached')
  return line === undefined ? 1_000 * Number(response?.headers.get('retry-after') ?? 5) : 0
}

/** The entries of the visitors, by the id in their cookie. */
const entries = new Map()

function begin(visitor) {
  const entry_id = randomUUID()
  const now = new Date().toISOString()
  const contact = { contact_id: visitor, identifiers: [{ key: 'visitor', value: JSON.stringify(visitor) }] }
  const entry = { entry_id, module_id: MODULE_ID, contact_id: visitor, created_at: now, updated_at: now }
  entries.set(visitor, { entry, answers: {}, views: 0 })
  waiting.push({ type: 'contact', ...contact }, { type: 'entry', ...entry })
}

function view(visitor, page) {
  const visit = entries.get(visitor)
  const { entry_id } = visit.entry
  const timestamp = new Date().toISOString()
  // With what they have entered. Whoever follows the entries finds a page view by the time of its entry's last change, too.
  waiting.push({ type: 'entry', ...visit.entry, updated_at: timestamp, entry_data: JSON.stringify(visit.answers) })
  visit.views += 1
  // Events of one entry in the same millisecond are in the order of their ids.
  const event_id = `${entry_id}-${String(visit.views).padStart(6, '0')}`
  const place = { page_id: page.key, page_key: page.key, page_index: PAGES.indexOf(page), total_pages: PAGES.length }
  const event = { event_id, timestamp, event_type: 'flowpage.viewed' }
  waiting.push({ type: 'event', entry_id, ...event, view_type: 'flowpage', ...place })
}

const server = createServer((request, response) => {
  const { pathname, searchParams } = new URL(request.url, 'http://localhost')
  const index = PAGES.findIndex(({ key }) => pathname === `/${key}`)
  const [, visitor = randomUUID()] = /visitor=([\w-]{36})/.exec(request.headers.cookie ?? '') ?? []
  if (pathname === '/') {
    begin(visitor)
    response.writeHead(303, { location: `/${PAGES[0].key}`, 'set-cookie': `visitor=${visitor}; HttpOnly` }).end()
  } else if (index < 0 || !entries.has(visitor)) {
    response.writeHead(303, { location: '/' }).end()
  } else {
    const choice = searchParams.get('choice')
    if (choice !== null && index > 0) entries.get(visitor).answers[PAGES[index - 1].key] = choice
    view(visitor, PAGES[index])
    const links = PAGES[index].choices.map((text) => `<a href="/${PAGES[index + 1].key}?choice=${text}">${text}</a>`)
    response.setHeader('content-type', 'text/html').end(`<h1>${PAGES[index].text}</h1>${links.join(' ')}`)
  }
})
server.listen(Number(PORT), () => console.log(`http://localhost:${server.address().port}`))
for (;;) await sleep(await send())
