/** Random histories of a project, recorded by the service and by the model of docs/semantics.md, side by side. */
import fc from 'fast-check'
import type pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openWritePool } from '../../src/database/open.ts'
import { createPool } from '../../src/database/pool.ts'
import { toApiError } from '../../src/http/error-handler.ts'
import { Recorder } from '../../src/recording/recorder.ts'
import { isOnCitus } from '../support/citus.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { asJsonLines, runs, TEST_OPTIONS } from '../support/properties.ts'
import { load } from '../transfer/fixture.ts'
import { contact, entry, module, pageView, parsedEvent, version } from './fixture.ts'
import { Project, type RecordedEvent, type Response } from './model.ts'

let database: TestDatabase
let pool: pg.Pool
let importPool: pg.Pool
/** So small that posts sent together also end up in different batches. */
const SETTINGS = { maxBatchSize: 3 }
/** In both forms of the queries, of which a cluster has one. */
const recorders: Recorder[] = []
beforeAll(async () => {
  database = await createTestDatabase()
  importPool = createPool(database.url, { max: 1 })
  pool = openWritePool(database.url, { max: 4 })
  for (const isDistributed of isOnCitus ? [true] : [false, true])
    recorders.push(new Recorder(pool, { ...SETTINGS, isDistributed }))
})
afterAll(async () => {
  await pool.end()
  await importPool.end()
  await database.drop()
})

/** So few that many coincide. */
const at = (second: number) => `2026-02-01T00:00:0${second}.000Z`
const second = fc.nat(5)

/** Spellings of a few values, each with what it means. */
const VALUES: [value: string, meaning: string][] = [
  ['"a"', 'string:a'],
  ['"\\u0061"', 'string:a'],
  ['"A"', 'string:A'],
  ['1', 'number 1'],
  [' 1', 'number 1'],
  ['10e-1\n', 'number 1'],
  [' 2', 'number 2'],
  ['2.0', 'number 2'],
  ['-2', 'number -2'],
  ['"1"', 'string:1'],
  ['true', 'true'],
  ['"c1"', 'string:c1'],
  ['"\\u0063\\u0032"', 'string:c2'],
  ['"nobody"', 'string:nobody'],
]
const C1 = VALUES.findIndex(([, meaning]) => meaning === 'string:c1')
/** What the imported contacts are known by, besides their ids. */
const IMPORTED = { c1: ['"a"', 'string:a'], c2: [' 2', 'number 2'] } as const

/** An identifier of the key contact_id can also hold the id that the service gave to the contact of an earlier post. */
const identifier = fc.oneof(
  // Often an imported contact, which has entries and page views.
  { weight: 12, arbitrary: fc.constant({ key: 'contact_id', value: C1 }) },
  {
    weight: 8,
    arbitrary: fc.record({ key: fc.constantFrom('email', 'phone', 'contact_id'), value: fc.nat(VALUES.length - 1) }),
  },
  { weight: 1, arbitrary: fc.record({ key: fc.constant('contact_id'), ofPost: fc.nat(5) }) },
)
const post = fc.record({
  project: fc.nat(1),
  module_id: fc.oneof(
    { weight: 9, arbitrary: fc.constantFrom('m1', 'm1', 'm2') },
    { weight: 1, arbitrary: fc.constant('absent') },
  ),
  second,
  name: fc.constantFrom('x', 'y'),
  props: fc.constantFrom('{}', '{ }'),
  identifiers: fc.uniqueArray(identifier, { minLength: 1, maxLength: 3, selector: ({ key }) => key }),
  key: fc.option(fc.constantFrom('K', 'k'), { nil: undefined, freq: 2 }),
})
const views = fc.array(
  fc.record({
    entry: fc.nat(5),
    second,
    page_index: fc.nat(3),
    total_pages: fc.constantFrom(undefined, null, 5, 6),
  }),
  { maxLength: 16 },
)
/** Posts sent together, an earlier post sent again twice at once, or an import. */
const step = fc.oneof(
  { weight: 8, arbitrary: fc.record({ posts: fc.array(post, { minLength: 1, maxLength: 6 }) }) },
  { weight: 3, arbitrary: fc.record({ again: fc.nat(9), key: fc.constantFrom('K', 'k') }) },
  { weight: 1, arbitrary: fc.record({ entry: fc.record({ contact: fc.constantFrom('c1', 'c2'), second }), views }) },
)
const start = fc.record({
  versions: fc.array(fc.option(second, { nil: undefined, freq: 3 }), { maxLength: 4 }),
  entries: fc.array(
    fc.record({
      contact: fc.constantFrom('c1', 'c1', 'c1', 'c2'),
      module_id: fc.constantFrom('m1', 'm1', 'm1', 'm2'),
      second,
    }),
    { minLength: 2, maxLength: 6 },
  ),
  views,
})
type Start = typeof start extends fc.Arbitrary<infer T> ? T : never
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never
type PostStep = typeof post extends fc.Arbitrary<infer T> ? T : never

