import { mkdtemp, readFile, rm, statfs } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import pg from 'pg'
import type { TestProject } from 'vitest/node'
import { useEmbeddedServer } from '../../db/embedded/server.ts'
import { migrate } from '../../db/migrate.ts'
import { connect } from '../../src/database/open.ts'

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
  const server = await useServer()
  const template = `flowtrail_template_${process.pid}`
  await onServer(server.url, `CREATE DATABASE ${template}`)
  const isDistributed = process.env.TEST_CITUS === 'yes'
  if (isDistributed) await distribute(databaseUrl(server.url, template))
  const db = connect(databaseUrl(server.url, template), { max: 1 })
  await migrate(db)
  await db.destroy()
  if (isDistributed) await disconnect(server.url, template)

  project.provide('databaseServer', server.url)
  project.provide('templateDatabase', template)
  return async () => {
    await onServer(server.url, `DROP DATABASE ${template}`)
    await server.release()
  }
}

/**
 * Makes a database one whose tables will be distributed by Citus, all of them to this server. Its copies are, too, since they
 * contain the shards.
 */
async function distribute(url: string): Promise<void> {
  const { hostname, port } = new URL(url)
  const node = `'${hostname}', ${port || 5432}`
  await onServer(url, 'CREATE EXTENSION citus')
  await onServer(url, `SELECT citus_set_coordinator_host(${node})`)
  await onServer(url, `SELECT citus_set_node_property(${node}, 'shouldhaveshards', true)`)
}

/** Ends the connections that Citus keeps to a database, which could not be copied otherwise. */
async function disconnect(server: string, database: string): Promise<void> {
  await onServer(server, `ALTER DATABASE ${database} ALLOW_CONNECTIONS false`)
  await onServer(server, `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '${database}'`)
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

/** The server of TEST_DATABASE_URL or, without it, an embedded one for this run only. */
export async function useServer(): Promise<{ url: string; release: () => Promise<void> }> {
  const { TEST_DATABASE_URL } = process.env
  return TEST_DATABASE_URL ? { url: TEST_DATABASE_URL, release: async () => {} } : startEmbedded()
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
