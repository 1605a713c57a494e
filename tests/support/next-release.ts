/** A release after this one: the same code with further migrations, which are what expand-then-contract allows. */
import { readdirSync } from 'node:fs'
import { cp, mkdtemp, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { type Kysely, sql } from 'kysely'
import type { MigrationProvider } from 'kysely/migration'

const ROOT = path.join(import.meta.dirname, '../..')
const PARTS = ['bin', 'db', 'generated', 'openapi', 'package.json', 'src']

/** The names of this release's migrations. */
export const MIGRATIONS = readdirSync(path.join(ROOT, 'db/migrations')).map((file) => path.parse(file).name)

/** The number that begins the name of the migrations so many after this release's last. */
export const schemaNumber = (after: number): string =>
  String(Number(MIGRATIONS.at(-1)?.slice(0, 4)) + after).padStart(4, '0')

/** Tables whose columns queries of all kinds read and write. */
const GROWING = ['api_keys', 'contacts', 'contact_identifiers', 'entries', 'events', 'groups', 'modules', 'projects']

const STATEMENTS = [
  ...GROWING.map((table) => `ALTER TABLE ${table} ADD COLUMN note text, ADD COLUMN uses integer NOT NULL DEFAULT 0`),
  `CREATE TABLE labels (
    project_id text COLLATE "C" REFERENCES projects (project_id) ON DELETE CASCADE,
    label_id text COLLATE "C",
    PRIMARY KEY (project_id, label_id)
  )`,
  'CREATE INDEX modules_title_idx ON modules (project_id, title)',
  'ALTER TABLE events ADD CONSTRAINT events_page_index_check CHECK (page_index >= 0) NOT VALID',
  'ALTER TABLE events VALIDATE CONSTRAINT events_page_index_check',
]

const next = STATEMENTS.map((statement, i) => ({
  name: `${schemaNumber(1)}-next-${String(i + 1).padStart(2, '0')}`,
  statement,
}))

/** The names of the next release's own migrations. */
export const NEXT_MIGRATIONS = next.map(({ name }) => name)

/** Migrations of the names, each with a statement, as a release might have them. */
export const providerOf = (statements: Record<string, string>): MigrationProvider => ({
  getMigrations: async () =>
    Object.fromEntries(
      Object.entries(statements).map(([name, statement]) => [
        name,
        { up: async (db: Kysely<unknown>) => void (await sql.raw(statement).execute(db)) },
      ]),
    ),
})

/** Makes a checkout of the next release in a new directory, to be removed by the caller. Resolves to its path. */
export async function createNextRelease(): Promise<string> {
  const root = await mkdtemp(path.join(tmpdir(), 'flowtrail-next-'))
  await Promise.all(PARTS.map((part) => cp(path.join(ROOT, part), path.join(root, part), { recursive: true })))
  await symlink(path.join(ROOT, 'node_modules'), path.join(root, 'node_modules'))
  for (const { name, statement } of next) {
    const source = `import { sql } from 'kysely'\n\nexport const up = (db) => sql.raw(${JSON.stringify(statement)}).execute(db)\n`
    await writeFile(path.join(root, 'db/migrations', `${name}.ts`), source)
  }
  return root
}
