import { sizedColumns } from '../database/large-rows.ts'
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
  (db, page, _inOrder, isWhole) => {
    const { value, value_bytes } = sizedColumns(
      ['page_id', 'page_key', 'max_page_id', 'max_page_key', 'custom_event_props'],
      isWhole,
    )
    return db
      .selectFrom('events')
      .select([
        'event_id',
        'module_version_number',
        'timestamp',
        'page_index',
        'max_page_index',
        'total_pages',
        'event_type',
        'view_type',
        'custom_event_name',
        value('page_id').as('page_id'),
        value('page_key').as('page_key'),
        value('max_page_id').as('max_page_id'),
        value('max_page_key').as('max_page_key'),
        value('custom_event_props').as('custom_event_props'),
        value_bytes,
      ])
      .$call(page)
  },
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
