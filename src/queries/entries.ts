import { sql } from 'kysely'
import type { components } from '../../generated/api.ts'
import { asked, lookUp } from '../database/batch-loader.ts'
import { pack, packText, unpack, unpackText } from '../database/delimited-rows.ts'
import { afterKey, type KeysetShape, shapeOf, sortOrder } from '../database/keyset.ts'
import { type Database, wireTimestamp } from '../database/pool.ts'
import { byShape, prepare, prepareInsert } from '../database/prepared.ts'
import type { Keyset } from '../domain/cursor.ts'
import { PAGE_VIEWED } from '../domain/event.ts'

type PageView = components['schemas']['PageView']

/** Entries with their modules, and what they tell of every event of the entry. */
const entriesInModules = (db: Database, projectIds: string[], entryIds: string[]) =>
  db
    .selectFrom(asked({ project_id: 'text', entry_id: 'text' }, projectIds, entryIds))
    .innerJoin('entries as e', (join) =>
      join.onRef('e.project_id', '=', 'asked.project_id').onRef('e.entry_id', '=', 'asked.entry_id'),
    )
    .innerJoin('modules as m', (join) =>
      join.onRef('m.project_id', '=', 'e.project_id').onRef('m.module_id', '=', 'e.module_id'),
    )
    .select(['asked.number', 'e.entry_id', 'm.group_id', 'e.project_id', 'e.module_id', 'e.contact_id'])

export const findEntry = lookUp((db, projectIds: string[], entryIds: string[]) =>
  entriesInModules(db, projectIds, entryIds).select(['e.created_at', 'e.updated_at', 'e.entry_data']),
)

/** What all events of an entry share. The entry's data, which may be large, is left out. */
export const findEventContext = lookUp(entriesInModules)

/** Bounds on an entry's updated_at: from `updated_after` on, until before `updated_before`. */
export interface UpdatedWindow {
  updated_after?: string
  updated_before?: string
}

interface PageViewsShape extends KeysetShape {
  hasAfter: boolean
  hasBefore: boolean
}

const pageViewsPage = byShape((shape: PageViewsShape) =>
  prepare((db, projectId: string, after: string, before: string, take: number, updatedAt: string, entryId: string) => {
    const order = ['e.updated_at', 'e.entry_id']
    const page = db
      .selectFrom('entries as e')
      .select(['e.project_id', 'e.entry_id', 'e.module_id', 'e.contact_id', 'e.created_at', 'e.updated_at'])
      .where('e.project_id', '=', projectId)
      .$if(shape.hasAfter, (query) => query.where('e.updated_at', '>=', after))
      .$if(shape.hasBefore, (query) => query.where('e.updated_at', '<', before))
      .$call(afterKey(shape, order, [updatedAt, entryId]))
      .$call(sortOrder(shape, order))
      .limit(take)
    return db
      .selectFrom(page.as('e'))
      .innerJoin('modules as m', (join) =>
        join.onRef('m.project_id', '=', 'e.project_id').onRef('m.module_id', '=', 'e.module_id'),
      )
      .select([
        'e.entry_id',
        'm.group_id',
        'e.project_id',
        'e.module_id',
        'e.contact_id',
        'e.created_at',
        'e.updated_at',
      ])
      .select((eb) =>
        eb
          .selectFrom('events as v')
          .select(
            pack(
              [
                sql.ref('v.timestamp'),
                packText(sql.ref('v.page_id')),
                packText(sql.ref('v.page_key')),
                sql.ref('v.page_index'),
              ],
              sql`v.timestamp, v.event_id`,
            ).as('views'),
          )
          .whereRef('v.project_id', '=', 'e.project_id')
          .whereRef('v.entry_id', '=', 'e.entry_id')
          .where('v.event_type', '=', sql.lit(PAGE_VIEWED))
          .$asScalar()
          .$notNull()
          .as('views'),
      )
      .$call(sortOrder(shape, order))
  }),
)

