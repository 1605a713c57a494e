import { sql } from 'kysely'
import type { Database } from '../database/pool.ts'
import { type Parameter, prepare } from '../database/prepared.ts'
import type { IsoTimestamp } from '../domain/timestamp.ts'

const selectOne = prepare((db) => db.selectNoFrom((eb) => eb.lit(1).as('one')), { name: 'selectOne', kind: 'look-up' })

/** Rejects when the database is unavailable. */
export async function ping(db: Database): Promise<void> {
  await selectOne(db)
}

const selectSize = prepare((db) => db.selectNoFrom(sql<number>`pg_database_size(current_database())`.as('bytes')), {
  name: 'selectSize',
})

/** The size of the database's files, in bytes; those of the write-ahead log are not among them. */
export async function databaseSize(db: Database): Promise<number> {
  const [row] = await selectSize(db)
  return row?.bytes as number
}

/** The time by the clock of the database's machine, in milliseconds since 1970. */
export async function databaseTime_ms(db: Database): Promise<number> {
  const { rows } = await sql<{ now_ms: number }>`
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms`.execute(db)
  return rows[0]?.now_ms as number
}

/** Sets how long this transaction waits for a lock, for example `500ms`. */
export const setLockTimeout = prepare(
  (db, duration: Parameter<string>) =>
    db.selectNoFrom(sql<string>`set_config('lock_timeout', ${duration}, true)`.as('lock_timeout')),
  { name: 'setLockTimeout' },
)

const selectProjectsToLock = (db: Database, projectIds: Parameter<string[]>) =>
  db
    .selectFrom('projects')
    .select('project_id')
    .where('project_id', '=', sql<string>`any(${projectIds})`)
    .forNoKeyUpdate()

/** Those on one shard of a Citus cluster, each with its name: on its node a shard is a table of its own. */
const selectProjectsOfShardToLock = (db: Database, projectIds: Parameter<string[]>) =>
  selectProjectsToLock(db, projectIds).select(sql<string>`tableoid::regclass::text`.as('shard'))

/** Locks the projects until the transaction ends, so that writers of one project go one after another. */
export const lockProjects = prepare(selectProjectsToLock, { name: 'lockProjects' })

/** As {@link lockProjects}, with their shard. */
export const lockProjectsOfShard = prepare(selectProjectsOfShardToLock, { name: 'lockProjects' })

/** As {@link lockProjects}, but leaves out the projects that others have locked. */
export const lockFreeProjects = prepare(
  (db, projectIds: Parameter<string[]>) => selectProjectsToLock(db, projectIds).skipLocked(),
  { name: 'lockFreeProjects' },
)

/** As {@link lockFreeProjects}, with their shard. */
export const lockFreeProjectsOfShard = prepare(
  (db, projectIds: Parameter<string[]>) => selectProjectsOfShardToLock(db, projectIds).skipLocked(),
  { name: 'lockFreeProjects' },
)

/**
 * The recording lock of a shard, which is an advisory one: `flow` in ASCII, and the CRC-32 of the shard's name as a signed
 * number. If another program takes it in the same database, or another shard has the same number, batches are slower.
 */
const recordingLock = (shardCrc: Parameter<number>) => sql`${sql.lit(0x666c6f77)}, ${shardCrc}::integer`

/**
 * Takes a shard's recording lock until the transaction ends, and waits for it for so long, for example `500ms`. It goes to the
 * session that has waited longest. Tells whether it was free. What follows in the transaction waits for locks without a limit.
 *
 * One statement for all of it: PostgreSQL evaluates its expressions from left to right. It does not promise to, but only speed
 * depends on it.
 */
export const lockRecording = prepare(
  (db, duration: Parameter<string>, shardCrc: Parameter<number>) =>
    db.selectNoFrom([
      sql<string>`set_config('lock_timeout', ${duration}, true)`.as('lock_timeout'),
      sql<boolean>`pg_try_advisory_xact_lock(${recordingLock(shardCrc)})`.as('is_free'),
      sql<string>`pg_advisory_xact_lock(${recordingLock(shardCrc)})`.as('lock'),
      sql<string>`set_config('lock_timeout', '0', true)`.as('no_lock_timeout'),
    ]),
  { name: 'lockRecording' },
)

