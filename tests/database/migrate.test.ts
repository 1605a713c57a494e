import { readdirSync } from 'node:fs'
import { sql } from 'kysely'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { migrate, migrationStatus, newerMigrations } from '../../db/migrate.ts'
import * as schema from '../../db/migrations/0001-schema.ts'
import * as positions from '../../db/migrations/0002-positions.ts'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { runFlowtrail } from '../support/service.ts'

const MIGRATIONS = readdirSync(new URL('../../db/migrations', import.meta.url)).map((file) => file.replace('.ts', ''))

let database: TestDatabase
let db: Database
beforeEach(async () => {
  database = await createTestDatabase('template0')
  db = connect(database.url, { max: 5 })
})
afterEach(async () => {
  await db.destroy()
  await database.drop()
})

/** The names of the relations in the schema. */
async function relations(): Promise<string[]> {
  const { rows } = await sql<{ relname: string }>`
    SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace ORDER BY relname`.execute(db)
  return rows.map(({ relname }) => relname)
}

const applied = async () => (await migrationStatus(db)).flatMap(({ name, executedAt }) => (executedAt ? [name] : []))

test('an empty database gets the whole schema, once', async () => {
  expect(await migrate(db)).toEqual(MIGRATIONS)
  const after = await relations()
  expect(after).toContain('events_pkey')
  expect(await migrate(db)).toEqual([])
  expect(await relations()).toEqual(after)
  expect(await applied()).toEqual(MIGRATIONS)
})

test('the status of an empty database is that nothing is applied, and reading it changes nothing', async () => {
  expect(await migrationStatus(db)).toMatchObject(MIGRATIONS.map((name) => ({ name, executedAt: undefined })))
  expect(await relations()).toEqual([])
})

test('five runs at once over one pool apply each migration once', async () => {
  const all = await Promise.all(Array.from({ length: 5 }, () => migrate(db)))
  expect(all.flat().sort()).toEqual(MIGRATIONS)
  expect(await applied()).toEqual(MIGRATIONS)
})

test('five processes at once all succeed and apply each migration once', async () => {
  const processes = Array.from({ length: 5 }, () => runFlowtrail(['migrate', '--json'], { DATABASE_URL: database.url }))
  const statuses = await Promise.all(processes.map(({ exit }) => exit))
  expect(statuses, processes.map(({ stderr }) => stderr()).join()).toEqual([0, 0, 0, 0, 0])
  const applications = processes.flatMap(({ stdout }) =>
    (JSON.parse(stdout()) as { migration: string; new: boolean }[]).filter((row) => row.new),
  )
  expect(applications.map(({ migration }) => migration).sort()).toEqual(MIGRATIONS)
  expect(await applied()).toEqual(MIGRATIONS)
})

test('a migration that fails leaves nothing behind, and can be run again once the cause is removed', async () => {
  // It clashes with one of the last tables, so that others are created before the failure.
  await sql`CREATE TABLE api_keys (stranger integer)`.execute(db)
  await expect(migrate(db)).rejects.toMatchObject({ code: '42P07' })
  expect(await applied()).toEqual([])
  expect((await relations()).filter((name) => !name.startsWith('kysely_'))).toEqual(['api_keys'])
  await sql`DROP TABLE api_keys`.execute(db)
  expect(await migrate(db)).toEqual(MIGRATIONS)
})

test('a schema that a newer release has migrated is recognised, and the server does not start on it', async () => {
  expect(await newerMigrations(db)).toEqual([])
  await migrate(db)
  expect(await newerMigrations(db)).toEqual([])
  await sql`INSERT INTO kysely_migration VALUES ('9999-future', now()::text)`.execute(db)
  expect(await newerMigrations(db)).toEqual(['9999-future'])
  const server = runFlowtrail(['serve'], { DATABASE_URL: database.url })
  expect(await server.exit).toBe(1)
  expect(server.stderr()).toBe('flowtrail: A newer release has migrated the database (9999-future). Run that release\n')
})

test('events that are stored before they have positions get them by timestamp and id', async () => {
  await schema.up(db as never)
  const project = ['p', 'q'].map((id) => `('${id}', 'name')`).join()
  await sql
    .raw(`
    INSERT INTO projects VALUES ${project};
    INSERT INTO groups SELECT project_id, 'g', 'name' FROM projects;
    INSERT INTO modules SELECT project_id, 'm', 'g', 'title', now() FROM projects;
    INSERT INTO contacts SELECT project_id, 'c', now() FROM projects;
    INSERT INTO entries SELECT project_id, 'e', 'm', 'c', now(), now(), '{}' FROM projects;
    INSERT INTO events (project_id, event_id, entry_id, timestamp, module_version_number, event_type)
      SELECT project_id, id, 'e', timestamptz '2026-03-01' + second * interval '1 s', 1, 't'
      FROM projects, (VALUES ('b', 2), ('a"', 2), ('c', 1)) AS events (id, second) WHERE project_id = 'p';
    INSERT INTO idempotency_keys VALUES ('p', 'k', 'a"', '', '{"group_id":"g"}')`)
    .execute(db)
  await positions.up(db as never)
  const { rows } = await sql<{ event_id: string; position: number; recorded_at: string }>`
    SELECT event_id, position, recorded_at FROM events ORDER BY position`.execute(db)
  expect(rows.map(({ event_id }) => event_id)).toEqual(['c', 'a"', 'b'])
  for (const { position, recorded_at } of rows) {
    expect(Math.abs(Date.parse(recorded_at) - Date.now())).toBeLessThan(60_000)
    expect(Math.abs(position / 1_000 - Date.now())).toBeLessThan(60_000)
  }
  const { rows: keys } = await sql<{ response: string }>`SELECT response FROM idempotency_keys`.execute(db)
  expect(keys).toEqual([{ response: '{"event_id":"a\\"","group_id":"g"}' }])
})
