import { sql } from 'kysely'
import pg from 'pg'
import type { DB } from '../../generated/database.ts'
import type { Database } from '../../src/database/pool.ts'
import { storePageViews } from '../../src/transfer/page-views.ts'

// Copies of every project of a test database, so that a query that forgets the project finds their rows: two twins with
// identical ids and different content, whose project ids sort before and after the original's, and a collider with ids that
// are easily mistaken for the original's. Their content is watermarked, so that one check of all responses finds it. What a
// test stores later has no twins.

/** By what the rows of a copied project are recognised. */
export interface Watermark {
  /** In every text of its content. */
  text: string
  /** The millions that its numbers have. */
  millions: number
  /** The millennium of its instants. */
  millennium: number
}

/** By the ids of the copied projects. Original projects have no watermark. */
export type Watermarks = ReadonlyMap<string, Watermark>

type Role = 'before' | 'after' | 'collider'

const MARKS: Record<Role, Omit<Watermark, 'text'>> = {
  before: { millions: 7, millennium: 1 },
  after: { millions: 8, millennium: 3 },
  collider: { millions: 9, millennium: 4 },
}
/** The millennium of the instants in the tests' own data. */
const ORIGINAL_MILLENNIUM = 2

/** In the text of a watermark, which ends with a second @, is the id of its project. */
export const markOf = (projectId: string) => `@of ${projectId}@`

/** The ids of a project's copies. */
export const copiesOf = (projectId: string): Record<Role, string> => ({
  before: projectId.toUpperCase() < projectId ? projectId.toUpperCase() : ` ${projectId}`,
  // Joined with a slash, this project and the id `a` are the original and the id `x/a`.
  after: `${projectId}/x`,
  // Joined with nothing, this project and one of its ids are the original and the id without its first character.
  collider: [...projectId].slice(0, -1).join('') || `${projectId}-`,
})

/**
 * What a column holds: `own` is the id of the row, `parent` the id of the row that it is part of, `reference` that of
 * another; `text`, `json` (JSON text), `number` and `instant` are content; `kept` is what a copy cannot have differently.
 */
type Kind = 'project' | 'own' | 'own number' | 'own position' | 'own hash' | 'parent' | 'reference' | Content
type Content = 'text' | 'json' | 'json string' | 'number' | 'instant' | 'hash' | 'kept'

/** The tables that are copied. The page views of entries are stored once more from the copied events. */
type Copied = Omit<DB, 'entry_page_views'>

/** Every column of every copied table, parents first. */
const COLUMNS: { [Table in keyof Copied]: { [Column in keyof Copied[Table]]: Kind } } = {
  projects: { project_id: 'project', name: 'text' },
  groups: { project_id: 'project', group_id: 'own', name: 'text' },
  modules: { project_id: 'project', module_id: 'own', group_id: 'reference', title: 'text', created_at: 'instant' },
  module_versions: {
    project_id: 'project',
    module_id: 'parent',
    version_number: 'own number',
    saved_at: 'instant',
    published_at: 'instant',
    json_string: 'json',
  },
  contacts: { project_id: 'project', contact_id: 'own', created_at: 'instant' },
  contact_identifiers: {
    project_id: 'project',
    digest: 'own hash',
    contact_id: 'reference',
    key: 'kept',
    value: 'json string',
  },
  entries: {
    project_id: 'project',
    entry_id: 'own',
    module_id: 'reference',
    contact_id: 'reference',
    created_at: 'instant',
    updated_at: 'instant',
    entry_data: 'json',
  },
  events: {
    project_id: 'project',
    event_id: 'own',
    entry_id: 'parent',
    timestamp: 'instant',
    module_version_number: 'number',
    page_index: 'number',
    max_page_index: 'number',
    total_pages: 'number',
    event_type: 'kept',
    view_type: 'kept',
    page_id: 'text',
    page_key: 'text',
    max_page_id: 'text',
    max_page_key: 'text',
    custom_event_name: 'text',
    custom_event_props: 'json',
    position: 'own position',
    recorded_at: 'instant',
  },
  erasures: {
    project_id: 'project',
    position: 'own position',
    erasure_id: 'parent',
    contact_id: 'reference',
    entry_ids: 'kept',
    erased_at: 'instant',
  },
  idempotency_keys: {
    project_id: 'project',
    idempotency_key: 'parent',
    event_id: 'parent',
    request_digest: 'kept',
    response: 'json',
  },
  api_keys: {
    project_id: 'project',
    key_id: 'parent',
    secret_hash: 'hash',
    name: 'text',
    scopes: 'kept',
    created_at: 'instant',
    expires_at: 'instant',
    last_used_at: 'instant',
    revoked_at: 'instant',
  },
}