export async function projectExists(db: Database, projectId: string): Promise<boolean> {
  const row = await db
    .selectFrom('projects')
    .select('project_id')
    .where('project_id', '=', projectId)
    .executeTakeFirst()
  return row !== undefined
}

/** @returns whether it was added; false if the project already exists */
export async function insertProject(db: Database, projectId: string, name: string): Promise<boolean> {
  const added = await db
    .insertInto('projects')
    .values({ project_id: projectId, name })
    .onConflict((conflict) => conflict.doNothing())
    .executeTakeFirst()
  return added.numInsertedOrUpdatedRows === 1n
}

export function selectProjects(db: Database) {
  return db.selectFrom('projects').select(['project_id', 'name']).orderBy('project_id').execute()
}

/** @returns whether the project exists */
export async function updateProjectName(db: Database, projectId: string, name: string): Promise<boolean> {
  const { numUpdatedRows } = await db
    .updateTable('projects')
    .set({ name })
    .where('project_id', '=', projectId)
    .executeTakeFirstOrThrow()
  return numUpdatedRows === 1n
}

/** The projects, each with when its last event was recorded or imported. */
export async function selectLastEvents(db: Database) {
  return db
    .selectFrom('projects as p')
    .leftJoinLateral(
      (eb) =>
        eb
          .selectFrom('events as e')
          .select('e.recorded_at')
          .whereRef('e.project_id', '=', 'p.project_id')
          .orderBy('e.position', 'desc')
          .limit(1)
          .as('last'),
      (join) => join.onTrue(),
    )
    .select(['p.project_id', 'p.name', 'last.recorded_at as last_event_at'])
    .orderBy('p.project_id')
    .execute()
}

/** The tables whose rows are counted. */
const COUNTED = ['modules', 'module_versions', 'contacts', 'entries', 'events'] as const

/** The tables of what is stored of a project: those of rows before those of rows that they refer to. */
export const TABLES_OF_PROJECT = [
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

const SIZED = TABLES_OF_PROJECT.filter((table) => table !== 'projects')

type Counts = Record<(typeof COUNTED)[number], number>

/** What is stored of a project. */
export type ProjectStats = {
  project_id: string
  /** Of its rows, without indexes and what updates have left behind. */
  bytes: number
  /** When the last event was recorded or imported. */
  last_event_at: IsoTimestamp | null
} & Counts

/** What is stored of a project, or of each. It reads all rows. */
export async function selectProjectStats(db: Database, projectId?: string): Promise<ProjectStats[]> {
  const tables = SIZED.map(
    (table) => sql`SELECT ${sql.lit(table)} AS name, count(*) AS rows, coalesce(sum(pg_column_size(t.*)), 0) AS bytes
      FROM ${sql.table(table)} t WHERE t.project_id = p.project_id`,
  )
  const counts = COUNTED.map(
    (table) => sql`sum(t.rows) FILTER (WHERE t.name = ${sql.lit(table)})::bigint AS ${sql.ref(table)}`,
  )
  const only = projectId === undefined ? sql`` : sql`WHERE p.project_id = ${projectId}`
  const { rows } = await sql<ProjectStats>`
    SELECT p.project_id, s.*, last.recorded_at AS last_event_at
    FROM projects p
    CROSS JOIN LATERAL (
      SELECT ${sql.join(counts)}, sum(t.bytes)::bigint AS bytes FROM (${sql.join(tables, sql` UNION ALL `)}) t
    ) s
    LEFT JOIN LATERAL (
      SELECT e.recorded_at FROM events e WHERE e.project_id = p.project_id ORDER BY e.position DESC LIMIT 1
    ) last ON true
    ${only} ORDER BY p.project_id`.execute(db)
  return rows
}
