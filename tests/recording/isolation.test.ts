import fc from 'fast-check'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { openWritePool } from '../../src/database/open.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { toApiError } from '../../src/http/error-handler.ts'
import { keyInProject } from '../../src/recording/contacts.ts'
import type { ParsedEvent } from '../../src/recording/custom-event.ts'
import type { Recorder } from '../../src/recording/recorder.ts'
import { createTestApp, importInto, type TestApp } from '../support/app.ts'
import { rowsOf } from '../support/database.ts'
import { runs } from '../support/properties.ts'
import { copiesOf } from '../support/twins.ts'
import {
  contact,
  customEvent,
  entry,
  fillFixture,
  freshValue,
  IMPORTED_CONTACT,
  IMPORTED_ENTRY,
  module,
  pageView,
  parsedEvent,
  recorderOn,
  version,
} from './fixture.ts'
import { entryInEffect, progressAt, versionInEffect } from './model.ts'

// Events of several projects share a batch, and the projects have rows with the same ids (tests/support/twins.ts).

const COPIES = copiesOf('demo')
const PROJECTS = ['demo', COPIES.before, COPIES.after, COPIES.collider]
/** Ids that two pairs of a contact and a module have in common once they are joined. */
const SEPARATORS = ['', '/', ':', ',', '|', ' ', '-', '.', '_', '"', '","']

let api: TestApp
let pool: pg.Pool
let recorder: Recorder
beforeAll(async () => {
  api = await createTestApp({
    fill: async (url) => {
      await fillFixture(url)
      await importInto(url, [
        version('quiz', 2, '2026-01-20T00:00:00Z'),
        version('quiz', 3, '2026-01-15T00:00:00Z'),
        entry('later-entry', IMPORTED_CONTACT, 'quiz', '2026-01-12T00:00:00Z'),
        pageView(IMPORTED_ENTRY, 'v1', '2026-01-11T00:00:00Z', 3, 7),
        pageView(IMPORTED_ENTRY, 'v2', '2026-01-11T00:01:00Z', 1, 8),
        pageView('later-entry', 'v3', '2026-01-14T00:00:00Z', 2, null),
        contact('c'),
        ...SEPARATORS.map((separator) => contact(`c${separator}x`)),
        module('y'),
        version('y', 1, '2026-01-05T00:00:00Z'),
        ...SEPARATORS.flatMap((separator) => [
          module(`x${separator}y`),
          version(`x${separator}y`, 1, '2026-01-05T00:00:00Z'),
        ]),
      ])
    },
  })
  pool = openWritePool(api.databaseUrl, { max: 2 })
  recorder = recorderOn(pool)
})
afterAll(async () => {
  await pool.end()
  await api.close()
})

interface Post {
  project: string
  event: ParsedEvent
  key?: string
}

/** Records events that share one batch. Resolves to the results. */
async function recordTogether(posts: Post[]) {
  const connect = vi.spyOn(pool, 'connect')
  const results = await Promise.all(posts.map(({ project, event, key }) => recorder.record(project, event, key)))
  expect(connect).toHaveBeenCalledTimes(1)
  connect.mockRestore()
  return results
}

/** What docs/semantics.md says of an event of a project, by the project's rows; `entry_id` is undefined for a new entry. */
async function expectedOf({ project, event }: Post) {
  const { contact_identifiers, entries, events, modules, module_versions } = await rowsOf(api.db, project)
  const { timestamp, module_id } = event
  const named = event.identifiers.find(({ key }) => key === 'contact_id')
  const digest = event.identifiers[0]?.digest.toString('hex')
  const contact_id: string | undefined = named
    ? JSON.parse(named.value)
    : contact_identifiers.find((one) => one.digest.toString('hex') === digest)?.contact_id

  const entry = entryInEffect(
    entries.filter((one) => one.contact_id === contact_id && one.module_id === module_id),
    timestamp,
  )
  const views = events.flatMap(({ event_type, page_index, ...one }) =>
    event_type === 'flowpage.viewed' && one.entry_id === entry?.entry_id
      ? [{ ...one, page_index: page_index ?? 0 }]
      : [],
  )
  const { max_page_index, max_page_event, total } = progressAt(views, timestamp)
  const furthest = views.find(({ event_id }) => event_id === max_page_event)
  return {
    contact_id,
    entry_id: entry?.entry_id,
    group_id: modules.find((one) => one.module_id === module_id)?.group_id,
    module_version_number: versionInEffect(
      module_versions
        .filter((one) => one.module_id === module_id)
        .map(({ version_number, published_at }) => ({ version_number, published_at: published_at ?? undefined })),
      timestamp,
    ),
    max_page_id: furthest?.page_id ?? null,
    max_page_key: furthest?.page_key ?? null,
    max_page_index,
    total_pages: total,
  }
}