/** SQL for a copied column `c` of a row; `m` is the watermark of the copy. */
type Rules = Record<Kind, (c: string) => string>

const CONTENT: Record<'project' | Content, (c: string) => string> = {
  project: () => 'm.project_id',
  text: (c) => `${c} || m.mark`,
  json: (c) => `CASE WHEN ${c} IS NOT NULL THEN json_build_object('content', m.mark)::text END`,
  'json string': (c) => `to_json(${c} || m.mark)::text`,
  number: (c) => `${c} + m.millions`,
  instant: (c) => `${c} + m.years`,
  hash: (c) => `sha256(${c})`,
  kept: (c) => c,
}
const same = (c: string) => c
const marked = (c: string) => `${c} || m.mark`
const increased = (c: string) => `${c} + m.millions`

/** The row with the original's id. What it refers to is not what the original refers to. */
const TWIN: Rules = {
  ...CONTENT,
  own: same,
  'own number': same,
  'own position': same,
  'own hash': same,
  parent: same,
  reference: marked,
}
/** Beside it, a row that precedes the original wherever the greater id or number decides: all else is equal. */
const RIVAL: Rules = {
  ...CONTENT,
  own: marked,
  'own number': increased,
  'own position': (c) => `${c} + 100000`,
  'own hash': CONTENT.hash,
  'json string': (c) => `to_json(${c} || m.mark || 'rival')::text`,
  parent: same,
  reference: same,
  instant: same,
}
/** A row of which the parent is a rival. */
const CHILD_OF_RIVAL: Rules = { ...TWIN, parent: marked }

/** Ids that are easily mistaken for `c`; the first has the character that the collider's project id lacks. */
const LOOKALIKES: ((c: string) => string)[] = [
  (c) => `right(m.original, 1) || ${c}`,
  (c) => `upper(${c})`,
  (c) => `${c} || '/'`,
  (c) => `coalesce(nullif(left(${c}, -1), ''), ${c} || ':')`,
  (c) => `normalize(${c}, NFD)`,
]
const COLLIDERS = LOOKALIKES.map(
  (lookalike, i): Rules => ({
    ...CONTENT,
    own: lookalike,
    'own number': same,
    'own position': (c) => `${c} + ${i * 100_000}`,
    'own hash': (c) => `sha256(${c} || convert_to(${lookalike("'a'")}, 'UTF8'))`,
    'json string': (c) => `to_json(${c} || m.mark || ${lookalike("'a'")})::text`,
    parent: lookalike,
    reference: lookalike,
  }),
)

function variants(table: keyof Copied, role: Role): Rules[] {
  if (role === 'collider') return COLLIDERS
  const kinds = Object.values<Kind>(COLUMNS[table])
  const hasRival = kinds.some((kind) => kind.startsWith('own'))
  return [TWIN, ...(hasRival ? [RIVAL] : []), ...(table === 'module_versions' ? [CHILD_OF_RIVAL] : [])]
}

/**
 * Copies every project of the database. Rows of the first twin come before the original's in the tables, the others after,
 * so that neither a scan of the table nor one of an index finds the original by chance.
 *
 * @returns the watermarks of the copies
 */
