import { randomBytes } from 'node:crypto'
import { mkdtemp, readFile, rm, statfs } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { useEmbeddedServer } from '../../db/embedded/server.ts'
import { migrate } from '../../db/migrate.ts'
import { connect } from '../../src/database/open.ts'
import { CITUS_NODES, isOnCitus } from './citus.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    /** Connection string of the server's maintenance database. */
    databaseServer: string
    /** Name of the migrated template database. */
    templateDatabase: string
  }
}

const ROOT = path.join(import.meta.dirname, '../..')

/** Provides a database server with a migrated template database. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // Halves the start-up time of processes.
  process.env.NODE_COMPILE_CACHE ??= path.join(ROOT, 'node_modules/.cache/compiled')
  const memory = await memoryDirectory()
  if (memory) process.env.TMPDIR ??= memory
  await using cleanup = new AsyncDisposableStack()
  const server = await useServer()
  cleanup.defer(server.release)
  const template = `flowtrail_template_${randomBytes(8).toString('hex')}`
  cleanup.defer(() => onNodes(server.url, `DROP DATABASE IF EXISTS ${template}`))
  await createMigrated(server.url, template)
  if (isOnCitus) await disconnect(template)

  project.provide('databaseServer', server.url)
  project.provide('templateDatabase', template)
  const kept = cleanup.move()
  return () => kept.disposeAsync()
}

/** Creates a database with the schema, which is a cluster with TEST_CITUS_URL. @returns its connection string */
export async function createMigrated(server: string, database: string): Promise<string> {
  await onNodes(server, `CREATE DATABASE ${database}`)
  if (isOnCitus) await distribute(database)
  const url = databaseUrl(server, database)
  const db = connect(url, { max: 1 })
  await migrate(db).finally(() => db.destroy())
  return url
}

/**
 * Makes the databases of this name one cluster, whose tables will be distributed. Its copies are clusters as well, since they
 * contain the metadata, and the shards.
 */
async function distribute(database: string): Promise<void> {
  const urls = CITUS_NODES.map((node) => databaseUrl(node, database))
  for (const url of urls) await onServer(url, 'CREATE EXTENSION citus')
  const addresses = urls.map((url) => new URL(url)).map(({ hostname, port }) => `'${hostname}', ${port || 5432}`)
  const [coordinator, ...workers] = addresses
  const statements = [
    `SELECT citus_set_coordinator_host(${coordinator})`,
    ...workers.map((worker) => `SELECT citus_add_node(${worker})`),
    ...(workers.length > 0 ? [] : [`SELECT citus_set_node_property(${coordinator}, 'shouldhaveshards', true)`]),
  ]
  for (const statement of statements) await onServer(urls[0] ?? '', statement)
}

/** Ends the connections that Citus keeps to a database, which could not be copied otherwise. */
async function disconnect(database: string): Promise<void> {
  for (const node of CITUS_NODES) {
    await onServer(node, `ALTER DATABASE ${database} ALLOW_CONNECTIONS false`)
    await onServer(node, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '${database}'`)
  }
}

const MEMORY = '/dev/shm'
/** Several times what a run needs at once: 0.3 GiB. */
const MIN_MEMORY_bytes = 2 ** 30

/** A directory in memory, where creating a database takes a fifth of the time; undefined if it is small or runs no programs. */
async function memoryDirectory(): Promise<string | undefined> {
  const mounts = await readFile('/proc/mounts', 'utf8').catch(() => '')
  const options = mounts.split('\n').find((line) => line.split(' ')[1] === MEMORY)
  if (!options || options.includes('noexec')) return undefined
  const { bavail, bsize } = await statfs(MEMORY)
  return bavail * bsize >= MIN_MEMORY_bytes ? MEMORY : undefined
}

/** The coordinator of TEST_CITUS_URL, the server of TEST_DATABASE_URL or, without them, an embedded one for this run only. */
export async function useServer(): Promise<{ url: string; release: () => Promise<void> }> {
  const [url = process.env.TEST_DATABASE_URL] = CITUS_NODES
  return url ? { url, release: async () => {} } : startEmbedded()
}

async function startEmbedded() {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'flowtrail-test-'))
  // The data need not survive a crash.
  const settings = { fsync: 'off', full_page_writes: 'off', max_connections: '300' }
  const server = await useEmbeddedServer({ dataDir, settings })
  const release = async () => {
    await server.release()
    await rm(dataDir, { recursive: true })
  }
  return { url: server.url, release }
}

/** The connection string of another database on the same server. */
export function databaseUrl(server: string, database: string): string {
  const url = new URL(server)
  url.pathname = `/${database}`
  return url.href
}

/** Runs one statement on the maintenance database of a server, or of each node of the cluster whose coordinator it is. */
export async function onNodes(server: string, statement: string): Promise<void> {
  await Promise.all((isOnCitus ? CITUS_NODES : [server]).map((node) => onServer(node, statement)))
}

/** Runs one statement on the database of a connection string, as a rule the server's maintenance database. */
export async function onServer(server: string, statement: string): Promise<void> {
  const client = new pg.Client(server)
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}
