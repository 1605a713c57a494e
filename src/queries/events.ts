import { defineList } from '../database/list.ts'
import { prepareInsert } from '../database/prepared.ts'
import { isInstantAndId } from '../domain/cursor.ts'

/** Events of an entry by (timestamp, event_id), without what all events of an entry have in common. */
export const selectEventsPage = defineList(
  {
    operation: 'listEntryEvents',
    table: 'events',
    scope: { projectId: 'project_id', entryId: 'entry_id' },
    filters: {},
    sortKey: ['timestamp', 'event_id'],
    isSortKey: isInstantAndId,
  },
  (db, page) =>
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
      .$call(page),
)

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
