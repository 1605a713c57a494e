import { PAGE_VIEWED } from '../domain/event.ts'
import { AS_JSON } from './export.ts'

/** A page view as listEntryPageViews has it. */
const PAGE_VIEW = `'{"timestamp":' || ${AS_JSON.timestamp('v."timestamp"')} || ',"page_id":' || ${AS_JSON.text('v.page_id')}
  || ',"page_key":' || ${AS_JSON.text('v.page_key')} || ',"page_index":' || ${AS_JSON.integer('v.page_index')} || '}'`

/**
 * A statement that stores the page views of entries as the JSON of a response (ADR 0018), from their stored events. OFFSET
 * 0 makes the planner look up single entries instead of joining a whole table.
 *
 * @param entries a query of the keys of the entries, each of them once
 * @param project SQL for the project that all of them are of, which makes it a statement for one shard of a Citus cluster
 */
export const storePageViews = (entries: string, project?: string) => `
  INSERT INTO entry_page_views (project_id, entry_id, page_views)
  ${project ? `WITH keys AS MATERIALIZED (${entries}) ` : ''}SELECT e.project_id, e.entry_id, views.json
  FROM ${project ? 'keys' : `(${entries})`} e
  CROSS JOIN LATERAL (
    SELECT '[' || string_agg(json, ',') || ']' AS json FROM (
      SELECT ${PAGE_VIEW} AS json FROM events v
      WHERE v.project_id = ${project ?? 'e.project_id'} AND v.entry_id = e.entry_id AND v.event_type = '${PAGE_VIEWED}'
      ORDER BY v."timestamp", v.event_id OFFSET 0
    ) v
  ) views
  WHERE views.json IS NOT NULL
  ON CONFLICT (project_id, entry_id) DO UPDATE SET page_views = excluded.page_views
  WHERE entry_page_views.page_views <> excluded.page_views`
