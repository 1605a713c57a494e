import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createKey } from '../../../src/cli/keys.ts'
import { connect } from '../../../src/database/open.ts'
import { createPool } from '../../../src/database/pool.ts'
import { SCOPES } from '../../../src/domain/api-key.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { kill, type Service, startService } from '../../support/service.ts'
import { load } from '../../transfer/fixture.ts'
import { size, TRIAL_OPTIONS } from './trial.ts'

// Every list is walked in both directions while imports and posts add rows before, behind and at the place of each cursor.
// A model knows what was committed before a walk began: all of that is seen, once and in order.

const PROJECT = 'demo'
/** Has the same ids, in the same places, and other content. */
const OTHER = 'other'
const MAX_PAGE_bytes = 8 * 1024 * 1024
const LIMITS = [7, 100, 1000]
const ROUNDS = size(3, 90)

const LISTS = {
  versions: `/projects/${PROJECT}/modules/m/versions`,
  events: `/projects/${PROJECT}/entries/e/events`,
  views: `/projects/${PROJECT}/entries-page-views`,
} as const
type List = keyof typeof LISTS
type Row = Record<string, unknown>

/** What tells the rows of a list apart. An updated entry is another row. */
const NAMES: Record<List, (row: Row) => string> = {
  versions: (row) => String(row.version_number),
  events: (row) => String(row.page_id ?? row.custom_event_name),
  views: (row) => `${row.entry_id} ${row.updated_at}`,
}

const at = (second: number) => new Date(Date.UTC(2026, 1, 1, 0, 0, second)).toISOString()
const padded = (i: number) => String(i).padStart(4, '0')
const saved = { saved_at: at(0), published_at: at(0), json_string: '{}' }

const version = (version_number: number) => ({ type: 'module_version', module_id: 'm', version_number, ...saved })
const entry = (entry_id: string, second: number) => ({
  ...{ type: 'entry', entry_id, module_id: 'm', contact_id: 'c', created_at: at(0), updated_at: at(second) },
})
/** Events of entry e, named in page_id or custom_event_name. Three share each instant. */
const event = (event_id: string, i: number) => ({
  ...{ type: 'event', entry_id: 'e', event_id, timestamp: at(Math.floor(i / 3)) },
})
const view = (event_id: string, i: number) => ({
  ...{ ...event(event_id, i), event_type: 'flowpage.viewed', view_type: 'flowpage' },
  ...{ page_id: event_id, page_key: 'k', page_index: 0, total_pages: 2 },
})
/** Of 65 KB in a response, in which the quotation marks are escaped. */
const LARGE = `{"a":["${'","'.repeat(10_900)}"]}`
const largeEvent = (event_id: string, i: number) => ({
  ...{ ...event(event_id, i), event_type: 'custom_event:triggered' },
  ...{ custom_event_name: event_id, custom_event_props: LARGE },
})

let database: TestDatabase
let pool: pg.Pool
let service: Service
let key: string

/** The committed rows of each list by their names, with what sorts them. */
const committed: Record<List, Map<string, [number | string, string]>> = {
  versions: new Map(),
  events: new Map(),
  views: new Map(),
}
/** Entries that are updated again and again, which a walk may see in several places. */
const isUpdatedAgain = (name: string) => name.startsWith('updated')

interface Written {
  type: string
  version_number: number
  event_id: string
  timestamp: string
  entry_id: string
  updated_at: string
}

async function write(records: Row[]): Promise<void> {
  const inProjects = [PROJECT, OTHER].flatMap((project_id) =>
    records.map((record) => ({
      ...record,
      project_id,
      ...(project_id === OTHER && 'page_key' in record && { page_key: 'foreign' }),
    })),
  )
  await load(pool, inProjects)
  for (const record of records) {
    const { type, version_number, event_id, timestamp, entry_id, updated_at } = record as unknown as Written
    if (type === 'module_version') committed.versions.set(String(version_number), [version_number, ''])
    if (type === 'event') committed.events.set(event_id, [timestamp, event_id])
    if (type === 'entry') committed.views.set(`${entry_id} ${updated_at}`, [updated_at, entry_id])
  }
}

async function post(i: number): Promise<void> {
  const name = `posted-${i}`
  const response = await fetch(`${service.address}/projects/${PROJECT}/events`, {
    method: 'POST',
    headers: { 'x-api-key': key, 'content-type': 'application/json' },
    body: JSON.stringify({
      ...{ module_id: 'm', timestamp: at((i * 37) % 100), custom_event_name: name },
      identifiers: [{ key: 'contact_id', value: '"of e"' }],
    }),
  })
  expect(response.status, await response.text()).toBe(200)
  // Its event id, by which it is sorted among those of its instant, is not in the response.
  posted.add(name)
}
const posted = new Set<string>()

