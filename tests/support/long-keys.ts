import { sql } from 'kysely'
import { connect } from '../../src/database/open.ts'
import { storePageViews } from '../../src/transfer/page-views.ts'

// An import refuses long texts of pages. Those that were imported before it did are served like any other.

/** The key of a page that `lengthenKeys` makes as many repetitions of a text. */
export const longKey = (text: string, times: number): string => `repeat:${text}:${times}`

/** Makes all that `longKey` has marked in the database as long as it says. */
export async function lengthenKeys(databaseUrl: string): Promise<void> {
  const db = connect(databaseUrl, { max: 1 })
  for (const column of ['page_key', 'max_page_key'] as const) {
    const part = (i: number) => sql<string>`split_part(${sql.ref(column)}, ':', ${sql.lit(i)})`
    await db
      .updateTable('events')
      .set({ [column]: sql`repeat(${part(2)}, ${part(3)}::int)` })
      .where(column, 'like', 'repeat:%')
      .execute()
  }
  await sql.raw(storePageViews('SELECT project_id, entry_id FROM entries')).execute(db)
  await db.destroy()
}
