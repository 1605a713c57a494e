import { chmod, readFile, stat, writeFile } from 'node:fs/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { parseKey } from '../../src/domain/api-key.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { flowtrailProcessWith, flowtrailWith, printed, temporaryDirectory } from './run.ts'

let directory: Awaited<ReturnType<typeof temporaryDirectory>>
let database: TestDatabase
let db: Database
let settings: Record<string, string>
beforeAll(async () => {
  directory = await temporaryDirectory()
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 })
  settings = { DATABASE_URL: database.url, DATA_DIR: `${directory.path}/data` }
})
afterAll(async () => {
  await db.destroy()
  await database.drop()
  await directory[Symbol.asyncDispose]()
})

/** The output of a command that succeeds. */
const flowtrail = (...args: string[]) => printed(flowtrailWith(settings)(...args))
const demo = (...options: string[]) => flowtrail('demo', '--entries', '5', ...options)
const keyFile = () => `${directory.path}/data/demo-key`

async function entriesOf(project: string): Promise<number> {
  const rows = await db.selectFrom('entries').select('entry_id').where('project_id', '=', project).execute()
  return rows.length
}

test('demo loads the project and prints its key, the same one while it is valid', async () => {
  const key = await printed(flowtrailProcessWith(settings)('demo', '--entries', '5'))
  expect(parseKey(key)).toBeDefined()
  expect(await readFile(keyFile(), 'utf8')).toBe(`${key}\n`)
  expect((await stat(keyFile())).mode & 0o777).toBe(0o600)
  expect(await entriesOf('demo')).toBe(5)

  expect(await demo('--entries', '7')).toBe(key)
  expect(await entriesOf('demo')).toBe(7)
  expect(await demo()).toBe(key)
  expect(await entriesOf('demo')).toBe(7)
})

/** Overwrites the file and lets everybody read it, as one restored from elsewhere may be. */
async function spoilFile(text: string): Promise<void> {
  await writeFile(keyFile(), text)
  await chmod(keyFile(), 0o644)
}

test.each([
  ['is revoked', (key: string) => flowtrail('keys', 'revoke', parseKey(key)?.key_id ?? '')],
  [
    'lacks a scope',
    (key: string) =>
      db
        .updateTable('api_keys')
        .set({ scopes: ['read'] })
        .where('key_id', '=', parseKey(key)?.key_id ?? '')
        .execute(),
  ],
  ['has expired', (key: string) => flowtrail('keys', 'rotate', parseKey(key)?.key_id ?? '', '--overlap', '0h')],
  ['is truncated in the file, which anyone can read', (key: string) => spoilFile(key.slice(0, -1))],
])('demo replaces a key that %s', async (_, spoil) => {
  const key = await demo()
  await spoil(key)
  const successor = await demo()
  expect(successor).not.toBe(key)
  expect(await readFile(keyFile(), 'utf8')).toBe(`${successor}\n`)
  expect((await stat(keyFile())).mode & 0o777).toBe(0o600)
  expect(await demo()).toBe(successor)
})

test('demo loads the project under another id, and does not touch the key of demo', async () => {
  const own = await demo()
  const key = await demo('--project', 'trial')
  expect(await readFile(`${keyFile()}-trial`, 'utf8')).toBe(`${key}\n`)
  expect(await demo()).toBe(own)
  const rows = JSON.parse(await flowtrail('keys', 'list', '--project', 'trial', '--json')) as object[]
  expect(rows).toMatchObject([
    { key_id: parseKey(key)?.key_id, name: 'demo', scopes: ['read', 'events:write', 'import'] },
  ])
  expect(await entriesOf('trial')).toBe(5)
})

test('demo keeps the name of a project that exists', async () => {
  await flowtrail('projects', 'create', 'shop', '--name', 'My shop')
  await demo('--project', 'shop')
  expect(await flowtrail('projects', 'list')).toMatch(/^shop +My shop$/m)
})

test('demo leaves no key whose file cannot be written', async () => {
  const keys = () => db.selectFrom('api_keys').select('key_id').execute()
  await demo()
  const before = await keys()
  const elsewhere = flowtrailWith({ ...settings, DATA_DIR: `${keyFile()}/data` })
  expect(await elsewhere('demo', '--entries', '5')).toMatchObject({
    ...{ status: 1, stderr: expect.stringContaining('ENOTDIR') },
  })
  expect(await keys()).toEqual(before)
})

test('demo keeps the key of a project with a long id', async () => {
  const project = '漢'.repeat(100)
  const key = await demo('--project', project)
  expect(await demo('--project', project)).toBe(key)
})
