import { sql } from 'kysely'
import type { Database } from '../../db/connection.ts'
import type { components } from '../../generated/api.ts'
import { PAGE_VIEWED } from '../event.ts'
import type { Keyset } from '../page.ts'
import { afterKey, sortOrder } from './keyset.ts'

type PageView = components['schemas']['PageView']

const WIRE_FORMAT = 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'

/** One entry and its module, with what they tell of every event of the entry. */
const entryInModule = (db: Database, projectId: string, entryId: string) =>
  db
    .selectFrom('entries as e')
    .innerJoin('modules as m', (join) =>
      join.onRef('m.project_id', '=', 'e.project_id').onRef('m.module_id', '=', 'e.module_id'),
    )
    .select(['e.entry_id', 'm.group_id', 'e.project_id', 'e.module_id', 'e.contact_id'])
    .where('e.project_id', '=', projectId)
    .where('e.entry_id', '=', entryId)

export function findEntry(db: Database, projectId: string, entryId: string) {
  return entryInModule(db, projectId, entryId)
    .select(['e.created_at', 'e.updated_at', 'e.entry_data'])
    .executeTakeFirst()
}

/** What all events of an entry share. The entry's data, which may be large, is left out. */
export function findEventContext(db: Database, projectId: string, entryId: string) {
  return entryInModule(db, projectId, entryId).executeTakeFirst()
}

/** Bounds on an entry's updated_at: from `updated_after` on, until before `updated_before`. */
export interface UpdatedWindow {
  updated_after?: string
  updated_before?: string
}

/** Entries by (updated_at, entry_id), each with all its page views, oldest first. */
export function selectEntryPageViewsPage(
  db: Database,
  projectId: string,
  window: UpdatedWindow,
  keyset: Keyset<readonly [string, string]>,
) {
  const order = ['e.updated_at', 'e.entry_id']
  const page = db
    .selectFrom('entries as e')
    .select(['e.project_id', 'e.entry_id', 'e.module_id', 'e.contact_id', 'e.created_at', 'e.updated_at'])
    .where('e.project_id', '=', projectId)
    .$if(window.updated_after !== undefined, (query) => query.where('e.updated_at', '>=', window.updated_after ?? ''))
    .$if(window.updated_before !== undefined, (query) => query.where('e.updated_at', '<', window.updated_before ?? ''))
    .$call(afterKey(keyset, order))
    .$call(sortOrder(keyset, order))
  return db
    .selectFrom(page.as('e'))
    .innerJoin('modules as m', (join) =>
      join.onRef('m.project_id', '=', 'e.project_id').onRef('m.module_id', '=', 'e.module_id'),
    )
    .select(['e.entry_id', 'm.group_id', 'e.project_id', 'e.module_id', 'e.contact_id', 'e.created_at', 'e.updated_at'])
    .select((eb) =>
      eb
        .selectFrom('events as v')
        .select(
          // JSON has its own form of an instant, so it is written in the wire's here; the session is in UTC.
          sql<PageView[]>`coalesce(json_agg(json_build_object(
            'timestamp', to_char(v.timestamp, ${sql.lit(WIRE_FORMAT)}),
            'page_id', v.page_id, 'page_key', v.page_key, 'page_index', v.page_index
          ) ORDER BY v.timestamp, v.event_id), '[]')`.as('page_views'),
        )
        .whereRef('v.project_id', '=', 'e.project_id')
        .whereRef('v.entry_id', '=', 'e.entry_id')
        .where('v.event_type', '=', sql.lit(PAGE_VIEWED))
        .$asScalar()
        .$notNull()
        .as('page_views'),
    )
    .$call(sortOrder(keyset, order))
    .execute()
}

/**
 * The contact's entry of a module to which an event at this instant belongs: the newest created at or before it, else
 * the oldest; of equals the greater id (decisions, "Entry").
 */
export async function findEntryInEffect(
  db: Database,
  projectId: string,
  contactId: string,
  moduleId: string,
  instant: string,
): Promise<string | undefined> {
  const entries = db
    .selectFrom('entries')
    .select('entry_id')
    .where('project_id', '=', projectId)
    .where('contact_id', '=', contactId)
    .where('module_id', '=', moduleId)
    .limit(1)
  const newestBefore = entries
    .where('created_at', '<=', instant)
    .orderBy('created_at', 'desc')
    .orderBy('entry_id', 'desc')
  const oldest = entries.orderBy('created_at', 'asc').orderBy('entry_id', 'desc')
  const { entry_id } = await db
    .selectNoFrom(sql<string | null>`coalesce(${newestBefore}, ${oldest})`.as('entry_id'))
    .executeTakeFirstOrThrow()
  return entry_id ?? undefined
}

/** A new entry as it begins with a custom event. */
export interface NewEntry {
  entry_id: string
  module_id: string
  contact_id: string
  created_at: string
  updated_at: string
}

export async function insertEntry(db: Database, projectId: string, entry: NewEntry): Promise<void> {
  await db
    .insertInto('entries')
    .values({ project_id: projectId, ...entry, entry_data: '{}' })
    .execute()
}