export async function addTwins(db: Database): Promise<Watermarks> {
  const projects = await db.selectFrom('projects').select('project_id').execute()
  const originals = projects.map(({ project_id }) => project_id)
  if (originals.length === 0) return new Map()
  const statements = [
    ...copyAll('before', originals),
    STORE_PAGE_VIEWS,
    // Moves the originals behind the copies.
    ...[...tables, 'entry_page_views'].map(
      (table) => `UPDATE ${table} SET project_id = project_id WHERE project_id IN (${literals(originals)})`,
    ),
    ...copyAll('after', originals),
    ...copyAll('collider', originals),
    STORE_PAGE_VIEWS,
  ]
  await sql.raw(statements.join(';\n')).execute(db)
  return new Map(
    originals.flatMap((original) =>
      Object.entries(copiesOf(original)).map(([role, id]) => [id, { text: markOf(id), ...MARKS[role as Role] }]),
    ),
  )
}

const tables = Object.keys(COLUMNS) as (keyof Copied)[]
const STORE_PAGE_VIEWS = storePageViews('SELECT project_id, entry_id FROM entries')
const literals = (texts: string[]) => texts.map((text) => pg.escapeLiteral(text)).join(', ')

function copyAll(role: Role, originals: string[]): string[] {
  const { millions, millennium } = MARKS[role]
  const years = (millennium - ORIGINAL_MILLENNIUM) * 1000
  const marks = originals.map((original) => {
    const id = copiesOf(original)[role]
    return `(${literals([original, id, markOf(id)])}, ${millions * 1_000_000}, interval '${years} years')`
  })
  const from = `(VALUES ${marks.join(', ')}) AS m (original, project_id, mark, millions, years)`
  return tables.flatMap((table) => {
    const columns = Object.entries<Kind>(COLUMNS[table])
    return variants(table, role).map((rules) => {
      const values = columns.map(([column, kind]) => rules[kind](`t."${column}"`))
      return `INSERT INTO ${table} (${columns.map(([column]) => `"${column}"`)}) SELECT ${values.join(', ')}
        FROM ${table} t JOIN ${from} ON t.project_id = m.original ON CONFLICT DO NOTHING`
    })
  })
}

/**
 * What a response to a request of a project holds of other projects.
 *
 * @param sent what the request holds, which its response may repeat
 */
export function foreignContent(
  projectId: string,
  watermarks: Watermarks,
  headers: Record<string, unknown>,
  body: string,
  sent: unknown[],
): string[] {
  const own = watermarks.get(projectId)
  const others = [...watermarks.values()].filter(({ millions }) => millions !== own?.millions)
  const allowed = [own?.text, ...marksIn(JSON.stringify(sent))]
  const isForeign = (value: unknown): boolean => {
    if (sent.includes(value)) return false
    if (typeof value === 'number') return others.some(({ millions }) => Math.floor(value / 1_000_000) === millions)
    if (typeof value !== 'string') return false
    if (marksIn(value).some((mark) => !allowed.includes(mark))) return true
    return INSTANT.test(value) && others.some(({ millennium }) => Number(value[0]) === millennium)
  }

  const found: string[] = []
  const visit = (value: unknown, name: string) => {
    if (isForeign(value)) found.push(`${name} is of another project: ${JSON.stringify(value)}`)
    if ((name === 'project_id' || name === 'projectId') && value !== projectId)
      found.push(`${name} is ${JSON.stringify(value)}`)
    if (typeof value === 'object' && value !== null)
      for (const [key, item] of Object.entries(value)) visit(item, Array.isArray(value) ? name : key)
  }
  visit(parsed(body), 'body')
  for (const [name, value] of Object.entries(headers)) visit(decoded(name, String(value)), `header ${name}`)
  return found
}

const marksIn = (text: string): string[] => text.match(/@of [^@]*@/g) ?? []
const INSTANT = /^\d{4}-\d\d-\d\dT/

/** The body's value if it is JSON; whether it should be is another check's business. */
function parsed(body: string): unknown {
  try {
    return JSON.parse(body)
  } catch {
    return body
  }
}

/** The readable text of a header: a cursor holds the sort key of a row, a link the ids of a path. */
function decoded(name: string, value: string): string {
  if (name === 'next-cursor') return Buffer.from(value, 'base64url').toString()
  return name === 'link' ? decodeURIComponent(value) : value
}
