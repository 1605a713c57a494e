import { randomBytes } from 'node:crypto'
import { inject } from 'vitest'
import { databaseUrl, onServer } from './global-setup.ts'

/** A database for one test file. */
export interface TestDatabase {
  url: string
  drop: () => Promise<void>
}

/** Creates an empty database with the migrated schema. @param template `template0` for one without schema */
export async function createTestDatabase(template: string = inject('templateDatabase')): Promise<TestDatabase> {
  const server = inject('databaseServer')
  const name = `flowtrail_test_${randomBytes(8).toString('hex')}`
  await onServer(server, `CREATE DATABASE ${name} TEMPLATE ${template}`)
  return {
    url: databaseUrl(server, name),
    drop: () => onServer(server, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`),
  }
}
