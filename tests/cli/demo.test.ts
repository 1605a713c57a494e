import { readFile, stat, writeFile } from 'node:fs/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parseKey } from '../../src/domain/api-key.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type Flowtrail, flowtrailWith, printed, temporaryDirectory } from './run.ts'

let directory: Awaited<ReturnType<typeof temporaryDirectory>>
let database: TestDatabase
let flowtrail: Flowtrail
beforeAll(async () => {
  directory = await temporaryDirectory()
  database = await createTestDatabase()
  flowtrail = flowtrailWith({ DATABASE_URL: database.url, DATA_DIR: `${directory.path}/data` })
})
afterAll(async () => {
  await database.drop()
  await directory[Symbol.asyncDispose]()
})

const demo = (...options: string[]) => printed(flowtrail('demo', '--entries', '5', ...options))
const keyFile = () => `${directory.path}/data/demo-key`

async function entriesOf(project: string): Promise<number> {
  const exported = await printed(flowtrail('export', '--project', project))
  return exported.match(/^{"type":"entry"/gm)?.length ?? 0
}

test('demo loads the project and prints its key, the same one while it is valid', async () => {
  const key = await demo()
  expect(parseKey(key)).toBeDefined()
  expect(await readFile(keyFile(), 'utf8')).toBe(`${key}\n`)
  expect((await stat(keyFile())).mode & 0o777).toBe(0o600)
  expect(await entriesOf('demo')).toBe(5)

  expect(await demo('--entries', '7')).toBe(key)
  expect(await entriesOf('demo')).toBe(7)
  expect(await demo()).toBe(key)
  expect(await entriesOf('demo')).toBe(7)
})

test.each([
  ['is revoked', (key: string) => printed(flowtrail('keys', 'revoke', parseKey(key)?.key_id ?? ''))],
  [
    'has expired',
    (key: string) => printed(flowtrail('keys', 'rotate', parseKey(key)?.key_id ?? '', '--overlap', '0h')),
  ],
  ['is truncated in the file', (key: string) => writeFile(keyFile(), key.slice(0, -1), { mode: 0o644 })],
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
  const rows = JSON.parse(await printed(flowtrail('keys', 'list', '--project', 'trial', '--json'))) as object[]
  expect(rows).toMatchObject([{ key_id: parseKey(key)?.key_id, name: 'demo', scopes: ['read', 'events:write'] }])
  expect(await entriesOf('trial')).toBe(5)
})
