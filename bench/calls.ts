import type { operations } from '../generated/api.ts'
import { rowsOf } from './data.ts'
import { type Call, UNIQUE } from './load.ts'

/** A visit out of the data: an entry, and an identifier of its contact. */
export interface Visit {
  project_id: string
  module_id: string
  entry_id: string
  created_at: string
  key: string
  value: string
}

export interface Choice {
  projects: readonly string[]
  /** How many; all together, spread over the projects. */
  count: number
  /** Only contacts whose identifier starts with this. */
  valuePrefix?: string
}

/** Chooses visits in a pseudo-random order that is the same in each run. */
export async function chooseVisits(url: string, { projects, count, valuePrefix = '' }: Choice): Promise<Visit[]> {
  const visits = await rowsOf<Visit>(
    url,
    `SELECT e.project_id, e.module_id, e.entry_id, e.created_at, i.key, i.value
     FROM entries e JOIN contact_identifiers i ON i.project_id = e.project_id AND i.contact_id = e.contact_id
     WHERE e.project_id = ANY ($1) AND i.key = 'email' AND starts_with(i.value, $2)
       AND e.created_at < '2026-06-01'
     ORDER BY sha256(convert_to(e.project_id || e.entry_id, 'UTF8')) LIMIT $3`,
    [projects, valuePrefix, count],
  )
  if (visits.length === 0) throw new Error(`no visits in ${projects.length} projects, ${projects[0]} and so on`)
  return visits
}

/** What is requested; the last two are both recordCustomEvent. */
export type Task =
  | Exclude<keyof operations, 'recordCustomEvent' | 'recordCustomEvents' | 'importRecords' | 'listErasures'>
  | 'recordKnown'
  | 'recordNew'

const event = ({ module_id, created_at }: Visit, value: string): string =>
  JSON.stringify({
    module_id,
    timestamp: new Date(Date.parse(created_at) + 90_000).toISOString(),
    custom_event_name: 'coupon_shown',
    custom_event_props: '{"coupon":"SPRING-10","value":10}',
    identifiers: [{ key: 'email', value }],
  })

/** The request of each task to Flowtrail, below the project's path. */
const FORMS: Record<Task, (visit: Visit, limit: number) => Omit<Call, 'headers'>> = {
  listModules: () => ({ method: 'GET', path: '/modules' }),
  getModule: ({ module_id }) => ({ method: 'GET', path: `/modules/${module_id}` }),
  listModuleVersions: ({ module_id }) => ({ method: 'GET', path: `/modules/${module_id}/versions` }),
  getModuleVersion: ({ module_id }) => ({ method: 'GET', path: `/modules/${module_id}/versions/2` }),
  getEntry: ({ entry_id }) => ({ method: 'GET', path: `/entries/${entry_id}` }),
  listEntryEvents: ({ entry_id }, limit) => ({ method: 'GET', path: `/entries/${entry_id}/events?limit=${limit}` }),
  listEntries: ({ created_at }, limit) => ({
    method: 'GET',
    path: `/entries?direction=ASC&limit=${limit}&updated_after=${encodeURIComponent(created_at)}`,
  }),
  listProjectEvents: (_, limit) => ({ method: 'GET', path: `/events?direction=ASC&limit=${limit}&after=0` }),
  listEntryPageViews: ({ created_at }, limit) => ({
    method: 'GET',
    path: `/entries-page-views?direction=ASC&limit=${limit}&updated_after=${encodeURIComponent(created_at)}`,
  }),
  recordKnown: (visit) => ({ method: 'POST', path: '/events', body: event(visit, visit.value) }),
  recordNew: (visit) => ({ method: 'POST', path: '/events', body: event(visit, `"new-${UNIQUE}@mail.example.com"`) }),
}

/** Requests that each record an event of as many visits. All visits are of one project. */
export function batchCalls(visits: readonly Visit[], key: string, events: number): Call[] {
  const bodies = Array.from({ length: Math.ceil(visits.length / events) }, (_, i) =>
    Array.from({ length: events }, (_, k) => {
      const visit = visits[(i * events + k) % visits.length] as Visit
      return event(visit, visit.value)
    }),
  )
  const path = `/projects/${visits[0]?.project_id}/events/batch`
  return bodies.map((body) => ({ method: 'POST', path, headers: { 'x-api-key': key }, body: `{"events":[${body}]}` }))
}

/** All of them; those that write come last, so that all read the same. */
export const TASKS = Object.keys(FORMS) as Task[]

/** The task for each of the visits. */
export function callsFor(
  task: Task,
  visits: readonly Visit[],
  keys: ReadonlyMap<string, string>,
  limit: number,
): Call[] {
  return visits.map((visit) => {
    const { path, ...form } = FORMS[task](visit, limit)
    const headers = { 'x-api-key': keys.get(visit.project_id) ?? '' }
    return { ...form, path: `/projects/${visit.project_id}${path}`, headers }
  })
}
