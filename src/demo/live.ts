import { randomInt } from 'node:crypto'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import type { components } from '../../generated/api.ts'
import { CONTACT_ID_KEY } from '../domain/identifier.ts'
import { toIsoTimestamp } from '../domain/timestamp.ts'
import type { ApiClient } from './api-client.ts'
import { FLOWS, type Flow, type Page } from './content.ts'
import { moduleRecords } from './project.ts'
import {
  type Contact,
  contactRecord,
  type DemoRecord,
  definitionOf,
  entryRecord,
  eventRecord,
  flowAfter,
  generatorFor,
  HOUR,
  isSecondVisit,
  nameOf,
  pagesOf,
  pickFlow,
  uuid,
  visit,
} from './visits.ts'

type CustomEvent = components['schemas']['CustomEventBatchItem']

export interface LiveOptions {
  projectId: string
  /** How many visitors begin in a second, on average. */
  rate: number
  /** What the visitors do depends on it and on nothing else, but for ids, times and email addresses. */
  seed: number
  /** How many times faster than people they are. */
  speed: number
  /** How many of them there are; Infinity for no end. */
  visitors: number
}

/** How much has happened, and was accepted by the server. */
export interface LiveCounts {
  visitors: number
  /** Those who are still there. */
  active: number
  records: number
  events: number
}

/** What a visitor does at a time: records for an import, or a custom event for a batch. */
type Action = { at: number } & ({ records: DemoRecord[] } | { event: CustomEvent })

/** How often what has happened is sent. */
const SEND_INTERVAL_ms = 200
const MAX_LINES = 500
const MAX_EVENTS = 1_000
/** When so much waits to be sent, no visitors begin, until the server can be reached again. */
const MAX_WAITING = 10_000
/** Every so many visitors find a new version of a flow. */
const VISITORS_PER_VERSION = 25

/** Simulated visitors who run through the demo's flows, and whose records and events are sent over the API as they go. */
export class LiveDemo {
  readonly counts: LiveCounts = { visitors: 0, active: 0, records: 0, events: 0 }
  readonly #api: ApiClient
  readonly #options: LiveOptions
  /** The number of the first visitor in ids and email addresses, which no other run should use. */
  readonly #first = randomInt(2 ** 47)
  readonly #versions = new Map<Flow, number>()
  readonly #pages = new Map<Flow, readonly Page[]>()
  /** The contact of the last visitor, and the flow that they would begin next. */
  #next: { flow: Flow; contact: Contact } | undefined
  #waiting: Action[] = []

  constructor(api: ApiClient, options: LiveOptions) {
    this.#api = api
    this.#options = options
  }

