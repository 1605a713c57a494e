import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import { buildApp, createAdminApp } from '../app.ts'
import type { Config, TracingOptions } from '../config.ts'
import { detectDistribution, markDistributed } from '../database/distribution.ts'
import { connect, connectShared, openImportPool, openWritePool, RESPONSE_GRACE_ms } from '../database/open.ts'
import { Replicas } from '../database/replicas.ts'
import type { Peers } from '../http/peers.ts'
import { describeRelease } from '../release.ts'
import type { Tracing } from '../tracing/tracing.ts'
import { type Address, listen } from './listen.ts'
import type { Running } from './process.ts'

/** How long a read waits for a lock on a table, as `VACUUM FULL` takes it, before it lets those behind it pass. */
const READ_LOCK_TIMEOUT_ms = 1_000

export interface RequestsOptions {
  /** Called with the URL of the API once the server listens. */
  onListening?: (url: string) => void
  /** Where the docs page says to find the demo project's key. */
  demoKeyFile?: string
  /** The other workers, if this process is one. */
  peers?: Peers
}

interface Apps {
  app: FastifyInstance
  admin: { app: FastifyInstance; address: Address } | undefined
}

/**
 * Serves requests from a database that is ready, until the stop signal. Then says for a while that it is stopping, so
 * that proxies send requests elsewhere, and leaves to `cleanup` to drain: to stop accepting requests, finish those in
 * progress and close the connections to the database.
 *
 * @throws Error with a one-line message when it cannot listen
 */
export async function serveRequests(
  config: Config,
  databaseUrl: string,
  options: RequestsOptions,
  running: Running,
): Promise<void> {
  const { log, cleanup, stop } = running
  const tracing = config.tracing && (await startTracing(config.tracing, log))
  if (tracing) cleanup.defer(() => tracing.stop())
  const { app, admin } = await openApps(config, databaseUrl, options, { ...running, tracing })
  if (stop.aborted) return
  const address = await listen(app, config.server)
  if (admin) await listen(admin.app, admin.address, 'ADMIN_')
  options.onListening?.(config.http.publicUrl ?? address + config.http.basePath)
  if (!stop.aborted) await once(stop, 'abort')
  const { drainDelay_ms } = config.server
  if (drainDelay_ms > 0) {
    log.info(`stopping: serving for another ${drainDelay_ms / 1_000} seconds`)
    await sleep(drainDelay_ms)
  }
  log.info('stopping: draining requests in progress')
}

/** Builds the apps. Each step registers in `cleanup` how to undo it. */
async function openApps(
  config: Config,
  databaseUrl: string,
  options: RequestsOptions,
  { logger, log, cleanup, stop, tracing }: Running & { tracing: Tracing | undefined },
): Promise<Apps> {
  const { read, write, import: imports, statementTimeout_ms } = config.connections
  const timeouts = { statementTimeout_ms, queryTimeout_ms: statementTimeout_ms + RESPONSE_GRACE_ms }
  const abandoned = new AbortController()
  const reading = { lockTimeout_ms: READ_LOCK_TIMEOUT_ms, signal: abandoned.signal }
  const db = connectShared(databaseUrl, { max: read, ...timeouts, ...reading })
  cleanup.defer(() => db.destroy())
  const isDistributed = await detectDistribution(db)
  if (isDistributed && config.databaseReplicaUrls.length > 0) {
    throw new Error(
      'DATABASE_REPLICA_URLS names replicas of one server, but the database is distributed by Citus over several. Leave it out',
    )
  }
  const writePool = openWritePool(databaseUrl, { max: write, ...timeouts })
  cleanup.defer(() => writePool.end())
  const importPool = openImportPool(databaseUrl, { max: imports, statementTimeout_ms })
  cleanup.defer(() => importPool.end())

  const retention_days = config.idempotencyRetention_days
  const pruning =
    retention_days === undefined ? undefined : { db: connect(databaseUrl, { max: 1, ...timeouts }), retention_days }
  if (pruning) cleanup.defer(() => pruning.db.destroy())
  if (pruning && isDistributed) markDistributed(pruning.db)

  const { databaseReplicaUrls } = config
  const replicas =
    databaseReplicaUrls.length === 0
      ? undefined
      : new Replicas({ url: databaseUrl, db }, databaseReplicaUrls, {
          ...{ max: read, ...timeouts },
          onChange: (replica, problem) => {
            if (problem === undefined) log.info({ replica }, 'reads are sent to the replica')
            else log.warn({ replica }, `no reads are sent to the replica: ${problem}`)
          },
          onFallback: (replica, err) =>
            log.warn({ replica, err }, 'a query failed on the replica, and was run on the primary server'),
        })
  cleanup.defer(() => replicas?.close())

  const admin = config.server.admin && {
    app: createAdminApp({ logger, stopping: stop }, config.http),
    address: config.server.admin,
  }
  cleanup.defer(() => admin?.app.close())
  const app = await buildApp({
    config: config.http,
    db,
    writePool,
    importPool,
    replicas,
    recorder: config.recorder,
    pruning,
    logger,
    admin: admin?.app,
    tracing,
    demoKeyFile: options.demoKeyFile,
    peers: options.peers,
    stopping: stop,
  })
  cleanup.defer(() => drain(app, config.server.drainTimeout_ms, () => abandoned.abort()))
  // Building the app keeps the event loop busy, so that responses would seem late.
  replicas?.start()
  return { app, admin }
}

/** Loads OpenTelemetry only here: to a server without traces it costs nothing. */
async function startTracing(options: TracingOptions, log: Running['log']): Promise<Tracing> {
  const tracing = await import('../tracing/tracing.ts')
  return tracing.startTracing(options, describeRelease(), log)
}

/** @param abandonReads called when requests were cut off, whose reads would keep the process until they end */
async function drain(app: FastifyInstance, timeout_ms: number, abandonReads: () => void): Promise<void> {
  let areCutOff = false
  const deadline = setTimeout(() => {
    areCutOff = true
    app.server.closeAllConnections()
  }, timeout_ms)
  await app.close()
  clearTimeout(deadline)
  if (areCutOff) abandonReads()
}
