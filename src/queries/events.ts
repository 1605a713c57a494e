import { sql } from 'kysely'
import { batchLoader } from '../database/batch-loader.ts'
import { inputTable, text } from '../database/input-table.ts'
import { bytesOf, SMALL_ROW_bytes, sizedColumns } from '../database/large-rows.ts'
import { type Clauses, defineList } from '../database/list.ts'
import type { Database } from '../database/pool.ts'
import { type Parameter, prepare, prepareInsert } from '../database/prepared.ts'
import { isInstantAndId, isPosition } from '../domain/cursor.ts'
import { groupOf } from './modules.ts'

/** The columns of events that may have any length. */
const VALUES = ['page_id', 'page_key', 'max_page_id', 'max_page_key', 'custom_event_props'] as const

/** The events of a page, each with the size of its values. */
const selectSizedEvents = (db: Database, page: Clauses) =>
  db.selectFrom('events').selectAll().select(bytesOf(VALUES).as('bytes')).$call(page).as('events')

/** What an event has of its own, without the values of large ones unless the query `isWhole`. */
function eventColumns(isWhole: boolean) {
  const { value, value_bytes } = sizedColumns(VALUES, isWhole, SMALL_ROW_bytes, sql.ref('events.bytes'))
  return [
    'events.event_id',
    'events.module_version_number',
    'events.timestamp',
    'events.page_index',
    'events.max_page_index',
    'events.total_pages',
    'events.event_type',
    'events.view_type',
    'events.custom_event_name',
    value('page_id').as('page_id'),
    value('page_key').as('page_key'),
    value('max_page_id').as('max_page_id'),
    value('max_page_key').as('max_page_key'),
    value('custom_event_props').as('custom_event_props'),
    value_bytes,
  ] as const
}

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
  (db, page, inOrder, isWhole) =>
    db.selectFrom(selectSizedEvents(db, page)).select(eventColumns(isWhole)).$call(inOrder),
)

/** Events of a project in the order in which they were committed (ADR 0020), with what they have from their entry. */
export const selectFeedPage = defineList(
  {
    operation: 'listProjectEvents',
    table: 'events',
    scope: { projectId: 'project_id' },
    filters: {},
    sortKey: ['position'],
    isSortKey: isPosition,
    origin: [0],
  },
  (db, page, inOrder, isWhole, project) =>
    db
      .selectFrom(selectSizedEvents(db, page))
      // As in groupOf.
      .innerJoinLateral(
        (eb) =>
          db
            .selectFrom('entries as e')
            .select(['e.contact_id', 'e.module_id'])
            .where('e.project_id', '=', project)
            .where('e.entry_id', '=', eb.ref('events.entry_id'))
            .limit(1)
            .as('e'),
        (join) => join.onTrue(),
      )
      .innerJoinLateral(
        (eb) => groupOf(project, eb.ref('e.module_id')).as('m'),
        (join) => join.onTrue(),
      )
      .select([
        'events.entry_id',
        'e.contact_id',
        'events.project_id',
        'm.group_id',
        'e.module_id',
        'events.recorded_at',
        'events.position',
      ])
      .select(eventColumns(isWhole))
      .$call(inOrder),
)

/** The projects, and the positions of the last event and of the last erasure of each, null if it has none. */
const selectLastPositions = (db: Database, projectIds: Parameter<string[]>) =>
  db
    .selectFrom(inputTable({ project_id: text(projectIds) }))
    .leftJoinLateral(
      (eb) =>
        db
          .selectFrom('events as e')
          .select('e.position')
          .where('e.project_id', '=', eb.ref('input.project_id'))
          .orderBy('e.position', 'desc')
          .limit(1)
          .as('event'),
      (join) => join.onTrue(),
    )
    .leftJoinLateral(
      (eb) =>
        db
          .selectFrom('erasures as r')
          .select('r.position')
          .where('r.project_id', '=', eb.ref('input.project_id'))
          .orderBy('r.position', 'desc')
          .limit(1)
          .as('erasure'),
      (join) => join.onTrue(),
    )

/**
 * The positions of the last event and of the last erasure of a project, null without any. Beside an import it may take long
 * (ADR 0020), so that it is no look-up that others queue behind.
 */
export const findLastPositions = batchLoader(
  (db, projectIds: Parameter<string[]>) =>
    selectLastPositions(db, projectIds).select([
      'input.ordinal',
      'event.position as events',
      'erasure.position as erasures',
    ]),
  { name: 'findLastPositions', kind: 'list' },
)

/**
 * For each project the least position that its next event or erasure may have (ADR 0020). The projects must be locked before
 * this statement begins, so that it sees all events of those who have held the lock.
 */
export const selectNextPositions = prepare(
  (db, projectIds: Parameter<string[]>) =>
    selectLastPositions(db, projectIds).select([
      'input.project_id',
      // The events that had the greatest positions may be erased.
      sql<number>`greatest(
        event.position + 1, erasure.position + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
      )`.as('position'),
    ]),
  { name: 'selectNextPositions' },
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
  position: 'bigint',
  recorded_at: 'timestamptz',
})
