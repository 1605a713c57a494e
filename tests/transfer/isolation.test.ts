import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { ImportError } from '../../src/transfer/import.ts'
import { addTwins, copiesOf, foreignContent } from '../support/twins.ts'
import {
  at,
  contact,
  custom,
  dump,
  entry,
  group,
  load,
  module,
  openDatabase,
  project,
  toLines,
  version,
  view,
} from './fixture.ts'

// One export imported into several projects of a database is normal: identical ids, other content.

type Line = Record<string, unknown>

/** The records of a project with the ids of every other that is made so, and content that depends on `n`. */
function recordsOf(project_id: string, n: number): Line[] {
  const [first, second] = n % 2 ? ['c1', 'c2'] : ['c2', 'c1']
  const lines = [
    project({ name: `Project ${n}` }),
    group({ name: `Group ${n}` }),
    group({ group_id: 'g2' }),
    module({ title: `Quiz ${n}`, group_id: n % 2 ? 'g1' : 'g2', created_at: at(n) }),
    module({ module_id: 'm2', created_at: at(n) }),
    version(1, at(20 + n), { json_string: `{"n":${n}}` }),
    version(2, at(30 - n), { json_string: `{"n":${n}}` }),
    version(3, n % 2 ? at(40) : undefined),
    version(1, at(0), { module_id: 'm2' }),
    contact('c1', [], { created_at: at(n) }),
    contact('c2', [], { created_at: at(n) }),
    contact(first, [{ key: 'email', value: '"a"' }]),
    contact(second, [
      { key: 'email', value: n % 2 ? '"b"' : '"\\u0062"' },
      { key: 'contact_id', value: `"c${n}0"` },
    ]),
    entry({ contact_id: first, created_at: at(n), entry_data: `{"n":${n}}` }),
    entry({ entry_id: 'e2', contact_id: second, module_id: n % 2 ? 'm2' : 'quiz', created_at: at(n) }),
    // Everything that can be derived is left out, so that it is derived from the project's own views and versions.
    view('v1', 10 + n, 10 * n, { total_pages: 10 * n + 5 }),
    view('v2', 25, n % 2 ? 10 * n + 1 : 1),
    view('v3', 45 - n, n),
    custom('x1', 24 + n, { custom_event_props: `{"n":${n}}` }),
    custom('x2', 50 + n),
    view('w1', 30, n, { entry_id: 'e2' }),
    // The module of this entry has the version, the one of the other project's entry does not.
    custom('x3', 31, { entry_id: 'e2', custom_event_name: `clicked ${n}`, module_version_number: n % 2 ? 1 : 2 }),
  ]
  return lines.map((line) => ({ ...line, project_id }))
}

/** A second import for the records of {@link recordsOf}: what may change changes, and events are added. */
const changesOf = (project_id: string, n: number): Line[] =>
  [
    project({ name: `Project ${n}, renamed` }),
    group({ name: `Group ${n}, renamed` }),
    module({ title: `Quiz ${n}, renamed`, group_id: 'g1' }),
    version(3, at(40 + n)),
    contact('c1', [{ key: 'crm', value: String(n) }], { created_at: at(2 * n) }),
    entry({ contact_id: n % 2 ? 'c1' : 'c2', updated_at: at(60 + n), entry_data: `{"n":${-n}}` }),
    custom('x4', 55 + n),
    view('v4', 56, 100 - n),
    // Equal lines are one event, whatever another project has under its id.
    view('v4', 56, 100 - n),
    custom('x5', 57, { custom_event_name: `swiped ${n}` }),
  ]
    .map((line) => ({ ...line, project_id }))
    // A published version cannot be published again.
    .filter(({ type }) => type !== 'module_version' || n % 2 === 0)

const interleaved = (...files: Line[][]): Line[] =>
  (files[0] ?? []).flatMap((_, i) => files.flatMap((file) => file.slice(i, i + 1)))

const linesOf = (text: string): Line[] =>
  text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))

const COPIES = Object.values(copiesOf('acme'))
const dumpAll = (pool: Parameters<typeof dump>[0], projects: string[]) =>
  Promise.all(projects.map((one) => dump(pool, one)))

async function twinsOf(url: string) {
  const db = connect(url, { max: 1 })
  const watermarks = await addTwins(db)
  await db.destroy()
  return watermarks
}

