import { execFile } from 'node:child_process'
import { chown, glob, mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { promisify } from 'node:util'
import { sql } from 'kysely'
import pg from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, type TestContext, test } from 'vitest'
import { type EmbeddedServer, useEmbeddedServer } from '../../../db/embedded/server.ts'
import { migrate } from '../../../db/migrate.ts'
import { connect } from '../../../src/database/open.ts'
import type { Database } from '../../../src/database/pool.ts'
import { customEvent, fillFixture } from '../../recording/fixture.ts'
import { createDatabaseProxy } from '../../support/database-proxy.ts'
import { embeddedUrl, signalPostgres } from '../../support/embedded-postgres.ts'
import { databaseUrl, onServer } from '../../support/global-setup.ts'
import { kill, type Service, startService } from '../../support/service.ts'
import { holdLock } from '../../support/waiting.ts'
import { createLedgerKey, LEDGER_PROJECT, NO_DISCREPANCIES } from './ledger.ts'
import { Load } from './load.ts'
import { report, size, TRIAL_OPTIONS } from './trial.ts'

const run = promisify(execFile)

/** After so long without an outage every request must succeed; the aim is a second. */
const RECOVERY_ms = 10_000
/** How long an outage goes on once requests of every kind have met it. */
const OUTAGE_ms = size(500, 60_000)

const TIMEOUTS = { STATEMENT_TIMEOUT_MS: '1000', QUEUE_TIMEOUT_MS: '2000' }
const SETTINGS = { max_connections: '30', fsync: 'off' }

/** A PostgreSQL of the trials' own, with a database for the service. */
interface Cluster {
  dataDir: string
  url: string
  start: (settings?: Record<string, string>) => Promise<void>
  stop: () => Promise<void>
  remove: () => Promise<void>
}

/** Starts a cluster: a new one, or with an original, which is not running, a standby that is a copy of it. */
async function createCluster(settings: Record<string, string> = {}, original?: Cluster): Promise<Cluster> {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'flowtrail-trial-'))
  if (original) {
    await run('cp', ['--archive', path.join(original.dataDir, 'postgres'), dataDir])
    await writeFile(path.join(dataDir, 'postgres/standby.signal'), '')
  }
  let server!: EmbeddedServer
  const start = async (settings: Record<string, string> = {}) => {
    server = await useEmbeddedServer({ dataDir, settings: { ...SETTINGS, ...settings } })
  }
  const stop = () => server.release()
  await start(settings)
  return {
    dataDir,
    url: databaseUrl(server.url, 'flowtrail'),
    start,
    stop,
    remove: async () => {
      await stop()
      await rm(dataDir, { recursive: true })
    },
  }
}

/** Makes the database of the service in a cluster. Resolves to a key of the ledger's project. */
async function fill({ url }: Cluster): Promise<string> {
  await onServer(databaseUrl(url, 'postgres'), 'CREATE DATABASE flowtrail')
  const db = connect(url, { max: 1 })
  await migrate(db)
  await fillFixture(url)
  const key = await createLedgerKey(db)
  await db.destroy()
  return key
}

let cluster: Cluster
let service: Service
let db: Database
let key: string
const cleanup = new AsyncDisposableStack()
beforeAll(async () => {
  cluster = await createCluster()
  cleanup.defer(cluster.remove)
  key = await fill(cluster)
  db = connect(cluster.url, { max: 1 })
  cleanup.defer(() => db.destroy())
  service = await startService({ DATABASE_URL: cluster.url, ...TIMEOUTS })
  cleanup.defer(() => kill(service))
})
afterAll(() => cleanup.disposeAsync())

interface Outage {
  /** Ends it. Resolves once the database can serve again. */
  end: () => Promise<unknown>
  /** Whether reads go on until its end as if there were none. */
  readsGoOn?: boolean
}

/** Expects 200 and 503 only while it goes on, 200 soon after its end, and that every 200 is kept. */
async function expectToSurvive(begin: () => Promise<Outage>, to = { service, key, db }): Promise<void> {
  await using cleanup = new AsyncDisposableStack()
  const load = new Load(to.service.address, to.key)
  cleanup.defer(() => load.stop())
  await load.untilServed()
  const { readsGoOn = false, ...outage } = await begin()
  let ended: Promise<unknown> | undefined
  const end = async () => {
    ended ??= outage.end()
    await ended
  }
  cleanup.defer(end)
  const before = load.counts
  await load.until(() => {
    const { posts, reads } = load.counts
    return (posts[503] ?? 0) > (before.posts[503] ?? 0) && (readsGoOn || reads[503] > before.reads[503])
  })
  await setTimeout(OUTAGE_ms)
  if (readsGoOn) expect(load.reads[503]).toBe(before.reads[503])
  await end()
  const ended_ms = performance.now()
  await load.untilServed()
  const recovery_ms = performance.now() - ended_ms
  await load.stop()
  const discrepancies = await load.ledger.discrepancies(to.db)
  report({ ...load.counts, recovery_ms, ...discrepancies })
  expect(discrepancies).toEqual(NO_DISCREPANCIES)
  expect(load.counts.posts).not.toHaveProperty('no response')
  expect(recovery_ms).toBeLessThan(RECOVERY_ms)
  expect(to.service.child.exitCode).toBeNull()
}

