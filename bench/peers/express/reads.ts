import type pg from 'pg'
import type { Keyset, Slice } from '../../../src/domain/cursor.ts'
import { invalidRequest } from '../../../src/domain/errors.ts'
import { type IsoTimestamp, parseTimestamp } from '../../../src/domain/timestamp.ts'

type ByInstant = Keyset<readonly [string, string]>

/** What the service reads from the database. */
export class Reads {
  readonly #pool: pg.Pool

  constructor(pool: pg.Pool) {
    this.#pool = pool
  }

  modules(projectId: string) {
    return this.#all(
      `SELECT module_id, title, group_id, project_id FROM modules
       WHERE project_id = $1 ORDER BY created_at DESC, module_id DESC`,
      [projectId],
    )
  }

  module(projectId: string, moduleId: string) {
    return this.#first(
      `SELECT m.module_id, m.title, m.group_id, m.project_id, v.json_string AS json_string_prod
       FROM modules m, LATERAL (
         SELECT json_string FROM module_versions
         WHERE project_id = m.project_id AND module_id = m.module_id AND published_at IS NOT NULL
         ORDER BY published_at DESC, version_number DESC LIMIT 1
       ) v
       WHERE m.project_id = $1 AND m.module_id = $2`,
      [projectId, moduleId],
    )
  }

  async moduleExists(projectId: string, moduleId: string): Promise<boolean> {
    const sql = 'SELECT FROM modules WHERE project_id = $1 AND module_id = $2'
    return (await this.#first(sql, [projectId, moduleId])) !== undefined
  }

  moduleVersions(projectId: string, moduleId: string, { direction, after, limit }: Keyset<readonly [number]>) {
    return this.#slice<{ module_id: string; version_number: number; saved_at: Date }>(
      limit,
      `SELECT module_id, version_number, saved_at FROM module_versions
       WHERE project_id = $1 AND module_id = $2 ${after ? `AND version_number ${BEYOND[direction]} $4` : ''}
       ORDER BY version_number ${direction} LIMIT $3`,
      [projectId, moduleId, limit + 1, ...(after ?? [])],
    )
  }

  moduleVersion(projectId: string, moduleId: string, versionNumber: number) {
    return this.#first(
      `SELECT module_id, version_number, saved_at, json_string FROM module_versions
       WHERE project_id = $1 AND module_id = $2 AND version_number = $3`,
      [projectId, moduleId, versionNumber],
    )
  }

  entry(projectId: string, entryId: string) {
    return this.#first(
      `SELECT entry_id, group_id, project_id, module_id, contact_id, e.created_at, updated_at, entry_data
       FROM entries e JOIN modules USING (project_id, module_id) WHERE project_id = $1 AND entry_id = $2`,
      [projectId, entryId],
    )
  }

  async entryExists(projectId: string, entryId: string): Promise<boolean> {
    const sql = 'SELECT FROM entries WHERE project_id = $1 AND entry_id = $2'
    return (await this.#first(sql, [projectId, entryId])) !== undefined
  }

  events(projectId: string, entryId: string, { direction, after, limit }: ByInstant) {
    return this.#slice<{ timestamp: Date; event_id: string }>(
      limit,
      `SELECT event_id, entry_id, contact_id, project_id, group_id, module_id, module_version_number, timestamp, page_id,
         page_key, page_index, max_page_id, max_page_key, max_page_index, total_pages, event_type, view_type,
         custom_event_name, custom_event_props
       FROM events JOIN entries USING (project_id, entry_id) JOIN modules USING (project_id, module_id)
       WHERE project_id = $1 AND entry_id = $2
         ${after ? `AND (timestamp, event_id) ${BEYOND[direction]} ($4, $5)` : ''}
       ORDER BY timestamp ${direction}, event_id ${direction} LIMIT $3`,
      [projectId, entryId, limit + 1, ...(after ?? [])],
    )
  }

  projectEvents(projectId: string, { direction, after, limit }: Keyset<readonly [number]>) {
    return this.#slice<{ position: string }>(
      limit,
      `SELECT event_id, entry_id, contact_id, project_id, group_id, module_id, module_version_number, timestamp, page_id,
         page_key, page_index, max_page_id, max_page_key, max_page_index, total_pages, event_type, view_type,
         custom_event_name, custom_event_props, recorded_at, position
       FROM events JOIN entries USING (project_id, entry_id) JOIN modules USING (project_id, module_id)
       WHERE project_id = $1 ${after ? `AND position ${BEYOND[direction]} $3` : ''}
       ORDER BY position ${direction} LIMIT $2`,
      [projectId, limit + 1, ...(after ?? [])],
    )
  }

  entries(projectId: string, window: Window, keyset: ByInstant) {
    return this.#entries(projectId, window, keyset, 'entry_data')
  }

  entryPageViews(projectId: string, window: Window, keyset: ByInstant) {
    return this.#entries(
      projectId,
      window,
      keyset,
      `(
         SELECT coalesce(json_agg(json_build_object(
           'timestamp', to_char(timestamp AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
           'page_id', page_id, 'page_key', page_key, 'page_index', page_index
         ) ORDER BY timestamp, event_id), '[]')
         FROM events
         WHERE project_id = e.project_id AND entry_id = e.entry_id AND event_type = 'flowpage.viewed'
       ) AS page_views`,
    )
  }

  #entries(projectId: string, window: Window, { direction, after, limit }: ByInstant, column: string) {
    const values: unknown[] = [projectId, limit + 1]
    const place = (value: unknown) => `$${values.push(value)}`
    const conditions = [
      'project_id = $1',
      ...(window.after ? [`updated_at >= ${place(window.after)}`] : []),
      ...(window.before ? [`updated_at < ${place(window.before)}`] : []),
      ...(after ? [`(updated_at, entry_id) ${BEYOND[direction]} (${after.map(place)})`] : []),
    ]
    return this.#slice<{ updated_at: Date; entry_id: string }>(
      limit,
      `SELECT entry_id, group_id, project_id, module_id, contact_id, e.created_at, updated_at, ${column}
       FROM (
         SELECT * FROM entries WHERE ${conditions.join(' AND ')}
         ORDER BY updated_at ${direction}, entry_id ${direction} LIMIT $2
       ) e
       JOIN modules USING (project_id, module_id)
       ORDER BY updated_at ${direction}, entry_id ${direction}`,
      values,
    )
  }

  async #all<Row extends pg.QueryResultRow>(sql: string, values: unknown[]): Promise<Row[]> {
    return (await this.#pool.query<Row>(sql, values)).rows
  }

  /** @param values of which one is a limit of one row more than the page has */
  async #slice<Row extends pg.QueryResultRow>(limit: number, sql: string, values: unknown[]): Promise<Slice<Row>> {
    const rows = await this.#all<Row>(sql, values)
    return { rows: rows.slice(0, limit), more: rows.length > limit }
  }

  async #first(sql: string, values: unknown[]): Promise<object | undefined> {
    return (await this.#all(sql, values))[0]
  }
}

const BEYOND = { ASC: '>', DESC: '<' }

interface Window {
  after?: string
  before?: string
}

/** The filters as ISO timestamps in UTC. @throws ApiError invalid_request when the window ends before it begins */
export function windowOf(query: Record<string, unknown>): Window {
  const window = { after: inUtc(query.updated_after), before: inUtc(query.updated_before) }
  if (window.after && window.before && window.after >= window.before) {
    throw invalidRequest([{ pointer: '/query/updated_before', message: 'must be later than updated_after' }])
  }
  return window
}

/** A date-time that the validator accepted, in UTC. */
export function inUtc(text: unknown): IsoTimestamp | undefined {
  const parsed = typeof text === 'string' ? parseTimestamp(text) : undefined
  return parsed?.ok ? parsed.iso : undefined
}
