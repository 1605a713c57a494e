import { setTimeout } from 'node:timers/promises'
import { sql } from 'kysely'
import { v7 as uuidv7 } from 'uuid'
import type { Database } from '../database/pool.ts'
import { selectNextPositions } from './events.ts'
import { lockProjects } from './projects.ts'

/** What erasing a contact removed. */
export interface Erasure {
  erasure_id: string
  entry_ids: string[]
  identifiers: number
  events: number
  idempotency_keys: number
}

/**
 * Erases a contact: its identifiers, entries, events and idempotency keys too, in one transaction, which keeps their ids as
 * an erasure (ADR 0027). Waits for the lock that recording and imports hold.
 *
 * @returns undefined if the contact does not exist
 */
export function eraseContact(db: Database, projectId: string, contactId: string): Promise<Erasure | undefined> {
  return db.transaction().execute(async (trx) => {
    await lockProjects(trx, [projectId])
    // Of the events that are still there.
    const [next] = await selectNextPositions(trx, [projectId])
    const entries = trx.selectFrom('entries').where('project_id', '=', projectId).where('contact_id', '=', contactId)
    const entry_ids = (await entries.select('entry_id').orderBy('entry_id').execute()).map(({ entry_id }) => entry_id)
    const ofEntries = sql<boolean>`project_id = ${projectId} AND entry_id = ANY(${entry_ids})`
    const events = trx.selectFrom('events').select('event_id').where(ofEntries)
    const ofProject = (table: 'idempotency_keys' | 'contact_identifiers' | 'contacts') =>
      trx.deleteFrom(table).where('project_id', '=', projectId)

    const idempotency_keys = await countOf(ofProject('idempotency_keys').where('event_id', 'in', events))
    const deletedEvents = await countOf(trx.deleteFrom('events').where(ofEntries))
    await trx.deleteFrom('entry_page_views').where(ofEntries).execute()
    await trx.deleteFrom('entries').where(ofEntries).execute()
    const identifiers = await countOf(ofProject('contact_identifiers').where('contact_id', '=', contactId))
    if ((await countOf(ofProject('contacts').where('contact_id', '=', contactId))) === 0) return undefined

    const erasure_id = uuidv7()
    await trx
      .insertInto('erasures')
      .values({
        project_id: projectId,
        position: next?.position as number,
        erasure_id,
        contact_id: contactId,
        entry_ids,
        erased_at: sql`date_trunc('milliseconds', clock_timestamp())`,
      })
      .execute()
    return { erasure_id, entry_ids, identifiers, events: deletedEvents, idempotency_keys }
  })
}

async function countOf(deletion: { executeTakeFirstOrThrow(): Promise<{ numDeletedRows: bigint }> }): Promise<number> {
  return Number((await deletion.executeTakeFirstOrThrow()).numDeletedRows)
}

/** Rows before those that they refer to. */
const OF_PROJECT = [
  'api_keys',
  'erasures',
  'idempotency_keys',
  'entry_page_views',
  'events',
  'entries',
  'contact_identifiers',
  'contacts',
  'module_versions',
  'modules',
  'groups',
  'projects',
] as const

/** Deletes a project and all that is stored of it, in one transaction. @returns whether it existed */
export function deleteProject(db: Database, projectId: string): Promise<boolean> {
  return db.transaction().execute(async (trx) => {
    const [locked] = await lockProjects(trx, [projectId])
    for (const table of OF_PROJECT) {
      await sql`DELETE FROM ${sql.table(table)} WHERE project_id = ${projectId}`.execute(trx)
    }
    return locked !== undefined
  })
}

/** How often it is asked whether transactions have ended. */
const POLL_ms = 200

/**
 * The tables that hold what contacts and operators have written, and what PostgreSQL's statistics quote of them, which it
 * keeps in a table, too.
 */
const REWRITTEN = [...OF_PROJECT, 'pg_catalog.pg_statistic']

/**
 * Rewrites the tables, so that their files hold nothing of what was deleted before. Locks one table after the other, for
 * readers too, and needs free disk space for a copy of the largest. First it waits for the transactions that have begun
 * before: as long as one of them may see a deleted row, PostgreSQL keeps it.
 *
 * @param onWait called once if it has to wait
 * @throws Error when the role may not rewrite a table; those before it are rewritten
 */
export async function rewriteTables(db: Database, onWait: () => void = () => {}): Promise<void> {
  const { rows } = await sql<{ next: string }>`
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS next`.execute(db)
  const next = rows[0]?.next as string
  const areOlderOpen = async () => {
    // The snapshot of this query is that of the oldest transaction that writes, of any database.
    const { rows } = await sql<{ open: boolean }>`
      SELECT bool_or(age(backend_xmin) > age(${next}::xid8::xid)) AS open
      FROM pg_stat_activity WHERE datname = current_database()`.execute(db)
    return rows[0]?.open
  }
  if (await areOlderOpen()) onWait()
  while (await areOlderOpen()) await setTimeout(POLL_ms)
  for (const table of REWRITTEN) {
    const before = await fileOf(db, table)
    await sql`VACUUM (FULL, ANALYZE) ${sql.table(table)}`.execute(db)
    // PostgreSQL only warns of tables that the role may not rewrite.
    if ((await fileOf(db, table)) === before) {
      throw new Error(`The role may not rewrite ${table}. Connect as the owner of the database and its tables`)
    }
  }
}

/** The number of the file of a table, which is a new one after it was rewritten. */
async function fileOf(db: Database, table: string): Promise<number | undefined> {
  const { rows } = await sql<{ file: number }>`SELECT pg_relation_filenode(${table}) AS file`.execute(db)
  return rows[0]?.file
}
