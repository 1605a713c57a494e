import { Readable } from 'node:stream'
import { createPool } from '../../db/connection.ts'
import { demoRecords } from '../../src/demo/project.ts'
import { importRecords } from '../../src/transfer/import.ts'
import { createTestApp, type TestApp } from '../support/app.ts'

/** A test app on the demo project, as what the bench measures is. */
export const createDemoApp = (): Promise<TestApp> =>
  createTestApp({
    fill: async (databaseUrl) => {
      const pool = createPool(databaseUrl, { max: 1 })
      await importRecords(
        pool,
        Readable.from(demoRecords({ entries: 60 }).map((record) => Buffer.from(`${JSON.stringify(record)}\n`))),
      )
      await pool.end()
    },
  })
