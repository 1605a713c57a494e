import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { createPool } from '../../src/database/pool.ts'
import type { CheckedFinding } from '../../src/doctor/findings.ts'
import { EXAMPLES } from '../support/app.ts'
import { onServer } from '../support/global-setup.ts'
import { freePort, startService } from '../support/service.ts'
import { startTcpPostgres, type TcpPostgres } from '../support/tcp-postgres.ts'
import { flowtrailProcessWith, flowtrailWith, printed, ROOT, temporaryDirectory } from './run.ts'

// A PostgreSQL as providers have it: by TCP and TLS, with passwords, and roles that are no superusers. The roles and their
// privileges are those of docs/operations.md.

let postgres: TcpPostgres
let TLS: string
let roles: string
let privileges: string
let afterwards: string
let erasing: string
/** The URL of a role of the documentation, whose password is its name. */
const url = (role: string, parameters = TLS) => postgres.url(role, 'flowtrail', parameters)
const app = (parameters = TLS) => flowtrailWith({ DATABASE_URL: url('flowtrail_app', parameters) })

const FORGETFUL = { IDEMPOTENCY_RETENTION_DAYS: '1' }

/** What doctor says of the privileges of the role without DDL. */
async function privilegesOf(settings: Record<string, string>): Promise<CheckedFinding> {
  const flowtrail = flowtrailWith({ DATABASE_URL: url('flowtrail_app'), PORT: String(await freePort()), ...settings })
  const findings = JSON.parse((await flowtrail('doctor', '--json')).stdout) as CheckedFinding[]
  return findings.find(({ check }) => check === 'privileges') as CheckedFinding
}

beforeAll(async () => {
  postgres = await startTcpPostgres()
  TLS = `sslmode=verify-full&sslrootcert=${postgres.ca}`
  const guide = await readFile(path.join(ROOT, 'docs/operations.md'), 'utf8')
  let deletion: string
  ;[roles = '', privileges = '', afterwards = '', deletion = '', erasing = ''] = [
    ...(guide.split('## Least privilege')[1] ?? '').matchAll(/```sql\n(.*?)```/gs),
  ].map(([, sql = '']) => sql)
  // CREATE DATABASE must be alone.
  for (const statement of roles.trim().split(';\n')) await onServer(postgres.url('admin', 'postgres'), statement)
  await onServer(url('flowtrail_owner'), privileges)
  const refused = await app()('migrate')
  expect([refused.status, refused.stderr]).toEqual([
    1,
    expect.stringMatching(/^flowtrail: permission denied for schema public\. Migrations need CREATE on it\. .*\n$/),
  ])
  await printed(flowtrailWith({ DATABASE_URL: url('flowtrail_owner') })('migrate'))
  await onServer(url('flowtrail_owner'), afterwards)
  expect((await privilegesOf(FORGETFUL)).status).toBe('error')
  await onServer(url('flowtrail_owner'), deletion)
})
afterAll(() => postgres.stop())

describe('the role without DDL', () => {
  test('has all operations and the commands of every day', async () => {
    const flowtrail = app()
    const examples = path.relative(process.cwd(), EXAMPLES.pathname)
    await printed(flowtrail('import', examples))
    expect(await printed(flowtrail('export', '--project', 'demo'))).toContain('"type":"event"')
    const key = await printed(
      flowtrail(...'keys create --project demo --scope read --scope events:write --scope import'.split(' ')),
    )
    await printed(flowtrail('keys', 'rotate', key.slice(3, 15)))

    expect(await privilegesOf(FORGETFUL)).toMatchObject({ status: 'ok' })
    const service = await startService({ DATABASE_URL: url('flowtrail_app'), ...FORGETFUL })
    onTestFinished(async () => {
      service.child.kill('SIGTERM')
      expect(await service.exit).toBe(0)
      expect(service.stdout()).not.toContain('permission denied')
    })
    const call = async (route: string, body?: string, type = 'application/json') => {
      const headers = { 'x-api-key': key, 'content-type': type }
      const init = body === undefined ? { headers } : { method: 'POST', headers, body }
      return (await fetch(`${service.address}/projects/demo${route}`, init)).status
    }
    const event = {
      ...{ module_id: 'skin-quiz', timestamp: '2026-03-01T09:41:12.345Z', custom_event_name: 'order_placed' },
      identifiers: [{ key: 'email', value: '"new@example.com"' }],
    }
    const contact = { type: 'contact', contact_id: 'c', created_at: '2026-01-02T00:00:00Z', identifiers: [] }
    expect([
      await call('/modules'),
      await call('/entries'),
      await call('/entries-page-views'),
      await call('/events', JSON.stringify(event)),
      await call('/events/batch', JSON.stringify({ events: [{ ...event, idempotency_key: 'k' }] })),
      await call('/records', JSON.stringify(contact), 'application/x-ndjson'),
    ]).toEqual([200, 200, 200, 200, 200, 200])
  })

  test('may run migrate when nothing is pending, and is told what it lacks when it may not do something', async () => {
    await printed(app()('migrate'))
    const { status, stderr } = await app()('projects', 'delete', 'demo', '--yes')
    expect([status, stderr]).toEqual([
      1,
      expect.stringMatching(/permission denied for table \w+\. Grant that to the user/),
    ])
  })

  test('when it has no connection left, requests get a 503, and one line of the log says why', async () => {
    await printed(app()('projects', 'create', 'limited'))
    const key = await printed(app()('keys', 'create', '--project', 'limited', '--scope', 'import'))
    const service = await startService({ DATABASE_URL: url('flowtrail_app') })
    const record = async () => {
      const headers = { 'x-api-key': key, 'content-type': 'application/x-ndjson' }
      const body = JSON.stringify({ type: 'group', group_id: 'g', name: 'G' })
      return (await fetch(`${service.address}/projects/limited/records`, { method: 'POST', headers, body })).status
    }
    // The look-up of the key has its connection by then.
    expect((await fetch(`${service.address}/readyz`)).status).toBe(200)
    await onServer(postgres.url('admin', 'postgres'), 'ALTER ROLE flowtrail_app CONNECTION LIMIT 1')
    onTestFinished(() => onServer(postgres.url('admin', 'postgres'), 'ALTER ROLE flowtrail_app CONNECTION LIMIT -1'))
    expect([await record(), await record()]).toEqual([503, 503])
    await onServer(postgres.url('admin', 'postgres'), 'ALTER ROLE flowtrail_app CONNECTION LIMIT -1')
    expect(await record()).toBe(200)
    service.child.kill('SIGTERM')
    await service.exit
    const errors = service
      .stdout()
      .split('\n')
      .filter((line) => line.includes('"level":"error"'))
    expect(errors).toEqual([
      expect.stringMatching(/too many connections for role .*All connections are taken: raise max_/),
    ])
  })
})

