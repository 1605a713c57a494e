import { CUSTOM_EVENT, PAGE_VIEWED } from '../domain/event.ts'
import type { Identifier } from '../domain/identifier.ts'
import type {
  ContactRecord,
  EntryRecord,
  EventRecord,
  GroupRecord,
  ModuleRecord,
  ModuleVersionRecord,
  ProjectRecord,
} from '../transfer/records.ts'
import { FIRST_NAMES, FLOWS, type Flow, LAST_NAMES, type Page } from './content.ts'

// Visits to the flows of the demo: whoever begins one, what they see, answer and do, and its records.

/** A contact record as it is on a line, before an import parses it. */
type ContactLine = Omit<ContactRecord, 'identifiers'> & { identifiers: Identifier[] }

/** A record as it is on a line of an import. */
export type DemoRecord =
  | ProjectRecord
  | GroupRecord
  | Required<ModuleRecord>
  | ModuleVersionRecord
  | Required<ContactLine>
  | Required<EntryRecord>
  | EventRecord

export type Random = () => number

const SECOND = 1000
export const HOUR = 3600 * SECOND

const timestamp = (ms: number): string => new Date(ms).toISOString()
const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, '0')

/** A UUIDv7 made of the time, the kind of record (the variant digit), the entry's index and a count within the entry. */
export function uuid(ms: number, kind: '8' | '9' | 'a', i: number, count = 0): string {
  const time = hex(ms, 12)
  return `${time.slice(0, 8)}-${time.slice(8)}-7${hex(count, 3)}-${kind}000-${hex(i + 1, 12)}`
}

/** The random number generator of visit `i` (splitmix32): a visit is the same whatever others there are. */
export function generatorFor(i: number, seed: number): Random {
  let state = Math.imul(i + 1, 0x85ebca6b) ^ seed
  return () => {
    state = (state + 0x9e3779b9) | 0
    let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad)
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97)
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32
  }
}

const pick = <T>(random: Random, items: readonly T[]): T => items[Math.floor(random() * items.length)] as T

/** A random index, each as likely as its weight. */
export function pickWeighted(random: Random, weights: readonly number[]): number {
  let rest = random() * weights.reduce((sum, weight) => sum + weight, 0)
  return weights.findIndex((weight) => {
    rest -= weight
    return rest < 0
  })
}

const FLOW_WEIGHTS = FLOWS.map((flow) => flow.weight)

/** A random flow, each as likely as its weight. */
export const pickFlow = (random: Random): Flow => FLOWS[pickWeighted(random, FLOW_WEIGHTS)] as Flow

/** Every eighth visit is a later one, to the next flow, by the contact of the visit before it. */
export const isSecondVisit = (i: number): boolean => i % 8 === 5

export const flowAfter = (flow: Flow): Flow => FLOWS[(FLOWS.indexOf(flow) + 1) % FLOWS.length] as Flow

/** The pages of a flow with these keys, in their order. */
export const pagesOf = (flow: Flow, keys: readonly string[]): Page[] =>
  keys.map((key) => flow.pages.find((page) => page.page_key === key) as Page)

/** A name as it is spelled in an email address. */
const plainLetters = (name: string): string =>
  name
    .normalize('NFD')
    .toLowerCase()
    .replace(/[^a-z]/g, '')
const FIRST_NAMES_IN_EMAIL = FIRST_NAMES.map(plainLetters)
const LAST_NAMES_IN_EMAIL = LAST_NAMES.map(plainLetters)

/** How many contacts have different names. */
export const NAMES = FIRST_NAMES.length * LAST_NAMES.length

/** The name of contact `i`, and how an email address begins with it. */
export function nameOf(i: number): { name: string; inEmail: string } {
  const first = i % FIRST_NAMES.length
  const last = i % LAST_NAMES.length
  return {
    name: `${FIRST_NAMES[first]} ${LAST_NAMES[last]}`,
    inEmail: `${FIRST_NAMES_IN_EMAIL[first]}.${LAST_NAMES_IN_EMAIL[last]}`,
  }
}

export interface Contact {
  id: string
  createdAt: number
  name: string
  email: string
  phone?: string | undefined
  crmId?: number | undefined
}

/** Where and when a visit begins. */
export interface Start {
  flow: Flow
  at: number
}

type Answers = Record<string, unknown>
export type Step = { at: number } & ({ page: number } | { name: string; props: string })

