import { setTimeout as sleep } from 'node:timers/promises'
import { sql } from 'kysely'
import { v7 as uuidv7 } from 'uuid'
import { refuseDistribution } from '../database/distribution.ts'
import { isLockTimeout } from '../database/failures.ts'
import { SMALL_ROW_bytes, sizedColumns } from '../database/large-rows.ts'
import { defineList } from '../database/list.ts'
import type { Database } from '../database/pool.ts'
import { isPosition } from '../domain/cursor.ts'
import { toIsoTimestamp } from '../domain/timestamp.ts'
import { selectNextPositions } from './events.ts'
import { lockProjects, TABLES_OF_PROJECT } from './projects.ts'

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
    const [next] = await selectNextPositions.ofOneShard(trx, [projectId])
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
        erased_at: toIsoTimestamp(new Date()),
      })
      .execute()
    return { erasure_id, entry_ids, identifiers, events: deletedEvents, idempotency_keys }
  })
}

/** The array is stored uncompressed, so that this is its length. */
const ENTRY_IDS_bytes = sql<number>`pg_column_size(entry_ids)`

/** Erasures of a project in the order in which they were committed (ADR 0027). */
export const selectErasuresPage = defineList(
  {
    operation: 'listErasures',
    table: 'erasures',
    scope: { projectId: 'project_id' },
    filters: {},
    sortKey: ['position'],
    isSortKey: isPosition,
    origin: [0],
  },
  (db, page, _inOrder, isWhole) => {
    const { value, value_bytes } = sizedColumns(['entry_ids'], isWhole, SMALL_ROW_bytes, ENTRY_IDS_bytes)
    const entryIds = value('entry_ids').$castTo<string[]>()
    return db
      .selectFrom('erasures')
      .select(['erasure_id', 'position', 'contact_id', entryIds.as('entry_ids'), 'erased_at', value_bytes])
      .$call(page)
  },
)

async function countOf(deletion: { executeTakeFirstOrThrow(): Promise<{ numDeletedRows: bigint }> }): Promise<number> {
  return Number((await deletion.executeTakeFirstOrThrow()).numDeletedRows)
}

/** Deletes a project and all that is stored of it, in one transaction. @returns how many rows it had, if it existed */
export function deleteProject(db: Database, projectId: string): Promise<number | undefined> {
  return db.transaction().execute(async (trx) => {
    // Rows that refer to the project, such as a new key, wait for this lock too.
    const locked = await trx
      .selectFrom('projects')
      .select('project_id')
      .where('project_id', '=', projectId)
      .forUpdate()
      .executeTakeFirst()
    let rows = 0
    for (const table of TABLES_OF_PROJECT) {
      const deleted = await sql`DELETE FROM ${sql.table(table)} WHERE project_id = ${projectId}`.execute(trx)
      rows += Number(deleted.numAffectedRows)
    }
    return locked && rows
  })
}

/** How often it is asked whether transactions have ended. */
const POLL_ms = 200
/** How long a table's readers and writers may have to wait behind a rewriting that waits itself for an older transaction. */
const LOCK_TIMEOUT_ms = 1_500
/** Where PostgreSQL keeps what it quotes of the other tables. */
const STATISTICS = 'pg_catalog.pg_statistic'

/**
 * Rewrites the tables, so that their files hold nothing of what was deleted before. Locks one table after the other, for
 * readers too, and needs free disk space for a copy of the largest. Waits for all that may see a deleted row, since
 * PostgreSQL then keeps it.
 *
 * @param onWait called with what it has to wait for, once for each table
 * @returns how many it has rewritten
 * @throws Error on a Citus cluster, and when the role may not rewrite a table; those before it are rewritten
 */
export async function rewriteTables(db: Database, onWait: (reason: string) => void = () => {}): Promise<number> {
  return db.connection().execute(async (session) => {
    await refuseDistribution(
      (text) => sql.raw(text).execute(session),
      'It cannot wait for transactions on the other nodes; run VACUUM (FULL, ANALYZE) on every node when none is open',
    )
    await sql`SET lock_timeout = ${sql.lit(LOCK_TIMEOUT_ms)}`.execute(session)
    await untilNoneSees(session, onWait)
    for (const table of TABLES_OF_PROJECT) await rewrite(session, table, onWait)
    // The statistics of before were replaced only now.
    await untilNoneSees(session, onWait)
    await rewrite(session, STATISTICS, onWait)
    return TABLES_OF_PROJECT.length + 1
  })
}

/** Waits until nothing sees a row that is deleted now. */
async function untilNoneSees(db: Database, onWait: (reason: string) => void): Promise<void> {
  const { rows } = await sql<{ next: string }>`
    SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS next`.execute(db)
  const next = rows[0]?.next as string
  // Our own snapshot is as old as the oldest transaction that writes, of any database.
  const findOlder = async () => {
    const { rows } = await sql<{ older: string | null }>`
      SELECT string_agg(name, ', ') AS older FROM (
        SELECT CASE WHEN pid = pg_backend_pid() THEN 'a transaction that writes, perhaps in another database'
          ELSE 'process ' || pid || ' (' || application_name || ')' END AS name, backend_xmin AS xmin
        -- What sends to standby servers has no database; its type is not for all roles to see.
        FROM pg_stat_activity WHERE datname = current_database() OR datname IS NULL
        UNION ALL SELECT 'replication slot ' || slot_name, xmin FROM pg_replication_slots
        UNION ALL SELECT 'replication slot ' || slot_name, catalog_xmin FROM pg_replication_slots
      ) seen WHERE age(xmin) > age(${next}::xid8::xid)`.execute(db)
    return rows[0]?.older
  }
  const older = await findOlder()
  if (!older) return
  onWait(`what began before and may see erased rows: ${older}`)
  while (await findOlder()) await sleep(POLL_ms)
}

async function rewrite(db: Database, table: string, onWait: (reason: string) => void): Promise<void> {
  const before = await fileOf(db, table)
  for (let tries = 0; ; tries++) {
    try {
      await sql`VACUUM (FULL, ANALYZE) ${sql.table(table)}`.execute(db)
      break
    } catch (error) {
      if (!isLockTimeout(error)) throw error
      if (tries === 0) onWait(`${table}, which a long transaction uses`)
      // Those who waited behind it go first.
      await sleep(LOCK_TIMEOUT_ms)
    }
  }
  // PostgreSQL only warns of tables that the role may not rewrite.
  if ((await fileOf(db, table)) === before) {
    throw new Error(`The role may not rewrite ${table}. Connect as the owner of the database and its tables`)
  }
}

/** The number of the file of a table, which is a new one after it was rewritten. */
async function fileOf(db: Database, table: string): Promise<number | undefined> {
  const { rows } = await sql<{ file: number }>`SELECT pg_relation_filenode(${table}) AS file`.execute(db)
  return rows[0]?.file
}
