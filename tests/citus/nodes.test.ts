import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { createLedgerKey, NO_DISCREPANCIES } from '../faults/trials/ledger.ts'
import { Load } from '../faults/trials/load.ts'
import { report, size, TRIAL_OPTIONS } from '../faults/trials/trial.ts'
import { fillFixture } from '../recording/fixture.ts'
import { CITUS_NODES } from '../support/citus.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { onServer } from '../support/global-setup.ts'
import { kill, type Service, startService } from '../support/service.ts'

const STRIKES = size(20, 300)

let database: TestDatabase
let db: Database
let service: Service
let load: Load
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 })
  await fillFixture(database.url)
  service = await startService({ DATABASE_URL: database.url })
  load = new Load(service.address, await createLedgerKey(db))
})
afterAll(async () => {
  await kill(service)
  await db.destroy()
  await database.drop()
})

/** Ends the sessions of a database on a node: those of the service, or those of the other nodes. */
async function strike(node: string): Promise<void> {
  const name = new URL(database.url).pathname.slice(1)
  await onServer(
    node,
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = '${name}' AND backend_type = 'client backend' AND pid <> pg_backend_pid()`,
  )
}

test('whenever the sessions on a node end, every event that got a 200 is stored once', TRIAL_OPTIONS, async () => {
  await load.untilServed()
  for (let i = 0; i < STRIKES; i += 1) {
    await strike(CITUS_NODES[i % CITUS_NODES.length] ?? '')
    await load.untilServed()
  }
  await load.stop()
  report({ strikes: STRIKES, ...load.counts })
  expect(await load.ledger.discrepancies(db)).toEqual(NO_DISCREPANCIES)
})
