import { sql } from 'kysely'
import type { Database } from '../database/pool.ts'
import { prepare } from '../database/prepared.ts'

/** Rejects when the database cannot be asked. */
export async function ping(db: Database): Promise<void> {
  await db.selectNoFrom((eb) => eb.lit(1).as('pong')).execute()
}

const holdProjects = (skipLocked: boolean) =>
  prepare((db, projectIds: string[]) =>
    db
      .selectFrom('projects')
      .select('project_id')
      .where('project_id', '=', sql<string>`any(${projectIds})`)
      .forNoKeyUpdate()
      .$if(skipLocked, (query) => query.skipLocked()),
  )

/** How long this transaction waits for a lock, such as `500ms`. */
export const setLockTimeout = prepare((db, time: string) =>
  db.selectNoFrom(sql<string>`set_config('lock_timeout', ${time}, true)`.as('lock_timeout')),
)

/** Holds the projects' rows until the transaction ends, so that writers of one project go one after another. */
export const lockProjects = holdProjects(false)

/** The same, of those alone that nobody else holds. */
export const lockFreeProjects = holdProjects(true)

export async function projectExists(db: Database, projectId: string): Promise<boolean> {
  const row = await db
    .selectFrom('projects')
    .select('project_id')
    .where('project_id', '=', projectId)
    .executeTakeFirst()
  return row !== undefined
}

/** @returns whether it was added; false when there was one already */
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