let histories = 0

/** A history in two projects that begin alike, with the model of each. */
class History {
  readonly projectIds: string[]
  readonly models: Project[]
  /** The service's ids by those of the model. */
  readonly ids = new Map<string, string>()
  readonly eventIds = new Map<RecordedEvent, string>()
  readonly #recorder: Recorder
  readonly #sent: { post: PostStep; contact_id?: string }[] = []
  #entries = 0
  #views = 0
  #new = 0

  constructor() {
    histories += 1
    this.#recorder = recorders[histories % recorders.length] as Recorder
    this.projectIds = ['a', 'b'].map((name) => `${histories}-${name}`)
    // A new id sorts before the imported ones, as a UUIDv7 of this century does.
    this.models = this.projectIds.map(() => new Project((kind) => `0-${kind}-${this.#new++}`))
  }

  async begin({ versions, entries, views }: Start): Promise<void> {
    // The first is always published: every module must have a published version.
    const published = [5, ...versions].map((second) => (second === undefined ? undefined : at(second)))
    const modules = ['m1', 'm2'].flatMap((module_id) => [
      module(module_id, 'g'),
      ...published.map((published_at, i) => version(module_id, i + 1, published_at)),
    ])
    const contacts = Object.entries(IMPORTED).map(([id, [value]]) => contact(id, { key: 'email', value }))
    for (const model of this.models) {
      for (const id of ['m1', 'm2'])
        model.versions.set(
          id,
          published.map((published_at, i) => ({ version_number: i + 1, published_at })),
        )
      for (const [contact_id, [value, meaning]] of Object.entries(IMPORTED)) {
        model.contacts.push(contact_id)
        model.identifiers.push({ contact_id, key: 'email', value, meaning })
      }
    }
    for (const id of Object.keys(IMPORTED)) this.ids.set(id, id)
    await this.#import(
      [{ type: 'group', group_id: 'g' }, ...modules, ...contacts],
      entries.map(({ contact, module_id, second }) => ({ contact, module_id, second })),
      views,
    )
  }

  async #import(records: object[], entries: Start['entries'], views: Start['views']): Promise<void> {
    const newEntries = entries.map(({ contact: contact_id, module_id, second }) => {
      const entry_id = `e${this.#entries++}`
      this.ids.set(entry_id, entry_id)
      return { entry_id, contact_id, module_id, created_at: at(second) }
    })
    const newViews = views
      .filter((view) => view.entry < this.#entries)
      // Ids in another order than the views.
      .map(({ entry, second, page_index, total_pages }, i) => ({
        event_id: `v${(views.length - i) % 3}-${this.#views++}`,
        ...{ entry_id: `e${entry}`, timestamp: at(second), page_index, total_pages },
      }))
    const lines = [
      { type: 'project' },
      ...records,
      ...newEntries.map((one) => entry(one.entry_id, one.contact_id, one.module_id, one.created_at)),
      ...newViews.map((one) => ({
        ...pageView(one.entry_id, one.event_id, one.timestamp, one.page_index, null),
        total_pages: one.total_pages,
      })),
    ]
    await load(
      importPool,
      this.projectIds.flatMap((project_id) => lines.map((line) => ({ ...line, project_id }))),
    )
    for (const model of this.models) {
      model.entries.push(...newEntries)
      model.addViews(newViews)
    }
  }

  async take(step: Step): Promise<void> {
    if ('posts' in step) return this.#post(step.posts)
    if ('entry' in step) return this.#import([], [{ ...step.entry, module_id: 'm1' }], step.views)
    const earlier = this.#sent[step.again]?.post
    if (!earlier) return
    const again = { ...earlier, identifiers: earlier.identifiers.toReversed(), key: step.key }
    await this.#post([again, again])
  }

  async #post(posts: PostStep[]): Promise<void> {
    const sent = posts.map((post) => {
      const { module_id, name, props } = post
      const identifiers = post.identifiers.map((one) => {
        if ('value' in one) {
          const [value, meaning] = VALUES[one.value] as [string, string]
          return { key: one.key, value, meaning, posted: value }
        }
        // Of the model's ids only it knows; to the service the same contact has another.
        const model = this.#sent[one.ofPost]?.contact_id ?? 'nobody'
        const posted = JSON.stringify(this.ids.get(model) ?? model)
        return { key: one.key, value: posted, meaning: `string:${model}`, posted }
      })
      return {
        post,
        body: { module_id, timestamp: at(post.second), name, props, identifiers, idempotency_key: post.key },
      }
    })
    const outcomes = await Promise.all(
      sent.map(({ post, body: { name, props, identifiers, ...body } }) =>
        this.#recorder
          .record(
            this.projectIds[post.project] as string,
            parsedEvent({
              ...{ module_id: body.module_id, timestamp: body.timestamp },
              ...{ custom_event_name: name, custom_event_props: props },
              identifiers: identifiers.map(({ key, posted }) => ({ key, value: posted })),
            }),
            post.key,
          )
          .catch((error: unknown) => ({ refused: toApiError(error).errorCode })),
      ),
    )
    for (const [i, { post, body }] of sent.entries()) {
      const response = (this.models[post.project] as Project).record({
        ...body,
        identifiers: body.identifiers.map(({ key, value, meaning }) => ({ key, value, meaning })),
      })
      const outcome = outcomes[i] as (typeof outcomes)[number]
      if ('recorded' in response && 'body' in outcome) {
        // What is new has its own id in the service, the same one in every later response.
        const { contact_id, entry_id } = response.recorded
        if (!this.ids.has(contact_id)) this.ids.set(contact_id, outcome.body.contact_id)
        if (!this.ids.has(entry_id)) this.ids.set(entry_id, outcome.body.entry_id)
        if (!this.eventIds.has(response.recorded)) this.eventIds.set(response.recorded, outcome.body.event_id)
        this.#sent.push({ post, contact_id })
      } else this.#sent.push({ post })
      expect(outcome).toEqual(this.#asService(response, this.projectIds[post.project] as string))
    }
  }

  #asService(response: Response, project_id: string) {
    if ('refused' in response) return response
    const { recorded, replayed } = response
    const { module_id, timestamp, module_version_number, name, props } = recorded
    const body = {
      event_id: this.eventIds.get(recorded),
      group_id: 'g',
      ...{ project_id, module_id, module_version_number },
      contact_id: this.ids.get(recorded.contact_id),
      entry_id: this.ids.get(recorded.entry_id),
      timestamp,
      event_type: 'custom_event:triggered',
      custom_event_name: name,
      custom_event_props: props,
    }
    return { body, replayed }
  }

  /** What is stored is what the model has. */
  async compare(): Promise<void> {
    const rowsOf = async (sql: string, projectId: string) =>
      (await importPool.query({ text: sql, values: [projectId], rowMode: 'array' })).rows
    for (const [i, projectId] of this.projectIds.entries()) {
      const model = this.models[i] as Project
      const identifiers = model.identifiers.map(({ contact_id, key, value }) => [this.ids.get(contact_id), key, value])
      const sql = 'SELECT contact_id, key, value FROM contact_identifiers WHERE project_id = $1'
      expect((await rowsOf(sql, projectId)).sort()).toEqual(identifiers.sort())
      const entries = model.entries.map((one) => [
        ...[this.ids.get(one.entry_id), this.ids.get(one.contact_id)],
        ...[one.module_id, one.created_at],
      ])
      expect(
        (
          await rowsOf(
            'SELECT entry_id, contact_id, module_id, created_at FROM entries WHERE project_id = $1',
            projectId,
          )
        ).sort(),
      ).toEqual(entries.sort())
      // In the order of their positions, which is that in which they were recorded.
      const events = model.events.map((event) => [
        this.eventIds.get(event),
        ...[this.ids.get(event.entry_id), event.timestamp, event.module_version_number, event.name, event.props],
        ...[event.max_page_index, event.max_page_event ? `page-of-${event.max_page_event}` : null, event.total],
      ])
      const stored = await rowsOf(
        `SELECT event_id, entry_id, timestamp, module_version_number, custom_event_name, custom_event_props, max_page_index,
           max_page_id, total_pages FROM events WHERE project_id = $1 AND custom_event_name IS NOT NULL ORDER BY position`,
        projectId,
      )
      expect(stored).toEqual(events)
    }
  }
}

test('recording does what the model of the rules does, for any history', TEST_OPTIONS, async () => {
  const steps = asJsonLines(fc.array(step, { minLength: 1, maxLength: 8 }))
  await fc.assert(
    fc.asyncProperty(start, steps, async (start, steps) => {
      const history = new History()
      await history.begin(start)
      for (const step of steps) await history.take(step)
      await history.compare()
    }),
    runs(30),
  )
})
