import { afterKey, type KeysetShape, shapeOf, sortOrder } from '../database/keyset.ts'
import type { Database } from '../database/pool.ts'
import { byShape, prepare, prepareInsert } from '../database/prepared.ts'
import type { Keyset } from '../domain/cursor.ts'

const eventsPage = byShape((shape: KeysetShape) =>
  prepare((db, projectId: string, entryId: string, take: number, timestamp: string, eventId: string) =>
    db
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
      .$call(afterKey(shape, ['timestamp', 'event_id'], [timestamp, eventId]))
      .$call(sortOrder(shape, ['timestamp', 'event_id']))
      .limit(take),
  ),
)

/** Events of an entry by (timestamp, event_id), without the fields that all events of an entry share. */
export const selectEventsPage = (
  db: Database,
  projectId: string,
  entryId: string,
  keyset: Keyset<readonly [string, string]>,
) => eventsPage(shapeOf(keyset))(db, projectId, entryId, keyset.take, ...(keyset.after ?? (['', ''] as const)))

export const insertEvents = prepareInsert('events', {
  project_id: 'text',
  event_id: 'text',
  entry_id: 'text',
  timestamp: 'timestamptz',
  module_version_number: 'integer',
  max_page_id: 'text',
  max_page_key: 'text',
  max_page_index: 'integer',
  total_pages: 'integer',
  event_type: 'text',
  custom_event_name: 'text',
  custom_event_props: 'text',
})
