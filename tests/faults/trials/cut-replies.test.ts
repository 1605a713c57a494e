import { afterEach, beforeEach, expect, inject, test } from 'vitest'
import { connect } from '../../../src/database/open.ts'
import type { Database } from '../../../src/database/pool.ts'
import { fillFixture } from '../../recording/fixture.ts'
import { createTestDatabase, type TestDatabase } from '../../support/database.ts'
import { serverAddress } from '../../support/database-proxy.ts'
import { kill, type Service, startService } from '../../support/service.ts'
import { createFaultyProxy, type FaultyProxy } from './faulty-proxy.ts'
import { createLedgerKey, Ledger, NO_DISCREPANCIES } from './ledger.ts'
import { report, size, TRIAL_OPTIONS } from './trial.ts'

const ROUNDS = size(3, 200)
/** A withheld response of PostgreSQL takes the service six seconds to give up. */
const ROUNDS_WITHHELD = size(1, 20)
/** Longer than the delay of the proxy. */
const PATIENCE_ms = 2_000

let database: TestDatabase
let db: Database
let key: string
let service: Service
const proxies: FaultyProxy[] = []
beforeEach(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 })
  await fillFixture(database.url)
  key = await createLedgerKey(db)
})
afterEach(async () => {
  await kill(service)
  for (const proxy of proxies.splice(0)) await proxy.close()
  await db.destroy()
  await database.drop()
})

type Faults = Parameters<typeof createFaultyProxy>[0]['faults']

/** Each fault in both directions, again and again. */
function faults(rounds: number, roundsWithheld: number): Faults {
  const all = (['request', 'response'] as const).flatMap(
    (direction): Faults => [
      [direction, 'cut before'],
      [direction, 'cut within'],
      [direction, 'cut after'],
      [direction, 'reset'],
      [direction, 'delay'],
      [direction, 'withhold'],
    ],
  )
  const inRound = (round: number) => all.filter(([, fault]) => fault !== 'withhold' || round < roundsWithheld)
  return Array.from({ length: rounds }, (_, round) => inRound(round)).flat()
}

/** Starts a proxy that is closed after the test. */
async function proxyTo(...[options]: Parameters<typeof createFaultyProxy>): Promise<FaultyProxy> {
  const proxy = await createFaultyProxy(options)
  proxies.push(proxy)
  return proxy
}

/** The service on a proxy to PostgreSQL whose faults befall commits and their results. */
async function startBehindProxy(): Promise<FaultyProxy> {
  const target = serverAddress(inject('databaseServer'))
  const proxy = await proxyTo({ target, marker: 'COMMIT\0', every: 3, faults: faults(ROUNDS, ROUNDS_WITHHELD) })
  const url = new URL(database.url)
  url.searchParams.set('host', '127.0.0.1')
  url.searchParams.set('port', String(proxy.port))
  service = await startService({ DATABASE_URL: url.href, STATEMENT_TIMEOUT_MS: '1000' })
  return proxy
}

/** A proxy to the service whose faults befall requests and responses. */
function proxyToService(): Promise<FaultyProxy> {
  const { hostname, port } = new URL(service.address)
  const target = { host: hostname, port: Number(port) }
  return proxyTo({ target, marker: 'HTTP/1.1', every: 10, faults: faults(ROUNDS, ROUNDS) })
}

/** Sends events to the address until no faults are left, and compares what is stored. */
async function expectLedgerToHold(address: string, ...faulty: FaultyProxy[]): Promise<void> {
  const left = () => faulty.reduce((sum, proxy) => sum + proxy.left(), 0)
  const count = left()
  const ledger = new Ledger({ address: () => address, key, concurrency: 16, patience_ms: PATIENCE_ms })
  await ledger.sendWhile(() => left() > 0)
  const discrepancies = await ledger.discrepancies(db)
  const { acknowledged, responses } = ledger
  report({ faults: count, responses, acknowledged, ...discrepancies })
  expect(discrepancies).toEqual(NO_DISCREPANCIES)
  expect(responses['no response']).toBeGreaterThan(0)
}

test(
  'whatever becomes of requests and responses, every event that got a 200 is stored once',
  TRIAL_OPTIONS,
  async () => {
    service = await startService({ DATABASE_URL: database.url })
    const toService = await proxyToService()
    await expectLedgerToHold(`http://127.0.0.1:${toService.port}`, toService)
  },
)

test(
  'whatever becomes of commits and their results too, every event that got a 200 is stored once',
  TRIAL_OPTIONS,
  async () => {
    const toDatabase = await startBehindProxy()
    const toService = await proxyToService()
    await expectLedgerToHold(`http://127.0.0.1:${toService.port}`, toService, toDatabase)
  },
)
