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
import { FIRST_NAMES, FLOWS, type Flow, GROUPS, HOUR_WEIGHTS, LAST_NAMES, type Page, PROJECT_NAME } from './content.ts'

/** Ids that exist in a demo project of any size; the examples of the OpenAPI document use them. */
export const DEMO = {
  projectId: 'demo',
  moduleId: 'skin-quiz',
  versionNumber: 2,
  entryId: '019ca8bb-b5c0-7000-8000-000000000001',
} as const

export interface DemoOptions {
  projectId?: string
  entries?: number
}

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

type Random = () => number

/** Chosen so that the first entry reaches the last page, with several custom events. */
const SEED = 75_050
const SECOND = 1000
const HOUR = 3600 * SECOND
const DAY = 24 * HOUR
/** The start of the first entry; the others start within the season. */
const FIRST_START = Date.parse('2026-03-01T09:30:00.000Z')
const SEASON_START = Date.parse('2026-01-05T00:00:00.000Z')
const SEASON_END = Date.parse('2026-06-30T00:00:00.000Z')
const SEASON_DAYS = (SEASON_END - SEASON_START) / DAY

const timestamp = (ms: number): string => new Date(ms).toISOString()
const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, '0')

/** A UUIDv7 made of the time, the kind of record (the variant digit), the entry's index and a count within the entry. */
function uuid(ms: number, kind: '8' | '9' | 'a', i: number, count = 0): string {
  const time = hex(ms, 12)
  return `${time.slice(0, 8)}-${time.slice(8)}-7${hex(count, 3)}-${kind}000-${hex(i + 1, 12)}`
}

/** The random number generator of entry `i` (splitmix32): an entry is the same in a demo of any size. */
function generatorFor(i: number): Random {
  let state = Math.imul(i + 1, 0x85ebca6b) ^ SEED
  return () => {
    state = (state + 0x9e3779b9) | 0
    let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad)
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97)
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32
  }
}

const pick = <T>(random: Random, items: readonly T[]): T => items[Math.floor(random() * items.length)] as T

/** A random index, each as likely as its weight. */
function pickWeighted(random: Random, weights: readonly number[]): number {
  let rest = random() * weights.reduce((sum, weight) => sum + weight, 0)
  return weights.findIndex((weight) => {
    rest -= weight
    return rest < 0
  })
}

const pagesOf = (flow: Flow, keys: readonly string[]): Page[] =>
  keys.map((key) => flow.pages.find((page) => page.page_key === key) as Page)

const FLOW_WEIGHTS = FLOWS.map((flow) => flow.weight)

/** The pages of each published version of a flow, with its time of publication. */
const PUBLISHED = new Map(
  FLOWS.map((flow) => [
    flow,
    flow.versions.flatMap(({ published_at, page_keys }) =>
      published_at ? [{ from: Date.parse(published_at), pages: pagesOf(flow, page_keys) }] : [],
    ),
  ]),
)

/** Every eighth entry is a later visit to the next flow by the contact of the previous entry. */
const isSecondVisit = (i: number): boolean => i % 8 === 5

interface Start {
  flow: Flow
  at: number
}

function startOf(i: number, random: Random): Start {
  if (i === 0) return { flow: FLOWS[0] as Flow, at: FIRST_START }
  if (isSecondVisit(i)) {
    const first = startOf(i - 1, generatorFor(i - 1))
    const delay = (SEASON_END - first.at) * random() ** 2
    return { flow: FLOWS[(FLOWS.indexOf(first.flow) + 1) % FLOWS.length] as Flow, at: first.at + Math.floor(delay) }
  }
  const flow = FLOWS[pickWeighted(random, FLOW_WEIGHTS)] as Flow
  const day = Math.floor(SEASON_DAYS * random() ** 0.8)
  const hour = pickWeighted(random, HOUR_WEIGHTS) + random()
  return { flow, at: SEASON_START + day * DAY + Math.floor(hour * HOUR) }
}

interface Contact {
  id: string
  createdAt: number
  name: string
  email: string
  phone?: string
  crmId?: number
}

/** A name as it is spelled in an email address. */
const plainLetters = (name: string): string =>
  name
    .normalize('NFD')
    .toLowerCase()
    .replace(/[^a-z]/g, '')
const FIRST_NAMES_IN_EMAIL = FIRST_NAMES.map(plainLetters)
const LAST_NAMES_IN_EMAIL = LAST_NAMES.map(plainLetters)

/** The numbers 555-0100 to 555-0199 are reserved for fiction; with 789 area codes they suffice for 78,900 contacts. */
const AREA_CODES = 789
const FICTIONAL_NUMBERS = 100

function phoneOf(k: number): string | undefined {
  if (k >= AREA_CODES * FICTIONAL_NUMBERS) return undefined
  return `+1 ${201 + (k % AREA_CODES)} 555 01${String(k % FICTIONAL_NUMBERS).padStart(2, '0')}`
}

