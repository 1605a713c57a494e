import { statfs } from 'node:fs/promises'
import type pg from 'pg'
import { type MigrationStatus, migrationStatus, newerMigrations, pendingMigrations } from '../../db/migrate.ts'
import { type Config, nameOfDatabase } from '../config.ts'
import { adviceFor, messageOf } from '../database/advice.ts'
import { connect, transactionPooler, withPool } from '../database/open.ts'
import { createPool, securityOf } from '../database/pool.ts'
import { asPooler, usesPooler } from '../database/pooler-client.ts'
import { SEVERAL_SERVERS } from '../database/replica.ts'
import { Replicas } from '../database/replicas.ts'
import { keepsSessions } from '../database/sessions.ts'
import { readServerState } from '../database/wal-position.ts'
import { FLOWTRAIL } from '../release.ts'
import { checkDocument } from './document.ts'
import { type CheckedFinding, error, type Finding, ok, warning } from './findings.ts'
import { judgeClock, SESSION_CHECKS } from './session-checks.ts'

/** PostgreSQL stops when its disk is full, and an import of a gigabyte takes several. */
const MIN_FREE_GiB = { error: 0.25, warning: 2 }

/** All queries are quick. A server that is frozen or a pooler that is paused lets clients log in, and is silent then. */
const TIMEOUTS = { queryTimeout_ms: 5_000 }

/**
 * Checks an installation: the connection and, if there is one, all else. Nothing is changed.
 *
 * @param url of the database, that of a running embedded one if it has none of its own
 * @param address where the server listens, if it runs
 * @returns each finding once it is there
 */
export async function* diagnose(url: string, address: string, config: Config): AsyncGenerator<CheckedFinding> {
  const connection = await attempt(() => checkConnection(url))
  yield { check: 'connection', ...connection }
  if (connection.status !== 'error') {
    yield* checkDatabase(url, config)
    for (const replica of config.databaseReplicaUrls) {
      yield { check: 'replica', ...(await attempt(() => checkReplica(replica, url))) }
    }
  }
  const isEmbedded = config.databaseUrl === undefined
  if (isEmbedded) yield { check: 'disk', ...(await attempt(() => checkDisk(config.dataDir))) }
  yield { check: 'document', ...(await attempt(() => checkDocument(address))) }
}

async function* checkDatabase(url: string, config: Config): AsyncGenerator<CheckedFinding> {
  yield { check: 'pooler', ...(await attempt(() => checkPooler(url, 'DATABASE_URL'))) }
  const pool = createPool(asPooler(url), { max: 1, ...TIMEOUTS })
  try {
    for (const { name, sql, judge } of SESSION_CHECKS) {
      const check = async () => judge((await pool.query(sql)).rows[0], config)
      yield { check: name, ...(await attempt(check, unchecked)) }
    }
    yield { check: 'clock', ...(await attempt(() => checkClock(pool))) }
  } finally {
    await pool.end()
  }
  yield { check: 'schema', ...(await attempt(() => checkSchema(url, config))) }
}

// The database may be behind a pooler whose sessions others use, too, and must not get our settings: asPooler.

/** What a check finds, or that it failed. */
async function attempt(check: () => Promise<Finding>, failed = error): Promise<Finding> {
  try {
    return await check()
  } catch (cause) {
    return failed(messageOf(cause), adviceFor(cause) ?? 'See docs/operations.md#checking-an-installation')
  }
}

/** Some providers hide settings and catalogs. */
const unchecked = (problem: string, fix: string) => warning(`cannot be checked: ${problem}`, fix)

async function checkConnection(url: string): Promise<Finding> {
  const check = async (pool: pg.Pool) => {
    const client = await pool.connect()
    try {
      const { rows } = await client.query('SELECT current_user AS role, current_database() AS database')
      const { role, database } = rows[0]
      const found = `${role} is connected to the database ${database}`
      const security = securityOf(client)
      if (security === 'local') return ok(`${found}, within this machine`)
      if (security === 'verified') return ok(`${found}, by TLS`)
      const insecure = security === 'none' ? 'without TLS' : 'by TLS, but any server is trusted'
      return warning(
        `${found}, ${insecure}: whoever is in between reads everything`,
        'Add sslmode=verify-full to DATABASE_URL, and sslrootcert if the certificate is of a private CA',
      )
    } finally {
      client.release()
    }
  }
  return withPool(asPooler(url), check, TIMEOUTS)
}