/** What a project exports that is alone in its database. */
async function exportedAlone(project_id: string, ...files: Line[][]): Promise<string> {
  await using database = await openDatabase()
  for (const file of files) await load(database.pool, file)
  return await dump(database.pool, project_id)
}

test('an export of a project with twins holds exactly what it holds without', async () => {
  const alone = await exportedAlone('acme', recordsOf('acme', 1))
  await using database = await openDatabase()
  await load(database.pool, recordsOf('acme', 1))
  const watermarks = await twinsOf(database.url)
  expect(await dump(database.pool)).toBe(alone)
  for (const copy of COPIES) {
    const lines = linesOf(await dump(database.pool, copy))
    expect(lines.flatMap((line) => foreignContent(copy, watermarks, {}, JSON.stringify(line), []))).toEqual([])
    expect(lines.length).toBeGreaterThan(linesOf(alone).length)
    // And everything of it, each contact with all of its identifiers.
    const exported = Object.entries(TABLES).map(([table, type]) => [
      table,
      lines.filter((line) => line.type === type).length,
    ])
    const identifiers = lines.flatMap((line) => (line.identifiers ?? []) as unknown[])
    exported.push(['contact_identifiers', identifiers.length])
    for (const [table, count] of exported) {
      const { rows } = await database.pool.query(`SELECT FROM ${table} WHERE project_id = $1`, [copy])
      expect([table, count]).toEqual([table, rows.length])
    }
  }
})

const TABLES = {
  groups: 'group',
  modules: 'module',
  module_versions: 'module_version',
  contacts: 'contact',
  entries: 'entry',
  events: 'event',
}

test('an export imported into a second project of the database changes nothing in the others', async () => {
  await using database = await openDatabase()
  await load(database.pool, recordsOf('acme', 1))
  await twinsOf(database.url)
  const before = await dumpAll(database.pool, ['acme', ...COPIES])
  const staging = linesOf(before[0] ?? '').map((line): Line => ({ ...line, project_id: 'staging' }))
  for (let time = 0; time < 2; time += 1) {
    await load(database.pool, staging)
    expect(await dumpAll(database.pool, ['acme', ...COPIES])).toEqual(before)
    expect(linesOf(await dump(database.pool, 'staging'))).toEqual(staging)
  }
})

test.each<[string, string, string]>([
  ['sorts after', 'acme', 'staging'],
  ['sorts before', 'acme', 'ACME-2'],
])('two projects in one file, of which the second %s, are as if each were alone', async (_, one, two) => {
  await using database = await openDatabase()
  await load(database.pool, recordsOf('third', 3))
  await load(database.pool, interleaved(recordsOf(one, 1), recordsOf(two, 2)))
  expect(linesOf(await dump(database.pool, one))).toEqual(linesOf(await exportedAlone(one, recordsOf(one, 1))))
  expect(linesOf(await dump(database.pool, two))).toEqual(linesOf(await exportedAlone(two, recordsOf(two, 2))))

  await load(database.pool, interleaved(changesOf(two, 2), changesOf(one, 1)))
  for (const [id, n] of [[one, 1] as const, [two, 2] as const]) {
    const alone = await exportedAlone(id, recordsOf(id, n), changesOf(id, n))
    expect(linesOf(await dump(database.pool, id))).toEqual(linesOf(alone))
  }
  expect(linesOf(await dump(database.pool, 'third'))).toEqual(
    linesOf(await exportedAlone('third', recordsOf('third', 3))),
  )
})

test('an import that updates a project leaves its twins as they are', async () => {
  await using database = await openDatabase()
  await load(database.pool, recordsOf('acme', 1))
  await twinsOf(database.url)
  const before = await dumpAll(database.pool, COPIES)
  await load(database.pool, changesOf('acme', 1))
  expect(await dumpAll(database.pool, COPIES)).toEqual(before)
  expect(await dump(database.pool)).toBe(await exportedAlone('acme', recordsOf('acme', 1), changesOf('acme', 1)))
})

