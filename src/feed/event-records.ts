import type { components } from '../../generated/api.ts'

type EntryEvent = components['schemas']['EntryEvent']
type ProjectEvent = components['schemas']['ProjectEvent']

type Optional<T> = { [K in keyof T]: T[K] | null }
type StoredEvent = Optional<Omit<EntryEvent, keyof EventContext>> &
  Pick<EntryEvent, 'event_id' | 'timestamp' | 'event_type' | 'module_version_number'>
type EventContext = Pick<EntryEvent, 'entry_id' | 'contact_id' | 'project_id' | 'group_id' | 'module_id'>

/** An event as in a response: with what its entry knows (ADR 0002), and without the fields that do not apply to it. */
export function entryEvent(
  { entry_id, contact_id, project_id, group_id, module_id }: EventContext,
  stored: StoredEvent,
): EntryEvent {
  // Field by field, so that all events are objects of one shape, which V8 serialises faster.
  return {
    event_id: stored.event_id,
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

/** An event as in the feed. */
export function projectEvent(
  event: EventContext & StoredEvent & Pick<ProjectEvent, 'recorded_at' | 'position'>,
): ProjectEvent {
  return { ...entryEvent(event, event), recorded_at: event.recorded_at, position: event.position }
}