async function checkPooler(url: string, setting: string): Promise<Finding> {
  const pool = createPool(asPooler(url), { max: 2, ...TIMEOUTS })
  try {
    if (await keepsSessions(pool)) return ok('none in transaction mode')
    if (usesPooler(url)) return ok('in transaction mode, as pgbouncer=true says')
    const { problem, fix } = transactionPooler(setting)
    return error(problem, fix)
  } finally {
    await pool.end()
  }
}

/** So many connections almost certainly lead to several servers, if a balancer chooses one for each. */
const BALANCED_CONNECTIONS = 8

/** What is wrong with a URL whose connections do not all lead to one server. */
async function balancing(url: string): Promise<string | undefined> {
  const pool = createPool(asPooler(url), { max: BALANCED_CONNECTIONS, ...TIMEOUTS })
  try {
    const states = await Promise.all(Array.from({ length: BALANCED_CONNECTIONS }, () => readServerState(pool)))
    return new Set(states.map(({ instance }) => instance)).size > 1 ? SEVERAL_SERVERS : undefined
  } finally {
    await pool.end()
  }
}

/** Judges a replica as the server does. */
async function checkReplica(url: string, primaryUrl: string): Promise<Finding> {
  const name = nameOfDatabase(url)
  const db = connect(asPooler(primaryUrl), { max: 1, ...TIMEOUTS })
  const judged = Promise.withResolvers<string | undefined>()
  const onChange = (_: string, problem: string | undefined) => judged.resolve(problem)
  const replicas = new Replicas({ url: asPooler(primaryUrl), db }, [asPooler(url)], { onChange })
  try {
    replicas.start()
    const problem = (await judged.promise) ?? (await balancing(url))
    if (problem !== undefined) return error(`${name}: ${problem}`, 'See docs/operations.md#read-replicas')
  } finally {
    await replicas.close()
    await db.destroy()
  }
  const pooler = await checkPooler(url, 'DATABASE_REPLICA_URLS')
  return pooler.status === 'ok' ? ok(`${name} keeps up with the primary server`) : pooler
}

async function checkClock(pool: pg.Pool): Promise<Finding> {
  const start_ms = Date.now()
  const { rows } = await pool.query('SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS now_ms')
  const end_ms = Date.now()
  // PostgreSQL has looked at its clock at some time in between.
  const error_ms = (end_ms - start_ms) / 2
  return judgeClock(start_ms + error_ms - rows[0].now_ms, error_ms)
}

async function checkSchema(url: string, { databaseUrl }: Config): Promise<Finding> {
  const db = connect(asPooler(url), { max: 1, ...TIMEOUTS })
  try {
    return judgeSchema(await migrationStatus(db), databaseUrl === undefined)
  } finally {
    await db.destroy()
  }
}

/** @param isEmbedded whether every command migrates the database */
export function judgeSchema(status: MigrationStatus[], isEmbedded: boolean): Finding {
  let newer: string[]
  try {
    newer = newerMigrations(status)
  } catch (cause) {
    return error((cause as Error).message, 'See docs/upgrading.md')
  }
  const pending = pendingMigrations(status)
  if (pending.length > 0) {
    const found = `pending migrations: ${pending.join(', ')}`
    return isEmbedded ? ok(`${found}; the next command applies them`) : error(found, `${FLOWTRAIL} migrate`)
  }
  return ok(newer.length > 0 ? `of the next release (${newer.join(', ')}), which this one runs on, too` : 'up to date')
}

async function checkDisk(dataDir: string): Promise<Finding> {
  const { bavail, bsize } = await statfs(dataDir)
  return judgeDisk((bavail * bsize) / 2 ** 30, dataDir)
}

/** @param free_GiB how much is free for the data directory */
export function judgeDisk(free_GiB: number, dataDir: string): Finding {
  const found = `${free_GiB.toFixed(1)} GiB are free for ${dataDir}`
  if (free_GiB >= MIN_FREE_GiB.warning) return ok(found)
  return (free_GiB < MIN_FREE_GiB.error ? error : warning)(found, 'Free or add space, or move DATA_DIR')
}