/** A visit: page views and custom events in the order in which they happened, and the answers to the questions. */
export interface Visit {
  start: Start
  contact: Contact
  pages: readonly Page[]
  steps: Step[]
  updatedAt: number
  answers: Answers
  /** All answers so far, each time a page was answered. */
  saved: { at: number; answers: Answers }[]
}

/** Adds random answers to the questions of a page. */
function answerPage(random: Random, page: Page, contact: Contact, answers: Answers): void {
  for (const block of page.blocks) {
    if (block.type === 'choice') answers[block.field] = pick(random, block.options)
    else if (block.type === 'multiple_choice') {
      const chosen = block.options.filter(() => random() < 0.4)
      answers[block.field] = chosen.length > 0 ? chosen : [pick(random, block.options)]
    } else if (block.type === 'input') answers[block.field] = contact[block.field]
  }
}

/** What a contact does in a flow of these pages. Some drop off, go back, or look in again within hours. */
export function visit(random: Random, start: Start, pages: readonly Page[], contact: Contact): Visit {
  const steps: Step[] = []
  const saved: Visit['saved'] = []
  const answers: Answers = {}
  let at = start.at
  const after = (ms: number): number => {
    at += Math.floor(ms)
    return at
  }
  const view = (page: number, delay: number): void => {
    steps.push({ at: after(delay), page })
  }
  const dwell = (): number => (3 + 45 * random() ** 2) * SECOND

  view(0, 150 + 700 * random())
  let furthest = 0
  for (const [index, page] of pages.entries()) {
    furthest = index
    if (index > 0) view(index, dwell())
    for (const { name, chance, props } of page.events) {
      if (random() >= chance) break
      steps.push({ at: after(dwell()), name, props: JSON.stringify(pick(random, props)) })
    }
    if (index > 0 && random() < 0.32) {
      view(index - 1, dwell())
      view(index, dwell())
    }
    if (random() >= page.onward) break
    answerPage(random, page, contact, answers)
    saved.push({ at, answers: { ...answers } })
  }
  for (let again = 0; again < 3 && random() < 0.3; again += 1) view(furthest, (0.1 + 4 * random()) * HOUR)

  const updatedAt = steps.findLast((step) => 'page' in step)?.at ?? start.at
  return { start, contact, pages, steps, updatedAt, answers, saved }
}

/** The definition of a version of a flow. */
export function definitionOf(title: string, pages: readonly Page[]): string {
  const shown = pages.map(({ page_id, page_key, title, blocks }) => ({ page_id, page_key, title, blocks }))
  return JSON.stringify({ title, pages: shown })
}

export function contactRecord(project_id: string, { id, createdAt, email, phone, crmId }: Contact): DemoRecord {
  const identifiers = [{ key: 'email', value: JSON.stringify(email) }]
  if (phone) identifiers.push({ key: 'phone', value: JSON.stringify(phone) })
  if (crmId) identifiers.push({ key: 'crm_id', value: JSON.stringify(crmId) })
  return { type: 'contact', project_id, contact_id: id, created_at: timestamp(createdAt), identifiers }
}

/** The entry of visit `i`, at its end unless told otherwise. */
export function entryRecord(
  project_id: string,
  i: number,
  { start, contact, updatedAt, answers }: Pick<Visit, 'start' | 'contact' | 'updatedAt' | 'answers'>,
): DemoRecord {
  return {
    type: 'entry',
    project_id,
    entry_id: uuid(start.at, '8', i),
    module_id: start.flow.module_id,
    contact_id: contact.id,
    created_at: timestamp(start.at),
    updated_at: timestamp(updatedAt),
    entry_data: JSON.stringify(answers),
  }
}

/** The event of a step of visit `i`, the one with this index. */
export function eventRecord(
  project_id: string,
  i: number,
  { start, pages }: Visit,
  step: Step,
  index: number,
): EventRecord {
  const event = {
    type: 'event',
    project_id,
    entry_id: uuid(start.at, '8', i),
    event_id: uuid(step.at, 'a', i, index),
    timestamp: timestamp(step.at),
  } as const
  if ('name' in step) {
    return { ...event, event_type: CUSTOM_EVENT, custom_event_name: step.name, custom_event_props: step.props }
  }
  const { page_id, page_key } = pages[step.page] as Page
  const view = { event_type: PAGE_VIEWED, view_type: 'flowpage', page_id, page_key }
  return { ...event, ...view, page_index: step.page, total_pages: pages.length }
}
