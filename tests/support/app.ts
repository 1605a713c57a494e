import { createReadStream } from 'node:fs'
import { Readable } from 'node:stream'
import type { FastifyInstance, LightMyRequestResponse } from 'fastify'
import type { components } from '../../generated/api.ts'
import { type AppParts, buildApp } from '../../src/app.ts'
import { createKey } from '../../src/cli/keys.ts'
import { detectDistribution, isDistributed, markDistributed } from '../../src/database/distribution.ts'
import { connect, connectShared, openImportPool, openWritePool } from '../../src/database/open.ts'
import { createPool, type Database } from '../../src/database/pool.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import type { PrunerOptions } from '../../src/recording/idempotency-pruner.ts'
import { importRecords } from '../../src/transfer/import.ts'
import { DOCUMENT_VIOLATED, document, watchResponses } from './contract.ts'
import { createTestDatabase } from './database.ts'
import { testAppExtensions } from './extensions.ts'
import { searchedLogger } from './log-keys.ts'
import './openapi-schema.ts'
import { addTwins } from './twins.ts'

export interface Call {
  method?: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'OPTIONS'
  /** With its query, percent-encoded, as it goes over the wire. */
  path: string
  /** The key of project demo by default; null sends none. */
  key?: string | null
  headers?: Record<string, string>
  /** An object is sent as JSON, text and bytes unchanged. */
  body?: unknown
}

/** A service on a database of its own with the document's examples, and with twins of their projects. */
export interface TestApp {
  app: FastifyInstance
  db: Database
  /** The service's own, for reads. */
  readDb: Database
  databaseUrl: string
  /** A key of project demo with all scopes. */
  key: string
  /** Sends one request, and throws if the response violates the document or holds anything of another project. */
  call: (call: Call) => Promise<LightMyRequestResponse>
  /** Listens on a free port as well. Resolves to the address. */
  listen: () => Promise<string>
  /** Closes the service and drops its database. Throws if any response violated the document or held foreign content. */
  close: () => Promise<void>
}

/** The import records behind the document's examples: projects demo and other. */
export const EXAMPLES = new URL('./examples.ndjson', import.meta.url)

/** Without any feature that an operator has to enable. */
export const PLAIN_CONFIG: AppParts['config'] = {
  basePath: '',
  publicUrl: undefined,
  corsOrigins: [],
  rateLimitPerMinute: undefined,
  trustProxy: false,
  maxConnections: 10_000,
  slowRequest_ms: 1_000,
  maxImport_bytes: 16 * 1024 * 1024,
  maxFollowers: 2_000,
}

export interface TestAppOptions {
  config?: Partial<AppParts['config']>
  /** Fills the database, instead of with the document's examples. */
  fill?: (databaseUrl: string, db: Database) => Promise<void>
  /** Whether every project that fills the database gets twins (./twins.ts), as by default. */
  twins?: boolean
  logger?: AppParts['logger']
  demoKeyFile?: string
  queryTimeout_ms?: number
  stopping?: AppParts['stopping']
  tracing?: AppParts['tracing']
  /** How old Idempotency-Keys are deleted; without it they are kept. */
  pruning?: PrunerOptions
  readGate?: AppParts['readGate']
  replicas?: AppParts['replicas']
  /** Whether queries and imports have the form for a distributed database; without it as TEST_DISTRIBUTED says. */
  isDistributed?: boolean
  /** The address that the app itself connects to, if not the database's: that of a proxy, for example. */
  reach?: (databaseUrl: string) => string
}

export const importFile = (databaseUrl: string, file: URL) => importFrom(databaseUrl, createReadStream(file))

export const importInto = (databaseUrl: string, records: Iterable<object>) =>
  importFrom(databaseUrl, Readable.from([...records].map((record) => `${JSON.stringify(record)}\n`)))

