import { PAGE_VIEWED } from '../event.ts'
import { FIELDS } from './records.ts'
import { on } from './shapes.ts'
import { stagedTable } from './stage.ts'

/** The version in effect: the one last published at or before the event; for an older event the first published. */
const publishedVersion = (condition: string, direction: 'ASC' | 'DESC') => `(
  SELECT v.version_number FROM module_versions v
  WHERE v.project_id = n.project_id AND v.module_id = n.module_id AND ${condition}
  ORDER BY v.published_at ${direction}, v.version_number DESC LIMIT 1)`

/** How the columns are filled that a line may leave out. */
const DERIVATION: Record<string, string> = {
  module_version_number: `COALESCE(d.module_version_number,
    ${publishedVersion('v.published_at <= d."timestamp"', 'DESC')},
    ${publishedVersion('v.published_at IS NOT NULL', 'ASC')})`,
  max_page_id: 'CASE WHEN d.max_page_given THEN d.max_page_id ELSE d.furthest_id END',
  max_page_key: 'CASE WHEN d.max_page_given THEN d.max_page_key ELSE d.furthest_key END',
  max_page_index: 'CASE WHEN d.max_page_given THEN d.max_page_index ELSE d.furthest[1] END',
  total_pages: 'CASE WHEN d.total_pages_given THEN d.total_pages ELSE d.latest[2] END',
}

/**
 * Inserts the staged events of the entries after ($1, $2) up to ($3, $4). What a line leaves out is derived from the
 * page views of the entry, stored ones and those of the file, at or before the event's time: the furthest page is the
 * one of the greatest index, of equal ones the earliest view; the number of pages is that of the latest view that
 * states one. A running maximum finds both: arrays compare item by item, and `place` tells the views of an entry
 * apart. OFFSET 0 keeps the look-ups of single entries from becoming a join with a whole table.
 */
export const INSERT_EVENTS = `
  WITH staged AS (
    SELECT * FROM ${stagedTable('event')}
    WHERE (project_id, entry_id) > ($1, $2) AND (project_id, entry_id) <= ($3, $4)
  ), known AS (
    SELECT * FROM staged
    UNION ALL
    SELECT v.* FROM (SELECT DISTINCT project_id, entry_id FROM staged) s
    CROSS JOIN LATERAL (
      SELECT NULL::bigint AS line, e.*, true AS max_page_given, true AS total_pages_given FROM events e
      WHERE ${on('e', 's', ['project_id', 'entry_id'])} AND e.event_type = '${PAGE_VIEWED}' OFFSET 0
    ) v
  ), placed AS (
    SELECT *, event_type = '${PAGE_VIEWED}' AS is_view,
      row_number() OVER (PARTITION BY project_id, entry_id ORDER BY "timestamp", event_id) AS place
    FROM known
  ), reached AS (
    SELECT *,
      max(ARRAY[page_index, -place]) FILTER (WHERE is_view) OVER so_far AS furthest,
      max(ARRAY[place, total_pages]) FILTER (WHERE is_view AND total_pages_given) OVER so_far AS latest
    FROM placed WINDOW so_far AS (PARTITION BY project_id, entry_id ORDER BY "timestamp")
  ), derived AS (
    SELECT *,
      max(page_id) FILTER (WHERE place = -furthest[2]) OVER same_furthest AS furthest_id,
      max(page_key) FILTER (WHERE place = -furthest[2]) OVER same_furthest AS furthest_key
    FROM reached WINDOW same_furthest AS (PARTITION BY project_id, entry_id, furthest)
  )
  INSERT INTO events (${Object.keys(FIELDS.event).join(', ')})
  SELECT ${Object.keys(FIELDS.event).map((column) => DERIVATION[column] ?? `d.${column}`)}
  FROM derived d
  CROSS JOIN LATERAL (
    SELECT e.project_id, e.module_id FROM entries e WHERE ${on('e', 'd', ['project_id', 'entry_id'])} OFFSET 0
  ) n
  WHERE d.line IS NOT NULL
  ON CONFLICT DO NOTHING`
