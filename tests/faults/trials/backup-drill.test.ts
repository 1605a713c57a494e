import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect, withServer } from '../../../src/database/open.ts'
import { flowtrailProcessWith } from '../../cli/run.ts'
import { type CustomEventResult, fillFixture } from '../../recording/fixture.ts'
import { embeddedUrl } from '../../support/embedded-postgres.ts'
import { kill, type Service, startService } from '../../support/service.ts'
import { createLedgerKey, Ledger, NO_DISCREPANCIES } from './ledger.ts'
import { report, size, TRIAL_OPTIONS } from './trial.ts'
import { createVisitsKey, Visits } from './visits.ts'

// Last night's backup, after the loss of the machine.

const EVENTS_BEFORE = size(2_000, 200_000)

let directory: string
let service: Service
beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-trial-'))
})
afterAll(async () => {
  await kill(service)
  await withServer({ databaseUrl: undefined, dataDir: path.join(directory, 'restored') }, async () => {})
  await rm(directory, { recursive: true })
})

test(
  'a backup under load, restored after everything is gone, has every event that got a 200 before',
  TRIAL_OPTIONS,
  async () => {
    const [DATA_DIR, file] = [path.join(directory, 'lost'), path.join(directory, 'backup.gz')]
    service = await startService({ DATA_DIR })
    const lost = connect(await embeddedUrl(DATA_DIR), { max: 1 })
    await fillFixture(await embeddedUrl(DATA_DIR))
    const key = await createLedgerKey(lost)
    const visits = new Visits(() => service.address, await createVisitsKey(lost))
    await lost.destroy()

    const ledger = new Ledger({ address: () => service.address, key })
    let isLoaded = true
    const load = Promise.all([ledger.sendWhile(() => isLoaded), visits.sendWhile(() => isLoaded)])
    await ledger.until(() => ledger.acknowledged >= EVENTS_BEFORE)
    const [before, visitsBefore] = [ledger.results, [...visits.acknowledged]]
    const backup = await flowtrailProcessWith({ DATA_DIR })('backup', file)
    expect(backup).toMatchObject({ status: 0, stderr: '' })
    const { acknowledged } = ledger
    await ledger.until(() => ledger.acknowledged > acknowledged)
    isLoaded = false
    await load
    const seen = await lastPosition(service, key)
    await kill(service)
    await withServer({ databaseUrl: undefined, dataDir: DATA_DIR }, async () => {})
    await rm(DATA_DIR, { recursive: true })

    const restoredDir = path.join(directory, 'restored')
    expect((await flowtrailProcessWith({ DATA_DIR: restoredDir })('restore', file)).status).toBe(0)
    service = await startService({ DATA_DIR: restoredDir })
    const db = connect(await embeddedUrl(restoredDir), { max: 1 })
    const rows = await db.selectFrom('events').select(['event_id', 'custom_event_name']).execute()
    const stored = new Map(rows.map(({ event_id, custom_event_name }) => [event_id, custom_event_name]))
    const isStored = ({ event_id, custom_event_name }: CustomEventResult) => stored.get(event_id) === custom_event_name
    expect(before.filter((result) => !isStored(result))).toEqual([])
    const entries = new Set((await db.selectFrom('entries').select('entry_id').execute()).map((row) => row.entry_id))
    expect(visitsBefore.filter((entry_id) => !entries.has(entry_id))).toEqual([])
    const restored = ledger.results.filter(isStored).length
    report({ before: before.length, restored, acknowledged: ledger.acknowledged, visits: visitsBefore.length })
    // The load went on while the backup was taken.
    expect(ledger.acknowledged).toBeGreaterThan(restored)

    // Whoever sends again what is gone gets it recorded, behind all that was seen; what is there is replayed byte for byte.
    const gone = ledger.acknowledged - restored
    expect(await ledger.discrepancies(db)).toEqual({ ...NO_DISCREPANCIES, lost: gone, replayedDifferently: gone })
    const behind = await db.selectFrom('events').where('position', '>', seen).select('event_id').execute()
    expect(behind).toHaveLength(gone)
    await db.destroy()
  },
)

async function lastPosition({ address }: Service, key: string): Promise<number> {
  const response = await fetch(`${address}/projects/other/events?limit=1`, { headers: { 'x-api-key': key } })
  const [newest] = (await response.json()) as { position: number }[]
  return newest?.position ?? Number.NaN
}
