import { type Kysely, sql } from 'kysely'
import { afterAll, afterEach, beforeAll, describe, expect, inject, test } from 'vitest'
import { isUnavailable } from '../../src/database/failures.ts'
import { connect } from '../../src/database/open.ts'
import { createPool } from '../../src/database/pool.ts'
import { parseTimestamptz } from '../../src/database/type-parsers.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { onServer } from '../support/global-setup.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database.drop())

const opened: Kysely<never>[] = []
afterEach(async () => {
  for (const db of opened.splice(0)) await db.destroy()
})
function open(...args: Parameters<typeof connect>) {
  const db = connect(...args)
  opened.push(db as unknown as Kysely<never>)
  return db
}

const INSTANTS = [
  ['0001-01-01 00:00:00+00', '0001-01-01T00:00:00.000Z'],
  ['0099-12-31 23:59:59.9+00', '0099-12-31T23:59:59.900Z'],
  ['1969-12-31 23:59:59.999+00', '1969-12-31T23:59:59.999Z'],
  ['2024-02-29 12:00:00.01+00', '2024-02-29T12:00:00.010Z'],
  ['2026-03-01 09:30:00.5+00', '2026-03-01T09:30:00.500Z'],
  ['2026-03-01 09:30:00.001+00', '2026-03-01T09:30:00.001Z'],
  ['9999-12-31 23:59:59.999+00', '9999-12-31T23:59:59.999Z'],
] as const

describe('parseTimestamptz', () => {
  test.each(INSTANTS)('turns %s into %s', (text, wire) => {
    expect(parseTimestamptz(text)).toBe(wire)
  })

  test('reads what PostgreSQL writes, and PostgreSQL reads what it writes', async () => {
    const db = open(database.url)
    for (const [text, wire] of INSTANTS) {
      const { rows } = await sql`SELECT ${wire}::timestamptz(3) AS wire, ${wire}::timestamptz(3)::text AS text`.execute(
        db,
      )
      expect(rows).toEqual([{ wire, text }])
    }
  })
})

test('a pool has the options given, and defaults for the others', async () => {
  const plain = createPool(database.url)
  expect(plain.options).toMatchObject({
    connectionString: database.url,
    max: 10,
    connectionTimeoutMillis: 5_000,
    application_name: 'flowtrail',
    keepAlive: true,
    keepAliveInitialDelayMillis: 60_000,
    pipeline: undefined,
    query_timeout: undefined,
  })
  const timeouts = { connectionTimeout_ms: 70, queryTimeout_ms: 80, idleTimeout_ms: 90, maxLifetime_s: 100 }
  const other = createPool(database.url, { max: 2, ...timeouts, pipeline: true })
  const given = { connectionTimeoutMillis: 70, query_timeout: 80, idleTimeoutMillis: 90, maxLifetimeSeconds: 100 }
  expect(other.options).toMatchObject({ max: 2, ...given, pipeline: true })
  await Promise.all([plain.end(), other.end()])
})

describe('a session', () => {
  const WANTED = {
    timezone: 'UTC',
    datestyle: expect.stringMatching(/^ISO/),
    synchronous_commit: 'on',
    default_transaction_isolation: 'read committed',
    standard_conforming_strings: 'on',
    client_encoding: 'UTF8',
    search_path: 'public',
    statement_timeout: '1234ms',
    idle_in_transaction_session_timeout: '1234ms',
  }
  const CONTRARY = {
    timezone: "'Asia/Kolkata'",
    datestyle: "'German'",
    synchronous_commit: 'off',
    default_transaction_isolation: "'repeatable read'",
    standard_conforming_strings: 'off',
    client_encoding: "'LATIN1'",
    search_path: 'pg_catalog',
    // So long that it cannot end the statement that replaces it.
    statement_timeout: "'1h'",
    idle_in_transaction_session_timeout: "'1h'",
    intervalstyle: "'sql_standard'",
    bytea_output: "'escape'",
    extra_float_digits: '-15',
  }

  test('has the settings that the queries rely on, whatever those of the database are', async () => {
    const name = new URL(database.url).pathname.slice(1)
    for (const [setting, value] of Object.entries(CONTRARY)) {
      // Not every PostgreSQL lets standard_conforming_strings be switched off.
      await onServer(inject('databaseServer'), `ALTER DATABASE ${name} SET ${setting} = ${value}`).catch((error) => {
        expect(error.code).toBe('22023')
      })
    }
    const db = open(database.url, { statementTimeout_ms: 1234 })
    const names = Object.keys(WANTED).map((setting) => sql`current_setting(${setting}) AS ${sql.ref(setting)}`)
    expect((await sql`SELECT ${sql.join(names)}`.execute(db)).rows).toEqual([WANTED])
    const values = await sql`SELECT '2026-03-01T09:30:00.5Z'::timestamptz(3) AS instant, '\\x00ff5c'::bytea AS bytes,
      9007199254740991::bigint AS number`.execute(db)
    expect(values.rows).toEqual([
      { instant: '2026-03-01T09:30:00.500Z', bytes: Buffer.from('00ff5c', 'hex'), number: Number.MAX_SAFE_INTEGER },
    ])
    await onServer(inject('databaseServer'), `ALTER DATABASE ${name} RESET ALL`)
  })

  test('cancels a statement that exceeds the statement timeout, and stays usable', async () => {
    const db = open(database.url, { max: 1, statementTimeout_ms: 500 })
    const failure = await sql`SELECT pg_sleep(60)`.execute(db).catch((error: unknown) => error)
    expect(failure).toMatchObject({ code: '57014' })
    expect(isUnavailable(failure)).toBe(true)
    expect((await sql`SELECT 1 AS one`.execute(db)).rows).toEqual([{ one: 1 }])
  })
})
