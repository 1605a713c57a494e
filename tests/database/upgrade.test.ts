import { rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import type { Command } from 'commander'
import { sql } from 'kysely'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { migrate } from '../../db/migrate.ts'
import { createProgram } from '../../src/cli/program.ts'
import { connect, withServer } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { type Flowtrail, flowtrailWith, printed, untilPrinted } from '../cli/run.ts'
import { createLedgerKey, NO_DISCREPANCIES } from '../faults/trials/ledger.ts'
import { Load } from '../faults/trials/load.ts'
import { TRIAL_OPTIONS } from '../faults/trials/trial.ts'
import { fillFixture } from '../recording/fixture.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { createNextRelease, MIGRATIONS, NEXT_MIGRATIONS } from '../support/next-release.ts'
import { freePort, kill, runFlowtrail, type Service, startService } from '../support/service.ts'
import { holdLock } from '../support/waiting.ts'

let database: TestDatabase
let db: Database
let nextRelease: string
const services: Service[] = []

beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 2 })
  await fillFixture(database.url)
  nextRelease = await createNextRelease()
})
afterAll(async () => {
  await Promise.all(services.map(kill))
  await db.destroy()
  await database.drop()
  await rm(nextRelease, { recursive: true })
})

test(
  'under load, the schema gets the next migrations, and servers of both releases run on it',
  TRIAL_OPTIONS,
  async () => {
    const settings = { DATABASE_URL: database.url }
    const start = async (root?: string) => {
      const service = await startService(settings, root)
      services.push(service)
      return service
    }
    const key = await createLedgerKey(db)
    const loads: Load[] = []
    const startLoad = ({ address }: Service) => {
      const load = new Load(address, key)
      loads.push(load)
      return load
    }

    // The reader of an export, as slow as it likes, is in the way of the migration, and of nothing else.
    const old = await start()
    const oldLoad = startLoad(old)
    await oldLoad.untilServed()
    const reader = await holdLock(database.url, 'SELECT count(*) FROM events')
    const migration = runFlowtrail(['migrate', '--json'], settings, nextRelease)
    await untilPrinted(migration, 'waits for a table in use', 'stderr')
    await oldLoad.untilServed()
    expect(migration.child.exitCode).toBeNull()
    await reader.release()
    expect(await migration.exit).toBe(0)
    const rows = JSON.parse(migration.stdout()) as { migration: string; new: boolean }[]
    expect(rows.filter((row) => row.new).map((row) => row.migration)).toEqual(NEXT_MIGRATIONS)
    await oldLoad.untilServed()

    const newLoad = startLoad(await start(nextRelease))
    await Promise.all([oldLoad.untilServed(), newLoad.untilServed()])

    // A rollback: the old release starts on the newer schema.
    await oldLoad.stop()
    const before = await oldLoad.ledger.discrepancies(db)
    old.child.kill('SIGTERM')
    expect(await old.exit).toBe(0)
    const rolledBack = await start()
    expect(rolledBack.stdout()).toContain(
      `"migrations":${JSON.stringify(NEXT_MIGRATIONS)},"msg":"the schema is that of the next release`,
    )
    const rolledBackLoad = startLoad(rolledBack)
    await Promise.all([rolledBackLoad.untilServed(), newLoad.untilServed()])

    await Promise.all([rolledBackLoad, newLoad].map((load) => load.stop()))
    const after = await Promise.all([rolledBackLoad, newLoad].map((load) => load.ledger.discrepancies(db)))
    expect([before, ...after]).toEqual(loads.map(() => NO_DISCREPANCIES))
    for (const { counts, ledger, reads } of loads) {
      expect(counts).toEqual({ posts: { 200: ledger.acknowledged }, reads: { 200: reads[200], 503: 0 } })
    }
  },
)

const stdout = new PassThrough()
const CONTEXT = { env: {}, stdin: new PassThrough(), stdout, stderr: stdout }

/** The commands of a command line, without those that only group others. */
const namesOf = ({ commands }: Command, group = ''): string[] =>
  commands.flatMap((command) => {
    const name = group + command.name()
    return command.commands.length > 0 ? namesOf(command, `${name} `) : [name]
  })

