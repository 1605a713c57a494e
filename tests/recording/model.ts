/**
 * What recording has to do, as plain in-memory code: written from docs/semantics.md and not from src, of which it imports
 * nothing. It is slow and simple on purpose.
 */

/** `b` after `a` is positive. Ids of tests are ASCII, so that their order as text is the one byte by byte. */
const compare = (a: string | number, b: string | number) => (a < b ? -1 : a > b ? 1 : 0)
/** The items that have the greatest value. */
const greatest = <T>(items: T[], rank: (item: T) => string | number): T[] =>
  items.filter((item) => items.every((other) => compare(rank(item), rank(other)) >= 0))
const least = <T>(items: T[], rank: (item: T) => string | number): T[] =>
  items.filter((item) => items.every((other) => compare(rank(item), rank(other)) <= 0))

export interface Version {
  version_number: number
  published_at?: string | undefined
}

/** docs/semantics.md#version-in-effect */
export function versionInEffect(versions: Version[], instant: string): number {
  const published = versions.flatMap(({ version_number, published_at }) =>
    published_at === undefined ? [] : [{ version_number, published_at }],
  )
  const byThen = published.filter(({ published_at }) => published_at <= instant)
  const candidates =
    byThen.length > 0 ? greatest(byThen, (one) => one.published_at) : least(published, (one) => one.published_at)
  return Math.max(...candidates.map(({ version_number }) => version_number))
}

export interface Entry {
  entry_id: string
  module_id: string
  contact_id: string
  created_at: string
}

/** docs/semantics.md#entry */
export function entryInEffect(entries: Entry[], instant: string): Entry | undefined {
  const byThen = entries.filter(({ created_at }) => created_at <= instant)
  const candidates =
    byThen.length > 0 ? greatest(byThen, (entry) => entry.created_at) : least(entries, (entry) => entry.created_at)
  return greatest(candidates, (entry) => entry.entry_id)[0]
}

export interface View {
  event_id: string
  entry_id: string
  timestamp: string
  page_index: number
  /** null: unknown; undefined: not given. */
  total_pages?: number | null | undefined
}

const latest = (views: View[]): View | undefined =>
  greatest(
    greatest(views, (view) => view.timestamp),
    (view) => view.event_id,
  )[0]

/** docs/semantics.md#furthest-page; of an entry's views, whose totals are known or unknown, but given */
export function progressAt(views: View[], instant: string) {
  const seen = views.filter(({ timestamp }) => timestamp <= instant)
  const furthest = greatest(seen, (view) => view.page_index)
  const earliest = least(furthest, (view) => view.timestamp)
  const [view] = least(earliest, (one) => one.event_id)
  return {
    max_page_index: view?.page_index ?? null,
    max_page_event: view?.event_id,
    total: latest(seen)?.total_pages ?? null,
  }
}

/** The views of one entry as an import stores them: one that gives no total takes that of the latest that does. */
export const withTotals = (views: View[]): View[] =>
  views.map((view) => {
    if (view.total_pages !== undefined) return view
    const giving = views.filter(
      ({ timestamp, total_pages }) => timestamp <= view.timestamp && total_pages !== undefined,
    )
    return { ...view, total_pages: latest(giving)?.total_pages ?? null }
  })

export interface Post {
  module_id: string
  timestamp: string
  name: string
  props: string
  /** The `meaning` is equal for all spellings of a value; that of a string is `string:` and the string. */
  identifiers: { key: string; value: string; meaning: string }[]
  idempotency_key?: string | undefined
}

export interface RecordedEvent {
  entry_id: string
  contact_id: string
  module_id: string
  timestamp: string
  module_version_number: number
  name: string
  props: string
  max_page_index: number | null
  max_page_event: string | undefined
  total: number | null
}

export type Response = { recorded: RecordedEvent; replayed: boolean } | { refused: string }

/** A project, in which one event is recorded after another. */
export class Project {
  readonly versions = new Map<string, Version[]>()
  readonly contacts: string[] = []
  readonly identifiers: { contact_id: string; key: string; value: string; meaning: string }[] = []
  readonly entries: Entry[] = []
  views: View[] = []
  readonly events: RecordedEvent[] = []
  readonly #recorded = new Map<string, { post: string; recorded: RecordedEvent }>()
  readonly #newId: (kind: 'contact' | 'entry') => string

  /** @param newId names what an event creates; the names must sort as the service's ids do among the imported ones */
  constructor(newId: (kind: 'contact' | 'entry') => string) {
    this.#newId = newId
  }

  addViews(views: View[]): void {
    const all = [...this.views, ...views]
    const entryIds = [...new Set(all.map(({ entry_id }) => entry_id))]
    this.views = entryIds.flatMap((id) => withTotals(all.filter(({ entry_id }) => entry_id === id)))
  }

  record(post: Post): Response {
    const before = post.idempotency_key === undefined ? undefined : this.#recorded.get(post.idempotency_key)
    if (before) {
      if (before.post !== same(post)) return { refused: 'idempotency_key_reused' }
      return { recorded: before.recorded, replayed: true }
    }
    const versions = this.versions.get(post.module_id)
    if (!versions) return { refused: 'module_does_not_exist' }

    const owners = post.identifiers.map((identifier) => this.#ownerOf(identifier))
    const known = [...new Set(owners.filter((owner) => owner !== undefined))]
    if (known.length > 1) return { refused: 'identifier_conflict' }
    const contact_id = known[0] ?? this.#newId('contact')
    if (known.length === 0) this.contacts.push(contact_id)
    post.identifiers.forEach((identifier, i) => {
      if (owners[i] === undefined) this.identifiers.push({ contact_id, ...identifier })
    })

    const { module_id, timestamp, name, props } = post
    const entries = this.entries.filter((entry) => entry.contact_id === contact_id && entry.module_id === module_id)
    let entry = entryInEffect(entries, timestamp)
    if (!entry) {
      entry = { entry_id: this.#newId('entry'), module_id, contact_id, created_at: timestamp }
      this.entries.push(entry)
    }
    const { entry_id } = entry
    const recorded = {
      ...{ entry_id, contact_id, module_id, timestamp, name, props },
      module_version_number: versionInEffect(versions, timestamp),
      ...progressAt(
        this.views.filter((view) => view.entry_id === entry_id),
        timestamp,
      ),
    }
    this.events.push(recorded)
    if (post.idempotency_key !== undefined) this.#recorded.set(post.idempotency_key, { post: same(post), recorded })
    return { recorded, replayed: false }
  }

  /** docs/semantics.md#contact */
  #ownerOf({ key, meaning }: { key: string; meaning: string }): string | undefined {
    const named = this.contacts.find((contactId) => key === 'contact_id' && meaning === `string:${contactId}`)
    return named ?? this.identifiers.find((one) => one.key === key && one.meaning === meaning)?.contact_id
  }
}

/** Text that is equal for posts of the same event (docs/semantics.md#idempotency). */
const same = ({ module_id, timestamp, name, props, identifiers }: Post) =>
  JSON.stringify([module_id, timestamp, name, props, identifiers.map(({ key, meaning }) => `${key} ${meaning}`).sort()])