describe('what only another project has', () => {
  /** All of it is missing in acme. */
  const foreign = [
    group({ group_id: 'g9' }),
    module({ module_id: 'm9', group_id: 'g9' }),
    version(1, at(0), { module_id: 'm9' }),
    version(9, at(0)),
    contact('c9', [{ key: 'contact_id', value: '"c8"' }]),
    entry({ entry_id: 'e9', contact_id: 'c9' }),
  ].map((line): Line => ({ ...line, project_id: 'staging' }))

  const MISSING = 'is stored or on an earlier line'
  const refused: [string, Line[], string][] = [
    [
      'the group of a module',
      [module({ module_id: 'new', group_id: 'g9' })],
      `/group_id: no group with this id ${MISSING}`,
    ],
    [
      'the module of a version',
      [version(1, at(0), { module_id: 'm9' })],
      `/module_id: no module with this id ${MISSING}`,
    ],
    [
      'the module of an entry',
      [entry({ entry_id: 'new', module_id: 'm9' })],
      `/module_id: no module with this id ${MISSING}`,
    ],
    [
      'the contact of an entry',
      [entry({ entry_id: 'new', contact_id: 'c9' })],
      `/contact_id: no contact with this id ${MISSING}`,
    ],
    ['the entry of an event', [view('new', 1, 1, { entry_id: 'e9' })], `/entry_id: no entry with this id ${MISSING}`],
    [
      'the version of an event',
      [custom('new', 1, { module_version_number: 9 })],
      '/module_version_number: no such version',
    ],
    ['the published version of a module', [module({ module_id: 'm9' })], '/module_id: must have a published version'],
  ]

  type Opened = Awaited<ReturnType<typeof openDatabase>>
  let [without, stored]: Opened[] = []
  beforeAll(async () => {
    ;[without, stored] = [await openDatabase(), await openDatabase()]
    for (const { pool } of [without, stored]) await load(pool, [...recordsOf('acme', 1), ...recordsOf('staging', 2)])
    await load(stored.pool, foreign)
  })
  afterAll(() => Promise.all([without, stored].map((database) => database?.[Symbol.asyncDispose]())))
  const errorOf = (database: Opened | undefined, file: Line[]) =>
    load((database as Opened).pool, file).then(
      () => 'imported',
      (error: ImportError) => error.message,
    )

  test.each(refused)('is missing, stored or on an earlier line: %s', async (_, lines, issue) => {
    expect(await errorOf(stored, lines)).toContain(`line 1: ${issue}`)
    expect(await errorOf(without, [...foreign, ...lines])).toContain(`line ${foreign.length + 1}: ${issue}`)
  })

  const claim = contact('new', [{ key: 'contact_id', value: '"c9"' }])
  const claimed = contact('c8')
  test.each<[string, Line[]]>([
    ["a contact with the id that is this contact's identifier", [claim]],
    ["a contact's identifier with the id of this contact", [claimed]],
  ])('is no conflict, stored or on an earlier line: %s', async (_, lines) => {
    await using database = await openDatabase()
    await load(database.pool, [...recordsOf('acme', 1), ...recordsOf('staging', 2)])
    const { records } = await load(database.pool, [...foreign, ...lines])
    expect(records.contact.added).toBe(2)
    const again = await load(database.pool, [
      ...recordsOf('third', 3),
      ...lines.map((line) => ({ ...line, project_id: 'third' })),
    ])
    expect(again.records.contact.added).toBe(3)
  })

  test.each<[string, Line[], Line, string]>([
    ['is the id of another contact', [contact('c9')], claim, '/identifiers/0/value: is the id of another contact'],
    ["is another contact's identifier", [claim], contact('c9'), '/contact_id: is already the identifier'],
  ])('does not hide that an identifier %s', async (_, before, line, issue) => {
    await using database = await openDatabase()
    await load(database.pool, [...recordsOf('acme', 1), ...recordsOf('staging', 2), ...foreign])
    expect(await errorOf(database, [...before, line])).toContain(`line 2: ${issue}`)
    await load(database.pool, before)
    expect(await errorOf(database, [line])).toContain(`line 1: ${issue}`)
  })
})

test('lines of one file that are equal but for the project are records of their own', async () => {
  await using database = await openDatabase()
  const copy = (project_id: string) => recordsOf('acme', 1).map((line): Line => ({ ...line, project_id }))
  const summary = await load(database.pool, interleaved(copy('acme'), copy('staging')))
  const alone = toLines(linesOf(await exportedAlone('acme', copy('acme'))))
  expect(toLines(linesOf(await dump(database.pool)))).toBe(alone)
  expect(toLines(linesOf(await dump(database.pool, 'staging')))).toBe(alone.replaceAll('"acme"', '"staging"'))
  expect(summary.records.event).toEqual({ read: 14, added: 14, updated: 0, unchanged: 0 })
})
