import { PassThrough, Readable, Writable } from 'node:stream'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { run } from '../../src/cli/run.ts'
import { parseKey } from '../../src/domain/api-key.ts'
import { EXAMPLES, importFile } from '../support/app.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { createDatabaseProxy } from '../support/database-proxy.ts'
import { kill, runFlowtrail, type Service, startService } from '../support/service.ts'
import { holdLock } from '../support/waiting.ts'
import { type Flowtrail, flowtrailWith, printed } from './run.ts'

const HOUR_ms = 3_600_000

interface Row {
  key_id: string
  project_id: string
  name: string
  scopes: string[]
  created_at: string
  expires_at: string | null
  revoked_at: string | null
}

let database: TestDatabase
let service: Service
let flowtrail: Flowtrail
beforeAll(async () => {
  database = await createTestDatabase()
  await importFile(database.url, EXAMPLES)
  service = await startService({ DATABASE_URL: database.url })
  flowtrail = flowtrailWith({ DATABASE_URL: database.url })
})
afterAll(async () => {
  await kill(service)
  await database.drop()
})

const create = (...options: string[]) => printed(flowtrail('keys', 'create', '--project', 'demo', ...options))
const rotate = (id: string, ...options: string[]) => printed(flowtrail('keys', 'rotate', id, ...options))
const idOf = (key: string) => parseKey(key)?.key_id ?? `no key: ${key}`

async function listed(key: string): Promise<Row> {
  const rows = JSON.parse(await printed(flowtrail('keys', 'list', '--json'))) as Row[]
  return rows.find(({ key_id }) => key_id === idOf(key)) as Row
}

const statusOf = async (key: string, path = '/projects/demo/modules', init: RequestInit = {}) =>
  (await fetch(service.address + path, { ...init, headers: { 'X-Api-Key': key } })).status

/** A key with the right scope gets as far as the missing body: 400. */
const statusOfPost = (key: string) => statusOf(key, '/projects/demo/events', { method: 'POST' })

function expectMoment(text: string | null, expected_ms: number): void {
  // A minute allows for slow machines; a wrong unit or sign makes a larger difference.
  expect(Math.abs(Date.parse(text ?? '') - expected_ms)).toBeLessThan(60_000)
}

describe('keys create', () => {
  test('prints only a key, which has all scopes of its project and does not expire', async () => {
    const key = await create('--name', 'CRM sync')
    expect(key).toMatch(/^ft_[0-9A-Za-z]{12}_[0-9A-Za-z]{33}$/)
    expect([await statusOf(key), await statusOfPost(key)]).toEqual([200, 400])
    expect(await statusOf(key, '/projects/other/modules')).toBe(401)
    expect(await listed(key)).toMatchObject({
      project_id: 'demo',
      name: 'CRM sync',
      scopes: ['read', 'events:write'],
      expires_at: null,
      revoked_at: null,
    })
  })

  test.each([
    [['read'], 200, 403],
    [['events:write'], 403, 400],
    [['events:write', 'read', 'read'], 200, 400],
  ])('with scopes %j reads with %d and posts with %d', async (scopes, read, post) => {
    const key = await create(...scopes.flatMap((scope) => ['--scope', scope]))
    expect([await statusOf(key), await statusOfPost(key)]).toEqual([read, post])
    expect((await listed(key)).scopes).toEqual([...new Set(scopes)])
  })

  test.each([
    ['90d', 90 * 24],
    ['12h', 12],
    ['30m', 0.5],
  ])('with --expires %s makes a key that is valid for that long', async (expires, hours) => {
    const key = await create('--expires', expires)
    expectMoment((await listed(key)).expires_at, Date.now() + hours * HOUR_ms)
    expect(await statusOf(key)).toBe(200)
  })

  test('with --expires 1s makes a key that expires and then cannot be rotated', async () => {
    const key = await create('--expires', '1s')
    await expect.poll(() => statusOf(key)).toBe(401)
    const { expires_at } = await listed(key)
    expect(await flowtrail('keys', 'rotate', idOf(key))).toEqual({
      status: 1,
      stdout: '',
      stderr: `flowtrail: Key ${idOf(key)} expired at ${expires_at}. Create a new one with: npm run -s flowtrail -- keys create\n`,
    })
  })
})

test('keys list shows a table without secrets, of all projects or of one', async () => {
  const [key, other] = [await create(), await printed(flowtrail('keys', 'create', '--project', 'other'))]
  const table = await printed(flowtrail('keys', 'list'))
  const [header = '', ...lines] = table.split('\n')
  expect(header).toMatch(/^key_id +project_id +name +scopes +created_at +expires_at +last_used_at +revoked_at$/)
  expect(table).toContain(idOf(key))
  expect(table).toContain(idOf(other))
  expect(table).not.toContain(parseKey(key)?.secret)
  for (const line of lines) expect(line.slice(header.indexOf('created_at'))).toMatch(/^20\d\d-/)

  const ofOther = await printed(flowtrail('keys', 'list', '--project', 'other'))
  expect(ofOther).toContain(idOf(other))
  expect(ofOther).not.toContain(idOf(key))
  expect(JSON.stringify(await listed(key))).not.toMatch(/secret|hash/)
})

