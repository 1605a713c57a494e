/**
 * On a Citus cluster an import copies what is stored, project by project, and reads the copies. Plain PostgreSQL can run that,
 * too: both forms do the same. The property tests in this folder compare them on random lines.
 */
import type pg from 'pg'
import { expect, onTestFinished, test, vi } from 'vitest'
import { markDistributed } from '../../src/database/distribution.ts'
import { openImportPool } from '../../src/database/open.ts'
import { demoRecords } from '../../src/demo/project.ts'
import type { ImportSizes } from '../../src/transfer/import.ts'
import { TARGET_TABLES } from '../../src/transfer/stage.ts'
import { storedOn } from '../../src/transfer/stored.ts'
import { holdLock } from '../support/waiting.ts'
import {
  at,
  BASE,
  contact,
  custom,
  dump,
  entry,
  group,
  load,
  module,
  openDatabase,
  project,
  version,
  view,
  watchConnection,
  watchQueries,
} from './fixture.ts'

/** After the demo's events. */
const NOW = new Date('2026-08-01T00:00:00Z')
const PROJECTS = ['acme', 'other', 'demo']
const identifier = (key: string, value: unknown) => ({ key, value: JSON.stringify(value) })

/** Files to import one after the other: ids are the same in two projects, and most of what is stored changes. */
const FILES: Record<string, object[]> = {
  'new projects': inTwoProjects([
    ...BASE,
    module({ module_id: 'draft' }),
    version(1, '2026-01-03T00:00:00.000Z', { module_id: 'draft' }),
    version(2),
    contact('c2', [identifier('email', 'a'), identifier('n', 5), identifier('contact_id', 'c9')]),
    entry({ entry_id: 'e2', module_id: 'draft', contact_id: 'c2', entry_data: '{"a":1}' }),
    view('v1', 1, 3, { total_pages: 9 }),
    view('v2', 2, 1),
    custom('x1', 3),
    custom('x1', 3),
  ]),
  'what they become': inTwoProjects([
    project({ name: 'Renamed' }),
    group({ name: 'Renamed' }),
    group({ group_id: 'g2' }),
    module({ group_id: 'g2', title: 'Renamed' }),
    module({ module_id: 'new' }),
    version(2, at(0)),
    version(1, at(0), { module_id: 'new' }),
    contact('c2', [identifier('email', 'b'), identifier('email', 'a')], { created_at: at(5) }),
    contact('c3', [identifier('n', '5')]),
    contact('7'),
    entry({ updated_at: at(9), entry_data: '{"b":2}' }),
    entry({ entry_id: 'e3', module_id: 'new', contact_id: 'c3' }),
    view('v0', 0, 2),
    view('v3', 4, 0),
    view('v3', 4, 0),
    view('w1', 4, 7, { entry_id: 'e3' }),
    custom('x2', 5),
    custom('x3', 6, { entry_id: 'e2', module_version_number: 1 }),
  ]),
  events: inTwoProjects([custom('x4', 7), view('v4', 8, 4), view('v1', 1, 3, { total_pages: 9 })]),
  // Of one kind of line each, so that no other kind has copied what it needs.
  'a project alone': inTwoProjects([project({ name: 'Alone' })]),
  'a group alone': inTwoProjects([group({ name: 'Alone' })]),
  'a module alone': inTwoProjects([module({ group_id: 'g2', title: 'Alone' })]),
  'versions alone': inTwoProjects([version(2), version(3)]),
  'a contact alone': inTwoProjects([contact('c2', [identifier('email', 'a'), identifier('email', 'c')])]),
  'an identifier with the text of the id of another contact, as a number': inTwoProjects([
    contact('c2', [identifier('contact_id', 7)]),
  ]),
  'an entry alone': inTwoProjects([entry({ updated_at: at(20), entry_data: '{"c":3}' })]),
  'an event of a new entry': inTwoProjects([entry({ entry_id: 'e4' }), custom('x5', 9, { entry_id: 'e4' })]),
  'a project beside a group of one that is stored': inTwoProjects([
    project({ project_id: 'third' }),
    group({ group_id: 'g3' }),
  ]),
  'one more project': [...demoRecords({ projectId: 'demo', entries: 10 })],
}

