import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { afterEach, beforeEach, describe, expect, inject, onTestFinished, test } from 'vitest'
import type { CheckedFinding } from '../../src/doctor/findings.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { createDatabaseProxy } from '../support/database-proxy.ts'
import { databaseUrl, onNodes, onServer } from '../support/global-setup.ts'
import { freePort } from '../support/service.ts'
import { flowtrailProcessWith, flowtrailWith, postgresRuns, ROOT, temporaryDirectory } from './run.ts'

const CHECKS = [
  ...['connection', 'pooler', 'version', 'encoding', 'writable', 'fsync', 'full_page_writes', 'synchronous_commit'],
  ...['timeouts', 'connections', 'privileges', 'clock', 'schema', 'document'],
]

let PORT: string
beforeEach(async () => {
  PORT = String(await freePort())
})

/** What doctor finds, by check. */
async function doctor(DATABASE_URL: string, settings: Record<string, string> = {}) {
  const { status, stdout, stderr } = await flowtrailWith({ PORT, DATABASE_URL, ...settings })('doctor', '--json')
  const findings = JSON.parse(stdout) as CheckedFinding[]
  const errors = findings.filter((one) => one.status === 'error').map(({ check }) => check)
  expect({ status, stderr }).toEqual(
    errors.length > 0
      ? { status: 1, stderr: `flowtrail: Errors found: ${errors.join(', ')}\n` }
      : { status: 0, stderr: '' },
  )
  return Object.fromEntries(findings.map(({ check, ...finding }) => [check, finding]))
}

test('finds nothing wrong with an embedded database, which it creates, starts and stops like any other command', async () => {
  await using directory = await temporaryDirectory()
  const flowtrail = flowtrailWith({ DATA_DIR: directory.path, PORT })
  const { status, stdout, stderr } = await flowtrail('doctor')
  const notice = `DATABASE_URL is not set; created a database in ${directory.path}\n`
  expect({ status, stderr }).toEqual({ status: 0, stderr: notice })
  expect(await flowtrail('migrate')).toMatchObject({ status: 0, stderr: '' })
  const lines = stdout.trimEnd().split('\n')
  expect(lines.map((line) => line.split(/ +/).slice(0, 2))).toEqual(
    [...CHECKS.slice(0, -1), 'disk', 'document'].map((check) => ['ok', check]),
  )
  expect(stdout).toMatch(/^ok {7}schema .*pending migrations: 0001-schema.*; the next command applies them$/m)
  expect(await postgresRuns(directory.path)).toBe(false)
})