describe('keys revoke', () => {
  test('refuses a key at once if it was not used in the last second', async () => {
    const key = await create()
    expect(await printed(flowtrail('keys', 'revoke', idOf(key)))).toBe('')
    expect(await statusOf(key)).toBe(401)
    const { revoked_at } = await listed(key)
    expectMoment(revoked_at, Date.now())
    for (const command of ['revoke', 'rotate']) {
      expect(await flowtrail('keys', command, idOf(key))).toEqual({
        status: 1,
        stdout: '',
        stderr: `flowtrail: Key ${idOf(key)} was revoked at ${revoked_at}\n`,
      })
    }
  })

  test('accepts the whole key instead of its id', async () => {
    const key = await create()
    expect(await printed(flowtrail('keys', 'revoke', key))).toBe('')
    expect(await statusOf(key)).toBe(401)
  })
})

describe('keys rotate', () => {
  test('prints a key like the old one, which expires after a day', async () => {
    const key = await create('--name', 'CRM', '--scope', 'read')
    const successor = await rotate(idOf(key))
    expect(idOf(successor)).not.toBe(idOf(key))
    expect([await statusOf(key), await statusOf(successor), await statusOfPost(successor)]).toEqual([200, 200, 403])
    expect(await listed(successor)).toMatchObject({
      project_id: 'demo',
      name: 'CRM',
      scopes: ['read'],
      expires_at: null,
    })
    expectMoment((await listed(key)).expires_at, Date.now() + 24 * HOUR_ms)
  })

  test('with --overlap 0h expires the old key at once', async () => {
    const key = await create()
    const successor = await rotate(idOf(key), '--overlap', '0h')
    expect([await statusOf(key), await statusOf(successor)]).toEqual([401, 200])
  })

  test('with --overlap 30d keeps the old key valid that long, but not past its own expiry', async () => {
    const [lasting, ending] = [await create(), await create('--expires', '10d')]
    await rotate(idOf(lasting), '--overlap', '30d')
    expectMoment((await listed(lasting)).expires_at, Date.now() + 30 * 24 * HOUR_ms)
    const { expires_at } = await listed(ending)
    const { stdout: successor, stderr } = await flowtrail('keys', 'rotate', idOf(ending), '--overlap', '30d')
    expect((await listed(ending)).expires_at).toBe(expires_at)
    expect((await listed(successor.trimEnd())).expires_at).toBe(expires_at)
    // Whoever has rotated it twice would not expect that.
    expect(stderr).toBe(`The new key expires at ${expires_at}, as key ${idOf(ending)} would have\n`)
  })
})

test.each([
  ['create --project nope', 'Project nope does not exist. Run: npm run -s flowtrail -- projects list'],
  ['list --project nope', 'Project nope does not exist. Run: npm run -s flowtrail -- projects list'],
  ['revoke abcdefghijkl', 'Key abcdefghijkl does not exist. Run: npm run -s flowtrail -- keys list'],
  ['rotate abcdefghijkl', 'Key abcdefghijkl does not exist. Run: npm run -s flowtrail -- keys list'],
])('keys %s fails', async (line, message) => {
  expect(await flowtrail('keys', ...line.split(' '))).toEqual({
    status: 1,
    stdout: '',
    stderr: `flowtrail: ${message}\n`,
  })
})

test.each(['ENOSPC', 'EPIPE'])(
  'a key that cannot be printed is not created, nor does the old one end (%s)',
  async (code) => {
    const key = await create()
    const keys = async () => JSON.parse(await printed(flowtrail('keys', 'list', '--json')))
    const before = await keys()
    for (const command of ['create --project demo', `rotate ${idOf(key)}`]) {
      const [stdout, stderr] = [
        new Writable({ write: (_chunk, _encoding, done) => done(Object.assign(new Error(code), { code })) }),
        new PassThrough(),
      ]
      const context = { env: { DATABASE_URL: database.url }, stdin: Readable.from([]), stdout, stderr }
      expect(await run(['keys', ...command.split(' ')], context)).toBe(1)
      expect(String(stderr.read())).toBe(`flowtrail: The key cannot be printed, so it was not created: ${code}\n`)
    }
    expect(await keys()).toEqual(before)
  },
)

test('a key that is revoked meanwhile is not rotated', async () => {
  const key = await create()
  const revocation = await holdLock(
    database.url,
    `UPDATE api_keys SET revoked_at = '2026-11-01T00:00:00Z' WHERE key_id = '${idOf(key)}'`,
  )
  const rotating = flowtrail('keys', 'rotate', idOf(key), '--overlap', '0h')
  await revocation.waiting(1)
  await revocation.query('COMMIT')
  await revocation.release()
  const stderr = `flowtrail: Key ${idOf(key)} was revoked at 2026-11-01T00:00:00.000Z\n`
  expect(await rotating).toEqual({ status: 1, stdout: '', stderr })
})

test('a command that is interrupted before the database has responded says so', async () => {
  const proxy = await createDatabaseProxy(database.url)
  onTestFinished(() => proxy.close())
  const frozen = proxy.freezeAt('pg_backend_pid')
  const process = runFlowtrail(['keys', 'list'], { DATABASE_URL: proxy.reach(database.url) })
  onTestFinished(() => kill(process))
  await frozen
  process.child.kill('SIGTERM')
  expect([await process.exit, process.stderr()]).toEqual([143, 'flowtrail: interrupted\n'])
})
