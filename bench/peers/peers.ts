import path from 'node:path'
import { callsFor, type Task, type Visit } from '../calls.ts'
import type { Call } from '../load.ts'

/** A system that the service is measured against over HTTP. */
export interface Peer {
  /** The file that is run. */
  entry: string
  /** The tasks that it implements, each at Flowtrail's path or at one of its own. */
  tasks: Partial<Record<Task, 'as documented' | ((visit: Visit, limit: number) => string)>>
}

const entry = (name: string) => path.join(import.meta.dirname, `${name}.ts`)

/** Platformatic DB's query string for filters and sort order. */
const filter = (table: string, where: Record<string, string>, options: Record<string, string>) => {
  const conditions = Object.entries(where).map(([column, value]) => [`where.${column}.eq`, value])
  return `/${table}/?${new URLSearchParams({ ...Object.fromEntries(conditions), ...options })}`
}

export const PEERS = {
  express: {
    entry: entry('express'),
    tasks: {
      listModules: 'as documented',
      getModule: 'as documented',
      listModuleVersions: 'as documented',
      getModuleVersion: 'as documented',
      getEntry: 'as documented',
      listEntryEvents: 'as documented',
      listEntryPageViews: 'as documented',
      recordKnown: 'as documented',
      recordNew: 'as documented',
    },
  },
  platformatic: {
    entry: entry('platformatic'),
    tasks: {
      // The definition last published; the module's title and group would be a second request.
      getModule: ({ project_id, module_id }) =>
        filter(
          'moduleVersions',
          { projectId: project_id, moduleId: module_id },
          {
            'where.publishedAt.isNull': 'false',
            'orderby.publishedAt': 'desc',
            'orderby.versionNumber': 'desc',
            limit: '1',
          },
        ),
      // Without what the events share, which their entry and its module know.
      listEntryEvents: ({ project_id, entry_id }, limit) =>
        filter(
          'events',
          { projectId: project_id, entryId: entry_id },
          { 'orderby.timestamp': 'desc', 'orderby.eventId': 'desc', limit: String(limit) },
        ),
    },
  },
  bare: { entry: entry('bare'), tasks: { getModule: 'as documented', listEntryEvents: 'as documented' } },
  'no-database': { entry: entry('no-database'), tasks: { getModule: 'as documented' } },
} satisfies Record<string, Peer>

export type PeerName = keyof typeof PEERS

/** The requests of a task to this peer, one for each visit. @throws Error when it does not implement the task */
export function peerCalls(
  name: PeerName,
  task: Task,
  visits: readonly Visit[],
  keys: ReadonlyMap<string, string>,
  limit: number,
): Call[] {
  const { tasks }: Peer = PEERS[name]
  const form = tasks[task]
  if (form === undefined) throw new Error(`${name} does not implement ${task}`)
  const calls = callsFor(task, visits, keys, limit)
  if (form === 'as documented') return calls
  return calls.map((call, i) => ({ ...call, path: form(visits[i] as Visit, limit) }))
}
