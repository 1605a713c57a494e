/**
 * The version in effect and the furthest page are determined in two places: by src/queries for each recorded event, and
 * by src/transfer/derive-events.ts for whole entries. Both must give the same for the same history.
 */
import { expect, test } from 'vitest'
import { createPool } from '../../src/database/pool.ts'
import { createTestApp, importInto } from '../support/app.ts'
import {
  at,
  contact,
  custom,
  dumped,
  entry,
  group,
  load,
  module,
  openDatabase,
  project,
  version,
  view,
} from './fixture.ts'

const PROJECT_ID = 'demo'
const ENTRIES = ['e1', 'e2', 'e3', 'e4']
/** So few instants that many publications, views and events coincide. */
const SECONDS = 30

/** A generator of integers below a bound (splitmix32), the same in every run. */
function generator(seed: number) {
  let state = seed
  return (bound: number): number => {
    state = (state + 0x9e3779b9) | 0
    let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad)
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97)
    return ((mixed ^ (mixed >>> 15)) >>> 0) % bound
  }
}

const inProject = (records: object[]) => records.map((record) => ({ ...record, project_id: PROJECT_ID }))

/** A project with versions published, and page views seen, at random instants; some views do not say how many pages. */
function randomHistory(random: (bound: number) => number): object[] {
  const versions = Array.from({ length: 8 }, (_, i) => version(i + 1, i && !random(4) ? undefined : at(5 * random(5))))
  const views = Array.from({ length: 60 }, (_, i) => {
    const page = random(5)
    const total_pages = [undefined, null, 5 + random(4)][random(3)]
    const entry_id = ENTRIES[random(ENTRIES.length - 1)] // the last entry has no views
    return view(`view-${random(1000)}-${i}`, random(SECONDS), page, { entry_id, page_id: `p${page}-${i}`, total_pages })
  })
  const entries = ENTRIES.flatMap((id) => [contact(id), entry({ entry_id: id, contact_id: id, created_at: at(0) })])
  return inProject([project(), group(), module(), ...versions, ...entries, ...views])
}

/** The derived fields of the custom events, by event name. */
async function derivedFields(url: string): Promise<Record<string, unknown>> {
  const pool = createPool(url, { max: 1 })
  const events = await dumped(pool, 'event', PROJECT_ID)
  await pool.end()
  return Object.fromEntries(
    events.flatMap(({ custom_event_name: name, entry_id, module_version_number, total_pages, ...event }) => {
      const { max_page_id, max_page_key, max_page_index } = event
      const derived = { entry_id, module_version_number, max_page_id, max_page_key, max_page_index, total_pages }
      return name === undefined ? [] : [[name, derived]]
    }),
  )
}

test.for([1, 2, 3])(
  'an imported event gets what a recorded one gets: history %i',
  { timeout: 60_000 },
  async (seed) => {
    const random = generator(seed)
    const history = randomHistory(random)
    const events = Array.from({ length: 40 }, (_, i) => ({
      entry_id: ENTRIES[random(ENTRIES.length)] as string,
      second: random(SECONDS + 4) - 2,
      name: `event ${i}`,
    }))

    await using imported = await openDatabase()
    const lines = events.map(({ entry_id, second, name }) =>
      custom(undefined, second, { entry_id, custom_event_name: name }),
    )
    await load(imported.pool, [...history, ...inProject(lines)])

    const api = await createTestApp({ fill: (url) => importInto(url, history) })
    for (const { entry_id, second, name } of events) {
      const body = {
        module_id: 'quiz',
        timestamp: at(second),
        custom_event_name: name,
        identifiers: [{ key: 'contact_id', value: JSON.stringify(entry_id) }],
      }
      const response = await api.call({ method: 'POST', path: `/projects/${PROJECT_ID}/events`, body })
      expect(response.statusCode, response.body).toBe(200)
    }
    const recorded = await derivedFields(api.databaseUrl)
    await api.close()

    expect(Object.keys(recorded)).toHaveLength(events.length)
    expect(await derivedFields(imported.url)).toEqual(recorded)
  },
)
