import { sql } from 'kysely'
import type { Database } from '../../db/connection.ts'
import type { Keyset } from '../page.ts'
import { afterKey, sortOrder } from './keyset.ts'

/** All modules of a project, newest first. */
export function selectModules(db: Database, projectId: string) {
  return db
    .selectFrom('modules')
    .select(['module_id', 'title', 'group_id', 'project_id'])
    .where('project_id', '=', projectId)
    .orderBy('created_at', 'desc')
    .orderBy('module_id', 'desc')
    .execute()
}

/** A module with the definition last published. */
export function findModule(db: Database, projectId: string, moduleId: string) {
  return db
    .selectFrom('modules as m')
    .innerJoinLateral(
      (eb) =>
        eb
          .selectFrom('module_versions as v')
          .select('v.json_string as json_string_prod')
          .whereRef('v.project_id', '=', 'm.project_id')
          .whereRef('v.module_id', '=', 'm.module_id')
          .where('v.published_at', 'is not', null)
          .orderBy('v.published_at', 'desc')
          .orderBy('v.version_number', 'desc')
          .limit(1)
          .as('production'),
      (join) => join.onTrue(),
    )
    .select(['m.module_id', 'm.title', 'm.group_id', 'm.project_id', 'production.json_string_prod'])
    .where('m.project_id', '=', projectId)
    .where('m.module_id', '=', moduleId)
    .executeTakeFirst()
}

export async function moduleExists(db: Database, projectId: string, moduleId: string): Promise<boolean> {
  const row = await db
    .selectFrom('modules')
    .select('module_id')
    .where('project_id', '=', projectId)
    .where('module_id', '=', moduleId)
    .executeTakeFirst()
  return row !== undefined
}

/** Versions of a module by number, without their definitions. */
export function selectModuleVersionsPage(
  db: Database,
  projectId: string,
  moduleId: string,
  keyset: Keyset<readonly [number]>,
) {
  return db
    .selectFrom('module_versions')
    .select(['module_id', 'version_number', 'saved_at'])
    .where('project_id', '=', projectId)
    .where('module_id', '=', moduleId)
    .$call(afterKey(keyset, ['version_number']))
    .$call(sortOrder(keyset, ['version_number']))
    .execute()
}

export function findModuleVersion(db: Database, projectId: string, moduleId: string, versionNumber: number) {
  return db
    .selectFrom('module_versions')
    .select(['module_id', 'version_number', 'saved_at', 'json_string'])
    .where('project_id', '=', projectId)
    .where('module_id', '=', moduleId)
    .where('version_number', '=', versionNumber)
    .executeTakeFirst()
}

/**
 * The module's group and the version in effect at an instant: the one last published at or before it, for an older
 * instant the first published (decisions, "Version in effect"). Nothing when the module does not exist.
 */
export function findModuleInEffect(db: Database, projectId: string, moduleId: string, instant: string) {
  const published = db
    .selectFrom('module_versions as v')
    .select('v.version_number')
    .where('v.project_id', '=', projectId)
    .where('v.module_id', '=', moduleId)
    .where('v.published_at', 'is not', null)
    .limit(1)
  const lastBefore = published
    .where('v.published_at', '<=', instant)
    .orderBy('v.published_at', 'desc')
    .orderBy('v.version_number', 'desc')
  const first = published.orderBy('v.published_at', 'asc').orderBy('v.version_number', 'desc')
  return db
    .selectFrom('modules as m')
    .select(['m.group_id', sql<number>`coalesce(${lastBefore}, ${first})`.as('version_number')])
    .where('m.project_id', '=', projectId)
    .where('m.module_id', '=', moduleId)
    .executeTakeFirst()
}