beforeAll(async () => {
  database = await createTestDatabase()
  pool = createPool(database.url, { max: 1 })
  await write([
    { type: 'project' },
    { type: 'group', group_id: 'g' },
    { type: 'module', module_id: 'm', group_id: 'g', title: 'm' },
    { type: 'contact', contact_id: 'c', identifiers: [] },
    { type: 'contact', contact_id: 'of e', identifiers: [] },
    ...Array.from({ length: 150 }, (_, i) => version(2 * i + 2)),
    { ...entry('e', 0), contact_id: 'of e' },
    ...Array.from({ length: 90 }, (_, i) => entry(`entry-${padded(i)}`, 1 + Math.floor(i / 3))),
    // 13 MB: a page of 1000 rows ends before its limit.
    ...Array.from({ length: 300 }, (_, i) => (i % 3 === 0 ? view : largeEvent)(`event-${padded(i)}`, i)),
  ])
  const db = connect(database.url, { max: 1 })
  key = await createKey(db, PROJECT, { name: 'test', scopes: SCOPES, expires_at: null })
  await db.destroy()
  service = await startService({ DATABASE_URL: database.url })
})
afterAll(async () => {
  await kill(service)
  await pool.end()
  await database.drop()
})

let writes = 0
/** How many more writes this round has: without an end of them, a walk has none. */
let left = 0
let importing: Promise<void> = Promise.resolve()

/** Adds rows to every list, in another place each time. */
function writeMore(): Promise<void> {
  if (left === 0) return importing
  left -= 1
  const i = writes++
  const place = (i * 37) % 300
  importing = importing.then(() =>
    write([
      version(2 * i + 1),
      view(`event-${padded(place)}/${i}`, place),
      entry(`entry-${padded(place % 90)}/${i}`, 1 + Math.floor((place % 90) / 3)),
      entry(`updated-${i % 3}`, 10 + i),
    ]),
  )
  return Promise.all([importing, post(i)]).then(() => {})
}

const figures = { walks: 0, pages: 0, rows: 0, added_meanwhile: 0, cut_pages: 0 }

/** Walks a list, and writes with every page. */
async function walk(list: List, direction: 'ASC' | 'DESC', limit: number): Promise<void> {
  const before = new Map([...committed[list]].filter(([name]) => !isUpdatedAgain(name)))
  const postedBefore = list === 'events' ? [...posted] : []
  const rows: Row[] = []
  for (let next: string | undefined = `${LISTS[list]}?direction=${direction}&limit=${limit}`; next !== undefined; ) {
    const fetched: Promise<Response> = fetch(service.address + next, { headers: { 'x-api-key': key } })
    const [response] = await Promise.all([fetched, writeMore()])
    const body = await response.text()
    expect(response.status, body).toBe(200)
    const page = JSON.parse(body) as Row[]
    expect(page.length).toBeLessThanOrEqual(limit)
    if (page.length > 1) expect(Buffer.byteLength(body)).toBeLessThanOrEqual(MAX_PAGE_bytes)
    next = /^<(.*)>; rel="next"$/.exec(response.headers.get('link') ?? '')?.[1]
    if (next !== undefined) expect(page.length).toBeGreaterThan(0)
    rows.push(...page)
    figures.pages += 1
    figures.cut_pages += next !== undefined && page.length < limit ? 1 : 0
  }
  const names = rows.map(NAMES[list])
  const where = `${list} ${direction} by ${limit}`
  const expected = [...before].sort(([, a], [, b]) => compare(a[0], b[0]) || compare(a[1], b[1])).map(([name]) => name)
  expect(
    names.filter((name) => before.has(name)),
    where,
  ).toEqual(direction === 'ASC' ? expected : expected.reverse())
  expect(new Set(names).size, `${where}, distinct rows`).toBe(names.length)
  const missing = new Set(postedBefore).difference(new Set(names))
  expect([...missing], `${where}, posted before`).toEqual([])
  const instants = rows.map((row) => (row.timestamp ?? row.updated_at ?? row.version_number) as string | number)
  const inOrder = instants.toSorted(compare)
  expect(instants, where).toEqual(direction === 'ASC' ? inOrder : inOrder.reverse())
  expect(
    rows.filter((row) => row.page_key === 'foreign' || ![undefined, PROJECT].includes(row.project_id as string)),
  ).toEqual([])
  figures.walks += 1
  figures.rows += rows.length
  figures.added_meanwhile += names.filter((name) => !before.has(name) && !postedBefore.includes(name)).length
}

const compare = (a: string | number, b: string | number) => (a < b ? -1 : a > b ? 1 : 0)

test('walks see what was there before them once and in order, whatever is written', TRIAL_OPTIONS, async () => {
  for (let round = 0; round < ROUNDS; round += 1) {
    left = 25
    const limit = LIMITS[round % LIMITS.length] ?? 10
    await Promise.all(
      (Object.keys(LISTS) as List[]).flatMap((list) => [walk(list, 'ASC', limit), walk(list, 'DESC', limit)]),
    )
  }
  console.log(`paging under writes: ${JSON.stringify({ ...figures, writes })}`)
  expect(figures.added_meanwhile).toBeGreaterThan(0)
  expect(figures.cut_pages).toBeGreaterThan(0)
})