test('every command of the old release runs on the schema of the next', TRIAL_OPTIONS, async () => {
  const settings = { DATABASE_URL: database.url, DATA_DIR: nextRelease }
  const untried = namesOf(createProgram(CONTEXT))
  const noteTried = (args: string[]) => {
    const tried = untried.findIndex((name) => `${args.join(' ')} `.startsWith(`${name} `))
    if (tried >= 0) untried.splice(tried, 1)
  }
  const flowtrail: Flowtrail = (...args) => {
    noteTried(args)
    return flowtrailWith(settings)(...args)
  }
  expect(await runFlowtrail(['migrate'], settings, nextRelease).exit).toBe(0)

  const status = JSON.parse(await printed(flowtrail('migrate', '--status', '--json')))
  expect(status.map((row: { migration: string; known: boolean }) => [row.migration, row.known])).toEqual([
    ...MIGRATIONS.map((name) => [name, true]),
    ...NEXT_MIGRATIONS.map((name) => [name, false]),
  ])
  const again = JSON.parse(await printed(flowtrail('migrate', '--json')))
  expect(again).toEqual(status.map((row: object) => ({ ...row, new: false })))

  await printed(flowtrail('projects', 'create', 'acme'))
  await printed(flowtrail('projects', 'rename', 'acme', 'Acme'))
  expect(await printed(flowtrail('projects', 'list'))).toMatch(/^acme +Acme$/m)
  const key = await printed(flowtrail('keys', 'create', '--project', 'acme'))
  const successor = await printed(flowtrail('keys', 'rotate', key.slice(3, 15)))
  await printed(flowtrail('keys', 'revoke', key.slice(3, 15)))
  expect(await printed(flowtrail('keys', 'list', '--project', 'acme'))).toContain(successor.slice(3, 15))
  await printed(flowtrail('demo', '--entries', '3', '--project', 'acme'))
  const exported = path.join(nextRelease, 'acme.ndjson')
  const lines = await printed(flowtrail('export', '--project', 'acme'))
  await writeFile(exported, `${lines}\n`)
  expect(await printed(flowtrail('import', exported))).toMatch(/^entry +3 +0 +0 +3$/m)
  expect(await printed(flowtrail('projects', 'stats', 'acme'))).toMatch(/^acme /m)
  const records = lines.split('\n').map((line) => JSON.parse(line))
  const { contact_id, identifiers } = records.find((record) => record.type === 'contact')
  const identifier = `${identifiers[0].key}=${identifiers[0].value}`
  const found = await printed(flowtrail('contacts', 'find', '--project', 'acme', '--identifier', identifier))
  expect(found).toContain(contact_id)
  expect(await printed(flowtrail('contacts', 'export', contact_id, '--project', 'acme'))).toContain(identifiers[0].key)
  await printed(flowtrail('contacts', 'erase', contact_id, '--project', 'acme', '--yes'))
  const tailing = ['tail', '--project', 'acme', '--since', 'start']
  noteTried(tailing)
  const tail = runFlowtrail(tailing, settings)
  onTestFinished(() => kill(tail))
  expect(await untilPrinted(tail, '\n')).toContain('flowpage.viewed')
  // It may say that it waits for other tests.
  expect((await flowtrail('compact')).status).toBe(0)
  noteTried(['serve'])
  const service = await startService(settings)
  onTestFinished(() => kill(service))
  const findings = JSON.parse((await flowtrail('doctor', '--json')).stdout)
  expect(findings).toContainEqual(expect.objectContaining({ check: 'schema', status: 'ok' }))
  const backup = path.join(nextRelease, 'backup.gz')
  await printed(flowtrail('backup', backup))
  // It has what only the next release knows.
  noteTried(['restore', backup])
  const empty = await createTestDatabase('template0')
  onTestFinished(() => empty.drop())
  expect(await flowtrailWith({ DATABASE_URL: empty.url })('restore', backup)).toMatchObject({
    ...{ status: 2, stderr: expect.stringContaining('the schema of a newer release') },
  })
  expect(await printed(flowtrail('status', '--url', service.address))).toContain('acme')
  await sql`INSERT INTO labels VALUES ('acme', 'label')`.execute(db)
  await printed(flowtrail('projects', 'delete', 'acme', '--yes'))
  expect(untried).toEqual([])
})

test('a server that waits to migrate the embedded database can be stopped', TRIAL_OPTIONS, async () => {
  const settings = { DATA_DIR: path.join(nextRelease, 'data'), PORT: String(await freePort()) }
  await withServer({ databaseUrl: undefined, dataDir: settings.DATA_DIR }, async ({ url }) => {
    const embedded = connect(url)
    await migrate(embedded).finally(() => embedded.destroy())
    const reader = await holdLock(url, 'SELECT FROM events')
    const service = runFlowtrail(['serve'], settings, nextRelease)
    onTestFinished(() => kill(service))
    await untilPrinted(service, 'waits for a table in use')
    service.child.kill('SIGTERM')
    expect(await service.exit).toBe(0)
    await reader.release()
  })
})
