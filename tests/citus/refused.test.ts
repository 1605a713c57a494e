import { readdir } from 'node:fs/promises'
import { expect, onTestFinished, test } from 'vitest'
import { flowtrailWith, temporaryDirectory } from '../cli/run.ts'
import { createTestDatabase } from '../support/database.ts'

test('backup and compact are refused, and leave no file', async () => {
  await using directory = await temporaryDirectory()
  const database = await createTestDatabase()
  onTestFinished(() => database.drop())
  const flowtrail = flowtrailWith({ DATABASE_URL: database.url })
  const refused = (reason: string) => ({
    ...{ status: 1, stdout: '' },
    stderr: expect.stringMatching(`^flowtrail: The database is distributed by Citus\\. ${reason}`),
  })
  const backup = await flowtrail('backup', `${directory.path}/backup`)
  expect(backup).toEqual(refused('Its nodes have no common snapshot'))
  expect(await flowtrail('compact')).toEqual(refused('It cannot wait for transactions on the other nodes'))
  expect(await readdir(directory.path)).toEqual([])
})
