import fastify, { type FastifyInstance, type FastifyServerOptions } from 'fastify'
import type pg from 'pg'
import type { Config, RecorderOptions } from './config.ts'
import { adviceForOutage } from './database/advice.ts'
import { isDistributed } from './database/distribution.ts'
import type { Database } from './database/pool.ts'
import type { ReadReplicas } from './database/replicas.ts'
import { Followers } from './feed/followers.ts'
import { handlers } from './handlers/index.ts'
import { Authenticator } from './http/auth.ts'
import { acceptJsonOnly, MAX_BODY_bytes } from './http/body.ts'
import { clientErrorHandler, REQUEST_TIMEOUT_ms, requireHost } from './http/client-errors.ts'
import { limitConnections } from './http/connection-limit.ts'
import { allowOrigins } from './http/cors.ts'
import { sendDefaultHeaders } from './http/default-headers.ts'
import { serveDocs } from './http/docs.ts'
import { readDocument } from './http/document.ts'
import { drainOnClose } from './http/draining.ts'
import { errorHandler } from './http/error-handler.ts'
import { allowLongWork, IDLE_TIMEOUT_ms } from './http/idle-timeout.ts'
import { logController, logRequests } from './http/logging.ts'
import {
  createRegistry,
  measureAvailability,
  measureConnections,
  measureDatabase,
  measureFollowers,
  measureImports,
  measureKeyCache,
  measurePools,
  measurePruning,
  measureQueries,
  measureQueue,
  measureReads,
  measureRecording,
  measureReplicas,
  measureRequests,
} from './http/metrics.ts'
import { refuseUnknownRoutes } from './http/not-found.ts'
import { reportOutages } from './http/outages.ts'
import type { Peers } from './http/peers.ts'
import { serveInTurn } from './http/pipelining.ts'
import { serveProbes } from './http/probes.ts'
import { parseQueryString } from './http/query-string.ts'
import { RateLimiter } from './http/rate-limit.ts'
import { ReadGate, type ReadGateOptions } from './http/read-gate.ts'
import { requestId } from './http/request-id.ts'
import { registerRoutes } from './http/routes.ts'
import { reportTypeMismatches } from './http/type-mismatches.ts'
import { refuseInvalidEncoding, rewriteUndecodable } from './http/url-encoding.ts'
import { databaseSize, ping } from './queries/projects.ts'
import { IdempotencyPruner, type PrunerOptions } from './recording/idempotency-pruner.ts'
import { Recorder } from './recording/recorder.ts'
import { describeRelease } from './release.ts'
import type { Tracing } from './tracing/tracing.ts'
import { Importer } from './transfer/importer.ts'

/** What the app is made of. */
export interface AppParts {
  config: Config['http']
  /** For reading and for checking keys. */
  db: Database
  /** For recording, in pipeline mode: a pool of its own, so that writers never starve readers of connections. */
  writePool: pg.Pool
  /** For imports, in pipeline mode. */
  importPool: pg.Pool
  /** Standby servers that reads may be sent to. */
  replicas?: ReadReplicas | undefined
  recorder?: Partial<RecorderOptions>
  /** Deletes old Idempotency-Keys, on a database of its own, so that nothing else waits for it; without it all are kept. */
  pruning?: { db: Database } & PrunerOptions
  readGate?: Partial<ReadGateOptions>
  logger: FastifyServerOptions['logger']
  demoKeyFile?: string
  /** Serves the probes and metrics, which this app otherwise does. */
  admin?: FastifyInstance
  /** Traces requests, recording and queries; without it they are not. */
  tracing?: Tracing
  /** The other workers of this server, if it has any. */
  peers?: Peers
  /** Aborts when the server is about to stop, and serves on until the app is closed. */
  stopping?: AbortSignal
  /** Called before any route is registered, to observe routes and responses. */
  extend?: (app: FastifyInstance) => void
}

/** How much later than its timeout a slow request may be closed. */
const TIMEOUT_CHECK_INTERVAL_ms = 1_000

/** Longer than any path that Node accepts, so that no id is too long for the router. */
const MAX_PARAM_LENGTH = 64 * 1024

/** What all our servers have in common. */
const SERVER = {
  logController,
  genReqId: requestId,
  requestTimeout: REQUEST_TIMEOUT_ms,
  connectionTimeout: IDLE_TIMEOUT_ms,
  // `drainOnClose` responds with the error envelope, which Fastify's own 503 lacks.
  return503OnClosing: false,
  routerOptions: { maxParamLength: MAX_PARAM_LENGTH, querystringParser: parseQueryString },
  rewriteUrl: rewriteUndecodable,
  clientErrorHandler,
  http: {
    headersTimeout: REQUEST_TIMEOUT_ms,
    connectionsCheckingInterval: TIMEOUT_CHECK_INTERVAL_ms,
    // `requireHost` does.
    requireHostHeader: false,
  },
} satisfies FastifyServerOptions & { http: object }

/**
 * Wires the service together, without listening. `close()` waits for the requests in flight and for what they started in
 * the background, and leaves the databases open.
 */
