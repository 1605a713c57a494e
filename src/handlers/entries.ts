import type { components } from '../../generated/api.ts'
import { entryNotFound } from '../domain/errors.ts'
import { JsonText } from '../domain/json-text.ts'
import type { Handler } from '../http/operations.ts'
import { findEntry, findEventContext, selectEntryPageViewsPage } from '../queries/entries.ts'
import { selectEventsPage } from '../queries/events.ts'
import type { Context } from './context.ts'

type EntryEvent = components['schemas']['EntryEvent']
type EntryPageViews = components['schemas']['EntryPageViews']

export const getEntry: Handler<'getEntry', Context> = async ({ path, lease }, { db }) => {
  const entry = await findEntry(db, lease, path.projectId, path.entryId)
  if (!entry) throw entryNotFound(path.entryId)
  return entry
}

export const listEntryEvents: Handler<'listEntryEvents', Context> = async (request, { db }) => {
  const { projectId, entryId } = request.path
  const [page, entry] = await Promise.all([selectEventsPage(db, request), findEventContext(db, projectId, entryId)])
  if (!entry) throw entryNotFound(entryId)
  return page.map((row) => entryEvent(entry, row))
}

export const listEntryPageViews: Handler<'listEntryPageViews', Context> = async (request, { db }) => {
  const page = await selectEntryPageViewsPage(db, request)
  return page.map(({ entry_id, group_id, project_id, module_id, contact_id, created_at, updated_at, page_views }) => {
    // Field by field, as below.
    const entry = { entry_id, group_id, project_id, module_id, contact_id, created_at, updated_at }
    const fields = JSON.stringify(entry satisfies Omit<EntryPageViews, 'page_views'>)
    return new JsonText<EntryPageViews>(`${fields.slice(0, -1)},"page_views":${page_views ?? '[]'}}`)
  })
}

type Optional<T> = { [K in keyof T]: T[K] | null }
type StoredEvent = Optional<Omit<EntryEvent, keyof EventContext>> &
  Pick<EntryEvent, 'timestamp' | 'event_type' | 'module_version_number'> & { event_id: string }
type EventContext = Pick<EntryEvent, 'entry_id' | 'contact_id' | 'project_id' | 'group_id' | 'module_id'>

/** An event as in a response: with what its entry knows (ADR 0002), and without the fields that do not apply to it. */
function entryEvent({ entry_id, contact_id, project_id, group_id, module_id }: EventContext, stored: StoredEvent) {
  // Field by field, so that all events are objects of one shape, which V8 serialises faster.
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
