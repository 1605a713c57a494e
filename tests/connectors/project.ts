import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, onTestFinished } from 'vitest'
import { unauthorized } from '../../src/domain/errors.ts'
import { eraseContact } from '../../src/queries/erasures.ts'
import { createTestApp, importInto, type TestApp } from '../support/app.ts'
import { extendTestApps } from '../support/extensions.ts'

const OLD_EVENTS = 2_500
const ENTRY_ID = '019ca8bb-b5c0-7000-8000-000000000001'

/** Project `demo` of a service that programs can reach, with more than two pages of events. */
export interface Project {
  api: TestApp
  /** What the programs in `connectors/` need to reach it. */
  environment: Record<string, string>
  /** Imports as many events. */
  addEvents: (count: number) => Promise<void>
  /** Imports a contact with an entry and as many events, whose ids begin with that of the contact; or brings them back. */
  addContact: (contactId: string, count: number) => Promise<void>
  eraseContact: (contactId: string) => Promise<void>
  /** All records of a list of the project. */
  list: (path: string) => Promise<Record<string, unknown>[]>
  /** How many requests with a key the service has received. */
  requests: () => number
  /**
   * Holds the request after as many further ones back until the returned function is called. `received` resolves when it has
   * been received.
   */
  holdAfter: (count: number) => { received: Promise<void>; release: () => void }
  /** Does something before the next request for a URL, once. */
  before: (url: RegExp, action: () => Promise<unknown>) => void
  /** Refuses the next request for a path, once, after a response to the first path. */
  refuse: (path: string, after: RegExp) => void
}

export async function openProject(): Promise<Project> {
  let requests = 0
  let intercept = async (_url: string) => {}
  let onResponse = (_url: string) => {}
  extendTestApps((app) => {
    app.addHook('onRequest', async (request) => {
      if (!request.headers['x-api-key']) return
      requests += 1
      await intercept(request.url)
    })
    app.addHook('onResponse', async (request) => onResponse(request.url))
  })
  const api = await createTestApp({ twins: false })
  let next = 0
  const addEvents = (count: number) =>
    importInto(
      api.databaseUrl,
      Array.from({ length: count }, () => event(next++)),
    )
  await addEvents(OLD_EVENTS)
  await importInto(api.databaseUrl, [{ ...LATE_VIEW, event_id: 'late-view' }])
  return {
    api,
    environment: { FLOWTRAIL_URL: await api.listen(), FLOWTRAIL_PROJECT: 'demo', FLOWTRAIL_KEY: api.key },
    addEvents,
    addContact: (contactId, count) => importInto(api.databaseUrl, contact(contactId, count, next++)),
    eraseContact: async (contactId) => {
      expect(await eraseContact(api.db, 'demo', contactId)).toMatchObject({ entry_ids: [`${contactId}-entry`] })
    },
    list: async (name) => {
      const records: Record<string, unknown>[] = []
      let next: string | undefined = `/projects/demo/${name}`
      while (next !== undefined) {
        const response = await api.call({ path: next })
        records.push(...response.json())
        next = /^<(.+)>/.exec(String(response.headers.link))?.[1]
      }
      return records
    },
    requests: () => requests,
    holdAfter: (count) => {
      const { promise: received, resolve } = Promise.withResolvers<void>()
      const { promise: released, resolve: release } = Promise.withResolvers<void>()
      const held = requests + count + 1
      intercept = async () => {
        if (requests !== held) return
        resolve()
        await released
      }
      return { received, release }
    },
    before: (pattern, action) => {
      intercept = async (url) => {
        if (!pattern.test(url)) return
        intercept = async () => {}
        await action()
      }
    },
    refuse: (path, after) => {
      const { promise: isTime, resolve } = Promise.withResolvers<void>()
      onResponse = (url) => {
        if (after.test(url)) resolve()
      }
      intercept = async (url) => {
        if (url.split('?')[0] !== path) return
        intercept = async () => {}
        await isTime
        throw unauthorized()
      }
    },
  }
}

/** An event whose texts another program might take for times or numbers. */
const event = (n: number) => ({
  ...{ type: 'event', project_id: 'demo', entry_id: ENTRY_ID, event_id: `${n}` },
  ...{ timestamp: new Date(Date.UTC(2026, 2, 1) + n).toISOString(), event_type: 'custom_event:triggered' },
  ...{ custom_event_name: n % 2 === 0 ? `2026-03-01T00:00:00Z` : `é ${n}`, custom_event_props: '{"a": "b"}' },
})

/** A contact whose entry is updated later than any other. */
function contact(contact_id: string, count: number, n: number): object[] {
  const at = new Date(Date.UTC(2026, 5, 1) + n).toISOString()
  const ids = { project_id: 'demo', entry_id: `${contact_id}-entry` }
  return [
    { type: 'contact', project_id: 'demo', contact_id, created_at: at, identifiers: [] },
    { type: 'entry', ...ids, module_id: 'skin-quiz', contact_id, created_at: at, updated_at: at, entry_data: '{}' },
    ...Array.from({ length: count }, (_, i) => ({ ...event(i), ...ids, event_id: `${contact_id}-${i}` })),
  ]
}

/** A page view that comes after pages without any. */
const LATE_VIEW = {
  ...{ type: 'event', project_id: 'demo', entry_id: ENTRY_ID, timestamp: '2026-03-01T09:35:00.000Z' },
  ...{ event_type: 'flowpage.viewed', view_type: 'flowpage', page_id: 'p9', page_key: 'late', page_index: 8 },
  ...{ total_pages: 9 },
}

/** A folder that is removed after the test. */
export async function temporaryFolder(): Promise<string> {
  const folder = await mkdtemp(path.join(tmpdir(), 'flowtrail-copy-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}