export async function buildApp(parts: AppParts): Promise<FastifyInstance> {
  const { config, db, stopping, peers, replicas } = parts
  const { basePath } = config
  const app = fastify({
    ...SERVER,
    logger: parts.logger,
    bodyLimit: MAX_BODY_bytes,
    trustProxy: config.trustProxy,
    forceCloseConnections: 'idle',
  })

  const connections = limitConnections(app, config.maxConnections)

  // Hooks run in this order.
  app.addHook('onRequest', serveInTurn)
  logRequests(app, config.slowRequest_ms)
  parts.tracing?.traceRequests(app)
  sendDefaultHeaders(app, config.publicUrl)
  await allowOrigins(app, config.corsOrigins)
  app.addHook('onRequest', requireHost)
  app.addHook('onRequest', refuseInvalidEncoding)
  refuseUnknownRoutes(app)
  drainOnClose(app, stopping)
  allowLongWork(app)
  app.setErrorHandler(errorHandler)
  reportOutages(parts.admin ? [app, parts.admin] : [app], () => ping(db))
  acceptJsonOnly(app)
  parts.extend?.(app)

  const { rateLimitPerMinute } = config
  const limiter =
    rateLimitPerMinute === undefined ? undefined : new RateLimiter(rateLimitPerMinute, peers?.countRequest)
  const onError = (error: unknown) => app.log.warn({ err: error }, 'uses of keys not recorded')
  const authenticator = new Authenticator(db, limiter, onError, peers)
  app.addHook('onClose', () => authenticator.settle())

  const gate = new ReadGate(parts.readGate)
  app.addHook('onClose', async () => gate.close())

  const document = await readDocument()
  const registry = createRegistry(describeRelease())
  measureRequests(app, registry)
  measureReads(registry, gate)
  measureKeyCache(registry, authenticator.cache)
  measurePools(registry, { write: parts.writePool, import: parts.importPool })
  measureQueries(registry, app)
  measureConnections(registry, connections)
  measureAvailability(registry, () => ping(db))
  measureDatabase(registry, () => databaseSize(db))
  const metrics = peers?.shareMetrics(() => registry.getMetricsAsJSON()) ?? (() => registry.metrics())
  serveProbes(parts.admin ?? app, { basePath, stopping, metrics, ready: () => ping(db) })
  await serveDocs(app, { document, basePath, publicUrl: config.publicUrl, demoKeyFile: parts.demoKeyFile })
  const followers = new Followers(db, { maxFollowers: config.maxFollowers })
  // Before requests in flight are waited for.
  app.addHook('preClose', async () => followers.close())
  measureFollowers(registry, followers)
  const onTypeMismatch = reportTypeMismatches(registry, app.log)
  const observer = { ...measureRecording(registry, onTypeMismatch), ...parts.tracing?.recording }
  const readsPosition = replicas !== undefined
  const tuning = { readsPosition, isDistributed: isDistributed(db) }
  const recorder = new Recorder(parts.writePool, { ...parts.recorder, ...tuning }, observer)
  measureQueue(registry, recorder)
  const pruner = parts.pruning && startPruning(app, parts.pruning)
  measurePruning(registry, () => pruner?.deleted ?? 0)
  const context = {
    db,
    recorder,
    followers,
    importer: new Importer(parts.importPool, { onTypeMismatch, onImport: measureImports(registry), readsPosition }),
  }
  measureReplicas(registry, replicas)
  await registerRoutes(app, {
    document: document.json,
    handlers,
    context,
    replicas,
    authenticator,
    gate,
    maxImport_bytes: config.maxImport_bytes,
    basePath,
  })
  await app.ready()
  return app
}

function startPruning(app: FastifyInstance, { db, ...options }: NonNullable<AppParts['pruning']>): IdempotencyPruner {
  const pruner = new IdempotencyPruner(db, options, ({ deleted, duration_ms, error }) => {
    const run = { deleted, duration_ms: Math.round(duration_ms) }
    if (error) {
      app.log.warn(
        { err: error, ...run },
        `old Idempotency-Keys could not be deleted; the next attempt is in an hour. ${adviceForOutage(error)}`,
      )
    } else if (deleted > 0) app.log.info(run, 'deleted old Idempotency-Keys')
  })
  app.addHook('onClose', () => pruner.close())
  return pruner
}

/** An app that `buildApp` adds the probes to. Close it after the other, so that it responds while that one drains. */
export function createAdminApp(
  { logger, stopping }: Pick<AppParts, 'logger' | 'stopping'>,
  { slowRequest_ms }: Pick<Config['http'], 'slowRequest_ms'>,
): FastifyInstance {
  // A monitor must not keep the server from stopping.
  const admin = fastify({ ...SERVER, logger, forceCloseConnections: true })
  admin.addHook('onRequest', serveInTurn)
  logRequests(admin, slowRequest_ms)
  sendDefaultHeaders(admin)
  admin.addHook('onRequest', requireHost)
  admin.addHook('onRequest', refuseInvalidEncoding)
  refuseUnknownRoutes(admin)
  drainOnClose(admin, stopping)
  admin.setErrorHandler(errorHandler)
  return admin
}
