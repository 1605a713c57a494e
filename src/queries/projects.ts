import type { Database } from '../../db/connection.ts'

/** Rejects when the database cannot be asked. */
export async function ping(db: Database): Promise<void> {
  await db.selectNoFrom((eb) => eb.lit(1).as('pong')).execute()
}

/** Holds the project's row until the transaction ends, so that writers of one project go one after another. */
export async function lockProject(db: Database, projectId: string): Promise<void> {
  await db
    .selectFrom('projects')
    .select('project_id')
    .where('project_id', '=', projectId)
    .forNoKeyUpdate()
    .executeTakeFirstOrThrow()
}

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