/** A session in the maintenance database, which outages of the service's leave alone. */
async function adminSession(): Promise<pg.Client> {
  const client = new pg.Client(databaseUrl(cluster.url, 'postgres'))
  client.on('error', () => {})
  await client.connect()
  onTestFinished(() => client.end())
  return client
}

/** Debian's libfaketime. */
async function findFaketime(): Promise<string | undefined> {
  for await (const file of glob('/usr/lib/*/faketime/libfaketime.so.1')) return file
  return undefined
}

const TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'flowtrail'"

test('PostgreSQL is stopped, and started again', TRIAL_OPTIONS, () =>
  expectToSurvive(async () => {
    await cluster.stop()
    return { end: () => cluster.start() }
  }),
)

test('all processes of PostgreSQL are frozen', TRIAL_OPTIONS, () =>
  expectToSurvive(async () => {
    await signalPostgres(cluster.dataDir, 'SIGSTOP')
    return { end: () => signalPostgres(cluster.dataDir, 'SIGCONT') }
  }),
)

test('others have taken all connections', TRIAL_OPTIONS, () =>
  expectToSurvive(async () => {
    const admin = await adminSession()
    const others: pg.Client[] = []
    const takeAll = async (): Promise<void> => {
      const client = new pg.Client(cluster.url)
      client.on('error', () => {})
      const isConnected = await client.connect().then(
        () => true,
        () => false,
      )
      if (!isConnected) return
      others.push(client)
      await takeAll()
    }
    const all = Number(SETTINGS.max_connections) - 1 // one is the admin session's
    while (others.length < all) {
      await admin.query(`${TERMINATE} AND application_name = 'flowtrail'`)
      await takeAll()
    }
    return { end: () => Promise.all(others.map((client) => client.end())) }
  }),
)

test('PostgreSQL becomes read-only', TRIAL_OPTIONS, () =>
  expectToSurvive(async () => {
    const admin = await adminSession()
    const reload = async (change: string) => {
      await admin.query(`ALTER SYSTEM ${change}`)
      await admin.query('SELECT pg_reload_conf()')
    }
    await reload('SET default_transaction_read_only = on')
    return { end: () => reload('RESET default_transaction_read_only'), readsGoOn: true }
  }),
)

test('every table is locked', TRIAL_OPTIONS, () =>
  expectToSurvive(async () => {
    const tables = 'projects, modules, module_versions, contacts, entries, events, idempotency_keys, api_keys'
    const obstacle = await holdLock(cluster.url, `LOCK TABLE ${tables}`)
    return { end: () => obstacle.release() }
  }),
)

test('all connections are terminated, again and again', TRIAL_OPTIONS, () =>
  expectToSurvive(async () => {
    const admin = await adminSession()
    let isOver = false
    const terminating = (async () => {
      while (!isOver) await admin.query(TERMINATE)
    })()
    return {
      end: async () => {
        isOver = true
        await terminating
      },
    }
  }),
)

/** Mounts a disk of its own size until the test ends. Skips the test if that is not permitted. */
async function mountDisk({ skip }: TestContext, size: string): Promise<string> {
  if (process.getuid?.() !== 0) skip('needs root, to mount a small disk')
  const disk = await mkdtemp(path.join(tmpdir(), 'flowtrail-disk-'))
  await run('mount', ['-t', 'tmpfs', '-o', `size=${size},mode=755`, 'tmpfs', disk])
  onTestFinished(async () => {
    await run('umount', ['--lazy', disk])
    await rm(disk, { recursive: true })
  })
  return disk
}

/** Fills a disk. Resolves to what frees it. */
async function fillDisk(disk: string): Promise<() => Promise<void>> {
  const filler = path.join(disk, 'filler')
  await run('dd', ['if=/dev/zero', `of=${filler}`, 'bs=4k']).catch(() => {}) // it fails when the disk is full
  return () => rm(filler)
}

test('the disk of the events is full', TRIAL_OPTIONS, async (context) => {
  const disk = await mountDisk(context, '16m')
  const admin = await adminSession()
  const { uid, gid } = await stat(path.join(cluster.dataDir, 'postgres'))
  const space = path.join(disk, 'tablespace')
  await mkdir(space)
  await chown(space, uid, gid)
  await admin.query(`CREATE TABLESPACE small LOCATION '${space}'`)
  await sql`ALTER TABLE events SET TABLESPACE small`.execute(db)
  await expectToSurvive(async () => ({ end: await fillDisk(disk), readsGoOn: true }))
  await sql`ALTER TABLE events SET TABLESPACE pg_default`.execute(db)
  await admin.query('DROP TABLESPACE small')
})

