import { sql } from 'kysely'
import type { Database } from '../../src/database/pool.ts'
import { toIsoTimestamp } from '../../src/domain/timestamp.ts'
import { insertKey } from '../../src/queries/api-keys.ts'
import { importInto } from '../support/app.ts'

const NOW = toIsoTimestamp(new Date(Date.UTC(2026, 2, 1)))

const CONTACTS = [
  { contact_id: 'person', emails: ['person@example.com', 'p@example.com'], entries: ['e1', 'e2'] },
  { contact_id: 'other', emails: ['other@example.com'], entries: ['e3'] },
]

function* records(project_id: string): Generator<object> {
  yield { type: 'project', project_id, name: `Project ${project_id}` }
  yield { type: 'group', project_id, group_id: 'g', name: 'G' }
  yield { type: 'module', project_id, module_id: 'm', group_id: 'g', title: 'M', created_at: NOW }
  for (const version_number of [1, 2]) {
    const version = { version_number, saved_at: NOW, published_at: NOW, json_string: '{}' }
    yield { type: 'module_version', project_id, module_id: 'm', ...version }
  }
  for (const { contact_id, emails, entries } of CONTACTS) {
    const identifiers = emails.map((email) => ({ key: 'email', value: JSON.stringify(email) }))
    yield { type: 'contact', project_id, contact_id, created_at: NOW, identifiers }
    for (const entry_id of entries) {
      const entry = { entry_id, module_id: 'm', contact_id, created_at: NOW, updated_at: NOW, entry_data: '{}' }
      yield { type: 'entry', project_id, ...entry }
      const page = { view_type: 'flowpage', page_id: 'p', page_key: 'p', page_index: 0, total_pages: 1 }
      const event = { entry_id, event_id: `view of ${entry_id}`, timestamp: NOW }
      yield { type: 'event', project_id, ...event, event_type: 'flowpage.viewed', ...page }
    }
  }
}

/**
 * Stores a project that has rows in every table: of a contact with the entries e1 and e2, and of another with the entry e3.
 * Every entry has a page view, whose id is also that of an Idempotency-Key.
 */
export async function storeFullProject(databaseUrl: string, db: Database, projectId: string): Promise<void> {
  await importInto(databaseUrl, records(projectId))
  await sql`INSERT INTO idempotency_keys SELECT project_id, event_id, event_id, '', '{}' FROM events
    WHERE project_id = ${projectId}`.execute(db)
  await sql`INSERT INTO erasures VALUES (${projectId}, 1, 'erasure', 'erased', '{e0}', now())`.execute(db)
  await insertKey(db, projectId, {
    ...{ key_id: 'k', secret_hash: Buffer.alloc(32), name: 'K', scopes: ['read'] },
    ...{ created_at: NOW, expires_at: null },
  })
}

/** The tables whose rows are of a project. */
export async function tablesOfProjects(db: Database): Promise<string[]> {
  const { rows } = await sql<{ name: string }>`
    SELECT attrelid::regclass::text AS name FROM pg_attribute
    WHERE attname = 'project_id' AND attrelid IN (SELECT oid FROM pg_class WHERE relkind = 'r') ORDER BY 1`.execute(db)
  return rows.map(({ name }) => name)
}

/** How many rows a project has in each table. */
export async function countRows(db: Database, projectId: string): Promise<Record<string, number>> {
  const counts: Record<string, number> = {}
  for (const table of await tablesOfProjects(db)) {
    const { rows } = await sql`SELECT FROM ${sql.table(table)} WHERE project_id = ${projectId}`.execute(db)
    counts[table] = rows.length
  }
  return counts
}
