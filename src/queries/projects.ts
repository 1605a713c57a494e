import { sql } from 'kysely'
import { batchLoader } from '../database/batch-loader.ts'
import { bigint, inputTable, text } from '../database/input-table.ts'
import type { Database } from '../database/pool.ts'
import { type Parameter, prepare } from '../database/prepared.ts'

const selectOne = prepare((db) => db.selectNoFrom((eb) => eb.lit(1).as('one')), { isLookUp: true })

/** Rejects when the database is unavailable. */
export async function ping(db: Database): Promise<void> {
  await selectOne(db)
}

/** Sets how long this transaction waits for a lock, for example `500ms`. */
export const setLockTimeout = prepare((db, duration: Parameter<string>) =>
  db.selectNoFrom(sql<string>`set_config('lock_timeout', ${duration}, true)`.as('lock_timeout')),
)

const selectProjectsToLock = (db: Database, projectIds: Parameter<string[]>) =>
  db
    .selectFrom('projects')
    .select([
      'project_id',
      'last_position',
      sql<number>`(extract(epoch from clock_timestamp()) * 1000000)::bigint`.as('now_us'),
    ])
    .where('project_id', '=', sql<string>`any(${projectIds})`)
    .forNoKeyUpdate()

/**
 * Locks the projects until the transaction ends, so that writers of one project go one after another. Returns the position
 * of each project's last event, and the time in microseconds since 1970, at least approximately.
 */
export const lockProjects = prepare(selectProjectsToLock)

/** As {@link lockProjects}, but leaves out the projects that others have locked. */
export const lockFreeProjects = prepare((db, projectIds: Parameter<string[]>) =>
  selectProjectsToLock(db, projectIds).skipLocked(),
)

/** The position of the last event of a project, 0 without any. */
export const findLastPosition = batchLoader((db, projectIds: Parameter<string[]>) =>
  db
    .selectFrom(inputTable({ project_id: text(projectIds) }))
    .innerJoin('projects as p', (join) => join.onRef('p.project_id', '=', 'input.project_id'))
    .select(['input.ordinal', 'p.last_position']),
)

/** Stores the position of each project's last event. The projects are locked. */
export const updateLastPositions = prepare((db, projectIds: Parameter<string[]>, positions: Parameter<number[]>) =>
  db
    .updateTable('projects as p')
    .from(inputTable({ project_id: text(projectIds), last_position: bigint(positions) }))
    .set((eb) => ({ last_position: eb.ref('input.last_position') }))
    .whereRef('p.project_id', '=', 'input.project_id'),
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