test(
  'the disk of the embedded PostgreSQL is full, and no write-ahead log can be written',
  TRIAL_OPTIONS,
  async (context) => {
    const dataDir = path.join(await mountDisk(context, '256m'), 'data')
    const embedded = await startService({ DATA_DIR: dataDir, ...TIMEOUTS })
    onTestFinished(async () => {
      embedded.child.kill('SIGTERM')
      await embedded.exit
    })
    const url = await embeddedUrl(dataDir)
    await fillFixture(url)
    const embeddedDb = connect(url, { max: 1 })
    const embeddedKey = await createLedgerKey(embeddedDb)
    await expectToSurvive(
      async () => {
        const free = await fillDisk(path.dirname(dataDir))
        // The next commit needs a new segment; the switch itself fails if a post came first, or it is the first to need it.
        await sql`SELECT pg_switch_wal()`.execute(embeddedDb).catch(() => {})
        return { end: free }
      },
      { service: embedded, key: embeddedKey, db: embeddedDb },
    )
    await embeddedDb.destroy()
  },
)

test('the clock of the service jumps by two days, back and forth', TRIAL_OPTIONS, async ({ skip }) => {
  const library = await findFaketime()
  if (!library) return skip('needs the Debian package libfaketime')
  const directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-clock-'))
  const file = path.join(directory, 'offset')
  await writeFile(file, '+0')
  const jumping = await startService({
    DATABASE_URL: cluster.url,
    LD_PRELOAD: library,
    FAKETIME_TIMESTAMP_FILE: file,
    FAKETIME_NO_CACHE: '1',
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
  })
  onTestFinished(async () => {
    await kill(jumping)
    await rm(directory, { recursive: true })
  })
  // An event may be 24 hours ahead of the service's clock.
  const timestamp = new Date(Date.now() + 47 * 3_600_000).toISOString()
  const postAhead = async (offset: string) => {
    const response = await fetch(`${jumping.address}/projects/${LEDGER_PROJECT}/events`, {
      method: 'POST',
      headers: { 'x-api-key': key, 'content-type': 'application/json', 'idempotency-key': offset },
      body: JSON.stringify(customEvent({ timestamp })),
    })
    return response.status
  }
  const load = new Load(jumping.address, key)
  const statuses: number[] = []
  for (const offset of ['+0d', '+2d', '-2d', '-0d']) {
    await writeFile(file, offset)
    statuses.push(await postAhead(offset))
    await load.untilServed()
  }
  await load.stop()
  const discrepancies = await load.ledger.discrepancies(db)
  report({ ...load.counts, ...discrepancies })
  expect(statuses).toEqual([400, 200, 400, 400])
  expect(load.counts).toEqual({ posts: { 200: load.ledger.acknowledged }, reads: { 200: expect.any(Number), 503: 0 } })
  expect(discrepancies).toEqual(NO_DISCREPANCIES)
})

test('PostgreSQL fails, and its synchronous standby is promoted', TRIAL_OPTIONS, async () => {
  const primary = await createCluster()
  onTestFinished(primary.remove)
  const keyOfPrimary = await fill(primary)
  await primary.stop()
  const replication = await createDatabaseProxy(primary.url)
  const { searchParams } = new URL(replication.reach(primary.url))
  const primary_conninfo = `host=${searchParams.get('host')} port=${searchParams.get('port')} user=postgres`
  const standby = await createCluster({ primary_conninfo }, primary)
  onTestFinished(standby.remove)
  await primary.start({ synchronous_standby_names: '*' })
  const proxy = await createDatabaseProxy(primary.url)
  const dbOfBoth = connect(proxy.reach(primary.url), { max: 1 })
  const behindProxy = await startService({ DATABASE_URL: proxy.reach(primary.url), ...TIMEOUTS })
  onTestFinished(async () => {
    await kill(behindProxy)
    await dbOfBoth.destroy()
    await proxy.close()
    await replication.close()
  })

  const unused = await createLedgerKey(dbOfBoth, 'unused')
  const read = async () => {
    const url = `${behindProxy.address}/projects/${LEDGER_PROJECT}/modules`
    return (await fetch(url, { headers: { 'x-api-key': unused } })).status
  }
  await expectToSurvive(
    async () => {
      // What the primary still commits does not reach the standby.
      replication.freeze()
      // That a key was used is written on a connection that reads share.
      const statuses = [await read(), ...(await Promise.all(Array.from({ length: 50 }, read)))]
      expect(statuses.filter((status) => status !== 200)).toEqual([])
      return {
        readsGoOn: true,
        end: async () => {
          await signalPostgres(primary.dataDir, 'SIGKILL')
          proxy.cut()
          await onServer(databaseUrl(standby.url, 'postgres'), 'SELECT pg_promote()')
          proxy.divert(standby.url)
          proxy.restore()
        },
      }
    },
    { service: behindProxy, key: keyOfPrimary, db: dbOfBoth },
  )
})