/** The contact whose first entry is entry `i`. */
function newContact(i: number, createdAt: number): Contact {
  const first = i % FIRST_NAMES.length
  const last = i % LAST_NAMES.length
  const namesake = Math.floor(i / (FIRST_NAMES.length * LAST_NAMES.length))
  const domain = i % 7 === 3 ? 'example.org' : i % 7 === 5 ? 'example.net' : 'example.com'
  return {
    id: uuid(createdAt, '9', i),
    createdAt,
    name: `${FIRST_NAMES[first]} ${LAST_NAMES[last]}`,
    email: `${FIRST_NAMES_IN_EMAIL[first]}.${LAST_NAMES_IN_EMAIL[last]}${namesake || ''}@${domain}`,
    phone: i % 3 === 0 ? phoneOf(i / 3) : undefined,
    crmId: i % 5 === 0 ? 40_000 + i / 5 : undefined,
  }
}

const contactFor = (i: number, start: Start): Contact =>
  isSecondVisit(i) ? newContact(i - 1, startOf(i - 1, generatorFor(i - 1)).at) : newContact(i, start.at)

type Step = { at: number } & ({ page: number } | { name: string; props: string })

/** A visit: page views and custom events in the order in which they happened, and the answers to the questions. */
interface Visit {
  start: Start
  contact: Contact
  pages: readonly Page[]
  steps: Step[]
  updatedAt: number
  answers: Record<string, unknown>
}

/** Adds random answers to the questions of a page. */
function answerPage(random: Random, page: Page, contact: Contact, answers: Record<string, unknown>): void {
  for (const block of page.blocks) {
    if (block.type === 'choice') answers[block.field] = pick(random, block.options)
    else if (block.type === 'multiple_choice') {
      const chosen = block.options.filter(() => random() < 0.4)
      answers[block.field] = chosen.length > 0 ? chosen : [pick(random, block.options)]
    } else if (block.type === 'input') answers[block.field] = contact[block.field]
  }
}

function visitOf(i: number): Visit {
  const random = generatorFor(i)
  const start = startOf(i, random)
  const contact = contactFor(i, start)
  const pages = PUBLISHED.get(start.flow)?.findLast((version) => version.from <= start.at)?.pages as Page[]
  const steps: Step[] = []
  const answers: Record<string, unknown> = {}
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
  }
  for (let again = 0; again < 3 && random() < 0.3; again += 1) view(furthest, (0.1 + 4 * random()) * HOUR)

  const updatedAt = steps.findLast((step) => 'page' in step)?.at ?? start.at
  return { start, contact, pages, steps, updatedAt, answers }
}

function* versionRecords(project_id: string, flow: Flow): Generator<DemoRecord> {
  for (const [index, { title, page_keys, ...times }] of flow.versions.entries()) {
    const pages = pagesOf(flow, page_keys).map(({ page_id, page_key, title, blocks }) => ({
      page_id,
      page_key,
      title,
      blocks,
    }))
    const json_string = JSON.stringify({ title, pages })
    const version_number = index + 1
    yield { type: 'module_version', project_id, module_id: flow.module_id, version_number, ...times, json_string }
  }
}

function contactRecord(project_id: string, i: number): DemoRecord {
  const { id, createdAt, email, phone, crmId } = newContact(i, startOf(i, generatorFor(i)).at)
  const identifiers = [{ key: 'email', value: JSON.stringify(email) }]
  if (phone) identifiers.push({ key: 'phone', value: JSON.stringify(phone) })
  if (crmId) identifiers.push({ key: 'crm_id', value: JSON.stringify(crmId) })
  return { type: 'contact', project_id, contact_id: id, created_at: timestamp(createdAt), identifiers }
}

function entryRecord(project_id: string, i: number): DemoRecord {
  const { start, contact, updatedAt, answers } = visitOf(i)
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

function* eventRecords(project_id: string, i: number): Generator<DemoRecord> {
  const { start, pages, steps } = visitOf(i)
  const entry_id = uuid(start.at, '8', i)
  for (const [count, step] of steps.entries()) {
    const event = {
      type: 'event',
      project_id,
      entry_id,
      event_id: uuid(step.at, 'a', i, count),
      timestamp: timestamp(step.at),
    } as const
    if ('name' in step) {
      yield { ...event, event_type: CUSTOM_EVENT, custom_event_name: step.name, custom_event_props: step.props }
    } else {
      const { page_id, page_key } = pages[step.page] as Page
      const view = { event_type: PAGE_VIEWED, view_type: 'flowpage', page_id, page_key }
      yield { ...event, ...view, page_index: step.page, total_pages: pages.length }
    }
  }
}

/**
 * Yields the import records of a demo project (docs/import.md), parents before children. Entries are recomputed for each
 * of their record types instead of being kept, so memory does not grow with their number.
 */
export function* demoRecords({ projectId = DEMO.projectId, entries = 400 }: DemoOptions = {}): Generator<DemoRecord> {
  const project_id = projectId
  yield { type: 'project', project_id, name: PROJECT_NAME }
  for (const group of GROUPS) yield { type: 'group', project_id, ...group }
  for (const { module_id, group_id, title, created_at } of FLOWS) {
    yield { type: 'module', project_id, module_id, group_id, title, created_at }
  }
  for (const flow of FLOWS) yield* versionRecords(project_id, flow)
  for (let i = 0; i < entries; i += 1) if (!isSecondVisit(i)) yield contactRecord(project_id, i)
  for (let i = 0; i < entries; i += 1) yield entryRecord(project_id, i)
  for (let i = 0; i < entries; i += 1) yield* eventRecords(project_id, i)
}
