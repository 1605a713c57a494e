/** Random projects, imported in any order, size and form, exported, and imported elsewhere. */
import fc from 'fast-check'
import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { progressAt, type Version, type View, versionInEffect, withTotals } from '../recording/model.ts'
import { asJsonLines, runs, TEST_OPTIONS } from '../support/properties.ts'
import {
  contact,
  custom,
  dump,
  dumped,
  entry,
  group,
  load,
  module,
  NOW,
  openDatabase,
  project,
  version,
  view,
} from './fixture.ts'

let first: Awaited<ReturnType<typeof openDatabase>>
let second: Awaited<ReturnType<typeof openDatabase>>
beforeAll(async () => {
  first = await openDatabase()
  second = await openDatabase(undefined, { isDistributed: true })
})
afterAll(async () => {
  await first[Symbol.asyncDispose]()
  await second[Symbol.asyncDispose]()
})

const at = (second: number) => `2026-02-01T00:00:0${second}.000Z`
const instant = fc.nat(9).map(at)
/** Text that JSON, COPY or a path could corrupt. */
const text = fc.string({
  unit: fc.constantFrom(
    'a',
    'A',
    '/',
    '\\',
    '\t',
    '\r',
    '\n',
    '"',
    "'",
    '\\N',
    '\u0001',
    '\u2028',
    'é',
    '🦉',
    '$1',
    '%',
  ),
  maxLength: 4,
})
const IDS = ['a', 'a/b', 'A', 'é', '🦉', '\\N']
const someOf = <T>(items: T[]) => fc.subarray(items, { minLength: 1 })

/** Lines of one project, sorted so that parents come first. */
const lines = fc
  .record({
    name: text,
    modules: someOf(IDS),
    publications: fc.array(fc.option(instant, { nil: undefined }), { maxLength: 3 }),
    contacts: someOf(IDS),
    identifiers: fc.uniqueArray(fc.record({ owner: fc.nat(), key: text, value: text }), {
      // More than a post may have.
      maxLength: 15,
      selector: ({ key, value }) => `${key}\0${value}`,
    }),
    entries: fc.array(fc.record({ module: fc.nat(), contact: fc.nat(), created_at: instant, data: text }), {
      maxLength: 5,
    }),
    events: fc.array(
      fc.record({
        entry: fc.nat(),
        timestamp: instant,
        page_index: fc.option(fc.nat(3), { freq: 4 }),
        total_pages: fc.constantFrom(undefined, null, 4, 5),
        name: text,
        hasId: fc.boolean(),
      }),
      { maxLength: 12 },
    ),
  })
  .map(({ name, modules, publications, contacts, identifiers, entries, events }) => {
    const published = [at(5), ...publications]
    const of = <T>(items: T[], i: number) => items[i % items.length] as T
    return {
      published: published.map((published_at, i): Version => ({ version_number: i + 1, published_at })),
      lines: [
        project({ name }),
        group({ name }),
        ...modules.map((module_id) => module({ module_id, title: name, created_at: at(0) })),
        ...modules.flatMap((module_id) =>
          published.map((published_at, i) =>
            version(i + 1, published_at, { module_id, json_string: JSON.stringify(name) }),
          ),
        ),
        ...contacts.map((id, i) => {
          const own = identifiers.filter(({ owner }) => owner % contacts.length === i)
          const spelt = own.map(({ key, value }) => ({ key: `k${key}`, value: JSON.stringify(`v${value}`) }))
          return contact(id, spelt, { created_at: at(i) })
        }),
        ...entries.map(({ module, contact, created_at, data }, i) => {
          const parents = { module_id: of(modules, module), contact_id: of(contacts, contact) }
          return entry({ entry_id: `e${i}`, ...parents, created_at, entry_data: JSON.stringify(data) })
        }),
        ...(entries.length === 0 ? [] : events).map(({ entry, timestamp, page_index, total_pages, name, hasId }, i) => {
          const common = { entry_id: `e${entry % entries.length}`, timestamp, total_pages }
          const id = hasId || page_index !== null ? `${(i * 5) % 12}` : undefined
          if (page_index === null)
            return custom(id, 0, { ...common, total_pages: undefined, custom_event_name: `n${i}` })
          return view(id as string, 0, page_index, { ...common, page_key: name })
        }),
      ],
    }
  })