test('a backup is restored into a database that is created and granted as the documentation says', async () => {
  const flowtrail = app()
  await printed(flowtrail('projects', 'create', 'restored'))
  await using directory = await temporaryDirectory()
  const backup = path.join(directory.path, 'backup.gz')
  await printed(flowtrail('backup', backup))

  const renamed = (sql: string) => sql.replaceAll('DATABASE flowtrail', 'DATABASE restored')
  const restoredUrl = (role: string) => postgres.url(role, 'restored', TLS)
  const create = roles.split(';\n').find((statement) => statement.startsWith('CREATE DATABASE')) as string
  await onServer(postgres.url('admin', 'postgres'), renamed(create))
  await onServer(restoredUrl('flowtrail_owner'), renamed(privileges))
  const { status } = await flowtrailWith({ DATABASE_URL: restoredUrl('flowtrail_owner') })('restore', backup)
  expect(status).toBe(0)
  await onServer(restoredUrl('flowtrail_owner'), afterwards)
  const restored = flowtrailWith({ DATABASE_URL: restoredUrl('flowtrail_app') })
  expect(await printed(restored('projects', 'list'))).toContain('restored')
  expect((await restored('projects', 'delete', 'restored', '--yes')).status).toBe(1)

  await onServer(restoredUrl('flowtrail_owner'), erasing)
  await printed(restored('projects', 'delete', 'restored', '--yes'))
  await onServer(restoredUrl('flowtrail_owner'), 'CREATE TABLE of_a_later_migration ()')
  await onServer(restoredUrl('flowtrail_app'), 'DELETE FROM of_a_later_migration')
})

describe('the connection', () => {
  const connection = async (DATABASE_URL: string) => {
    const PORT = String(await freePort())
    const { stdout } = await flowtrailWith({ DATABASE_URL, PORT })('doctor', '--json')
    const [found] = JSON.parse(stdout) as CheckedFinding[]
    return found
  }

  test.each([
    ['sslmode=verify-full&sslrootcert=CA', 'ok', /by TLS$/, undefined],
    ['sslmode=require&sslrootcert=CA', 'ok', /by TLS$/, undefined],
    ['sslmode=no-verify', 'warning', /any server is trusted/, /sslmode=verify-full/],
    ['sslmode=verify-full', 'error', /certificate/, /sslrootcert=/],
    ['', 'ok', /within this machine/, undefined],
  ])('with %s: %s', async (parameters, status, finding, fix) => {
    const found = await connection(url('flowtrail_app', parameters.replace('CA', postgres.ca)))
    expect(found).toMatchObject({ status, finding: expect.stringMatching(finding) })
    expect(found?.fix ?? '').toMatch(fix ?? /^$/)
  })

  test('with another host than the certificate is for, or without a password, or with a wrong one', async () => {
    const good = url('flowtrail_app')
    const fixes = [
      [good.replace('@localhost', '@127.0.0.1'), /host name that is in the server's certificate/],
      [good.replace(':flowtrail_app@', '@'), /Add the password/],
      [good.replace(':flowtrail_app@', ':wrong@'), /Correct user and password/],
    ] as const
    for (const [DATABASE_URL, fix] of fixes) {
      expect(await connection(DATABASE_URL)).toMatchObject({ status: 'error', fix: expect.stringMatching(fix) })
    }
  })

  test('of a role that must use TLS says so without it', async () => {
    await onServer(
      postgres.url('admin', 'postgres'),
      "CREATE ROLE tls_only LOGIN PASSWORD 'tls_only' IN ROLE flowtrail_app",
    )
    expect(await connection(url('tls_only', ''))).toMatchObject({
      status: 'error',
      fix: expect.stringContaining('sslmode=verify-full'),
    })
    expect(await connection(url('tls_only'))).toMatchObject({ status: 'ok' })
  })

  test('prints nothing of its own with the modes that pg warns of', async () => {
    const DATABASE_URL = url('flowtrail_app', `sslmode=require&sslrootcert=${postgres.ca}`)
    const { status, stderr } = await flowtrailProcessWith({ DATABASE_URL })('projects', 'list')
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  })

  test('keeps the options of its URL beside our own settings, which they cannot change', async () => {
    const pool = createPool(url('flowtrail_app', `${TLS}&options=-c%20jit%3Doff%20-c%20timezone%3DAsia/Tokyo`))
    onTestFinished(() => pool.end())
    const { rows } = await pool.query("SELECT current_setting('jit') AS jit, current_setting('timezone') AS timezone")
    expect(rows).toEqual([{ jit: 'off', timezone: 'UTC' }])
  })
})
