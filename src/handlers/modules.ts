import { MAX_PAGE_bytes, ROWS_AT_A_TIME } from '../database/large-rows.ts'
import { WholeList } from '../domain/cursor.ts'
import { moduleDoesNotExist, moduleVersionDoesNotExist } from '../domain/errors.ts'
import type { Handler } from '../http/operations.ts'
import {
  findModule,
  findModuleId,
  findModuleVersion,
  selectModulesPage,
  selectModuleVersionsPage,
} from '../queries/modules.ts'
import type { Context } from './context.ts'

export const listModules: Handler<'listModules', Context> = async ({ path, lease, confirmKey }, { db }) =>
  new WholeList(async (cursor) => {
    if (cursor !== undefined) {
      // What follows is a large read, of which a project has one at a time.
      await lease.begin(MAX_PAGE_bytes)
      // It may have been revoked since the part before.
      await confirmKey()
    }
    const query = { limit: ROWS_AT_A_TIME, direction: 'DESC' as const, ...(cursor !== undefined && { cursor }) }
    const page = await selectModulesPage(db, { path, query, lease })
    return page.map(({ module_id, title, group_id, project_id }) => ({ module_id, title, group_id, project_id }))
  })

export const getModule: Handler<'getModule', Context> = async ({ path, lease }, { db }) => {
  const found = await findModule(db, lease, path.projectId, path.moduleId)
  if (!found) throw moduleDoesNotExist(path.moduleId)
  return found
}

export const listModuleVersions: Handler<'listModuleVersions', Context> = async (request, { db }) => {
  const { projectId, moduleId } = request.path
  const [page, found] = await Promise.all([
    selectModuleVersionsPage(db, request),
    findModuleId(db, projectId, moduleId),
  ])
  if (!found) throw moduleDoesNotExist(moduleId)
  return page
}

export const getModuleVersion: Handler<'getModuleVersion', Context> = async ({ path, lease }, { db }) => {
  const { projectId, moduleId, versionNumber } = path
  const version = await findModuleVersion(db, lease, projectId, moduleId, versionNumber)
  if (version) return version
  if (!(await findModuleId(db, projectId, moduleId))) throw moduleDoesNotExist(moduleId)
  throw moduleVersionDoesNotExist(moduleId, versionNumber)
}
