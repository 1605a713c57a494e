// node follow.mts copy.db: keeps a copy of all events of a project in SQLite, and prints how many it has.
import { DatabaseSync } from 'node:sqlite'

const { FLOWTRAIL_URL, FLOWTRAIL_PROJECT, FLOWTRAIL_KEY = '', WAIT = '0' } = process.env // WAIT=30 follows for ever
const feed = `${FLOWTRAIL_URL}/projects/${FLOWTRAIL_PROJECT}/events`

const copy = new DatabaseSync(process.argv[2] ?? 'copy.db')
copy.exec('CREATE TABLE IF NOT EXISTS events (event_id TEXT PRIMARY KEY, position INTEGER UNIQUE, event TEXT)')
const insert = copy.prepare('INSERT INTO events VALUES (?, ?, ?) ON CONFLICT DO NOTHING')
for (let isMore = true; isMore; ) {
  // The place is the greatest position of the copy itself: what is committed with a page is never lost, nor read twice.
  const { place } = copy.prepare('SELECT coalesce(max(position), 0) AS place FROM events').get() as { place: number }
  const url = `${feed}?direction=ASC&limit=1000&after=${place}&wait=${WAIT}`
  const response = await fetch(url, { headers: { 'X-Api-Key': FLOWTRAIL_KEY }, signal: AbortSignal.timeout(60_000) })
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`)
  const events = (await response.json()) as { event_id: string; position: number }[]
  copy.exec('BEGIN')
  for (const event of events) insert.run(event.event_id, event.position, JSON.stringify(event))
  copy.exec('COMMIT')
  isMore = response.headers.has('Link') || WAIT !== '0'
}
console.log((copy.prepare('SELECT count(*) AS events FROM events').get() as { events: number }).events)
