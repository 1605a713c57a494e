import { sql } from 'kysely'
import type { Database } from '../../db/connection.ts'
import { PAGE_VIEWED } from '../event.ts'
import type { Keyset } from '../page.ts'
import { afterKey, sortOrder } from './keyset.ts'

/** Events of an entry by (timestamp, event_id), without the fields that all events of an entry share. */
export function selectEventsPage(
  db: Database,
  projectId: string,
  entryId: string,
  keyset: Keyset<readonly [string, string]>,
) {
  const order = ['timestamp', 'event_id']
  return db
    .selectFrom('events')
    .select([
      'event_id',
      'module_version_number',
      'timestamp',
      'page_id',
      'page_key',
      'page_index',
      'max_page_id',
      'max_page_key',
      'max_page_index',
      'total_pages',
      'event_type',
      'view_type',
      'custom_event_name',
      'custom_event_props',
    ])
    .where('project_id', '=', projectId)
    .where('entry_id', '=', entryId)
    .$call(afterKey(keyset, order))
    .$call(sortOrder(keyset, order))
    .execute()
}

/**
 * The furthest page among an entry's page views at or before an instant, of equals the earliest, and the total of the
 * latest such view (decisions, "Furthest page"). Nothing when there is no such view.
 */
export function findFurthestPage(db: Database, projectId: string, entryId: string, instant: string) {
  const views = db
    .selectFrom('events')
    .where('project_id', '=', projectId)
    .where('entry_id', '=', entryId)
    .where('event_type', '=', sql.lit(PAGE_VIEWED))
    .where('timestamp', '<=', instant)
    .limit(1)
  const latest = views.select('total_pages').orderBy('timestamp', 'desc').orderBy('event_id', 'desc')
  return views
    .select(['page_id as max_page_id', 'page_key as max_page_key', 'page_index as max_page_index'])
    .select(latest.as('total_pages'))
    .orderBy('page_index', 'desc')
    .orderBy('timestamp', 'asc')
    .orderBy('event_id', 'asc')
    .executeTakeFirst()
}

/** A custom event as it is stored. */
export interface NewCustomEvent {
  event_id: string
  entry_id: string
  timestamp: string
  module_version_number: number
  event_type: string
  custom_event_name: string
  custom_event_props: string
  max_page_id?: string | null
  max_page_key?: string | null
  max_page_index?: number | null
  total_pages?: number | null
}

export async function insertEvent(db: Database, projectId: string, event: NewCustomEvent): Promise<void> {
  await db
    .insertInto('events')
    .values({ project_id: projectId, ...event })
    .execute()
}