/** What is refused after those files. */
const REFUSED: Record<string, object[]> = {
  'an identifier that is the id of another contact': [contact('c3', [identifier('contact_id', 'c2')])],
  'an id that is an identifier of another contact': [contact('c9')],
}

/**
 * The lines of two projects in turns: the second has the same ids, other names, and page views an hour later. Those of any other
 * project are there twice.
 */
function inTwoProjects(lines: { project_id?: string }[]): object[] {
  const other = (line: { project_id?: string }) => {
    const text = JSON.stringify({ ...line, ...(line.project_id === 'acme' && { project_id: 'other' }) })
    return JSON.parse(text.replace('"Quiz"', '"Test"').replace('"Renamed"', '"New"').replace('T00:00:0', 'T01:00:0'))
  }
  return lines.flatMap((line) => [line, other(line)])
}

interface Pools {
  imports: pg.Pool
  reads: pg.Pool
  url: string
}

/** A database that is imported into as on a cluster, or not. @param isPipelined as over HTTP */
async function open(isDistributed: boolean, isPipelined: boolean): Promise<Pools> {
  const database = await openDatabase(undefined, { isDistributed })
  onTestFinished(() => database[Symbol.asyncDispose]())
  if (!isPipelined) return { imports: database.pool, reads: database.pool, url: database.url }
  const imports = openImportPool(database.url, { max: 1 })
  onTestFinished(() => imports.end())
  if (isDistributed) imports.on('connect', markDistributed)
  return { imports, reads: database.pool, url: database.url }
}

/** What the database holds that an export does not show. */
async function hidden(pool: pg.Pool): Promise<object[]> {
  const views = 'SELECT * FROM entry_page_views ORDER BY project_id, entry_id'
  const order = 'SELECT project_id, event_id FROM events ORDER BY project_id, position'
  return [...(await pool.query(views)).rows, ...(await pool.query(order)).rows]
}

const HOW: [string, boolean, Partial<ImportSizes>][] = [
  ['by prepared statements', false, {}],
  ['in chunks', false, { small_rows: 0, chunk_pages: 1 }],
  ['in pipeline mode', true, {}],
  ['in chunks in pipeline mode', true, { small_rows: 0, chunk_pages: 1, batch_characters: 100 }],
]

test.each(HOW)('both forms store and report the same %s', async (_, isPipelined, sizes) => {
  const [plain, distributed] = [await open(false, isPipelined), await open(true, isPipelined)]
  for (const name of Object.keys(FILES).flatMap((name) => [name, name])) {
    const [expected, summary] = await Promise.all(
      [plain, distributed].map(({ imports }) => load(imports, FILES[name] as object[], { now: NOW, sizes })),
    )
    expect(summary, name).toEqual(expected)
    expect(await hidden(distributed.reads), name).toEqual(await hidden(plain.reads))
  }
  for (const [name, lines] of Object.entries(REFUSED)) {
    const [expected, message] = await Promise.all(
      [plain, distributed].map(({ imports }) => load(imports, lines, { sizes }).catch(String)),
    )
    expect(expected, name).toContain('another contact')
    expect(message, name).toBe(expected)
  }
  for (const one of PROJECTS) expect(await dump(distributed.reads, one)).toBe(await dump(plain.reads, one))
})

test('a connection is asked once whether it is to a cluster', async () => {
  const { imports } = await open(false, false)
  const client = await imports.connect()
  onTestFinished(() => client.release(true))
  const { sql } = watchQueries(client)
  onTestFinished(() => void vi.restoreAllMocks())
  const stored = await storedOn(client)
  const asked = sql.length
  expect(asked).toBeGreaterThan(0)
  expect(await storedOn(client)).toBe(stored)
  expect(sql).toHaveLength(asked)
})

test.each([
  [undefined, 0],
  [{ statement_timeout: 9_000, idle_in_transaction_session_timeout: 9_000, lock_timeout: 5_000 }, 5_000],
])('the nodes get the settings of an import with the timeouts %j', async (timeouts, lock_timeout) => {
  const { imports } = await open(true, false)
  const { watched } = await watchConnection(imports)
  await load(imports, BASE, { now: NOW, ...(timeouts && { timeouts }) })
  expect(watched.sql).toContain(
    [
      'SET LOCAL citus.max_intermediate_result_size = -1',
      "SET LOCAL citus.propagate_set_commands = 'local'",
      `SET LOCAL lock_timeout = '${lock_timeout}'`,
      "SET LOCAL synchronous_commit = 'on'",
    ].join('; '),
  )
})

