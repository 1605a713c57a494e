import { readdirSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { createTestDatabase } from '../support/database.ts'
import { flowtrailProcessWith, flowtrailWith, printed, ROOT } from './run.ts'

const MIGRATIONS = readdirSync(path.join(ROOT, 'db/migrations')).map((file) => file.replace(/\.ts$/, ''))

interface Row {
  migration: string
  applied_at: string | null
  new?: boolean
}

test('migrate migrates an empty database once, and no other command runs before', async () => {
  const database = await createTestDatabase('template0')
  const settings = { DATABASE_URL: database.url, LOG_LEVEL: 'warn' }
  const flowtrail = flowtrailWith(settings)
  const rows = async (...args: string[]) => JSON.parse(await printed(flowtrail('migrate', '--json', ...args))) as Row[]

  for (let look = 0; look < 2; look += 1) {
    expect(await rows('--status')).toEqual(MIGRATIONS.map((migration) => ({ migration, applied_at: null })))
  }
  expect(await printed(flowtrail('migrate', '--status'))).toMatch(/^migration +applied_at\n0001-schema +-/)
  for (const command of ['serve', 'projects list', 'demo', 'import -']) {
    const run = command === 'serve' ? flowtrailProcessWith(settings) : flowtrail
    expect(await run(...command.split(' ')), command).toEqual({
      status: 1,
      stdout: '',
      stderr: `flowtrail: Pending migrations: ${MIGRATIONS.join(', ')}. Run: npm run -s flowtrail -- migrate\n`,
    })
  }

  const applied_at = expect.stringMatching(/^20\d\d-\d\d-\d\dT[\d:.]+Z$/)
  expect(await rows()).toEqual(MIGRATIONS.map((migration) => ({ migration, applied_at, new: true })))
  const status = await rows('--status')
  expect(status).toEqual(MIGRATIONS.map((migration) => ({ migration, applied_at })))
  expect(await rows()).toEqual(status.map((row) => ({ ...row, new: false })))
  expect(await printed(flowtrail('migrate'))).toMatch(/^migration +applied_at +new\n0001-schema +20\S+ +false/)
  expect(await printed(flowtrail('projects', 'list'))).toBe('project_id  name')
  await database.drop()
})
