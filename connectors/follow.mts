// node follow.mts copy.db: keeps a copy of all events of a project in SQLite, and prints how many it has.
import { DatabaseSync } from 'node:sqlite'

// With WAIT=30 it goes on and receives events as they happen.
const { FLOWTRAIL_URL, FLOWTRAIL_PROJECT = '', FLOWTRAIL_KEY = '', WAIT = '0' } = process.env
const feed = `${FLOWTRAIL_URL}/projects/${encodeURIComponent(FLOWTRAIL_PROJECT)}/events`

const copy = new DatabaseSync(process.argv[2] ?? 'copy.db', { timeout: 10_000 })
copy.exec('CREATE TABLE IF NOT EXISTS events (event_id TEXT PRIMARY KEY, position INTEGER UNIQUE, event TEXT)')
const insert = copy.prepare('INSERT OR REPLACE INTO events VALUES (?, ?, ?)')
for (let isMore = true; isMore; ) {
  // The copy's own greatest position, committed with its events: nothing is lost or read twice, wherever this stops.
  const { after } = copy.prepare('SELECT coalesce(max(position), 0) AS after FROM events').get() as { after: number }
  const url = `${feed}?direction=ASC&limit=1000&after=${after}&wait=${WAIT}`
  const response = await fetch(url, { headers: { 'X-Api-Key': FLOWTRAIL_KEY }, signal: AbortSignal.timeout(60_000) })
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`)
  const events = (await response.json()) as { event_id: string; position: number }[]
  copy.exec('BEGIN')
  for (const event of events) insert.run(event.event_id, event.position, JSON.stringify(event))
  copy.exec('COMMIT')
  isMore = response.headers.has('Link') || WAIT !== '0'
}
console.log((copy.prepare('SELECT count(*) AS events FROM events').get() as { events: number }).events)
