import { afterAll, beforeAll, expect, test } from 'vitest'
import { createPool } from '../../src/database/pool.ts'
import { importRecords } from '../../src/transfer/import.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { type Flowtrail, flowtrailWith, printed } from './run.ts'

let database: TestDatabase
let flowtrail: Flowtrail
beforeAll(async () => {
  database = await createTestDatabase()
  flowtrail = flowtrailWith({ DATABASE_URL: database.url })
})
afterAll(() => database.drop())

test('projects are created once, and listed as a table or as JSON', async () => {
  expect(await printed(flowtrail('projects', 'list'))).toBe('project_id  name')
  expect(await printed(flowtrail('projects', 'list', '--json'))).toBe('[]')

  expect(await printed(flowtrail('projects', 'create', 'acme', '--name', 'Acme & Söhne'))).toBe('')
  expect(await printed(flowtrail('projects', 'create', 'a/b c'))).toBe('')
  expect(await flowtrail('projects', 'create', 'acme', '--name', 'Another')).toEqual({
    status: 1,
    stdout: '',
    stderr: 'flowtrail: Project acme already exists\n',
  })

  expect(await printed(flowtrail('projects', 'list'))).toBe(
    ['project_id  name', 'a/b c       a/b c', 'acme        Acme & Söhne'].join('\n'),
  )
  expect(JSON.parse(await printed(flowtrail('projects', 'list', '--json')))).toEqual([
    { project_id: 'a/b c', name: 'a/b c' },
    { project_id: 'acme', name: 'Acme & Söhne' },
  ])
})

test('a name with line breaks, which an import can contain, is printed on one line', async () => {
  const pool = createPool(database.url, { max: 1 })
  const record = { type: 'project', project_id: 'lines', name: 'two\n\tlines\u001b[2J' }
  await importRecords(
    pool,
    (async function* () {
      yield JSON.stringify(record)
    })(),
  )
  await pool.end()
  expect(await printed(flowtrail('projects', 'list'))).toContain('\nlines       two lines [2J')
})

test('a command that ends leaves no handler of signals in the process', async () => {
  const handlers = () => ['SIGINT', 'SIGTERM', 'SIGHUP'].map((signal) => process.listenerCount(signal))
  const before = handlers()
  await printed(flowtrail('projects', 'list'))
  expect((await flowtrail('projects', 'create', 'taken')).status).toBe(0)
  expect((await flowtrail('projects', 'create', 'taken')).status).toBe(1)
  expect(handlers()).toEqual(before)
})