/** Entries by (updated_at, entry_id), each with all its page views, oldest first. */
export async function selectEntryPageViewsPage(
  db: Database,
  projectId: string,
  { updated_after, updated_before }: UpdatedWindow,
  keyset: Keyset<readonly [string, string]>,
) {
  const shape = {
    ...shapeOf(keyset),
    hasAfter: updated_after !== undefined,
    hasBefore: updated_before !== undefined,
  }
  const [updatedAt, entryId] = keyset.after ?? ['', '']
  const query = pageViewsPage(shape)
  const rows = await query(db, projectId, updated_after ?? '', updated_before ?? '', keyset.take, updatedAt, entryId)
  return rows.map(({ entry_id, group_id, project_id, module_id, contact_id, created_at, updated_at, views }) => {
    const page_views = readViews(views)
    return { entry_id, group_id, project_id, module_id, contact_id, created_at, updated_at, page_views }
  })
}

function readViews(packed: string): PageView[] {
  const fields = unpack(packed)
  const views: PageView[] = []
  for (let i = 0; i < fields.length; i += 4) {
    views.push({
      timestamp: wireTimestamp(fields[i] as string),
      page_id: unpackText(fields[i + 1] as string),
      page_key: unpackText(fields[i + 2] as string),
      page_index: Number(fields[i + 3]),
    })
  }
  return views
}

/**
 * For each event, by its number in the batch: the contact's entry of the module to which an event at its instant belongs,
 * which is the newest created at or before it, else the oldest, of equals the greater id (decisions, "Entry"), with how
 * far it had come by then. That is the furthest page among its page views at or before the instant, of equals the
 * earliest, and the total of the latest such view (decisions, "Furthest page"). Nothing where there is no entry.
 */
export const selectEntriesInEffect = prepare(
  (db, projectIds: string[], contactIds: string[], moduleIds: string[], instants: string[]) => {
    const entries = db
      .selectFrom('entries as e')
      .select('e.entry_id')
      .where('e.project_id', '=', sql<string>`asked.project_id`)
      .where('e.contact_id', '=', sql<string>`asked.contact_id`)
      .where('e.module_id', '=', sql<string>`asked.module_id`)
      .limit(1)
    const newestBefore = entries
      .where('e.created_at', '<=', sql<string>`asked.instant`)
      .orderBy('e.created_at', 'desc')
      .orderBy('e.entry_id', 'desc')
    const oldest = entries.orderBy('e.created_at', 'asc').orderBy('e.entry_id', 'desc')
    const views = db
      .selectFrom('events as v')
      .where('v.project_id', '=', sql<string>`asked.project_id`)
      .where('v.entry_id', '=', sql<string>`chosen.entry_id`)
      .where('v.event_type', '=', sql.lit(PAGE_VIEWED))
      .where('v.timestamp', '<=', sql<string>`asked.instant`)
      .limit(1)
    const furthest = views
      .select(['v.page_id', 'v.page_key', 'v.page_index'])
      .orderBy('v.page_index', 'desc')
      .orderBy('v.timestamp', 'asc')
      .orderBy('v.event_id', 'asc')
    const latest = views.select('v.total_pages').orderBy('v.timestamp', 'desc').orderBy('v.event_id', 'desc')
    return db
      .selectFrom(
        asked(
          { project_id: 'text', contact_id: 'text', module_id: 'text', instant: 'timestamptz' },
          projectIds,
          contactIds,
          moduleIds,
          instants,
        ),
      )
      .innerJoinLateral(
        db.selectNoFrom(sql<string | null>`coalesce(${newestBefore}, ${oldest})`.as('entry_id')).as('chosen'),
        (join) => join.on('chosen.entry_id', 'is not', null),
      )
      .leftJoinLateral(furthest.as('furthest'), (join) => join.onTrue())
      .leftJoinLateral(latest.as('latest'), (join) => join.onTrue())
      .select([
        'asked.number',
        'chosen.entry_id',
        'furthest.page_id as max_page_id',
        'furthest.page_key as max_page_key',
        'furthest.page_index as max_page_index',
        'latest.total_pages',
      ])
      .$narrowType<{ entry_id: string }>()
  },
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
