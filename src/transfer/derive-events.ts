import { PAGE_VIEWED } from '../domain/event.ts'
import { DERIVED_EVENTS, NAMED_ENTRIES, on, TOUCHED_PROJECTS } from './merge-rules.ts'
import { FIELDS } from './records.ts'
import { stagedTable } from './stage.ts'

/** How the columns are filled that a line may leave out. */
const DERIVATION: Record<string, string> = {
  // Of an event before the first publication, the first.
  module_version_number: `COALESCE(d.module_version_number, p.numbers[greatest(width_bucket(d."timestamp", p.since), 1)])`,
  max_page_id: 'CASE WHEN d.max_page_given THEN d.max_page_id ELSE d.furthest_id END',
  max_page_key: 'CASE WHEN d.max_page_given THEN d.max_page_key ELSE d.furthest_key END',
  max_page_index: 'CASE WHEN d.max_page_given THEN d.max_page_index ELSE d.furthest_index END',
  total_pages: 'CASE WHEN d.total_pages_given THEN d.total_pages ELSE d.latest_total END',
}

/** The condition that a line leaves out nothing that is derived. */
export const COMPLETE = 'max_page_given AND total_pages_given AND module_version_number IS NOT NULL'

/**
 * Completes the lines of events that are not {@link COMPLETE}. What a line leaves out is derived from the page views of
 * the entry, stored ones and those of the file, at or before the event's time: the furthest page is the one of the
 * greatest index, of equal ones the earliest view; the number of pages is that of the latest view that states one. Both
 * are found by their `place` among the events of the entry: arrays compare item by item. The version is the one last
 * published at or before the event, of several at once the greatest number. OFFSET 0 keeps the look-ups of single
 * entries from becoming a join with a whole table; entries come first in the windows because they differ early, which
 * makes them quick to sort.
 */
export const DERIVE_EVENTS = `
  CREATE TEMPORARY TABLE ${DERIVED_EVENTS} ON COMMIT DROP AS
  WITH concerned AS (
    SELECT DISTINCT project_id, entry_id FROM ${NAMED_ENTRIES} WHERE incomplete
  ), known AS (
    SELECT * FROM ${stagedTable('event')} WHERE (project_id, entry_id) IN (SELECT * FROM concerned)
    UNION ALL
    SELECT v.* FROM concerned c
    CROSS JOIN LATERAL (
      SELECT NULL::bigint AS line, e.*, true AS max_page_given, true AS total_pages_given FROM events e
      WHERE ${on('e', 'c', ['project_id', 'entry_id'])} AND e.event_type = '${PAGE_VIEWED}' OFFSET 0
    ) v
  ), placed AS (
    SELECT *, event_type = '${PAGE_VIEWED}' AS is_view, (row_number() OVER in_order)::integer AS place
    FROM known WINDOW in_order AS (PARTITION BY entry_id, project_id ORDER BY "timestamp", event_id)
  ), reached AS (
    SELECT *,
      -(max(ARRAY[page_index, -place]) FILTER (WHERE is_view) OVER so_far)[2] AS furthest,
      max(place) FILTER (WHERE is_view AND total_pages_given) OVER so_far AS latest
    FROM placed WINDOW so_far AS (PARTITION BY entry_id, project_id ORDER BY "timestamp")
  ), derived AS (
    SELECT *,
      nth_value(page_id, furthest) OVER entry AS furthest_id,
      nth_value(page_key, furthest) OVER entry AS furthest_key,
      nth_value(page_index, furthest) OVER entry AS furthest_index,
      nth_value(total_pages, latest) OVER entry AS latest_total
    FROM reached WINDOW entry AS (PARTITION BY entry_id, project_id ORDER BY "timestamp", event_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
  ), published AS (
    SELECT project_id, module_id, array_agg(published_at ORDER BY published_at) AS since,
      array_agg(version_number ORDER BY published_at) AS numbers
    FROM (
      SELECT project_id, module_id, published_at, max(version_number) AS version_number
      FROM module_versions WHERE published_at IS NOT NULL AND project_id IN (SELECT project_id FROM ${TOUCHED_PROJECTS})
      GROUP BY project_id, module_id, published_at
    ) v GROUP BY project_id, module_id
  )
  SELECT ${Object.keys(FIELDS.event).map((column) => `${DERIVATION[column] ?? `d.${column}`} AS ${column}`)}
  FROM derived d
  JOIN entries e ON ${on('e', 'd', ['project_id', 'entry_id'])}
  LEFT JOIN published p ON ${on('p', 'e', ['project_id', 'module_id'])}
  WHERE d.line IS NOT NULL AND NOT (${COMPLETE})`