const email = [{ key: 'email', value: '"imported@example.com"' }]
const byId = (id: string) => [{ key: 'contact_id', value: JSON.stringify(id) }]

let names = 0
/** Equal events of all projects but for their names, for each identifier, module and time. */
function equalPosts(identifiers: { key: string; value: string }[], module_id: string, timestamp: string): Post[] {
  const custom_event_name = `equal ${++names}`
  const event = parsedEvent({ identifiers, module_id, timestamp, custom_event_name })
  return PROJECTS.map((project) => ({ project, event }))
}

/** What is stored of an event, with the contact of its entry. */
const stored = ({ project, event }: Post) =>
  api.db
    .selectFrom('events as v')
    .innerJoin('entries as e', (join) =>
      join.onRef('e.project_id', '=', 'v.project_id').onRef('e.entry_id', '=', 'v.entry_id'),
    )
    .selectAll('v')
    .select(['e.contact_id', 'e.module_id'])
    .where('v.project_id', '=', project)
    .where('v.custom_event_name', '=', event.custom_event_name)
    .execute()

const MARKED_QUIZ = `quiz@of ${COPIES.before}@`

describe('equal events of several projects in one batch', () => {
  test.each([
    ['a common identifier', email, 'quiz', '2026-02-01T00:00:00Z'],
    ['a common identifier, before the second entry', email, 'quiz', '2026-01-11T12:00:00Z'],
    ['a common identifier, before all', email, 'quiz', '2025-01-01T00:00:00Z'],
    ["a contact's own id", byId(IMPORTED_CONTACT), 'quiz', '2026-02-01T00:00:00Z'],
    ["a contact's own id, before all", byId(IMPORTED_CONTACT), 'quiz', '2025-01-01T00:00:00Z'],
    ['a module without an entry', email, 'booking', '2026-02-01T00:00:00Z'],
  ])('each go by the rows of their own project: %s', async (_, identifiers, module_id, timestamp) => {
    // The collider has the module under ids of its own only; its letter case differs.
    const posts = equalPosts(identifiers, module_id, timestamp).filter(({ project }) => project !== COPIES.collider)
    const expected = await Promise.all(posts.map(expectedOf))
    const results = await recordTogether(posts)
    for (const [i, post] of posts.entries()) {
      const { contact_id, entry_id, group_id, module_version_number, ...progress } = expected[i] as (typeof expected)[0]
      const { body } = results[i] as (typeof results)[0]
      expect(body).toMatchObject({ project_id: post.project, group_id, module_version_number, contact_id })
      if (entry_id !== undefined) expect(body.entry_id).toBe(entry_id)
      const rows = await stored(post)
      expect(rows).toMatchObject([
        { entry_id: body.entry_id, contact_id, module_id, module_version_number, ...progress },
      ])
    }
    expect(new Set(results.map(({ body }) => body.group_id)).size).toBe(posts.length)
  })

  test('go to the entry with the same id, each in its own project', async () => {
    const posts = [
      { project: 'demo', event: parsedEvent({ identifiers: email, custom_event_name: 'own entry' }) },
      { project: COPIES.before, event: parsedEvent({ identifiers: email, module_id: MARKED_QUIZ }) },
    ].map((post) => ({ ...post, event: { ...post.event, timestamp: '2026-01-11T12:00:00.000Z' as never } }))
    const expected = await Promise.all(posts.map(expectedOf))
    expect(expected[0]?.entry_id).toBe(IMPORTED_ENTRY)
    expect(['later-entry', IMPORTED_ENTRY]).toContain(expected[1]?.entry_id)
    const results = await recordTogether(posts)
    for (const [i, { body }] of results.entries()) {
      const { contact_id, entry_id, group_id, module_version_number } = expected[i] as (typeof expected)[0]
      expect(body).toMatchObject({ contact_id, entry_id, group_id, module_version_number })
    }
  })

  test('of a new contact make a contact and an entry in each project', async () => {
    const posts = equalPosts([{ key: 'email', value: freshValue() }], 'quiz', '2026-02-01T00:00:00Z').slice(0, 3)
    const results = await recordTogether([...posts, ...posts])
    const contacts = results.map(({ body }) => `${body.project_id} ${body.contact_id} ${body.entry_id}`)
    expect(contacts.slice(3)).toEqual(contacts.slice(0, 3))
    expect(new Set(results.map(({ body }) => body.contact_id)).size).toBe(3)
    expect(new Set(results.map(({ body }) => body.entry_id)).size).toBe(3)
  })

  test('do not find a contact that only another project has', async () => {
    const foreign = `${IMPORTED_CONTACT}@of ${COPIES.before}@`
    const [own, other] = await recordTogether(
      ['demo', COPIES.before].map((project) => ({ project, event: parsedEvent({ identifiers: byId(foreign) }) })),
    )
    expect(other?.body.contact_id).toBe(foreign)
    expect(own?.body.contact_id).not.toBe(foreign)
  })

  test('are refused where only another project has the module', async () => {
    const outcomes = await Promise.allSettled(
      ['demo', COPIES.before, COPIES.after].map((project) =>
        recorder.record(project, parsedEvent({ module_id: MARKED_QUIZ })),
      ),
    )
    expect(
      outcomes.map((outcome) =>
        outcome.status === 'rejected' ? toApiError(outcome.reason).errorCode : outcome.status,
      ),
    ).toEqual(['module_does_not_exist', 'fulfilled', 'module_does_not_exist'])
  })
})

