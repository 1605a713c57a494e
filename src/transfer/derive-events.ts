import { PAGE_VIEWED } from '../domain/event.ts'
import { columnsEqual, DERIVED_EVENTS, REFERENCED_ENTRIES } from './merge-rules.ts'
import { FIELDS } from './records.ts'
import { COLUMNS, stagedTable } from './stage.ts'
import type { Stored } from './stored.ts'

const EVENT_COLUMNS = Object.keys(FIELDS.event)

/** The values of the columns that a line may leave out. */
const DERIVED_VALUES: Record<string, string> = {
  // The index is 0 for an event before the first publication, which gets the version published first.
  module_version_number: `COALESCE(d.module_version_number, p.numbers[greatest(width_bucket(d."timestamp", p.since), 1)])`,
  max_page_id: 'CASE WHEN d.max_page_given THEN d.max_page_id ELSE d.furthest_id END',
  max_page_key: 'CASE WHEN d.max_page_given THEN d.max_page_key ELSE d.furthest_key END',
  max_page_index: 'CASE WHEN d.max_page_given THEN d.max_page_index ELSE d.furthest_index END',
  total_pages: 'CASE WHEN d.total_pages_given THEN d.total_pages ELSE d.latest_total END',
}

/** The condition that a line leaves out nothing that is derived. */
export const IS_COMPLETE = 'max_page_given AND total_pages_given AND module_version_number IS NOT NULL'

/**
 * A query that completes the lines of events that are not {@link IS_COMPLETE}, by the rules of docs/semantics.md#version-in-effect and
 * docs/semantics.md#furthest-page. The queries of src/queries apply the same rules to single events when they are
 * recorded; this applies them to whole entries at once, in one pass over sorted events (tests/transfer/derive.test.ts
 * compares the two).
 *
 * The page views are those of the entry, stored or in the file. Each event of an entry gets an `ordinal`; window
 * functions find the ordinals of its furthest and of its latest page view so far (arrays compare item by item: the
 * highest index, then the earliest view), and then their columns. Versions become an array of publication times and one
 * of numbers for each module, in which width_bucket() searches.
 *
 * OFFSET 0 makes the planner look up single entries instead of joining a whole table. Windows are partitioned by entry
 * before project because entries differ sooner, which makes the sort faster.
 */
export const deriveEvents = ({ written, pageViews, singly }: Stored) => `
  WITH incomplete_entries AS (
    SELECT i.project_id, i.entry_id, e.module_id
    FROM (SELECT DISTINCT project_id, entry_id FROM ${REFERENCED_ENTRIES} WHERE incomplete) i
    CROSS JOIN LATERAL (
      SELECT e.module_id FROM ${written.entry} e WHERE ${columnsEqual('e', 'i', ['project_id', 'entry_id'])} ${singly}
    ) e
  ), entry_events AS (
    SELECT line, ${COLUMNS.event} FROM ${stagedTable('event')}
    WHERE (project_id, entry_id) IN (SELECT project_id, entry_id FROM incomplete_entries)
    UNION ALL
    SELECT v.* FROM incomplete_entries i
    CROSS JOIN LATERAL (
      SELECT NULL::bigint AS line, ${EVENT_COLUMNS}, true AS max_page_given, true AS total_pages_given FROM ${pageViews} e
      WHERE ${columnsEqual('e', 'i', ['project_id', 'entry_id'])} AND e.event_type = '${PAGE_VIEWED}' ${singly}
    ) v
  ), numbered AS (
    SELECT *, event_type = '${PAGE_VIEWED}' AS is_view, (row_number() OVER in_order)::integer AS ordinal
    FROM entry_events WINDOW in_order AS (PARTITION BY entry_id, project_id ORDER BY "timestamp", event_id)
  ), with_ordinals AS (
    SELECT *,
      -(max(ARRAY[page_index, -ordinal]) FILTER (WHERE is_view) OVER so_far)[2] AS furthest,
      max(ordinal) FILTER (WHERE is_view AND total_pages_given) OVER so_far AS latest
    FROM numbered WINDOW so_far AS (PARTITION BY entry_id, project_id ORDER BY "timestamp")
  ), derived AS (
    SELECT *,
      nth_value(page_id, furthest) OVER entry AS furthest_id,
      nth_value(page_key, furthest) OVER entry AS furthest_key,
      nth_value(page_index, furthest) OVER entry AS furthest_index,
      nth_value(total_pages, latest) OVER entry AS latest_total
    FROM with_ordinals WINDOW entry AS (PARTITION BY entry_id, project_id ORDER BY "timestamp", event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
  ), publications AS (
    SELECT project_id, module_id, array_agg(published_at ORDER BY published_at) AS since,
      array_agg(version_number ORDER BY published_at) AS numbers
    FROM (
      SELECT project_id, module_id, published_at, max(version_number) AS version_number
      FROM ${written.module_version} v
      WHERE published_at IS NOT NULL
        AND (project_id, module_id) IN (SELECT project_id, module_id FROM incomplete_entries)
      GROUP BY project_id, module_id, published_at
    ) v GROUP BY project_id, module_id
  )
  SELECT d.line, ${EVENT_COLUMNS.map((column) => `${DERIVED_VALUES[column] ?? `d.${column}`} AS ${column}`)}
  FROM derived d
  JOIN incomplete_entries e ON ${columnsEqual('e', 'd', ['project_id', 'entry_id'])}
  LEFT JOIN publications p ON ${columnsEqual('p', 'e', ['project_id', 'module_id'])}
  WHERE d.line IS NOT NULL AND NOT (${IS_COMPLETE})`

/**
 * A query of all events with their positions (ADR 0020), which come after those of the stored events and erasures of their
 * projects. The projects must be locked. All have the time at which this statement begins, so that a clock that is set back
 * meanwhile does not change their order.
 */
export const numberEvents = ({ lastPositions }: Stored) => `
  WITH last_positions AS MATERIALIZED (${lastPositions})
  SELECT i.*, greatest(p.position, floor(extract(epoch FROM statement_timestamp()) * 1000000)::bigint)
    + row_number() OVER (PARTITION BY i.project_id ORDER BY i.entry_id, i."timestamp", i.event_id, i.line) AS position
  FROM (
    SELECT line, ${EVENT_COLUMNS} FROM ${stagedTable('event')} WHERE ${IS_COMPLETE}
    UNION ALL
    SELECT line, ${EVENT_COLUMNS} FROM ${DERIVED_EVENTS}
  ) i
  LEFT JOIN last_positions p ON p.project_id = i.project_id`