const PARENTS_FIRST = ['project', 'group', 'module', 'module_version', 'contact', 'entry', 'event']
type Line = { type: string; project_id: string } & Record<string, unknown>
let projects = 0

/** The lines of an export without what depends on the project's id: the id itself, and the hashes of events without one. */
const linesOf = (exported: string, projectId: string) =>
  exported
    .replaceAll(`"project_id":"${projectId}"`, '')
    .replaceAll(/"event_id":"[\w-]{43}"/g, '')
    .split('\n')
    .sort()

const sizes = fc.record({
  batch_characters: fc.constantFrom(300, 100_000),
  chunk_pages: fc.constantFrom(1, 2, 1000),
  small_rows: fc.constantFrom(0, 1000),
})

test(
  'an export is the same for the same lines in any order and project, and imported elsewhere gives the same bytes',
  TEST_OPTIONS,
  async () => {
    const history = lines.chain(({ lines, published }) => {
      const shuffled = fc.shuffledSubarray(lines, { minLength: lines.length }).map((all) =>
        // Types stay in order: a record's parents are on earlier lines.
        all.toSorted((a, b) => PARENTS_FIRST.indexOf(a.type) - PARENTS_FIRST.indexOf(b.type)),
      )
      return fc.record({
        published: fc.constant(published),
        lines: fc.constant(lines),
        shuffled: asJsonLines(shuffled),
      })
    })
    await fc.assert(
      fc.asyncProperty(history, sizes, fc.boolean(), async ({ published, lines, shuffled }, sizes, isSwapped) => {
        const [from, to] = isSwapped ? [second, first] : [first, second]
        projects += 1
        const [one, other] = [`${projects}`, `${projects}/`]
        const own = (records: object[], project_id: string) => records.map((record) => ({ ...record, project_id }))
        // Both in one file, line by line.
        const file = own(lines, one).flatMap((line, i) => [line, own(shuffled, other)[i] as object])
        const mixed = file.toSorted(
          (a, b) => PARENTS_FIRST.indexOf((a as Line).type) - PARENTS_FIRST.indexOf((b as Line).type),
        )
        await load(from.pool, mixed, { now: NOW, sizes })
        const exported = await dump(from.pool, one)
        expect(linesOf(await dump(from.pool, other), other)).toEqual(linesOf(exported, one))

        await load(to.pool, [exported.trimEnd()], { now: NOW, sizes })
        expect(await dump(to.pool, one)).toBe(exported)
        await load(to.pool, [...own(lines, one)], { now: NOW })
        expect(await dump(to.pool, one)).toBe(exported)

        await expectDerived(from.pool, one, published, lines)
      }),
      runs(10),
    )
  },
)

/** The versions and furthest pages of the stored events are what the model makes of the lines. */
async function expectDerived(pool: pg.Pool, projectId: string, published: Version[], lines: object[]): Promise<void> {
  const views = lines.filter((line) => 'view_type' in line) as unknown as View[]
  for (const event of await dumped(pool, 'event', projectId)) {
    const ofEntry = withTotals(views.filter(({ entry_id }) => entry_id === event.entry_id))
    const { max_page_index, total } = progressAt(ofEntry, String(event.timestamp))
    const given = views.find(({ event_id }) => event_id === event.event_id)?.total_pages
    expect(event).toMatchObject({
      module_version_number: versionInEffect(published, String(event.timestamp)),
      max_page_index,
      // A line keeps the total that it gives, whatever a later view at the same time gives.
      total_pages: given === undefined ? total : given,
    })
  }
}