  /**
   * Lets all visitors come and go, after `begin`.
   *
   * @param signal ends it, once what has happened is sent
   * @throws Error when the server refuses the key or the project
   */
  async run(signal: AbortSignal): Promise<void> {
    const failure = new AbortController()
    let isOver = false
    const coming = this.#letVisitorsCome(signal, failure).finally(() => {
      isOver = true
    })
    try {
      for (let isLast = false; !isLast; ) {
        await sleep(SEND_INTERVAL_ms)
        isLast = isOver
        await this.#send()
      }
      if (!signal.aborted) failure.signal.throwIfAborted()
    } finally {
      failure.abort()
      await coming
    }
  }

  /** @param failure ends it, too, and is aborted when it fails */
  async #letVisitorsCome(stop: AbortSignal, failure: AbortController): Promise<void> {
    const { seed, rate, visitors } = this.#options
    const signal = AbortSignal.any([stop, failure.signal])
    const fail = (error: unknown) => failure.abort(error)
    const active = new Set<Promise<void>>()
    const random = generatorFor(-1, seed)
    const come = async () => {
      let next_ms = performance.now()
      for (let i = 0; i < visitors; i += 1) {
        next_ms += (-Math.log(1 - random()) * 1_000) / rate
        const gap_ms = next_ms - performance.now()
        await (gap_ms > 0 ? sleep(gap_ms, undefined, { signal }) : nextTurn(undefined, { signal }))
        for (; this.#waiting.length >= MAX_WAITING; next_ms = performance.now()) {
          await sleep(SEND_INTERVAL_ms, undefined, { signal })
        }
        const visit = this.#visit(i, signal)
          .catch(fail)
          .finally(() => active.delete(visit))
        active.add(visit)
      }
      await Promise.all(active)
    }
    await come().catch(fail)
  }

  /**
   * Makes sure of the modules, and finds out their newest versions.
   *
   * @throws Error when the server cannot be reached, or refuses the key or the project
   */
  async begin(): Promise<void> {
    const { projectId } = this.#options
    await this.#api.check()
    await this.#api.importRecords([...moduleRecords(projectId)])
    for (const flow of FLOWS) {
      this.#versions.set(flow, await this.#api.newestVersion(flow.module_id))
      const published = flow.versions.findLast(({ published_at }) => published_at)
      this.#pages.set(flow, pagesOf(flow, published?.page_keys ?? []))
    }
  }

  async #visit(i: number, signal: AbortSignal): Promise<void> {
    if (i % VISITORS_PER_VERSION === VISITORS_PER_VERSION - 1) this.#publish(Math.floor(i / VISITORS_PER_VERSION))
    this.counts.visitors += 1
    this.counts.active += 1
    try {
      for (const action of this.#actions(i)) {
        const wait_ms = action.at - Date.now()
        // Not for the first, so that whoever is counted as a visitor has an entry.
        if (wait_ms > 0) await sleep(wait_ms, undefined, { signal })
        this.#waiting.push(action)
      }
    } finally {
      this.counts.active -= 1
    }
  }

  /** Publishes the flows in turn: with the pages of the newest draft, then with those of the version before it. */
  #publish(edition: number): void {
    const flow = FLOWS[edition % FLOWS.length] as Flow
    const isDraft = Math.floor(edition / FLOWS.length) % 2 === 0
    const { page_keys } = flow.versions.at(isDraft ? -1 : -2) ?? (flow.versions[0] as Flow['versions'][number])
    const pages = pagesOf(flow, page_keys)
    const version_number = (this.#versions.get(flow) ?? 0) + 1
    this.#versions.set(flow, version_number)
    this.#pages.set(flow, pages)
    const at = Date.now()
    const [time, title] = [new Date(at).toISOString(), `${flow.title}, edition ${version_number}`]
    const version = { version_number, saved_at: time, published_at: time, json_string: definitionOf(title, pages) }
    const { module_id } = flow
    const project_id = this.#options.projectId
    this.#waiting.push({ at, records: [{ type: 'module_version', project_id, module_id, ...version }] })
  }

  /** What visitor `i` does, from now on. */
  #actions(i: number): Action[] {
    const { projectId, seed, speed } = this.#options
    const random = generatorFor(i, seed)
    const chosen = pickFlow(random)
    const at = Date.now()
    const { flow, contact } = (isSecondVisit(i) && this.#next) || { flow: chosen, contact: this.#newContact(i, at) }
    const start = { flow, at }
    // Another one, since a custom event belongs to the newest entry of its module.
    this.#next = { flow: flowAfter(flow), contact }
    const planned = visit(random, start, this.#pages.get(start.flow) as readonly Page[], contact)
    const timed = <T extends { at: number }>(items: readonly T[]) =>
      items
        .filter(({ at }) => at < start.at + HOUR)
        .map((item) => ({ ...item, at: start.at + Math.floor((item.at - start.at) / speed) }))

    const identified: DemoRecord[] = [contactRecord(projectId, contact)]
    const anonymous = { ...contactRecord(projectId, contact), identifiers: [] } as DemoRecord
    const entryAt = (updatedAt: number, answers: Record<string, unknown>) =>
      entryRecord(projectId, this.#first + i, { start, contact, updatedAt, answers })
    const saved = timed(planned.saved)
    const actions: Action[] = [
      { at: start.at, records: [anonymous, entryAt(start.at, {})] },
      ...saved.map(({ at, answers }) => ({
        at,
        records: [entryAt(at, answers), ...('email' in answers ? identified : [])],
      })),
      ...timed(planned.steps).map((step, index): Action => {
        const record = eventRecord(projectId, this.#first + i, planned, step, index)
        if (!('name' in step)) {
          // Whoever follows the entries finds a page view by the time of its entry's last change.
          const { answers = {} } = saved.findLast(({ at }) => at <= step.at) ?? {}
          return { at: step.at, records: [entryAt(step.at, answers), record] }
        }
        const { event_id: idempotency_key } = record
        const { name: custom_event_name, props: custom_event_props } = step
        const identifiers = [{ key: CONTACT_ID_KEY, value: JSON.stringify(contact.id) }]
        const timestamp = toIsoTimestamp(new Date(step.at))
        const what = { module_id: start.flow.module_id, timestamp, custom_event_name, custom_event_props }
        return { at: step.at, event: { ...what, identifiers, idempotency_key } }
      }),
    ]
    return actions.sort((a, b) => a.at - b.at)
  }

  #newContact(i: number, createdAt: number): Contact {
    const { name, inEmail } = nameOf(i)
    return {
      id: uuid(createdAt, '9', this.#first + i),
      createdAt,
      name,
      email: `${inEmail}.${(this.#first + i).toString(36)}@example.com`,
    }
  }

  /** Sends what has happened, the records before the events, since these need the contacts and entries. */
  async #send(): Promise<void> {
    const actions = this.#waiting.splice(0)
    const records = actions.flatMap((action) => ('records' in action ? action.records : []))
    const events = actions.flatMap((action) => ('event' in action ? [action.event] : []))
    for (let i = 0; i < records.length; i += MAX_LINES) {
      this.counts.records += await this.#api.importRecords(records.slice(i, i + MAX_LINES))
    }
    for (let i = 0; i < events.length; i += MAX_EVENTS) {
      this.counts.events += await this.#api.recordEvents(events.slice(i, i + MAX_EVENTS))
    }
  }
}
