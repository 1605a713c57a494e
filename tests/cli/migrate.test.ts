import { expect, inject, onTestFinished, test } from 'vitest'
import { withPool } from '../../src/database/open.ts'
import { isOnCitus } from '../support/citus.ts'
import { createTestDatabase } from '../support/database.ts'
import { databaseUrl, onServer } from '../support/global-setup.ts'
import { MIGRATIONS, schemaNumber } from '../support/next-release.ts'
import { flowtrailProcessWith, flowtrailWith, printed, temporaryDirectory } from './run.ts'

interface Row {
  migration: string
  applied_at: string | null
  known: boolean
  new?: boolean
}

test('migrate migrates an empty database once, and no other command runs before', async () => {
  const database = await createTestDatabase('template0')
  const settings = { DATABASE_URL: database.url, LOG_LEVEL: 'warn' }
  const flowtrail = flowtrailWith(settings)
  const rows = async (...args: string[]) => JSON.parse(await printed(flowtrail('migrate', '--json', ...args))) as Row[]

  for (let look = 0; look < 2; look += 1) {
    expect(await rows('--status')).toEqual(
      MIGRATIONS.map((migration) => ({ migration, applied_at: null, known: true })),
    )
  }
  expect(await printed(flowtrail('migrate', '--status'))).toMatch(/^migration +applied_at +known\n0001-schema +- +true/)
  for (const command of ['serve', 'projects list', 'demo', 'import -']) {
    const run = command === 'serve' ? flowtrailProcessWith(settings) : flowtrail
    expect(await run(...command.split(' ')), command).toEqual({
      status: 1,
      stdout: '',
      stderr: `flowtrail: Pending migrations: ${MIGRATIONS.join(', ')}. Run: npm run -s flowtrail -- migrate\n`,
    })
  }

  const applied_at = expect.stringMatching(/^20\d\d-\d\d-\d\dT[\d:.]+Z$/)
  expect(await rows()).toEqual(MIGRATIONS.map((migration) => ({ migration, applied_at, known: true, new: true })))
  const status = await rows('--status')
  expect(status).toEqual(MIGRATIONS.map((migration) => ({ migration, applied_at, known: true })))
  expect(await rows()).toEqual(status.map((row) => ({ ...row, new: false })))
  expect(await printed(flowtrail('migrate'))).toMatch(
    /^migration +applied_at +known +new\n0001-schema +20\S+ +true +false/,
  )
  expect(await printed(flowtrail('projects', 'list'))).toBe('project_id  name')
  await database.drop()
})

test('on the schema of the release after the next, nothing runs, and migrate --status names what is not known', async () => {
  const database = await createTestDatabase()
  const settings = { DATABASE_URL: database.url, LOG_LEVEL: 'warn' }
  const flowtrail = flowtrailWith(settings)
  const names = [1, 2].map((after) => `${schemaNumber(after)}-later`)
  await withPool(database.url, (pool) =>
    pool.query("INSERT INTO kysely_migration SELECT unnest($1::text[]), '2036-01-01T00:00:00.000Z'", [names]),
  )
  for (const command of ['serve', 'migrate', 'projects list', 'import -']) {
    const run = command === 'serve' ? flowtrailProcessWith(settings) : flowtrail
    expect(await run(...command.split(' ')), command).toEqual({
      status: 1,
      stdout: '',
      stderr:
        `flowtrail: This release runs on the schema of ${schemaNumber(0)} and of ${schemaNumber(1)}, ` +
        `but the database has ${names[1]}. Install the release that migrated it, or the one before\n`,
    })
  }
  const rows = JSON.parse(await printed(flowtrail('migrate', '--status', '--json'))) as Row[]
  expect(rows.slice(-2)).toEqual(
    names.map((migration) => ({ migration, applied_at: '2036-01-01T00:00:00.000Z', known: false })),
  )
  await database.drop()
})

// It needs a backup, which a cluster refuses to make.
test.skipIf(isOnCitus)('a database that cannot store all text is refused before anything is done', async () => {
  const database = await createTestDatabase()
  onTestFinished(database.drop)
  await using directory = await temporaryDirectory()
  const file = `${directory.path}/backup.gz`
  await printed(flowtrailWith({ DATABASE_URL: database.url })('backup', file))
  const name = `${new URL(database.url).pathname.slice(1)}_ascii`
  const server = inject('databaseServer')
  await onServer(server, `CREATE DATABASE ${name} TEMPLATE template0 ENCODING SQL_ASCII LC_COLLATE 'C' LC_CTYPE 'C'`)
  onTestFinished(() => onServer(server, `DROP DATABASE ${name}`))
  const flowtrail = flowtrailWith({ DATABASE_URL: databaseUrl(server, name) })
  for (const args of [['migrate'], ['restore', file]]) {
    const { status, stdout, stderr } = await flowtrail(...args)
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' })
    expect(stderr).toContain(
      "flowtrail: The encoding of the database is SQL_ASCII, which cannot store all text. Create the database anew, with ENCODING 'UTF8' TEMPLATE template0",
    )
  }
  expect(await printed(flowtrail('migrate', '--status'))).toMatch(/^0001-schema +-/m)
})
