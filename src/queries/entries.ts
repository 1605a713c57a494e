import { type Expression, expressionBuilder, type SqlBool, sql } from 'kysely'
import type { DB } from '../../generated/database.ts'
import { batchLoader } from '../database/batch-loader.ts'
import { bytea, inputTable, text, timestamptz } from '../database/input-table.ts'
import { lookUpSized, SMALL_VALUE_bytes, sizedColumns } from '../database/large-rows.ts'
import { atOrAfter, before, type Clauses, defineList } from '../database/list.ts'
import type { Database } from '../database/pool.ts'
import { type Parameter, prepare, prepareInsert } from '../database/prepared.ts'
import { isInstantAndId } from '../domain/cursor.ts'
import { PAGE_VIEWED } from '../domain/event.ts'
import type { IsoTimestamp } from '../domain/timestamp.ts'
import { groupOf } from './modules.ts'

/** Entries, and what every event of an entry has from it and its module. */
const selectEventContexts = (db: Database, projectIds: Parameter<string[]>, entryIds: Parameter<string[]>) =>
  db
    .selectFrom(inputTable({ project_id: text(projectIds), entry_id: text(entryIds) }))
    .innerJoin('entries as e', (join) =>
      join.onRef('e.project_id', '=', 'input.project_id').onRef('e.entry_id', '=', 'input.entry_id'),
    )
    .innerJoin('modules as m', (join) =>
      join.onRef('m.project_id', '=', 'input.project_id').onRef('m.module_id', '=', 'e.module_id'),
    )
    .select(['input.ordinal', 'e.entry_id', 'm.group_id', 'e.project_id', 'e.module_id', 'e.contact_id'])

export const findEntry = lookUpSized((isWhole, kind) => {
  const { value, value_bytes } = sizedColumns(['e.entry_data'], isWhole, SMALL_VALUE_bytes)
  return batchLoader(
    (db, projectIds: Parameter<string[]>, entryIds: Parameter<string[]>) =>
      selectEventContexts(db, projectIds, entryIds).select([
        'e.created_at',
        'e.updated_at',
        value('e.entry_data').as('entry_data'),
        value_bytes,
      ]),
    { name: 'findEntry', kind },
  )
})

/** What all events of an entry have in common, without the entry's data, which may be large (ADR 0002). */
export const findEventContext = batchLoader(selectEventContexts, { name: 'findEventContext' })

/** The page views of an entry of the query around. */
const pageViews = (projectId: Expression<string>, entryId: Expression<string>) =>
  expressionBuilder<DB>()
    .selectFrom('events as v')
    .where('v.project_id', '=', projectId)
    .where('v.entry_id', '=', entryId)
    .where('v.event_type', '=', sql.lit(PAGE_VIEWED))

/** What both lists of entries have in common: their scope, filters and order. */
const ENTRIES = {
  table: 'entries',
  scope: { projectId: 'project_id' },
  filters: { updated_after: atOrAfter('updated_at'), updated_before: before('updated_at', 'updated_after') },
  sortKey: ['updated_at', 'entry_id'],
  isSortKey: isInstantAndId,
} as const

/** The entries of a page, with what both lists show of them. */
const selectEntries = (db: Database, page: Clauses, project: Expression<string>) =>
  db
    .selectFrom(db.selectFrom('entries').selectAll().$call(page).as('entries'))
    .innerJoinLateral(
      (eb) => groupOf(project, eb.ref('entries.module_id')).as('m'),
      (join) => join.onTrue(),
    )
    .select([
      'entries.entry_id',
      'm.group_id',
      'entries.project_id',
      'entries.module_id',
      'entries.contact_id',
      'entries.created_at',
      'entries.updated_at',
    ])

/** Entries by (updated_at, entry_id), with their data. */
export const selectEntriesPage = defineList(
  { operation: 'listEntries', ...ENTRIES },
  (db, page, inOrder, isWhole, project) => {
    const { value, value_bytes } = sizedColumns(['entries.entry_data'], isWhole)
    return selectEntries(db, page, project)
      .select([value('entries.entry_data').as('entry_data'), value_bytes])
      .$call(inOrder)
  },
)

/** Entries by (updated_at, entry_id), each with the JSON of all its page views, oldest first (ADR 0018). */
export const selectEntryPageViewsPage = defineList(
  { operation: 'listEntryPageViews', ...ENTRIES },
  (db, page, inOrder, isWhole, project) => {
    const { value, value_bytes } = sizedColumns(['v.page_views'], isWhole)
    return selectEntries(db, page, project)
      .leftJoinLateral(
        (eb) =>
          db
            .selectFrom('entry_page_views as v')
            .select('v.page_views')
            .where('v.project_id', '=', project)
            .where('v.entry_id', '=', eb.ref('entries.entry_id'))
            // As in groupOf.
            .limit(1)
            .as('v'),
        (join) => join.onTrue(),
      )
      .select([value('v.page_views').as('page_views'), value_bytes])
      .$call(inOrder)
  },
)

/** An event of the query around, of which the contact, the module and the instant are known. */
interface EventRef {
  project_id: Expression<string>
  contact_id: Expression<string>
  module_id: Expression<string>
  instant: Expression<IsoTimestamp>
}

/** What names a contact in the query around: its id or an identifier. */
interface ContactRef {
  project_id: Expression<string>
  contact_id: Expression<string>
  digest: Expression<Buffer>
}

