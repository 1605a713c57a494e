import { type Kysely, sql } from 'kysely'

/** What was erased (ADR 0027). */
const statements = [
  `CREATE TABLE erasures (
    project_id text COLLATE "C" NOT NULL REFERENCES projects (project_id),
    position bigint NOT NULL,
    erasure_id text COLLATE "C" NOT NULL,
    contact_id text COLLATE "C" NOT NULL,
    entry_ids text[] COLLATE "C" NOT NULL,
    erased_at timestamptz(3) NOT NULL,
    PRIMARY KEY (project_id, position)
  )`,
  // Uncompressed, so that the size of an array is known without reading it.
  'ALTER TABLE erasures ALTER COLUMN entry_ids SET STORAGE EXTERNAL',
  `DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
      PERFORM create_distributed_table('erasures', 'project_id');
    END IF;
  END $$`,
]

export async function up(db: Kysely<never>): Promise<void> {
  for (const statement of statements) await sql.raw(statement).execute(db)
}
