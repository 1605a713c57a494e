import { type Expression, expressionBuilder, sql } from 'kysely'
import type { DB } from '../../generated/database.ts'
import { batchLoader } from '../database/batch-loader.ts'
import { inputTable, integer, text, timestamptz } from '../database/input-table.ts'
import { lookUpSized, SMALL_VALUE_bytes, sizedColumns } from '../database/large-rows.ts'
import { defineList } from '../database/list.ts'
import { type Parameter, prepare } from '../database/prepared.ts'
import { isInstantAndId, isInt32 } from '../domain/cursor.ts'
import type { IsoTimestamp } from '../domain/timestamp.ts'

/**
 * The group of a module of the query around, for a lateral join. With a limit PostgreSQL looks it up for each row, or once for
 * each module: of a prepared list it expects a tenth of all rows, whatever the limit will be, and would rather read the whole
 * of a table that the list joins.
 */
export const groupOf = (projectId: Expression<string>, moduleId: Expression<string>) =>
  expressionBuilder<DB>()
    .selectFrom('modules as m')
    .select('m.group_id')
    .where('m.project_id', '=', projectId)
    .where('m.module_id', '=', moduleId)
    .limit(1)

/** Modules of a project by (created_at, module_id). */
export const selectModulesPage = defineList(
  {
    operation: 'listModules',
    table: 'modules',
    scope: { projectId: 'project_id' },
    filters: {},
    sortKey: ['created_at', 'module_id'],
    isSortKey: isInstantAndId,
  },
  (db, page, _inOrder, isWhole) => {
    const { value, value_bytes } = sizedColumns(['title'], isWhole)
    return db
      .selectFrom('modules')
      .select(['module_id', value('title').as('title'), 'group_id', 'project_id', 'created_at', value_bytes])
      .$call(page)
  },
)

/** A reference to a module in the query around. */
interface ModuleRef {
  project_id: Expression<string>
  module_id: Expression<string>
}

/** The first or the last of a module's published versions; of those published at once, the one with the greatest number. */
const publishedVersion = ({ project_id, module_id }: ModuleRef, end: 'first' | 'last') =>
  expressionBuilder<DB>()
    .selectFrom('module_versions as v')
    .where('v.project_id', '=', project_id)
    .where('v.module_id', '=', module_id)
    .where('v.published_at', 'is not', null)
    .orderBy('v.published_at', end === 'first' ? 'asc' : 'desc')
    .orderBy('v.version_number', 'desc')
    .limit(1)

/**
 * The number of a module's version in effect at an instant: the version last published by then, else the first
 * published (docs/semantics.md#version-in-effect).
 */
function versionInEffect(module: ModuleRef, instant: Expression<IsoTimestamp>) {
  const lastByThen = publishedVersion(module, 'last').where('v.published_at', '<=', instant)
  const first = publishedVersion(module, 'first')
  return sql<number>`coalesce(${lastByThen.select('v.version_number')}, ${first.select('v.version_number')})`
}

/** A module with its production definition, which is that of the version last published. */
export const findModule = lookUpSized((isWhole, kind) => {
  const { value, value_bytes } = sizedColumns(['v.json_string'], isWhole, SMALL_VALUE_bytes)
  return batchLoader(
    (db, projectIds: Parameter<string[]>, moduleIds: Parameter<string[]>) =>
      db
        .selectFrom(inputTable({ project_id: text(projectIds), module_id: text(moduleIds) }))
        .innerJoin('modules as m', (join) =>
          join.onRef('m.project_id', '=', 'input.project_id').onRef('m.module_id', '=', 'input.module_id'),
        )
        .innerJoinLateral(
          (eb) =>
            publishedVersion({ project_id: eb.ref('input.project_id'), module_id: eb.ref('m.module_id') }, 'last')
              .select([value('v.json_string').as('json_string_prod'), value_bytes])
              .as('production'),
          (join) => join.onTrue(),
        )
        .select([
          'input.ordinal',
          'm.module_id',
          'm.title',
          'm.group_id',
          'm.project_id',
          'production.json_string_prod',
          'production.value_bytes',
        ]),
    { name: 'findModule', kind },
  )
})

/** The module's id, if the module exists. */
export const findModuleId = batchLoader(
  (db, projectIds: Parameter<string[]>, moduleIds: Parameter<string[]>) =>
    db
      .selectFrom(inputTable({ project_id: text(projectIds), module_id: text(moduleIds) }))
      .innerJoin('modules as m', (join) =>
        join.onRef('m.project_id', '=', 'input.project_id').onRef('m.module_id', '=', 'input.module_id'),
      )
      .select(['input.ordinal', 'm.module_id']),
  { name: 'findModuleId' },
)

/** Versions of a module by number, without their definitions. */
export const selectModuleVersionsPage = defineList(
  {
    operation: 'listModuleVersions',
    table: 'module_versions',
    scope: { projectId: 'project_id', moduleId: 'module_id' },
    filters: {},
    sortKey: ['version_number'],
    isSortKey: isInt32,
  },
  (db, page) => db.selectFrom('module_versions').select(['module_id', 'version_number', 'saved_at']).$call(page),
)

export const findModuleVersion = lookUpSized((isWhole, kind) => {
  const { value, value_bytes } = sizedColumns(['v.json_string'], isWhole, SMALL_VALUE_bytes)
  return batchLoader(
    (db, projectIds: Parameter<string[]>, moduleIds: Parameter<string[]>, versionNumbers: Parameter<number[]>) =>
      db
        .selectFrom(
          inputTable({
            project_id: text(projectIds),
            module_id: text(moduleIds),
            version_number: integer(versionNumbers),
          }),
        )
        .innerJoin('module_versions as v', (join) =>
          join
            .onRef('v.project_id', '=', 'input.project_id')
            .onRef('v.module_id', '=', 'input.module_id')
            .onRef('v.version_number', '=', 'input.version_number'),
        )
        .select([
          'input.ordinal',
          'v.module_id',
          'v.version_number',
          'v.saved_at',
          value('v.json_string').as('json_string'),
          value_bytes,
        ]),
    { name: 'findModuleVersion', kind },
  )
})

/**
 * For each event, by its ordinal in the batch: the module's group and the version in effect at the event's instant.
 * Nothing for a module that does not exist.
 */
export const selectModulesInEffect = prepare(
  (db, projectIds: Parameter<string[]>, moduleIds: Parameter<string[]>, instants: Parameter<IsoTimestamp[]>) =>
    db
      .selectFrom(
        inputTable({ project_id: text(projectIds), module_id: text(moduleIds), instant: timestamptz(instants) }),
      )
      .innerJoin('modules as m', (join) =>
        join.onRef('m.project_id', '=', 'input.project_id').onRef('m.module_id', '=', 'input.module_id'),
      )
      .select((eb) => [
        'input.ordinal',
        'm.group_id',
        versionInEffect(
          { project_id: eb.ref('input.project_id'), module_id: eb.ref('m.module_id') },
          eb.ref('input.instant'),
        ).as('version_number'),
      ]),
  { name: 'selectModulesInEffect' },
)
