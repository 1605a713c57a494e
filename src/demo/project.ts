import { FLOWS, type Flow, GROUPS, HOUR_WEIGHTS, type Page, PROJECT_NAME } from './content.ts'
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
  NAMES,
  nameOf,
  pagesOf,
  pickFlow,
  pickWeighted,
  type Random,
  type Start,
  uuid,
  type Visit,
  visit,
} from './visits.ts'

export type { DemoRecord } from './visits.ts'

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
  /** Whether the project exists, whose name is not the demo's then. */
  isExisting?: boolean
}

/** Chosen so that the first entry reaches the last page, with several custom events. */
const SEED = 75_050
const DAY = 24 * HOUR
/** The start of the first entry; the others start within the season. */
const FIRST_START = Date.parse('2026-03-01T09:30:00.000Z')
const SEASON_START = Date.parse('2026-01-05T00:00:00.000Z')
const SEASON_END = Date.parse('2026-06-30T00:00:00.000Z')
const SEASON_DAYS = (SEASON_END - SEASON_START) / DAY

/** The pages of each published version of a flow, with its time of publication. */
const PUBLISHED = new Map(
  FLOWS.map((flow) => [
    flow,
    flow.versions.flatMap(({ published_at, page_keys }) =>
      published_at ? [{ from: Date.parse(published_at), pages: pagesOf(flow, page_keys) }] : [],
    ),
  ]),
)

function startOf(i: number, random: Random): Start {
  if (i === 0) return { flow: FLOWS[0] as Flow, at: FIRST_START }
  if (isSecondVisit(i)) {
    const first = startOf(i - 1, generatorFor(i - 1, SEED))
    const delay = (SEASON_END - first.at) * random() ** 2
    return { flow: flowAfter(first.flow), at: first.at + Math.floor(delay) }
  }
  const flow = pickFlow(random)
  const day = Math.floor(SEASON_DAYS * random() ** 0.8)
  const hour = pickWeighted(random, HOUR_WEIGHTS) + random()
  return { flow, at: SEASON_START + day * DAY + Math.floor(hour * HOUR) }
}

/** The numbers 555-0100 to 555-0199 are reserved for fiction; with 789 area codes they suffice for 78,900 contacts. */
const AREA_CODES = 789
const FICTIONAL_NUMBERS = 100

function phoneOf(k: number): string | undefined {
  if (k >= AREA_CODES * FICTIONAL_NUMBERS) return undefined
  return `+1 ${201 + (k % AREA_CODES)} 555 01${String(k % FICTIONAL_NUMBERS).padStart(2, '0')}`
}

/** The contact whose first entry is entry `i`. */
function newContact(i: number, createdAt: number): Contact {
  const { name, inEmail } = nameOf(i)
  const namesake = Math.floor(i / NAMES)
  const domain = i % 7 === 3 ? 'example.org' : i % 7 === 5 ? 'example.net' : 'example.com'
  return {
    id: uuid(createdAt, '9', i),
    createdAt,
    name,
    email: `${inEmail}${namesake || ''}@${domain}`,
    phone: i % 3 === 0 ? phoneOf(i / 3) : undefined,
    crmId: i % 5 === 0 ? 40_000 + i / 5 : undefined,
  }
}

const contactFor = (i: number, start: Start): Contact =>
  isSecondVisit(i) ? newContact(i - 1, startOf(i - 1, generatorFor(i - 1, SEED)).at) : newContact(i, start.at)

function visitOf(i: number): Visit {
  const random = generatorFor(i, SEED)
  const start = startOf(i, random)
  const pages = PUBLISHED.get(start.flow)?.findLast((version) => version.from <= start.at)?.pages as Page[]
  return visit(random, start, pages, contactFor(i, start))
}

function* versionRecords(project_id: string, flow: Flow): Generator<DemoRecord> {
  for (const [index, { title, page_keys, ...times }] of flow.versions.entries()) {
    const json_string = definitionOf(title, pagesOf(flow, page_keys))
    const version_number = index + 1
    yield { type: 'module_version', project_id, module_id: flow.module_id, version_number, ...times, json_string }
  }
}

/** Yields the import records of the demo's groups and modules with their versions. */
export function* moduleRecords(project_id: string): Generator<DemoRecord> {
  for (const group of GROUPS) yield { type: 'group', project_id, ...group }
  for (const { module_id, group_id, title, created_at } of FLOWS) {
    yield { type: 'module', project_id, module_id, group_id, title, created_at }
  }
  for (const flow of FLOWS) yield* versionRecords(project_id, flow)
}

/**
 * Yields the import records of a demo project (docs/import.md), parents before children. Entries are recomputed for each
 * of their record types instead of being kept, so memory does not grow with their number.
 */
export function* demoRecords({
  projectId = DEMO.projectId,
  entries = 400,
  isExisting = false,
}: DemoOptions = {}): Generator<DemoRecord> {
  const project_id = projectId
  yield { type: 'project', project_id, ...(!isExisting && { name: PROJECT_NAME }) }
  yield* moduleRecords(project_id)
  for (let i = 0; i < entries; i += 1) {
    if (!isSecondVisit(i)) yield contactRecord(project_id, newContact(i, startOf(i, generatorFor(i, SEED)).at))
  }
  for (let i = 0; i < entries; i += 1) yield entryRecord(project_id, i, visitOf(i))
  for (let i = 0; i < entries; i += 1) {
    const visit = visitOf(i)
    for (const [index, step] of visit.steps.entries()) yield eventRecord(project_id, i, visit, step, index)
  }
}
