import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { parseKey, SCOPES } from '../../src/domain/api-key.ts'
import { toIsoTimestamp } from '../../src/domain/timestamp.ts'
import type { OperationId } from '../../src/http/operations.ts'
import { createTestApp, insertErasures, type TestApp, withExamples } from '../support/app.ts'
import { type Rows, rowsOf } from '../support/database.ts'
import { copiesOf, markOf } from '../support/twins.ts'

// Each project reads exactly its own rows, although others have rows with the same ids or with ids that are easily mistaken.

type Body = Record<string, unknown>

const COPIES = copiesOf('demo')
const PROJECTS = ['demo', ...Object.values(COPIES), 'other', ...Object.values(copiesOf('other'))]
const at = (second: number) => new Date(Date.UTC(2026, 3, 1, 0, 0, second)).toISOString()

/** More rows for project demo: ids with composed characters, ties, entries of one contact, an unpublished version. */
function* records(): Generator<object> {
  const of = { project_id: 'demo' }
  const module = { ...of, module_id: 'Crème/1' }
  yield { type: 'module', ...module, group_id: 'growth', title: 'Crème', created_at: at(0) }
  for (const version_number of [1, 2, 3, 4]) {
    // The version last published is not the one with the greatest number, which is not published at all.
    const published_at = version_number === 4 ? undefined : at(30 - version_number)
    yield { type: 'module_version', ...module, version_number, saved_at: at(0), published_at, json_string: '{}' }
  }
  yield { type: 'contact', ...of, contact_id: 'c-é', created_at: at(0), identifiers: [{ key: 'crm', value: '7' }] }
  for (const entry_id of ['e-é', 'f', 'g']) {
    const entry = { ...of, entry_id, module_id: 'Crème/1', contact_id: 'c-é' }
    yield { type: 'entry', ...entry, created_at: at(0), updated_at: at(1), entry_data: '{}' }
    for (let i = 0; i < 4; i += 1) {
      const event = { event_id: `${entry_id}${i}`, timestamp: at(Math.floor(i / 2)), event_type: 'flowpage.viewed' }
      const view = { view_type: 'flowpage', page_id: `p${i}`, page_key: 'k', page_index: 3 - i, total_pages: 4 }
      yield { type: 'event', ...of, entry_id, ...event, ...view }
    }
  }
}

const ERASURES = [1, 2, 3].map((position) => ({
  ...{ erasure_id: `erased-${position}`, position, contact_id: 'c-è', entry_ids: ['h', 'i'].slice(position - 1) },
  erased_at: toIsoTimestamp(new Date(at(position))),
}))

let api: TestApp
const keys = new Map<string, string>()
const rows = new Map<string, Rows>()

beforeAll(async () => {
  api = await createTestApp({
    fill: async (url, db) => {
      await withExamples(records())(url, db)
      await insertErasures(db, 'demo', ERASURES)
      await insertErasures(db, 'other', ERASURES)
    },
  })
  for (const project of PROJECTS) {
    keys.set(project, await createKey(api.db, project, { name: '', scopes: SCOPES, expires_at: null }))
    rows.set(project, await rowsOf(api.db, project))
  }
})
afterAll(() => api.close())

const path = (project: string, ...segments: (string | number)[]) =>
  `/projects/${[project, ...segments].map((segment) => encodeURIComponent(segment)).join('/')}`

const bytes = (text: string) => Buffer.from(text)
type Sortable = string | number
/** Sorted by keys of texts, compared byte by byte, and numbers. */
function sorted<Row>(all: Row[], keyOf: (row: Row) => Sortable[], direction: 'ASC' | 'DESC' = 'ASC'): Row[] {
  const compare = (a: Sortable, b: Sortable) =>
    typeof a === 'number' ? a - Number(b) : bytes(a).compare(bytes(String(b)))
  const result = all.toSorted((a, b) => {
    const [left, right] = [keyOf(a), keyOf(b)]
    return left.map((value, i) => compare(value, right[i] as Sortable)).find((order) => order !== 0) ?? 0
  })
  return direction === 'ASC' ? result : result.reverse()
}

const pick = <Row extends object>(row: Row, ...columns: (keyof Row)[]) =>
  Object.fromEntries(columns.map((column) => [column, row[column]]))

/** The fields that entries and events have from their entry and its module. */
function contextOf({ modules }: Rows, entry: Rows['entries'][number]): Body {
  const module = modules.find(({ module_id }) => module_id === entry.module_id)
  return { ...pick(entry, 'entry_id', 'contact_id', 'project_id', 'module_id'), group_id: module?.group_id }
}

const withoutNulls = (body: Body) => Object.fromEntries(Object.entries(body).filter(([, value]) => value !== null))

type Expectation = [path: string, body: Body | Body[]]
const DIRECTIONS = ['ASC', 'DESC'] as const

