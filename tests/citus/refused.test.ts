import { readdir } from 'node:fs/promises'
import { expect, onTestFinished, test } from 'vitest'
import { flowtrailWith, temporaryDirectory } from '../cli/run.ts'
import { createTestDatabase } from '../support/database.ts'

test('a backup and a rewriting of the tables are refused, and there is no file', async () => {
  await using directory = await temporaryDirectory()
  const database = await createTestDatabase()
  onTestFinished(() => database.drop())
  const flowtrail = flowtrailWith({ DATABASE_URL: database.url })
  for (const args of [['backup', `${directory.path}/backup`], ['compact']]) {
    expect(await flowtrail(...args)).toEqual({
      ...{ status: 1, stdout: '' },
      stderr: expect.stringMatching(/^flowtrail: The database is distributed by Citus\. Its? .*\n$/),
    })
  }
  expect(await readdir(directory.path)).toEqual([])
})
