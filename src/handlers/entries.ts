import type { components } from '../../generated/api.ts'
import { isInstantAndId, Page, paginate } from '../domain/cursor.ts'
import { entryNotFound, invalidRequest } from '../domain/errors.ts'
import { parseTimestamp } from '../domain/timestamp.ts'
import type { Handler } from '../http/operations.ts'
import { findEntry, findEventContext, selectEntryPageViewsPage, type UpdatedWindow } from '../queries/entries.ts'
import { selectEventsPage } from '../queries/events.ts'
import type { Context } from './context.ts'

type EntryEvent = components['schemas']['EntryEvent']

export const getEntry: Handler<'getEntry', Context> = async ({ path }, { db }) => {
  const entry = await findEntry(db, path.projectId, path.entryId)
  if (!entry) throw entryNotFound(path.entryId)
  return entry
}

export const listEntryEvents: Handler<'listEntryEvents', Context> = async ({ path, query }, { db }) => {
  const { projectId, entryId } = path
  const [page, entry] = await Promise.all([
    paginate(
      ['listEntryEvents', projectId, entryId],
      query,
      isInstantAndId,
      (keyset) => selectEventsPage(db, projectId, entryId, keyset),
      (row) => [row.timestamp, row.event_id],
    ),
    findEventContext(db, projectId, entryId),
  ])
  if (!entry) throw entryNotFound(entryId)
  return new Page(
    page.rows.map((row) => entryEvent(entry, row)),
    page.next,
  )
}

export const listEntryPageViews: Handler<'listEntryPageViews', Context> = ({ path, query }, { db }) => {
  const window = checkWindow(query)
  return paginate(
    ['listEntryPageViews', path.projectId, window.updated_after, window.updated_before],
    query,
    isInstantAndId,
    (keyset) => selectEntryPageViewsPage(db, path.projectId, window, keyset),
    (row) => [row.updated_at, row.entry_id],
  )
}

/**
 * The filters in the wire's form, so that two spellings of an instant are one filter.
 * @throws ApiError invalid_request when the window ends before it begins
 */
function checkWindow({ updated_after, updated_before }: UpdatedWindow): UpdatedWindow {
  const window: UpdatedWindow = { updated_after: inUtc(updated_after), updated_before: inUtc(updated_before) }
  // The wire's form sorts as the instants do.
  if (window.updated_after && window.updated_before && window.updated_after >= window.updated_before) {
    throw invalidRequest([{ pointer: '/query/updated_before', message: 'must be later than updated_after' }])
  }
  return window
}

/** A date-time that validation let pass, in the wire's form. */
function inUtc(text: string | undefined): string | undefined {
  const parsed = text === undefined ? undefined : parseTimestamp(text)
  return parsed?.ok ? parsed.iso : undefined
}

type Optional<T> = { [K in keyof T]: T[K] | null }
type StoredEvent = Optional<Omit<EntryEvent, keyof EventContext>> &
  Pick<EntryEvent, 'timestamp' | 'event_type' | 'module_version_number'> & { event_id: string }
type EventContext = Pick<EntryEvent, 'entry_id' | 'contact_id' | 'project_id' | 'group_id' | 'module_id'>

/** An event as the wire has it: with what its entry tells, and without the fields that do not apply to it. */
function entryEvent({ entry_id, contact_id, project_id, group_id, module_id }: EventContext, stored: StoredEvent) {
  // Field by field, so that all events are objects of one shape, which makes them quick to write.
  return {
    entry_id,
    contact_id,
    project_id,
    group_id,
    module_id,
    module_version_number: stored.module_version_number,
    timestamp: stored.timestamp,
    page_id: stored.page_id ?? undefined,
    page_key: stored.page_key ?? undefined,
    page_index: stored.page_index ?? undefined,
    max_page_id: stored.max_page_id ?? undefined,
    max_page_key: stored.max_page_key ?? undefined,
    max_page_index: stored.max_page_index ?? undefined,
    total_pages: stored.total_pages ?? undefined,
    event_type: stored.event_type,
    view_type: stored.view_type ?? undefined,
    custom_event_name: stored.custom_event_name ?? undefined,
    custom_event_props: stored.custom_event_props ?? undefined,
  } satisfies Record<keyof EntryEvent, unknown>
}
