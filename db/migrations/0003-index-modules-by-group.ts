import { type Kysely, sql } from 'kysely'

/** Finds the modules of a group, as each group that is deleted with its project requires. */
export async function up(db: Kysely<never>): Promise<void> {
  await sql.raw('CREATE INDEX modules_group_id_idx ON modules (project_id, group_id)').execute(db)
}
