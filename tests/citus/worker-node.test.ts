import { expect, test } from 'vitest'
import { connect } from '../../src/database/open.ts'
import { createLedgerKey, LEDGER_PROJECT, NO_DISCREPANCIES } from '../faults/trials/ledger.ts'
import { Load } from '../faults/trials/load.ts'
import { TRIAL_OPTIONS } from '../faults/trials/trial.ts'
import { fillFixture } from '../recording/fixture.ts'
import { CITUS_NODES } from '../support/citus.ts'
import { createTestDatabase } from '../support/database.ts'
import { runFlowtrail, startService } from '../support/service.ts'

/** The same database, by another node of the cluster. */
function throughNode(databaseUrl: string, node: string): string {
  const url = new URL(node)
  url.pathname = new URL(databaseUrl).pathname
  return url.href
}

test(
  'servers on the coordinator and on worker nodes record in one project and read the same',
  TRIAL_OPTIONS,
  async () => {
    await using cleanup = new AsyncDisposableStack()
    const database = await createTestDatabase()
    cleanup.defer(database.drop)
    const db = connect(database.url, { max: 1 })
    cleanup.defer(() => db.destroy())
    await fillFixture(database.url)
    const key = await createLedgerKey(db)

    const urls = CITUS_NODES.map((node) => throughNode(database.url, node))
    const services = await Promise.all(urls.map((DATABASE_URL) => startService({ DATABASE_URL })))
    for (const { child, exit } of services) {
      cleanup.defer(async () => {
        child.kill('SIGTERM')
        await exit
      })
    }
    const loads = services.map(({ address }) => new Load(address, key))
    for (let i = 0; i < 3; i += 1) await Promise.all(loads.map((load) => load.untilServed()))
    for (const load of loads) await load.stop()
    for (const { ledger } of loads) expect(await ledger.discrepancies(db)).toEqual(NO_DISCREPANCIES)

    const eventsFrom = async (address: string) => {
      const response = await fetch(`${address}/projects/${LEDGER_PROJECT}/events`, { headers: { 'x-api-key': key } })
      return response.json() as Promise<unknown[]>
    }
    const [expected, ...others] = await Promise.all(services.map(({ address }) => eventsFrom(address)))
    expect(expected).not.toEqual([])
    for (const events of others) expect(events).toEqual(expected)

    // So do the commands.
    const exported = await Promise.all(
      urls.map(async (DATABASE_URL) => {
        const { exit, stdout, stderr } = runFlowtrail(['export', '--project', LEDGER_PROJECT], { DATABASE_URL })
        expect(await exit, stderr()).toBe(0)
        return stdout()
      }),
    )
    expect(new Set(exported).size).toBe(1)
    expect(exported[0]?.length).toBeGreaterThan(0)
  },
)
