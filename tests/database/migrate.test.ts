import { sql } from 'kysely'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { migrate, migrationStatus } from '../../db/migrate.ts'
import * as schema from '../../db/migrations/0001-schema.ts'
import * as positions from '../../db/migrations/0002-positions.ts'
import { connect, ensureMigrated } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { MIGRATIONS, providerOf, schemaNumber } from '../support/next-release.ts'
import { kill, runFlowtrail } from '../support/service.ts'
import { holdLock } from '../support/waiting.ts'

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

const applied = async () => (await migrationStatus(db)).flatMap(({ name, appliedAt }) => (appliedAt ? [name] : []))

test('an empty database gets the whole schema, once', async () => {
  expect(await migrate(db)).toEqual(MIGRATIONS)
  const after = await relations()
  expect(after).toContain('events_pkey')
  expect(await migrate(db)).toEqual([])
  expect(await relations()).toEqual(after)
  expect(await applied()).toEqual(MIGRATIONS)
})

test('the status of an empty database is that nothing is applied, and reading it changes nothing', async () => {
  expect(await migrationStatus(db)).toEqual(MIGRATIONS.map((name) => ({ name, appliedAt: undefined, isKnown: true })))
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

test('a migration that is killed leaves nothing behind, and can be run again', async () => {
  // It creates others before the table that it waits for.
  const obstacle = await holdLock(database.url, 'CREATE TABLE api_keys (stranger integer)')
  const migrating = runFlowtrail(['migrate'], { DATABASE_URL: database.url })
  await obstacle.waiting(1)
  await kill(migrating)
  await obstacle.release()
  expect((await relations()).filter((name) => !name.startsWith('kysely_'))).toEqual([])
  expect(await migrate(db)).toEqual(MIGRATIONS)
})

test('each migration is committed by itself: one that fails keeps those before it', async () => {
  const migrations = providerOf({
    '0001-first': 'CREATE TABLE first (id integer)',
    '0002-second': 'CREATE TABLE second AS SELECT 1 / 0 AS id',
  })
  await expect(migrate(db, { migrations })).rejects.toMatchObject({ code: '22012' })
  expect((await relations()).filter((name) => !name.startsWith('kysely_'))).toEqual(['first'])
  const status = await migrationStatus(db, migrations)
  expect(status.map(({ name, appliedAt }) => [name, appliedAt instanceof Date])).toEqual([
    ['0001-first', true],
    ['0002-second', false],
  ])
})

test('a migration that waits for a reader lets others pass, says so, and goes on after the reader', async () => {
  await sql`CREATE TABLE things (id integer)`.execute(db)
  const migrations = providerOf({ '0001-note': 'ALTER TABLE things ADD COLUMN note text' })
  const reader = await holdLock(database.url, 'SELECT FROM things')
  const blocked = Promise.withResolvers<string>()
  const migrating = migrate(db, { migrations, onBlocked: blocked.resolve })
  expect(await blocked.promise).toMatch(
    /^0001-note waits for a table in use \(pid \d+, .*, began \d+ s ago\); next try in 1 s$/,
  )
  await sql`INSERT INTO things VALUES (1)`.execute(db)
  await reader.release()
  expect(await migrating).toEqual(['0001-note'])
})

describe('a release', () => {
  const pretendApplied = (...names: string[]) =>
    sql`INSERT INTO kysely_migration SELECT name, now()::text FROM unnest(${names}::text[]) AS name`.execute(db)

  test('changes nothing on the schema of the next one, and names its migrations', async () => {
    await migrate(db)
    const names = ['a', 'b'].map((name) => `${schemaNumber(1)}-${name}`)
    await pretendApplied(...names)
    expect(await migrate(db)).toEqual([])
    const status = await migrationStatus(db)
    expect(status.map(({ name, isKnown }) => [name, isKnown])).toEqual([
      ...MIGRATIONS.map((name) => [name, true]),
      ...names.map((name) => [name, false]),
    ])
  })

  const [own, next] = [schemaNumber(0), schemaNumber(1)]
  test.each([
    ['of the one after the next', [`${next}-a`, `${schemaNumber(2)}-b`], `${schemaNumber(2)}-b`],
    ['of another branch', [`${own}-other`, 'unnumbered'], `${own}-other, unnumbered`],
  ])('refuses a schema %s', async (_, names, refused) => {
    await migrate(db)
    await pretendApplied(...names)
    const message =
      `This release runs on the schema of ${own} and of ${next}, but the database has ${refused}. ` +
      'Install the release that migrated it, or the one before'
    await expect(migrate(db)).rejects.toThrow(message)
    await expect(ensureMigrated({ databaseUrl: database.url, dataDir: '' }, db)).rejects.toThrow(message)
  })
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