/** What each read of a project has to return, by its rows: the paths of all its ids, and the body, all pages joined. */
const EXPECTED: Record<
  Exclude<OperationId, 'recordCustomEvent' | 'recordCustomEvents' | 'importRecords'>,
  (project: string, own: Rows) => Expectation[]
> = {
  listModules: (project, { modules }) => [
    [
      path(project, 'modules'),
      sorted(modules, (row) => [row.created_at, row.module_id], 'DESC').map((row) =>
        pick(row, 'module_id', 'title', 'group_id', 'project_id'),
      ),
    ],
  ],
  getModule: (project, { modules, module_versions }) =>
    modules.map((row) => {
      const published = module_versions.filter((version) => version.module_id === row.module_id && version.published_at)
      const last = sorted(published, (version) => [version.published_at ?? '', version.version_number]).at(-1)
      const body = { ...pick(row, 'module_id', 'title', 'group_id', 'project_id'), json_string_prod: last?.json_string }
      return [path(project, 'modules', row.module_id), body]
    }),
  listModuleVersions: (project, { modules, module_versions }) =>
    modules.flatMap(({ module_id }) =>
      DIRECTIONS.map((direction): Expectation => {
        const own = module_versions.filter((version) => version.module_id === module_id)
        const list = sorted(own, (version) => [version.version_number], direction)
        return [
          `${path(project, 'modules', module_id, 'versions')}?direction=${direction}&limit=2`,
          list.map((version) => pick(version, 'module_id', 'version_number', 'saved_at')),
        ]
      }),
    ),
  getModuleVersion: (project, { module_versions }) =>
    module_versions.map((row) => [
      path(project, 'modules', row.module_id, 'versions', row.version_number),
      pick(row, 'module_id', 'version_number', 'saved_at', 'json_string'),
    ]),
  getEntry: (project, own) =>
    own.entries.map((row) => [
      path(project, 'entries', row.entry_id),
      { ...contextOf(own, row), ...pick(row, 'created_at', 'updated_at', 'entry_data') },
    ]),
  listEntryEvents: (project, own) =>
    own.entries.flatMap((entry) =>
      DIRECTIONS.map((direction): Expectation => {
        const events = own.events.filter(({ entry_id }) => entry_id === entry.entry_id)
        const list = sorted(events, (event) => [event.timestamp, event.event_id], direction)
        return [
          `${path(project, 'entries', entry.entry_id, 'events')}?direction=${direction}&limit=2`,
          list.map(({ position: _, recorded_at: __, ...event }) =>
            withoutNulls({ ...event, ...contextOf(own, entry) }),
          ),
        ]
      }),
    ),
  listProjectEvents: (project, own) =>
    DIRECTIONS.map((direction) => [
      `${path(project, 'events')}?direction=${direction}&limit=2`,
      sorted(own.events, (event) => [event.position], direction).map((event) => {
        const entry = own.entries.find(({ entry_id }) => entry_id === event.entry_id)
        return withoutNulls({ ...event, ...contextOf(own, entry as Rows['entries'][number]) })
      }),
    ]),
  listErasures: (project, own) =>
    DIRECTIONS.map((direction) => [
      `${path(project, 'erasures')}?direction=${direction}&limit=2`,
      sorted(own.erasures, (row) => [row.position], direction).map(({ project_id: _, ...row }) => row),
    ]),
  listEntries: (project, own) =>
    DIRECTIONS.map((direction) => [
      `${path(project, 'entries')}?direction=${direction}&limit=2`,
      sorted(own.entries, (row) => [row.updated_at, row.entry_id], direction).map((row) => ({
        ...contextOf(own, row),
        ...pick(row, 'created_at', 'updated_at', 'entry_data'),
      })),
    ]),
  listEntryPageViews: (project, own) =>
    DIRECTIONS.map((direction) => {
      const body = sorted(own.entries, (row) => [row.updated_at, row.entry_id], direction).map((entry) => {
        const views = own.events.filter((event) => event.entry_id === entry.entry_id && event.page_index !== null)
        return {
          ...contextOf(own, entry),
          ...pick(entry, 'created_at', 'updated_at'),
          page_views: sorted(views, (view) => [view.timestamp, view.event_id]).map((view) =>
            pick(view, 'timestamp', 'page_id', 'page_key', 'page_index'),
          ),
        }
      })
      return [`${path(project, 'entries-page-views')}?direction=${direction}&limit=2`, body]
    }),
}

/** The body of a GET; that of a list from all pages. */
async function read(project: string, first: string): Promise<unknown> {
  const pages: Body[] = []
  for (let next: string | undefined = first; next !== undefined; ) {
    const { statusCode, body, headers } = await api.call({ path: next, key: keys.get(project) })
    expect(statusCode, `${project} ${next} ${body}`).toBe(200)
    if (!body.startsWith('[')) return JSON.parse(body)
    pages.push(...JSON.parse(body))
    next = /^<(\/[^>]+)>; rel="next"$/.exec(String(headers.link))?.[1]
  }
  return pages
}

