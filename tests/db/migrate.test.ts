import { sql } from 'kysely'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect, type Database } from '../../db/connection.ts'
import { migrate, migrationStatus } from '../../db/migrate.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

let database: TestDatabase
let db: Database
beforeAll(async () => {
  database = await createTestDatabase('template0')
  db = connect(database.url, { max: 1 })
})
afterAll(async () => {
  await db.destroy()
  await database.drop()
})

test('before the first run every migration is still to come', async () => {
  const status = await migrationStatus(db)
  expect(status.length).toBeGreaterThan(0)
  expect(status.every(({ executedAt }) => executedAt === undefined)).toBe(true)
})

test('five runs at once apply each migration once', async () => {
  const pools = Array.from({ length: 5 }, () => connect(database.url, { max: 1 }))
  const applied = await Promise.all(pools.map(migrate))
  for (const pool of pools) await pool.destroy()
  const all = (await migrationStatus(db)).map(({ name }) => name)
  expect(applied.flat().sort()).toEqual(all)
})

test('a further run changes nothing', async () => {
  const columns = () =>
    sql`SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'
      ORDER BY table_name, column_name`.execute(db)
  const before = await columns()
  expect(await migrate(db)).toEqual([])
  expect((await columns()).rows).toEqual(before.rows)
})