describe('a database', () => {
  let database: TestDatabase
  let name: string
  beforeEach(async () => {
    database = await createTestDatabase()
    name = new URL(database.url).pathname.slice(1)
  })
  afterEach(async () => {
    await database.drop()
    await onNodes(inject('databaseServer'), `DROP ROLE IF EXISTS ${name}_app`)
  })

  /** A role without any privilege, as the user of the database's URL. */
  async function withRole() {
    const role = `${name}_app`
    await onNodes(inject('databaseServer'), `CREATE ROLE ${role} LOGIN`)
    const url = new URL(database.url)
    url.username = role
    return { role, url: url.href }
  }

  test('has a finding for each check', async () => {
    const found = await doctor(database.url)
    expect(Object.keys(found)).toEqual(CHECKS)
    for (const check of [
      'connection',
      'pooler',
      'version',
      'encoding',
      'writable',
      'timeouts',
      'privileges',
      'clock',
    ]) {
      expect(found[check], check).toMatchObject({ status: 'ok' })
    }
    expect(found.schema).toEqual({ status: 'ok', finding: 'up to date' })
  })

  test.each([
    ['writable', 'default_transaction_read_only', 'on', 'error'],
    ['synchronous_commit', 'synchronous_commit', 'off', 'warning'],
    ['timeouts', 'lock_timeout', '5000', 'warning'],
  ])(
    'whose role or database sets %s has a finding, with the statement that ends it',
    async (check, setting, value, status) => {
      const { role, url } = await withRole()
      const targets = [`DATABASE ${name}`, `ROLE ${role}`, `ROLE ${role} IN DATABASE ${name}`]
      // The most specific one is in effect.
      for (const target of targets) {
        await onServer(inject('databaseServer'), `ALTER ${target} SET ${setting} = ${value}`)
        const found = (await doctor(url))[check]
        expect(found, target).toMatchObject({ status, fix: `ALTER ${target} RESET ${setting}` })
      }
      for (const target of targets.reverse()) {
        const { fix = '' } = (await doctor(url))[check] ?? {}
        expect(fix).toContain(target)
        await onServer(inject('databaseServer'), fix)
      }
      expect((await doctor(url))[check]).toMatchObject({ status: 'ok' })
    },
  )

  test('whose role lacks privileges has an error, with the statements that grant them', async () => {
    await onServer(
      database.url,
      `REVOKE TEMPORARY ON DATABASE ${name} FROM PUBLIC; REVOKE USAGE ON SCHEMA public FROM PUBLIC`,
    )
    const { role, url } = await withRole()
    const { fix = '', ...found } = (await doctor(url)).privileges ?? {}
    expect(found).toEqual({ status: 'error', finding: expect.stringContaining(`${role} lacks`) })
    expect(fix).toMatch(/GRANT (\w+, ){2}\w+ ON events TO /)
    expect(fix).toContain(`GRANT SELECT ON kysely_migration TO ${role}`)
    await onServer(database.url, fix)
    const fixed = await doctor(url)
    expect(fixed.privileges).toMatchObject({ status: 'ok', finding: expect.stringMatching(/no DELETE, .*no CREATE/) })
    expect(fixed.schema).toMatchObject({ status: 'ok' })

    const settings = { IDEMPOTENCY_RETENTION_DAYS: '7' }
    const { privileges } = await doctor(url, settings)
    expect(privileges).toMatchObject({ status: 'error', fix: `GRANT DELETE ON idempotency_keys TO ${role}` })
    await onServer(database.url, privileges?.fix ?? '')
    expect((await doctor(url, settings)).privileges).toMatchObject({
      status: 'ok',
      finding: expect.stringContaining('DELETE on idempotency_keys'),
    })
  })

  test('that is not migrated has an error, and so has one of a release after the next', async () => {
    const empty = await createTestDatabase('template0')
    onTestFinished(() => empty.drop())
    expect((await doctor(empty.url)).schema).toEqual({
      status: 'error',
      finding: expect.stringMatching(/^pending migrations: 0001-schema, /),
      fix: 'npm run -s flowtrail -- migrate',
    })
    await onServer(database.url, "INSERT INTO kysely_migration VALUES ('0004-next', '2036-01-01')")
    expect((await doctor(database.url)).schema).toEqual({
      status: 'ok',
      finding: 'of the next release (0004-next), which this one runs on, too',
    })
    await onServer(database.url, "INSERT INTO kysely_migration VALUES ('9999-next', '2036-01-01')")
    expect((await doctor(database.url)).schema).toMatchObject({
      status: 'error',
      finding: expect.stringContaining('9999-next'),
    })
  })

  test('that cannot store all text has an error', async () => {
    const latin = `${name}_latin1`
    const server = inject('databaseServer')
    await onServer(server, `CREATE DATABASE ${latin} TEMPLATE template0 ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C'`)
    onTestFinished(() => onServer(server, `DROP DATABASE ${latin}`))
    expect((await doctor(databaseUrl(server, latin))).encoding).toMatchObject({ status: 'error' })
  })

  test('whose role may not connect as often as the settings say has an error', async () => {
    const { role, url } = await withRole()
    await onServer(inject('databaseServer'), `ALTER ROLE ${role} CONNECTION LIMIT 14`)
    expect((await doctor(url)).connections).toMatchObject({
      status: 'error',
      fix: expect.stringContaining('ALTER ROLE'),
    })
    expect((await doctor(url, { IMPORT_CONNECTIONS: '7' })).connections).toMatchObject({ status: 'ok' })
  })

  test('that hides a catalog has a warning where that was to be read', async () => {
    const { url } = await withRole()
    await onServer(database.url, 'REVOKE SELECT ON pg_db_role_setting FROM PUBLIC')
    expect((await doctor(url)).timeouts).toMatchObject({
      status: 'warning',
      finding: expect.stringMatching(/^cannot be checked: permission denied/),
    })
  })
})

