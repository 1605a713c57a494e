import { sql } from 'kysely'
import { asked, lookUp } from '../database/batch-loader.ts'
import { afterKey, type KeysetShape, shapeOf, sortOrder } from '../database/keyset.ts'
import type { Database } from '../database/pool.ts'
import { byShape, prepare } from '../database/prepared.ts'
import type { Keyset } from '../domain/cursor.ts'

/** All modules of a project, newest first. */
export const selectModules = prepare((db, projectId: string) =>
  db
    .selectFrom('modules')
    .select(['module_id', 'title', 'group_id', 'project_id'])
    .where('project_id', '=', projectId)
    .orderBy('created_at', 'desc')
    .orderBy('module_id', 'desc'),
)

/** A module with the definition last published. */
export const findModule = lookUp((db, projectIds: string[], moduleIds: string[]) =>
  db
    .selectFrom(asked({ project_id: 'text', module_id: 'text' }, projectIds, moduleIds))
    .innerJoin('modules as m', (join) =>
      join.onRef('m.project_id', '=', 'asked.project_id').onRef('m.module_id', '=', 'asked.module_id'),
    )
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
    .select(['asked.number', 'm.module_id', 'm.title', 'm.group_id', 'm.project_id', 'production.json_string_prod']),
)

/** The module's id when it exists. */
export const findModuleId = lookUp((db, projectIds: string[], moduleIds: string[]) =>
  db
    .selectFrom(asked({ project_id: 'text', module_id: 'text' }, projectIds, moduleIds))
    .innerJoin('modules as m', (join) =>
      join.onRef('m.project_id', '=', 'asked.project_id').onRef('m.module_id', '=', 'asked.module_id'),
    )
    .select(['asked.number', 'm.module_id']),
)

const versionsPage = byShape((shape: KeysetShape) =>
  prepare((db, projectId: string, moduleId: string, take: number, number: number) =>
    db
      .selectFrom('module_versions')
      .select(['module_id', 'version_number', 'saved_at'])
      .where('project_id', '=', projectId)
      .where('module_id', '=', moduleId)
      .$call(afterKey(shape, ['version_number'], [number]))
      .$call(sortOrder(shape, ['version_number']))
      .limit(take),
  ),
)

/** Versions of a module by number, without their definitions. */
export const selectModuleVersionsPage = (
  db: Database,
  projectId: string,
  moduleId: string,
  keyset: Keyset<readonly [number]>,
) => versionsPage(shapeOf(keyset))(db, projectId, moduleId, keyset.take, ...(keyset.after ?? [0]))

export const findModuleVersion = lookUp((db, projectIds: string[], moduleIds: string[], versionNumbers: number[]) =>
  db
    .selectFrom(
      asked(
        { project_id: 'text', module_id: 'text', version_number: 'integer' },
        projectIds,
        moduleIds,
        versionNumbers,
      ),
    )
    .innerJoin('module_versions as v', (join) =>
      join
        .onRef('v.project_id', '=', 'asked.project_id')
        .onRef('v.module_id', '=', 'asked.module_id')
        .onRef('v.version_number', '=', 'asked.version_number'),
    )
    .select(['asked.number', 'v.module_id', 'v.version_number', 'v.saved_at', 'v.json_string']),
)

/**
 * For each event, by its number in the batch: the module's group and the version in effect at its instant, which is the
 * one last published at or before it, for an older instant the first published (decisions, "Version in effect").
 * Nothing for a module that does not exist.
 */
export const selectModulesInEffect = prepare((db, projectIds: string[], moduleIds: string[], instants: string[]) => {
  const published = db
    .selectFrom('module_versions as v')
    .select('v.version_number')
    .where('v.project_id', '=', sql<string>`m.project_id`)
    .where('v.module_id', '=', sql<string>`m.module_id`)
    .where('v.published_at', 'is not', null)
    .limit(1)
  const lastBefore = published
    .where('v.published_at', '<=', sql<string>`asked.instant`)
    .orderBy('v.published_at', 'desc')
    .orderBy('v.version_number', 'desc')
  const first = published.orderBy('v.published_at', 'asc').orderBy('v.version_number', 'desc')
  return db
    .selectFrom(
      asked({ project_id: 'text', module_id: 'text', instant: 'timestamptz' }, projectIds, moduleIds, instants),
    )
    .innerJoin('modules as m', (join) =>
      join.onRef('m.project_id', '=', 'asked.project_id').onRef('m.module_id', '=', 'asked.module_id'),
    )
    .select(['asked.number', 'm.group_id', sql<number>`coalesce(${lastBefore}, ${first})`.as('version_number')])
})
