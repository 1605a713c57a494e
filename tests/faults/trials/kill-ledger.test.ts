import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect, withServer } from '../../../src/database/open.ts'
import type { Database } from '../../../src/database/pool.ts'
import { fillFixture } from '../../recording/fixture.ts'
import { embeddedUrl, postmasterPid, signalPostgres } from '../../support/embedded-postgres.ts'
import { kill, type Service, startService } from '../../support/service.ts'
import { createLedgerKey, Ledger, NO_DISCREPANCIES } from './ledger.ts'
import { randomNumbers, report, SEED, size, TRIAL_OPTIONS } from './trial.ts'
import { createVisitsKey, Visits } from './visits.ts'

// The service on its embedded PostgreSQL, as operators run it, which flushes each commit.

const EVENTS = size(5_000, 100_000)
const KILLS = size(6, 120)
const CONCURRENCY = 64

let dataDir: string
let db: Database
let key: string
let visitsKey: string
let service: Service
const cleanup = new AsyncDisposableStack()
beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), 'flowtrail-trial-'))
  cleanup.defer(() => rm(dataDir, { recursive: true }))
  // Its last user stops it.
  cleanup.defer(() => withServer({ databaseUrl: undefined, dataDir }, async () => {}))
  service = await startService({ DATA_DIR: dataDir })
  cleanup.defer(() => kill(service))
  const url = await embeddedUrl(dataDir)
  db = connect(url, { max: 1 })
  cleanup.defer(() => db.destroy())
  await fillFixture(url)
  key = await createLedgerKey(db)
  visitsKey = await createVisitsKey(db)
})
afterAll(() => cleanup.disposeAsync())

const VICTIMS: [name: string, strike: () => Promise<void>][] = [
  [
    'service',
    async () => {
      await kill(service)
      service = await startService({ DATA_DIR: dataDir })
    },
  ],
  ['postmaster', () => restarted(async () => process.kill(await postmasterPid(dataDir), 'SIGKILL'))],
  ['all of PostgreSQL', () => restarted(() => signalPostgres(dataDir, 'SIGKILL'))],
]

/** Kills PostgreSQL and waits for the next postmaster: backends may outlive theirs, and record for a while. */
async function restarted(strike: () => Promise<unknown>): Promise<void> {
  const pid = await postmasterPid(dataDir)
  await strike()
  await expect.poll(() => postmasterPid(dataDir).catch(() => pid), { timeout: 60_000 }).not.toBe(pid)
}

test(
  'every event that got a 200 is stored once, and every visit whole, however often the service and PostgreSQL are killed',
  TRIAL_OPTIONS,
  async () => {
    const random = randomNumbers(SEED)
    const ledger = new Ledger({ address: () => service.address, key, concurrency: CONCURRENCY })
    const kills: Record<string, number> = {}
    let [killed, slowestRecovery_ms] = [0, 0]
    const isGoingOn = () => ledger.sent < EVENTS || killed < KILLS
    const visits = new Visits(() => service.address, visitsKey)
    const sending = Promise.all([ledger.sendWhile(isGoingOn), visits.sendWhile(isGoingOn)])
    for (; killed < KILLS; killed += 1) {
      const due = ((killed + random()) / KILLS) * EVENTS
      await ledger.until(() => ledger.acknowledged >= due)
      // Any moment: before, during or after a commit.
      await setTimeout(random() * 20)
      const [victim, strike] = VICTIMS[killed % VICTIMS.length] as (typeof VICTIMS)[number]
      const start_ms = performance.now()
      await strike()
      kills[victim] = (kills[victim] ?? 0) + 1
      const { acknowledged } = ledger
      await ledger.until(() => ledger.acknowledged >= acknowledged + CONCURRENCY)
      slowestRecovery_ms = Math.max(slowestRecovery_ms, performance.now() - start_ms)
    }
    await sending
    const { acknowledged, responses } = ledger
    const discrepancies = await ledger.discrepancies(db)
    report({
      SEED,
      kills,
      responses,
      slowestRecovery_ms,
      acknowledged,
      ...discrepancies,
      visits: visits.acknowledged.size,
    })
    expect(discrepancies).toEqual(NO_DISCREPANCIES)
    expect(await visits.discrepancies(db)).toEqual([])
    expect(visits.acknowledged.size).toBeGreaterThan(KILLS)
    expect(responses['no response']).toBeGreaterThan(0)
    expect(responses[503]).toBeGreaterThan(0)
  },
)