describe('one Idempotency-Key in several projects', () => {
  test('is a different key in each, in one batch and later', async () => {
    const posts = PROJECTS.slice(0, 3).map((project) => ({ project, event: parsedEvent(), key: 'same' }))
    const first = await recordTogether(posts)
    expect(first.map(({ replayed }) => replayed)).toEqual([false, false, false])
    const again = await recordTogether(posts)
    expect(again).toEqual(first.map(({ body }) => ({ body, replayed: true })))
  })

  test('is a different key in each for the same event, repeated in the batch', async () => {
    const event = parsedEvent()
    const posts = PROJECTS.slice(0, 3).map((project) => ({ project, event, key: 'equal' }))
    const results = await recordTogether([...posts, ...posts])
    expect(results.map(({ body, replayed }) => [body.project_id, replayed])).toEqual([
      ...posts.map(({ project }) => [project, false]),
      ...posts.map(({ project }) => [project, true]),
    ])
  })

  test('is none of a project whose id and key are the same as text', async () => {
    const results = await recordTogether([
      { project: 'demo', event: parsedEvent(), key: 'x/k' },
      { project: COPIES.after, event: parsedEvent(), key: 'k' },
      { project: 'demo', event: parsedEvent(), key: '/xk' },
    ])
    expect(results.map(({ replayed }) => replayed)).toEqual([false, false, false])
  })
})

test('a contact and a module that are as text the same as another pair have an entry of their own', async () => {
  const pairs = SEPARATORS.flatMap((separator) => [
    { contact_id: 'c', module_id: `x${separator}y` },
    { contact_id: `c${separator}x`, module_id: 'y' },
  ])
  const results = await recordTogether(
    pairs.map(({ contact_id, module_id }) => ({
      project: 'demo',
      event: parsedEvent({ identifiers: byId(contact_id), module_id }),
    })),
  )
  const entryIds = results.map(({ body }) => body.entry_id)
  const entries = await api.db.selectFrom('entries').selectAll().where('entry_id', 'in', entryIds).execute()
  const pairOf = (id: string) => entries.find(({ entry_id }) => entry_id === id)
  expect(entryIds.map(pairOf)).toMatchObject(pairs)
})

test('keyInProject has another key for every pair', () => {
  const separators = ['/', ':', ',', '|', '-', '.', '_', ' ', '"', '\\', '\u{1f600}', 'a', 'b']
  const text = fc.string({ unit: fc.constantFrom(...separators), minLength: 1, maxLength: 4 })
  fc.assert(
    fc.property(text, text, text, text, (project, key, otherProject, otherKey) => {
      const areEqual = project === otherProject && key === otherKey
      expect(keyInProject(project, key) === keyInProject(otherProject, otherKey)).toBe(areEqual)
    }),
    {
      ...runs(100),
      examples: separators.map((one): [string, string, string, string] => ['a', `b${one}c`, `a${one}b`, 'c']),
    },
  )
  expect(keyInProject('a', Buffer.from([0xff]))).not.toBe(keyInProject('a', Buffer.from([0xfe])))
})

test('equal requests of all projects at once each get a response of their own', async () => {
  const projects = PROJECTS.slice(0, 3)
  const keys = await Promise.all(
    projects.map((project) => createKey(api.db, project, { name: '', scopes: SCOPES, expires_at: null })),
  )
  const body = customEvent({ identifiers: email, timestamp: '2026-02-01T00:00:00Z' })
  // The first of each loads its key, so that the others arrive together.
  for (let round = 0; round < 3; round += 1) {
    const responses = await Promise.all(
      Array.from({ length: 8 }, () => projects)
        .flat()
        .map((project, i) =>
          api.call({
            method: 'POST',
            path: `/projects/${encodeURIComponent(project)}/events`,
            key: keys[i % projects.length],
            headers: { 'idempotency-key': `round ${round}`.replace(' ', '-') },
            body,
          }),
        ),
    )
    expect(responses.map(({ statusCode }) => statusCode)).toEqual(responses.map(() => 200))
    const bodies = responses.map((response) => response.body)
    expect(bodies).toEqual(bodies.map((_, i) => bodies[i % projects.length]))
    expect(new Set(bodies).size).toBe(projects.length)
  }
})
