import type { components } from '../../generated/api.ts'
import { entryNotFound } from '../domain/errors.ts'
import { JsonText } from '../domain/json-text.ts'
import { entryEvent } from '../feed/event-records.ts'
import type { Handler } from '../http/operations.ts'
import { findEntry, findEventContext, selectEntriesPage, selectEntryPageViewsPage } from '../queries/entries.ts'
import { selectEventsPage } from '../queries/events.ts'
import type { Context } from './context.ts'

type FlowEntry = components['schemas']['FlowEntry']
type EntryPageViews = components['schemas']['EntryPageViews']

export const getEntry: Handler<'getEntry', Context> = async ({ path, lease }, { db }) => {
  const entry = await findEntry(db, lease, path.projectId, path.entryId)
  if (!entry) throw entryNotFound(path.entryId)
  return entry
}

export const listEntries: Handler<'listEntries', Context> = async (request, { db }) => {
  const page = await selectEntriesPage(db, request)
  return page.map(
    ({ entry_id, group_id, project_id, module_id, contact_id, created_at, updated_at, entry_data }) =>
      // Field by field, as below.
      ({ entry_id, group_id, project_id, module_id, contact_id, created_at, updated_at, entry_data }) as FlowEntry,
  )
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