test('the copies of a project have its ids and other content', () => {
  const [own, twin, collider] = ['demo', COPIES.before, COPIES.collider].map((project) => rows.get(project) as Rows)
  const idsOf = (all?: Rows) => all?.modules.map(({ module_id }) => module_id)
  expect(idsOf(twin)).toEqual(expect.arrayContaining(idsOf(own) ?? []))
  expect(idsOf(collider)).toEqual(
    expect.arrayContaining(['oskin-quiz', 'SKIN-QUIZ', 'skin-qui', 'skin-quiz/', 'Crème/1'.normalize('NFD')]),
  )
  for (const { title } of twin?.modules ?? []) expect(title).toContain(markOf(COPIES.before))
})

describe.each(Object.entries(EXPECTED))('%s', (_, expected) => {
  test('returns each project exactly its own rows, one request after another', async () => {
    const calls = PROJECTS.flatMap((project) =>
      expected(project, rows.get(project) as Rows).map((expectation) => [project, ...expectation] as const),
    )
    expect(calls.length).toBeGreaterThanOrEqual(8)
    for (const [project, first, body] of calls) expect(await read(project, first), first).toEqual(body)
  })

  test('returns each project exactly its own rows, all requested at once', async () => {
    const calls = PROJECTS.flatMap((project) =>
      expected(project, rows.get(project) as Rows).map((expectation) => [project, ...expectation] as const),
    )
    const bodies = await Promise.all(calls.map(([project, first]) => read(project, first)))
    expect(bodies).toEqual(calls.map(([, , body]) => body))
  })
})

const NOT_FOUND = { module: 'module_does_not_exist', entry: 'entry_not_found' }
const RESOURCES: [keyof typeof NOT_FOUND, string, string[]][] = [
  ['module', 'modules', []],
  ['module', 'modules', ['versions']],
  ['module', 'modules', ['versions', '1']],
  ['entry', 'entries', []],
  ['entry', 'entries', ['events']],
]

test.each(RESOURCES)('no project finds a %s that only another has (%s %s)', async (kind, collection, rest) => {
  const idsOf = (project: string) => {
    const { modules, entries } = rows.get(project) as Rows
    return kind === 'module' ? modules.map(({ module_id }) => module_id) : entries.map(({ entry_id }) => entry_id)
  }
  const everyId = new Set(PROJECTS.flatMap(idsOf))
  const absent = PROJECTS.flatMap((project) =>
    [...everyId.difference(new Set(idsOf(project)))].map((id) => ({ project, id })),
  )
  const responses = await Promise.all(
    absent.map(({ project, id }) => api.call({ path: path(project, collection, id, ...rest), key: keys.get(project) })),
  )
  const found = responses.filter((response) => response.json().error?.code !== NOT_FOUND[kind])
  expect(found.map(({ body }) => body)).toEqual([])
  expect(responses.length).toBeGreaterThan(50)
})

test.each(RESOURCES)(
  'a project and a %s id that are as text the same as another pair are another pair',
  async (kind, collection, rest) => {
    const id = kind === 'module' ? 'skin-quiz' : 'f'
    const pairs = [
      ['demo', `x/${id}`, 404],
      [COPIES.after, id, 200],
      ['demo', `x/${id}`, 404],
      [COPIES.collider, `o${id}`, 200],
      ['demo', id, 200],
      [COPIES.collider, `o${id}`, 200],
    ] as const
    const responses = await Promise.all(
      pairs.map(([project, id]) => api.call({ path: path(project, collection, id, ...rest), key: keys.get(project) })),
    )
    expect(responses.map(({ statusCode }) => statusCode)).toEqual(pairs.map(([, , status]) => status))
  },
)

test('a key gives access to its own project alone, even while it is in use there', async () => {
  for (const [owner, key] of keys) {
    expect((await api.call({ path: path(owner, 'modules'), key })).statusCode).toBe(200)
    for (const project of PROJECTS.filter((other) => other !== owner)) {
      expect((await api.call({ path: path(project, 'modules'), key })).statusCode).toBe(401)
    }
  }
})

test("the use of a key is not recorded for another project's key with the same id", async () => {
  const key_id = parseKey(api.key)?.key_id ?? ''
  const uses = () =>
    api.db.selectFrom('api_keys').select(['project_id', 'last_used_at']).where('key_id', '=', key_id).execute()
  await api.call({ path: path('demo', 'modules') })
  await expect
    .poll(async () => (await uses()).find(({ project_id }) => project_id === 'demo')?.last_used_at)
    .toBeTruthy()
  const others = (await uses()).filter(({ project_id }) => project_id !== 'demo')
  expect(others.length).toBe(3)
  expect(others.map(({ last_used_at }) => last_used_at)).toEqual([null, null, null])
})
