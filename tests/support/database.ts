import { randomBytes } from 'node:crypto'
import { type Selectable, sql } from 'kysely'
import { inject, onTestFinished, vi } from 'vitest'
import type { DB } from '../../generated/database.ts'
import type { Database } from '../../src/database/pool.ts'
import { isOnCitus } from './citus.ts'
import { databaseUrl, onNodes } from './global-setup.ts'

/** A database for one test file. */
export interface TestDatabase {
  url: string
  drop: () => Promise<void>
}

/** Creates an empty database with the migrated schema. @param template `template0` for one without schema */
export async function createTestDatabase(template: string = inject('templateDatabase')): Promise<TestDatabase> {
  const server = inject('databaseServer')
  const name = `flowtrail_test_${randomBytes(8).toString('hex')}`
  await onNodes(server, `CREATE DATABASE ${name} TEMPLATE ${template} STRATEGY file_copy`)
  const drop = () => onNodes(server, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
  return {
    url: databaseUrl(server, name),
    // A session between the nodes of a cluster may begin while it is dropped.
    drop: () => (isOnCitus ? vi.waitFor(drop, 60_000) : drop()),
  }
}

/** The URL of a database whose sessions begin with these settings of PostgreSQL. */
export function withSettings(url: string, settings: Record<string, string>): string {
  const changed = new URL(url)
  const options = Object.entries(settings).map(([name, value]) => `-c ${name}=${value}`)
  changed.searchParams.set('options', options.join(' '))
  return changed.href
}

/** A role that may read the tables but owns none, until the test has ended. */
export async function createReader(url: string, db: Database): Promise<{ role: string; url: string }> {
  const role = `reader_${randomBytes(8).toString('hex')}`
  await sql.raw(`CREATE ROLE ${role} LOGIN PASSWORD 'x' IN ROLE pg_read_all_data`).execute(db)
  onTestFinished(async () => {
    await sql.raw(`DROP ROLE ${role}`).execute(db)
  })
  const changed = Object.assign(new URL(url), { username: role, password: 'x' })
  return { role, url: changed.href }
}

const TABLES = [
  'projects',
  'groups',
  'modules',
  'module_versions',
  'contacts',
  'contact_identifiers',
  'entries',
  'events',
  'entry_page_views',
  'erasures',
] as const

export type Rows = { [Table in (typeof TABLES)[number]]: Selectable<DB[Table]>[] }

/** What is stored of a project, except its API keys and idempotency keys. */
export async function rowsOf(db: Database, projectId: string): Promise<Rows> {
  const select = (table: (typeof TABLES)[number]) =>
    db
      .selectFrom(table as 'events')
      .selectAll()
      .where('project_id', '=', projectId)
      .execute()
  const all = await Promise.all(TABLES.map(select))
  // Their order depends on the plan.
  for (const rows of all) rows.sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1))
  return Object.fromEntries(TABLES.map((table, i) => [table, all[i]])) as unknown as Rows
}
