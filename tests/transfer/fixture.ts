import { Readable, Writable } from 'node:stream'
import { finished } from 'node:stream/promises'
import type pg from 'pg'
import { onTestFinished, vi } from 'vitest'
import { markDistributed } from '../../src/database/distribution.ts'
import { createPool } from '../../src/database/pool.ts'
import { exportProject } from '../../src/transfer/export.ts'
import { type ImportOptions, importRecords } from '../../src/transfer/import.ts'
import { createTestDatabase } from '../support/database.ts'

export const NOW = new Date('2026-03-01T09:30:00.000Z')

type Line = object | string

export const toLines = (lines: Line[]) =>
  lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n')

/** Imports lines, given as objects or as text. */
export const load = (pool: pg.Pool, lines: Line[], options: ImportOptions = { now: NOW }) =>
  importRecords(pool, Readable.from([Buffer.from(toLines(lines))]), options)

/** What is written to an output. */
export async function written(write: (output: Writable) => Promise<unknown>): Promise<string> {
  const chunks: Buffer[] = []
  const output = new Writable({
    write(chunk: Buffer, _, done) {
      chunks.push(chunk)
      done()
    },
  })
  await write(output)
  return Buffer.concat(chunks).toString()
}

/** The bytes of an export. */
export const dump = (pool: pg.Pool, projectId = 'acme'): Promise<string> =>
  written((output) => exportProject(pool, projectId, output))

/** The records of an export, of one type or of all. */
export async function dumped(pool: pg.Pool, type?: string, projectId = 'acme'): Promise<Record<string, unknown>[]> {
  const records = (await dump(pool, projectId))
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
  return records.filter((record) => type === undefined || record.type === type)
}

/**
 * A new database and a pool on it, for `await using`.
 * @param options.isDistributed imports into it as into one of a Citus cluster, which plain PostgreSQL can run, too
 */
export async function openDatabase(template?: string, { isDistributed = false } = {}) {
  const database = await createTestDatabase(template)
  const pool = createPool(database.url)
  if (isDistributed) pool.on('connect', markDistributed)
  return {
    url: database.url,
    pool,
    async [Symbol.asyncDispose]() {
      await pool.end()
      await database.drop()
    },
  }
}

/** What a connection has been asked for. */
export interface WatchedQueries {
  /** What `query` returned: a COPY is a stream. */
  results: (Promise<pg.QueryResult> | Writable)[]
  /** The statements whose results are promises. */
  sql: string[]
  /** Those of prepared statements. */
  names: Set<string>
  underWay: number
  mostAtOnce: number
}

/** Watches what `query` of a connection is called with from now on, until `vi.restoreAllMocks()`. */
export function watchQueries(client: pg.PoolClient): WatchedQueries {
  const watched: WatchedQueries = { results: [], sql: [], names: new Set(), underWay: 0, mostAtOnce: 0 }
  const query = client.query.bind(client) as (...statement: unknown[]) => Promise<pg.QueryResult> | Writable
  const ended = () => {
    watched.underWay -= 1
  }
  vi.spyOn(client, 'query').mockImplementation(((...statement: unknown[]) => {
    const result = query(...statement)
    const [first] = statement as [string | { text: string; name?: string }]
    watched.results.push(result)
    if (result instanceof Promise) watched.sql.push(typeof first === 'string' ? first : first.text)
    if (typeof first === 'object' && first.name !== undefined) watched.names.add(first.name)
    watched.underWay += 1
    watched.mostAtOnce = Math.max(watched.mostAtOnce, watched.underWay)
    const end = result instanceof Promise ? result : finished(result)
    end.then(ended, ended)
    return result
  }) as never)
  return watched
}

/** Watches the connection that a pool gives to the next import, until the test ends. */
export async function watchConnection(pool: pg.Pool): Promise<{ client: pg.PoolClient; watched: WatchedQueries }> {
  const client = await pool.connect()
  const watched = watchQueries(client)
  onTestFinished(() => void vi.restoreAllMocks())
  client.release()
  return { client, watched }
}

export const project = (more: object = {}) => ({ type: 'project', project_id: 'acme', ...more })
export const group = (more: object = {}) => ({ type: 'group', project_id: 'acme', group_id: 'g1', ...more })
export const module = (more: object = {}) => ({
  type: 'module',
  project_id: 'acme',
  module_id: 'quiz',
  group_id: 'g1',
  title: 'Quiz',
  ...more,
})
export const version = (version_number: number, published_at?: string, more: object = {}) => ({
  type: 'module_version',
  project_id: 'acme',
  module_id: 'quiz',
  version_number,
  saved_at: '2026-01-01T00:00:00.000Z',
  published_at,
  json_string: '{}',
  ...more,
})
export const contact = (contact_id = 'c1', identifiers: object[] = [], more: object = {}) => ({
  type: 'contact',
  project_id: 'acme',
  contact_id,
  identifiers,
  ...more,
})
export const entry = (more: object = {}) => ({
  type: 'entry',
  project_id: 'acme',
  entry_id: 'e1',
  module_id: 'quiz',
  contact_id: 'c1',
  updated_at: '2026-02-01T00:00:00.000Z',
  ...more,
})
/** A page view at this many seconds after midnight. */
export const view = (event_id: string, second: number, page_index: number, more: object = {}) => ({
  type: 'event',
  project_id: 'acme',
  entry_id: 'e1',
  event_id,
  timestamp: at(second),
  event_type: 'flowpage.viewed',
  view_type: 'flowpage',
  page_id: `p${page_index}`,
  page_key: `k${page_index}`,
  page_index,
  ...more,
})
export const custom = (event_id: string | undefined, second: number, more: object = {}) => ({
  type: 'event',
  project_id: 'acme',
  entry_id: 'e1',
  event_id,
  timestamp: at(second),
  event_type: 'custom_event:triggered',
  custom_event_name: 'clicked',
  ...more,
})
export const at = (second: number) => new Date(Date.UTC(2026, 1, 1, 0, 0, second)).toISOString()

/** A project with a published module, a contact and its entry: lines 1 to 6. */
export const BASE = [project(), group(), module(), version(1, '2026-01-02T00:00:00.000Z'), contact(), entry()]
