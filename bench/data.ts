import { createHash } from 'node:crypto'
import { globSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { useEmbeddedServer } from '../db/embedded/server.ts'
import { migrate } from '../db/migrate.ts'
import { connect } from '../src/database/open.ts'
import { createPool } from '../src/database/pool.ts'
import { postmasterOf } from './usage.ts'

/** What is kept between runs: the embedded cluster with the data sets, and files made of them. Ignored by git. */
export const CACHE = path.join(import.meta.dirname, '.cache')

/** Prefix of the bench's databases; others on the server are left alone. */
const PREFIX = 'flowtrail_bench_'
const ROOT = path.join(import.meta.dirname, '..')
/** What makes the data sets, which are rebuilt when any of it changes. */
const MAKERS = ['db/migrations/*.ts', 'src/demo/*.ts', 'src/transfer/{page-views,records}.ts', 'bench/seed.ts']

/** Autovacuum would slow some rounds and not others. The original is vacuumed. */
const WITHOUT_AUTOVACUUM = `
  DO $$
  DECLARE name regclass;
  BEGIN
    FOR name IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' LOOP
      EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', name);
    END LOOP;
  END $$`

/** A database filled once and kept. Races run on copies of it, so that what they record does not stay. */
export interface DataSet {
  name: string
  /** Fills the migrated database. */
  fill: (url: string) => Promise<void>
}

interface ServerFacts {
  version: string
  /** The postmaster, when it runs on this machine. */
  postmaster: number | undefined
}

/** A PostgreSQL server with room for data sets: the one of DATABASE_URL, or an embedded one. */
export class BenchServer {
  readonly postmaster: number | undefined
  readonly version: string
  readonly #url: string
  readonly #release: () => Promise<void>
  readonly #dataSets: string
  #copies = 0

  private constructor(url: string, release: () => Promise<void>, about: ServerFacts, dataSets: string) {
    this.#url = url
    this.#release = release
    this.version = about.version
    this.postmaster = about.postmaster
    this.#dataSets = dataSets
  }

  /** Opens the server and drops what an interrupted run or data sets of another version have left there. */
  static async open(databaseUrl = process.env.DATABASE_URL): Promise<BenchServer> {
    const embedded = databaseUrl ? undefined : await useEmbeddedServer({ dataDir: CACHE, name: 'flowtrail' })
    const url = databaseUrl || (embedded?.url ?? '')
    const release = async () => embedded?.release()
    try {
      const server = new BenchServer(url, release, await describe(url), await versionOfDataSets())
      await server.#tidy()
      return server
    } catch (error) {
      await release()
      throw error
    }
  }

  async close(): Promise<void> {
    await this.#release()
  }

  /** The data set's own database, filled if it is not yet. Only to be read. */
  async original({ name, fill }: DataSet): Promise<string> {
    const database = `${PREFIX}${this.#dataSets}_${name}`
    if (await this.#exists(database)) return this.urlOf(database)
    process.stderr.write(`making the data set ${name} (kept for the next runs)\n`)
    const unfinished = `${PREFIX}unfinished`
    await this.#drop(unfinished)
    await this.#run(`CREATE DATABASE ${unfinished}`)
    const url = this.urlOf(unfinished)
    const db = connect(url, { max: 1 })
    await migrate(db).finally(() => db.destroy())
    await fill(url)
    await rowsOf(url, 'VACUUM (ANALYZE)')
    await this.#run(`ALTER DATABASE ${unfinished} RENAME TO ${database}`)
    return this.urlOf(database)
  }

  /** Runs work on a fresh copy of the data set, which is dropped afterwards. */
  async withCopy<T>(dataSet: DataSet, work: (url: string) => Promise<T>): Promise<T> {
    const copy = await this.copy(dataSet)
    try {
      return await work(copy.url)
    } finally {
      await copy.drop()
    }
  }

  /** A fresh copy of the data set, until it is dropped. */
  async copy(dataSet: DataSet): Promise<{ url: string; drop: () => Promise<void> }> {
    const original = new URL(await this.original(dataSet)).pathname.slice(1)
    this.#copies += 1
    const database = `${PREFIX}copy_${process.pid}_${this.#copies}`
    // File by file is far quicker for a large one than through the write-ahead log.
    await this.#run(`CREATE DATABASE ${database} TEMPLATE ${original} STRATEGY file_copy`)
    const url = this.urlOf(database)
    await rowsOf(url, WITHOUT_AUTOVACUUM)
    return { url, drop: () => this.#drop(database) }
  }

  urlOf(database: string): string {
    const url = new URL(this.#url)
    url.pathname = `/${database}`
    return url.href
  }

  async #tidy(): Promise<void> {
    const ours = await rowsOf<{ name: string }>(
      this.#url,
      `SELECT datname AS name FROM pg_database WHERE starts_with(datname, '${PREFIX}')`,
    )
    for (const { name } of ours) if (!name.startsWith(`${PREFIX}${this.#dataSets}_`)) await this.#drop(name)
  }

  async #exists(database: string): Promise<boolean> {
    return (await rowsOf(this.#url, `SELECT FROM pg_database WHERE datname = '${database}'`)).length > 0
  }

  async #drop(database: string): Promise<void> {
    await this.#run(`DROP DATABASE IF EXISTS ${database} WITH (FORCE)`)
  }

  /** A statement on no database in particular; retried while the last connections to the one it names are closing. */
  async #run(statement: string): Promise<void> {
    for (let tries = 1; ; tries += 1) {
      try {
        await rowsOf(this.#url, statement)
        return
      } catch (error) {
        const IN_USE = '55006'
        if ((error as { code?: string }).code !== IN_USE || tries === 20) throw error
        await sleep(100)
      }
    }
  }
}

/** Queries the database, on a connection of its own. */
export async function rowsOf<Row extends object>(url: string, sql: string, values: unknown[] = []): Promise<Row[]> {
  const pool = createPool(url, { max: 1 })
  try {
    return (await pool.query(sql, values)).rows
  } finally {
    await pool.end()
  }
}

async function describe(url: string): Promise<ServerFacts> {
  const pool = createPool(url, { max: 1 })
  try {
    const { rows } = await pool.query(
      `SELECT current_setting('server_version') AS version, pg_backend_pid() AS backend`,
    )
    return { version: rows[0].version, postmaster: await postmasterOf(rows[0].backend) }
  } finally {
    await pool.end()
  }
}

async function versionOfDataSets(): Promise<string> {
  const files = globSync(MAKERS, { cwd: ROOT }).sort()
  const hash = createHash('sha256')
  for (const file of files) hash.update(await readFile(path.join(ROOT, file)))
  return hash.digest('hex').slice(0, 8)
}
