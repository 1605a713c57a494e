import { sql } from 'kysely'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { type IsoTimestamp, toIsoTimestamp } from '../../src/domain/timestamp.ts'
import { selectEntriesInEffect, selectEntryPageViewsPage } from '../../src/queries/entries.ts'
import { importInto } from '../support/app.ts'
import { createTestDatabase, type TestDatabase, withSettings } from '../support/database.ts'
import { UNLIMITED } from '../support/lease.ts'

// Rows come in their order and not in that of the plan, which PostgreSQL may choose anew at any time.

const instant = (second: number): IsoTimestamp => toIsoTimestamp(new Date(Date.UTC(2026, 0, 1, 0, 0, second)))
const MODULES = ['c', 'a', 'b']
const VIEWS = [
  ['x', 1, 0],
  ['y', 2, 0],
  ['a', 3, 1],
] as const

function* records(): Generator<object> {
  const project = { project_id: 'p' }
  yield { type: 'project', ...project }
  yield { type: 'group', ...project, group_id: 'g' }
  for (const [i, module_id] of MODULES.entries()) {
    yield {
      type: 'contact',
      ...project,
      contact_id: module_id,
      identifiers: [{ key: 'module', value: `"${module_id}"` }],
    }
    yield { type: 'module', ...project, module_id, group_id: 'g', title: '' }
    const saved = { version_number: 1, saved_at: instant(0), published_at: instant(0), json_string: '{}' }
    yield { type: 'module_version', ...project, module_id, ...saved }
    const entry = {
      entry_id: `e${i}`,
      module_id,
      contact_id: module_id,
      created_at: instant(0),
      updated_at: instant(i),
    }
    yield { type: 'entry', ...project, ...entry }
    // Views of equally far pages, two of them at one instant.
    for (const [event_id, total_pages, second] of VIEWS) {
      const page = { view_type: 'flowpage', page_id: event_id, page_key: '', page_index: 0 }
      const event = { entry_id: `e${i}`, event_id: `${event_id}${i}`, timestamp: instant(second) }
      yield { type: 'event', ...project, ...event, event_type: 'flowpage.viewed', ...page, total_pages }
    }
  }
}

/** A node of PostgreSQL's plan, as EXPLAIN (FORMAT JSON, ANALYZE) gives it. */
interface PlanNode {
  'Relation Name'?: string
  'Actual Loops': number
  Plans?: PlanNode[]
}

let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
  await importInto(database.url, records())
  // Moves two of them behind the others, so that they are read in either order.
  await without([], (db) => sql`UPDATE events SET page_key = page_key WHERE event_id IN ('x1', 'y2')`.execute(db))
})
afterAll(() => database.drop())

/** Works on a database whose planner must do without what these settings name. */
async function without<T>(settings: string[], work: (db: Database) => Promise<T>): Promise<T> {
  const off = Object.fromEntries(settings.map((name) => [`enable_${name}`, 'off']))
  const db = connect(withSettings(database.url, off))
  return work(db).finally(() => db.destroy())
}

test('the page-view list, when PostgreSQL joins in the order of the modules', async () => {
  const page = await without(['nestloop', 'hashjoin'], (db) =>
    selectEntryPageViewsPage(db, {
      path: { projectId: 'p' },
      query: { limit: 10, direction: 'ASC' },
      lease: UNLIMITED,
    }),
  )
  expect(page.rows.map(({ module_id }) => module_id)).toEqual(MODULES)
})

test.each([
  [0, 2],
  [1, 3],
])(
  'of equal page views until second %i the first is the furthest and the last knows the number of pages, in whatever order they are read',
  async (second, total) => {
    const projects = MODULES.map(() => 'p')
    const instants = MODULES.map(() => instant(second))
    const digests = MODULES.map(() => Buffer.alloc(0))
    const rows = await without(['indexscan', 'indexonlyscan', 'bitmapscan'], (db) =>
      selectEntriesInEffect(db, projects, MODULES, digests, MODULES, instants),
    )
    expect(rows.map(({ max_page_id, total_pages }) => [max_page_id, total_pages])).toEqual(
      MODULES.map(() => ['x', total]),
    )
  },
)

test('the contact and the entry of an event are looked up once', async () => {
  const client = new pg.Client(database.url)
  await client.connect()
  const identifiers = await client.query<{ digest: Buffer }>(
    'SELECT digest FROM contact_identifiers ORDER BY contact_id',
  )
  const digests = identifiers.rows.map(({ digest }) => digest)
  const modules = MODULES.toSorted()
  const [projects, contacts, instants] = [modules.map(() => 'p'), modules.map(() => ''), modules.map(() => instant(5))]
  const { text, values } = selectEntriesInEffect.statement(projects, contacts, digests, modules, instants)
  const { rows } = await client.query(`EXPLAIN (ANALYZE, FORMAT JSON) ${text}`, values)
  await client.end()
  const nodes = (node: PlanNode): PlanNode[] => [node, ...(node.Plans ?? []).flatMap(nodes)]
  const lookUps = (table: string) =>
    nodes(rows[0]['QUERY PLAN'][0].Plan)
      .filter((node) => node['Relation Name'] === table)
      .reduce((sum, node) => sum + node['Actual Loops'], 0)
  expect([lookUps('contact_identifiers'), lookUps('entries')]).toEqual([modules.length, modules.length])
})
