import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect, wireTimestamp } from '../../db/connection.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

describe('wireTimestamp', () => {
  test.each([
    ['2026-03-01 09:30:00+00', '2026-03-01T09:30:00.000Z'],
    ['2026-03-01 09:30:00.5+00', '2026-03-01T09:30:00.500Z'],
    ['2026-03-01 09:30:00.025+00', '2026-03-01T09:30:00.025Z'],
    ['0001-01-01 00:00:00+00', '0001-01-01T00:00:00.000Z'],
    ['9999-12-31 23:59:59.999+00', '9999-12-31T23:59:59.999Z'],
  ])('reads %s', (text, wire) => expect(wireTimestamp(text)).toBe(wire))
})

describe('a session', () => {
  let database: TestDatabase
  beforeAll(async () => {
    database = await createTestDatabase()
  })
  afterAll(() => database.drop())

  test('is as the service needs it, whatever the database is set to', async () => {
    const name = new URL(database.url).pathname.slice(1)
    const admin = connect(database.url, { max: 1 })
    for (const setting of [
      "timezone = 'Asia/Kolkata'",
      "datestyle = 'SQL, DMY'",
      'synchronous_commit = off',
      'search_path = pg_temp',
    ]) {
      await sql.raw(`ALTER DATABASE ${name} SET ${setting}`).execute(admin)
    }
    await admin.destroy()

    const db = connect(database.url, { max: 1, statementTimeout_ms: 1234 })
    const { rows } = await sql<Record<string, string>>`SELECT timestamptz '2026-03-01T09:30:00.5+05:30' AS instant,
      current_setting('synchronous_commit') AS synchronous_commit, current_setting('statement_timeout') AS statement_timeout,
      current_setting('search_path') AS search_path`.execute(db)
    await db.destroy()
    expect(rows).toEqual([
      {
        instant: '2026-03-01T04:00:00.500Z',
        synchronous_commit: 'on',
        statement_timeout: '1234ms',
        search_path: 'public',
      },
    ])
  })
})
