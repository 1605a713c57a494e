import { DEMO } from '../src/demo/project.ts'
import { formatKey, generateKey, hashSecret, SCOPES } from '../src/domain/api-key.ts'
import { storePageViews } from '../src/transfer/page-views.ts'
import { runFlowtrail } from '../tests/support/service.ts'
import { CACHE, type DataSet, rowsOf } from './data.ts'

/** Long entries, so that a page of 100 events can be requested; entries of the demo have about ten. */
const LONG_ENTRIES = { entries: 500, eventsEach: 100 }

const EVENTS_OF_ENTRY = 10

/** Only the migrated schema. */
export const EMPTY: DataSet = { name: 'empty', fill: async () => {} }

/** The demo project with this many entries, plus some long entries. */
export const demoSet = (entries: number): DataSet => ({
  name: `demo_${entries}`,
  async fill(url) {
    await loadDemo(url, entries)
    await seedEntries(url, { projects: [DEMO.projectId], ...LONG_ENTRIES })
  },
})

/** A number of projects with the same number of events each. */
export interface ProjectsOfSize {
  projects: number
  events: number
}

/** The ids of the projects of a size. */
export const projectIds = ({ projects, events }: ProjectsOfSize) =>
  Array.from({ length: projects }, (_, i) => `p${events}-${i + 1}`)

/** Projects with the demo's modules, and ten events in each entry. */
export const projectsSet = (sizes: readonly ProjectsOfSize[]): DataSet => ({
  name: sizes.map(({ projects, events }) => `${projects}x${events}`).join('_'),
  async fill(url) {
    await loadDemo(url, 1)
    for (const size of sizes) {
      const projects = projectIds(size)
      await seedProjects(url, projects)
      await seedEntries(url, { projects, entries: size.events / EVENTS_OF_ENTRY, eventsEach: EVENTS_OF_ENTRY })
    }
  },
})

/** Creates an API key for each of the projects. @returns the keys by project id */
export async function makeKeys(url: string, projectIds: readonly string[]): Promise<Map<string, string>> {
  const keys = projectIds.map(() => generateKey())
  await rowsOf(
    url,
    `INSERT INTO api_keys (project_id, key_id, secret_hash, name, scopes, created_at)
     SELECT project_id, key_id, secret_hash, 'bench', $4, now()
     FROM unnest($1::text[], $2::text[], $3::bytea[]) AS new_keys (project_id, key_id, secret_hash)`,
    [projectIds, keys.map(({ key_id }) => key_id), keys.map(({ secret }) => hashSecret(secret)), SCOPES],
  )
  return new Map(projectIds.map((projectId, i) => [projectId, formatKey(keys[i] as (typeof keys)[number])]))
}

async function loadDemo(url: string, entries: number): Promise<void> {
  const demo = runFlowtrail(['demo', '--entries', String(entries)], { DATABASE_URL: url, DATA_DIR: CACHE })
  if ((await demo.exit) !== 0) throw new Error(`flowtrail demo: ${demo.stderr()}`)
}

/** Creates projects with the groups, modules and versions of the demo project. */
async function seedProjects(url: string, projectIds: readonly string[]): Promise<void> {
  await rowsOf(url, 'INSERT INTO projects (project_id, name) SELECT id, id FROM unnest($1::text[]) AS id', [projectIds])
  const copies = {
    groups: 'group_id, name',
    modules: 'module_id, group_id, title, created_at',
    module_versions: 'module_id, version_number, saved_at, published_at, json_string',
  }
  for (const [table, columns] of Object.entries(copies)) {
    await rowsOf(
      url,
      `INSERT INTO ${table} (project_id, ${columns})
       SELECT id, ${columns} FROM ${table}, unnest($1::text[]) AS id WHERE project_id = '${DEMO.projectId}'`,
      [projectIds],
    )
  }
}

