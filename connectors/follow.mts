// node follow.mts copy.db: keeps a copy of all events of a project in SQLite, and prints how many it has.
import { DatabaseSync } from 'node:sqlite'

// With WAIT=30 it goes on and receives events as they happen.
const { FLOWTRAIL_URL = '', FLOWTRAIL_PROJECT = '', FLOWTRAIL_KEY = '', WAIT = '0' } = process.env
const project = `${FLOWTRAIL_URL.replace(/\/$/, '')}/projects/${encodeURIComponent(FLOWTRAIL_PROJECT)}`

async function read<Row>(feed: string, after: number, wait = '0') {
  const url = `${project}/${feed}?direction=ASC&limit=1000&after=${after}&wait=${wait}`
  const response = await fetch(url, { headers: { 'X-Api-Key': FLOWTRAIL_KEY }, signal: AbortSignal.timeout(60_000) })
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`)
  return { rows: (await response.json()) as Row[], isMore: response.headers.has('Link') }
}

const copy = new DatabaseSync(process.argv[2] ?? 'copy.db', { timeout: 10_000 })
copy.exec('PRAGMA secure_delete = ON') // overwrites what is erased
copy.exec('CREATE TABLE IF NOT EXISTS events (event_id TEXT PRIMARY KEY, position INTEGER UNIQUE, event TEXT)')
copy.exec("CREATE INDEX IF NOT EXISTS contact ON events (json_extract(event, '$.contact_id'))")
copy.exec('CREATE TABLE IF NOT EXISTS erasures (position INTEGER PRIMARY KEY)')
const copied = copy.prepare("SELECT json_extract(event, '$.project_id') AS project FROM events LIMIT 1").get()?.project
if (copied !== undefined && copied !== FLOWTRAIL_PROJECT) throw new Error(`this is a copy of the project ${copied}`)
const insert = copy.prepare('INSERT OR REPLACE INTO events VALUES (?, ?, ?)')
const erase = copy.prepare("DELETE FROM events WHERE json_extract(event, '$.contact_id') = ? AND position < ?")
const keep = copy.prepare('INSERT OR IGNORE INTO erasures VALUES (?)')
for (let isMore = true; isMore; ) {
  // The copy's own greatest positions, committed with their rows: nothing is missed, wherever this stops.
  const [lastEvent = 0, lastErasure = 0] = ['events', 'erasures'].map((table) =>
    Number(copy.prepare(`SELECT coalesce(max(position), 0) AS position FROM ${table}`).get()?.position),
  )
  const events = await read<{ event_id: string; position: number }>('events', lastEvent, WAIT)
  // After the events, and in one transaction with them: they may have been erased meanwhile.
  const erasures = await read<{ contact_id: string; position: number }>('erasures', lastErasure)
  copy.exec('BEGIN')
  for (const event of events.rows) insert.run(event.event_id, event.position, JSON.stringify(event))
  for (const { contact_id, position } of erasures.rows) {
    erase.run(contact_id, position)
    keep.run(position)
  }
  copy.exec('COMMIT')
  isMore = events.isMore || erasures.isMore || WAIT !== '0'
}
console.log((copy.prepare('SELECT count(*) AS events FROM events').get() as { events: number }).events)