test.each([
  ['are prepared if it has few rows', 0, true],
  ['analyze its tables if it has many', 1, false],
])('the statements of an import %s', async (_, excess, isSmall) => {
  const { imports } = await open(true, true)
  const { watched } = await watchConnection(imports)
  await load(imports, BASE, { now: NOW, sizes: { small_rows: BASE.length - excess } })
  const merging = [...watched.names].filter((name) => name.startsWith('merge'))
  expect(merging.length > 15).toBe(isSmall)
  expect(merging.length > 0).toBe(isSmall)
  const analyzed = watched.sql.filter((one) => one.startsWith('ANALYZE'))
  expect(new Set(analyzed).size > 15).toBe(!isSmall)
  expect(analyzed.length > 0).toBe(!isSmall)
})

test('an import waits for a writer that holds the project', async () => {
  const { imports, reads, url } = await open(true, true)
  await load(imports, BASE)
  const writer = await holdLock(url, "SELECT FROM projects WHERE project_id = 'acme' FOR NO KEY UPDATE")
  onTestFinished(() => writer.release())
  const importing = load(imports, [entry({ entry_id: 'e2' })])
  await writer.waiting(1)
  expect(await dump(reads)).not.toContain('"e2"')
  await writer.query('COMMIT')
  await importing
  expect(await dump(reads)).toContain('"e2"')
})

test('an import that is refused leaves no space to read again', async () => {
  const { imports } = await open(true, true)
  await load(imports, BASE)
  const orphans = Array.from({ length: 100 }, (_, i) => view(`v${i}`, 1, i, { entry_id: 'nowhere' }))
  await expect(load(imports, orphans)).rejects.toThrow('no entry with this id')
  const { rows } = await imports.query("SELECT pg_relation_size('staged_events')::integer AS size")
  expect(rows).toEqual([{ size: 0 }])
})

test.each(HOW)('each statement on stored rows names their project as a value %s', async (_, isPipelined, sizes) => {
  const { imports } = await open(true, isPipelined)
  onTestFinished(() => void vi.restoreAllMocks())
  const watched = new Map<pg.PoolClient, ReturnType<typeof watchQueries>>()
  imports.on('acquire', (client) => {
    if (!watched.has(client)) watched.set(client, watchQueries(client))
  })
  for (const lines of Object.values(FILES)) await load(imports, lines, { now: NOW, sizes })
  const sent = watched.values().flatMap(({ sql }) => sql)
  const statements = new Set(sent.filter((sql) => !sql.startsWith('CREATE')))
  expect([...statements].filter(readsStored).length).toBeGreaterThan(15)
  expect([...statements].flatMap(unbound)).toEqual([])
})

const STORED = [...Object.values(TARGET_TABLES), 'entry_page_views', 'erasures'].join('|')
const REFERENCE = new RegExp(String.raw`\b(?:FROM|JOIN|UPDATE) (${STORED})\b(?: (?!WHERE\b)(\w+))?`, 'g')
const TEMPORARY = /\b(?:FROM|JOIN|,) *\(?(staged|merged|stored|referenced|derived|numbered|duplicate|affected)_\w+/

const readsStored = (sql: string) => sql.matchAll(REFERENCE).toArray().length > 0

/** What a cluster would refuse, or ask all nodes for. */
function unbound(sql: string): string[] {
  const references = sql.matchAll(REFERENCE).toArray()
  const isBound = ([, , alias]: RegExpExecArray) => sql.includes(`${alias ? `${alias}.` : 'WHERE '}project_id = $1`)
  // What a common table expression finds is sent to the shards.
  const onShard = withoutExpressions(sql)
  return references.every(isBound) && (references.length === 0 || !TEMPORARY.test(onShard)) ? [] : [sql]
}

/** Without what is in the parentheses of each AS MATERIALIZED. */
function withoutExpressions(sql: string): string {
  const [before = '', ...rest] = sql.split('AS MATERIALIZED (')
  return rest.reduce((text, part) => {
    let depth = 1
    let end = 0
    while (depth > 0) {
      depth += part[end] === '(' ? 1 : part[end] === ')' ? -1 : 0
      end += 1
    }
    return text + part.slice(end)
  }, before)
}