/** The given id of a contact or, if it is empty, that of the contact that owns the identifier. */
function contactOf({ project_id, contact_id, digest }: ContactRef) {
  const owner = expressionBuilder<DB>()
    .selectFrom('contact_identifiers as i')
    .select('i.contact_id')
    .where('i.project_id', '=', project_id)
    .where('i.digest', '=', digest)
  return sql<string | null>`CASE WHEN ${contact_id} <> '' THEN ${contact_id} ELSE ${owner} END`
}

/**
 * The id of the entry to which an event belongs: of the contact's entries of the module the newest created at or before
 * the event's instant, else the oldest; of those created at once, the one with the greater id (docs/semantics.md#entry).
 */
function entryOf({ project_id, contact_id, module_id, instant }: EventRef) {
  const entries = expressionBuilder<DB>()
    .selectFrom('entries as e')
    .select('e.entry_id')
    .where('e.project_id', '=', project_id)
    .where('e.contact_id', '=', contact_id)
    .where('e.module_id', '=', module_id)
    .limit(1)
  const newestByThen = entries
    .where('e.created_at', '<=', instant)
    .orderBy('e.created_at', 'desc')
    .orderBy('e.entry_id', 'desc')
  const oldest = entries.orderBy('e.created_at', 'asc').orderBy('e.entry_id', 'desc')
  return sql<string | null>`coalesce(${newestByThen}, ${oldest})`
}

/** Of page views, the one of the furthest page, of equals the earliest (docs/semantics.md#furthest-page). */
const furthestPage = (views: ReturnType<typeof pageViews>) =>
  views
    .select(['v.page_id as max_page_id', 'v.page_key as max_page_key', 'v.page_index as max_page_index'])
    .orderBy('v.page_index', 'desc')
    .orderBy('v.timestamp', 'asc')
    .orderBy('v.event_id', 'asc')
    .limit(1)

/** Of page views, the latest, which knows how many pages there are (docs/semantics.md#furthest-page). */
const latestPage = (views: ReturnType<typeof pageViews>) =>
  views.select('v.total_pages').orderBy('v.timestamp', 'desc').orderBy('v.event_id', 'desc').limit(1)

/**
 * For each event, by its ordinal among them: the given contact or, if its id is empty, the owner of the identifier with the
 * given digest; the entry of that contact to which the event belongs, null if it has none of the module; and the furthest
 * page and number of pages among the entry's page views at or before the event's instant. No row where nobody owns the
 * identifier.
 */
export const selectEntriesInEffect = prepare(
  (
    db,
    projectIds: Parameter<string[]>,
    contactIds: Parameter<string[]>,
    digests: Parameter<Buffer[]>,
    moduleIds: Parameter<string[]>,
    instants: Parameter<IsoTimestamp[]>,
  ) =>
    db
      .selectFrom(
        inputTable({
          project_id: text(projectIds),
          contact_id: text(contactIds),
          digest: bytea(digests),
          module_id: text(moduleIds),
          instant: timestamptz(instants),
        }),
      )
      .innerJoinLateral(
        (eb) =>
          db
            .selectNoFrom(
              contactOf({
                project_id: eb.ref('input.project_id'),
                contact_id: eb.ref('input.contact_id'),
                digest: eb.ref('input.digest'),
              }).as('contact_id'),
            )
            // With a limit PostgreSQL computes it once, and not anew wherever it is used.
            .limit(1)
            .as('owner'),
        (join) => join.on('owner.contact_id', 'is not', null),
      )
      .innerJoinLateral(
        (eb) =>
          db
            .selectNoFrom(
              entryOf({
                project_id: eb.ref('input.project_id'),
                contact_id: eb.ref('owner.contact_id').$notNull(),
                module_id: eb.ref('input.module_id'),
                instant: eb.ref('input.instant'),
              }).as('entry_id'),
            )
            .limit(1)
            .as('chosen'),
        (join) => join.onTrue(),
      )
      .leftJoinLateral(
        (eb) =>
          furthestPage(
            pageViews(eb.ref('input.project_id'), eb.ref('chosen.entry_id').$notNull()).where(
              // As a range of an index it would make PostgreSQL read and sort all page views until then.
              sql<SqlBool>`(v.timestamp <= ${eb.ref('input.instant')}) IS TRUE`,
            ),
          ).as('furthest'),
        (join) => join.onTrue(),
      )
      .leftJoinLateral(
        (eb) =>
          latestPage(
            pageViews(eb.ref('input.project_id'), eb.ref('chosen.entry_id').$notNull()).where(
              'v.timestamp',
              '<=',
              eb.ref('input.instant'),
            ),
          ).as('latest'),
        (join) => join.onTrue(),
      )
      .select([
        'input.ordinal',
        'owner.contact_id',
        'chosen.entry_id',
        'furthest.max_page_id',
        'furthest.max_page_key',
        'furthest.max_page_index',
        'latest.total_pages',
      ])
      .$narrowType<{ contact_id: string }>(),
  { name: 'selectEntriesInEffect' },
)

export const insertEntries = prepareInsert('entries', {
  project_id: 'text',
  entry_id: 'text',
  module_id: 'text',
  contact_id: 'text',
  created_at: 'timestamptz',
  updated_at: 'timestamptz',
  entry_data: 'text',
})