describe('a connection that fails is the only finding of the database', () => {
  test.each([
    ['postgres://u@127.0.0.1:1/flowtrail', /ECONNREFUSED/, /Nothing listens there/],
    [
      'postgres://u@nowhere.invalid/flowtrail',
      /ENOTFOUND|EAI_AGAIN|connection timeout/,
      /host (of|and port in) DATABASE_URL/,
    ],
    ['postgres://u@localhost/flowtrail?host=/nowhere', /ENOENT/, /no such socket/],
  ])('%s', async (url, finding, fix) => {
    const found = await doctor(url)
    expect(Object.keys(found)).toEqual(['connection', 'document'])
    expect(found.connection).toEqual({
      status: 'error',
      finding: expect.stringMatching(finding),
      fix: expect.stringMatching(fix),
    })
  })

  test('to a database or for a role that does not exist', async () => {
    const url = new URL(databaseUrl(inject('databaseServer'), 'nowhere'))
    expect((await doctor(url.href)).connection).toMatchObject({ fix: expect.stringContaining('Create the database') })
    url.username = 'nobody_there'
    expect((await doctor(url.href)).connection).toMatchObject({ fix: expect.stringContaining('user in DATABASE_URL') })
  })
})

test('a database that goes silent after the login is an error', async () => {
  const proxy = await createDatabaseProxy(inject('databaseServer'))
  onTestFinished(() => proxy.close())
  proxy.freezeAt('current_database')
  const DATABASE_URL = proxy.reach(inject('databaseServer'))
  const { status, stdout, stderr } = await flowtrailProcessWith({ PORT, DATABASE_URL })('doctor')
  expect(stdout).toMatch(/^error +connection +Query read timeout\. Fix: The server takes connections/)
  expect({ status, stderr }).toEqual({ status: 1, stderr: 'flowtrail: Errors found: connection\n' })
})

test.each([
  [
    'closes the connection',
    (response: ServerResponse) => response.destroy(),
    'warning',
    /^no response from http:.*: other side closed$/,
  ],
  [
    'sends no JSON',
    (response: ServerResponse) => response.end('<html>'),
    'ok',
    /; what runs at http:.* is not Flowtrail$/,
  ],
])('a server that %s is no missing server', async (_, respond, status, finding) => {
  const server = createServer((_, response) => void respond(response))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  onTestFinished(() => void server.close())
  const { port } = server.address() as AddressInfo
  const found = await doctor('postgres://u@127.0.0.1:1/flowtrail', { PORT: String(port) })
  expect(found.document).toMatchObject({ status, finding: expect.stringMatching(finding) })
})

test('a port that browsers refuse has a warning', async () => {
  const found = await doctor('postgres://u@127.0.0.1:1/flowtrail', { PORT: '6000' })
  expect(found.document).toMatchObject({
    status: 'warning',
    finding: expect.stringMatching(/^browsers, and this check, connect to no server at http:.*:6000$/),
  })
})

test('a server that serves another document has a warning', async () => {
  const document = JSON.parse(await readFile(path.join(ROOT, 'generated/openapi.json'), 'utf8'))
  const installed = document.info.version
  const paths: (string | undefined)[] = []
  const server = createServer(({ url }, response) => {
    paths.push(url)
    response.end(JSON.stringify(document))
  })
  server.listen(0, '127.0.0.1')
  onTestFinished(() => void server.close())
  await once(server, 'listening')
  const settings = { HOST: '0.0.0.0', PORT: String((server.address() as AddressInfo).port), BASE_PATH: '/api' }
  const nowhere = 'postgres://u@127.0.0.1:1/flowtrail'
  expect((await doctor(nowhere, settings)).document).toMatchObject({
    status: 'ok',
    finding: expect.stringContaining('served'),
  })
  document.info.version = '0.0.1'
  expect((await doctor(nowhere, settings)).document).toMatchObject({
    status: 'warning',
    finding: expect.stringMatching(new RegExp(`^${installed} is installed, but .*/api serves 0\\.0\\.1$`)),
  })
  expect(paths).toEqual(['/api/openapi.json', '/api/openapi.json'])
  expect((await doctor(nowhere, { HOST: '::1' })).document).toMatchObject({
    status: 'ok',
    finding: expect.stringMatching(/no server runs at http:\/\/\[::1\]:\d+$/),
  })
})