/** Fills a database with the document's examples. An erasure cannot be imported. */
export async function loadExamples(databaseUrl: string, db: Database): Promise<void> {
  await importFile(databaseUrl, EXAMPLES)
  const { value } = document.components.examples.Erasures as { value: components['schemas']['Erasure'][] }
  await insertErasures(db, 'demo', value)
}

export async function insertErasures(
  db: Database,
  project_id: string,
  erasures: components['schemas']['Erasure'][],
): Promise<void> {
  await db
    .insertInto('erasures')
    .values(erasures.map((erasure) => ({ project_id, ...erasure })))
    .execute()
}

/** Fills a database with the document's examples and with further records. */
export const withExamples = (records: Iterable<object>) => async (databaseUrl: string, db: Database) => {
  await loadExamples(databaseUrl, db)
  await importInto(databaseUrl, records)
}

async function importFrom(databaseUrl: string, input: Readable): Promise<void> {
  const pool = createPool(databaseUrl, { max: 1 })
  await importRecords(pool, input)
  await pool.end()
}

export async function createTestApp(options: TestAppOptions = {}): Promise<TestApp> {
  const database = await createTestDatabase()
  const db = connect(database.url, { max: 2 })
  await (options.fill ?? loadExamples)(database.url, db)
  const key = await createKey(db, 'demo', { name: 'test', scopes: SCOPES, expires_at: null })
  const watermarks = (options.twins ?? true) ? await addTwins(db) : new Map()

  const address = options.reach?.(database.url) ?? database.url
  const timeouts = { statementTimeout_ms: 10_000, queryTimeout_ms: options.queryTimeout_ms ?? 15_000 }
  const readDb = connectShared(address, { max: 2, ...timeouts })
  await detectDistribution(readDb)
  if (options.isDistributed ?? process.env.TEST_DISTRIBUTED === 'yes') markDistributed(readDb)
  const writePool = openWritePool(address, { max: 4, ...timeouts })
  const importPool = openImportPool(address, { max: 4, ...timeouts })
  if (isDistributed(readDb)) importPool.on('connect', markDistributed)
  const pruning = options.pruning && { db: connect(address, { max: 1, ...timeouts }), ...options.pruning }
  const violations: string[] = []
  const app = await buildApp({
    config: { ...PLAIN_CONFIG, ...options.config },
    db: readDb,
    writePool,
    importPool,
    pruning,
    logger: searchedLogger(options.logger),
    demoKeyFile: options.demoKeyFile,
    stopping: options.stopping,
    tracing: options.tracing,
    replicas: options.replicas,
    ...(options.readGate && { readGate: options.readGate }),
    extend: (app) => {
      for (const { extend } of testAppExtensions) extend(app, db)
      watchResponses(app, violations, watermarks)
    },
  })
  const assertContract = () => {
    if (violations.length > 0) throw new Error(`${DOCUMENT_VIOLATED}\n${violations.splice(0).join('\n')}`)
  }

  return {
    app,
    db,
    readDb,
    databaseUrl: database.url,
    key,
    call: async (call) => {
      const sent = call.key === undefined ? key : call.key
      const isRaw = typeof call.body === 'string' || call.body instanceof Buffer || call.body === undefined
      const response = await app.inject({
        method: call.method ?? 'GET',
        url: call.path,
        headers: {
          ...(sent !== null && { 'x-api-key': sent }),
          ...(call.body !== undefined && { 'content-type': 'application/json' }),
          ...call.headers,
        },
        ...(call.body !== undefined && { payload: isRaw ? (call.body as string | Buffer) : JSON.stringify(call.body) }),
      })
      if (!testAppExtensions.some(({ violatesDocument }) => violatesDocument)) assertContract()
      return response
    },
    listen: () => app.listen({ host: '127.0.0.1', port: 0 }),
    close: async () => {
      await app.close()
      await readDb.destroy()
      await writePool.end()
      await importPool.end()
      await pruning?.db.destroy()
      await db.destroy()
      await database.drop()
      assertContract()
    },
  }
}