/** SQL for an id like those of the service: the time in milliseconds, then a number. */
const idOf = (time: string, number: string) => {
  const hex = `lpad(to_hex((extract(epoch FROM ${time}) * 1000)::bigint), 12, '0')`
  return `left(${hex}, 8) || '-' || right(${hex}, 4) || '-7000-8000-' || lpad(to_hex(${number}), 12, '0')`
}

/** The entries of a project, evenly spread over the season: `n` is an entry's number, `created` its time. */
const VISITS = `
  SELECT project_id, n, created, ${idOf('created', 'n')} AS entry_id, ${idOf('created', 'n + (1 << 30)')} AS contact_id
  FROM unnest($1::text[]) AS project_id, generate_series(1, $2::int) AS n,
    date_trunc('milliseconds', timestamptz '2026-01-05' + (n - 0.5) * interval '175 days' / $2) AS created`

const EMAIL = `'visitor' || n || '@mail.example.com'`

const STEPS = [
  `INSERT INTO contacts (project_id, contact_id, created_at) SELECT project_id, contact_id, created FROM visits`,
  `INSERT INTO contact_identifiers (project_id, digest, contact_id, key, value)
   SELECT project_id, sha256(convert_to('email', 'UTF8') || '\\x00' || convert_to('s' || ${EMAIL}, 'UTF8')), contact_id,
     'email', to_json(${EMAIL})
   FROM visits`,
  `INSERT INTO entries (project_id, entry_id, module_id, contact_id, created_at, updated_at, entry_data)
   SELECT project_id, entry_id, $3, contact_id, created, created + interval '1 minute',
     json_build_object('skin_type', 'combination', 'goals', ARRAY['hydration', 'glow'], 'name', 'Ada Moreau ' || n)
   FROM visits`,
]

/**
 * Seven of ten events are page views, as in the demo; a visit goes through seven pages repeatedly. The events of an entry
 * are stored together, as after an import.
 */
const EVENTS = `
  INSERT INTO events (project_id, event_id, entry_id, "timestamp", module_version_number, page_index, max_page_index,
    total_pages, event_type, view_type, page_id, page_key, max_page_id, max_page_key, custom_event_name,
    custom_event_props, recorded_at, position)
  SELECT project_id, ${idOf('at', '(n - 1) * $4::bigint + i')}, entry_id, at, 2, page, furthest, 7,
    CASE WHEN page IS NULL THEN 'custom_event:triggered' ELSE 'flowpage.viewed' END,
    CASE WHEN page IS NULL THEN NULL ELSE 'flowpage' END,
    'p' || page, 'page-' || page, 'p' || furthest, 'page-' || furthest,
    CASE WHEN page IS NULL THEN 'faq_opened' END, CASE WHEN page IS NULL THEN '{"topic":"privacy"}' END,
    now(), (n - 1) * $4::bigint + i + 1
  FROM visits, generate_series(0, $4 - 1) AS i, LATERAL (
    SELECT created + i * interval '5 seconds' AS at, least(i, 6) AS furthest, CASE WHEN i % 10 < 7 THEN i % 10 END AS page
  ) AS step
  ORDER BY project_id, n, i`

interface EntriesToSeed {
  projects: readonly string[]
  /** Per project. */
  entries: number
  eventsEach: number
}

/** Adds entries to projects by SQL, each with its own contact; millions take minutes. */
async function seedEntries(url: string, { projects, entries, eventsEach }: EntriesToSeed): Promise<void> {
  const visits = (step: string) => `WITH visits AS (${VISITS}) ${step}`
  for (const step of STEPS) {
    const values = [projects, entries, DEMO.moduleId]
    await rowsOf(url, visits(step), step.includes('$3') ? values : values.slice(0, 2))
  }
  await rowsOf(url, visits(EVENTS.replaceAll('$4', '$3')), [projects, entries, eventsEach])
  const added = 'SELECT project_id, entry_id FROM entries WHERE project_id = ANY ($1)'
  await rowsOf(url, storePageViews(added), [projects])
}
