import { sql } from 'kysely'
import type { Database } from '../database/pool.ts'
import { type Parameter, prepare } from '../database/prepared.ts'

const selectOne = prepare((db) => db.selectNoFrom((eb) => eb.lit(1).as('one')), { name: 'selectOne', isLookUp: true })

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

/** Locks the projects until the transaction ends, so that writers of one project go one after another. */
export const lockProjects = prepare(selectProjectsToLock, { name: 'lockProjects' })

/** As {@link lockProjects}, but leaves out the projects that others have locked. */
export const lockFreeProjects = prepare(
  (db, projectIds: Parameter<string[]>) => selectProjectsToLock(db, projectIds).skipLocked(),
  { name: 'lockFreeProjects' },
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
