import { createReadStream, createWriteStream, existsSync } from 'node:fs'
import { mkdir, rename } from 'node:fs/promises'
import path from 'node:path'
import { pipeline } from 'node:stream/promises'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import { createPool } from '../src/database/pool.ts'
import { DEMO } from '../src/demo/project.ts'
import { runFlowtrail } from '../tests/support/service.ts'
import { type BenchServer, CACHE, type DataSet } from './data.ts'
import { alternate } from './sample.ts'
import { EMPTY } from './seed.ts'

/** Parents before children. */
const TABLES = [
  'projects',
  'groups',
  'modules',
  'module_versions',
  'contacts',
  'contact_identifiers',
  'entries',
  'events',
] as const

/**
 * The speed of `flowtrail import` relative to COPY: the time that COPY of the same rows into the same tables with their
 * indexes takes, divided by the time of the import. Each runs on a database of its own.
 *
 * @returns a ratio for each round; higher is better
 */
export async function raceImport(server: BenchServer, dataSet: DataSet, rounds: number): Promise<number[]> {
  const url = await server.original(dataSet)
  const directory = path.join(CACHE, path.basename(new URL(url).pathname))
  await mkdir(directory, { recursive: true })
  const lines = path.join(directory, 'export.ndjson')
  await createOnce(lines, (file) => exportTo(url, file))
  for (const table of TABLES) await createOnce(tableFile(directory, table), (file) => copyOut(url, table, file))

  const contestants = {
    import: (target: string) => flowtrail(['import', lines], target),
    copy: (target: string) => copyIn(target, directory),
  }
  const seconds = await alternate(['import', 'copy'], rounds, (name) =>
    server.withCopy(EMPTY, async (target) => {
      const start_ms = performance.now()
      await contestants[name](target)
      return (performance.now() - start_ms) / 1000
    }),
  )
  return seconds.copy.map((copy_s, round) => copy_s / (seconds.import[round] ?? Number.NaN))
}

const tableFile = (directory: string, table: string) => path.join(directory, `${table}.copy`)

/** Creates a file unless it exists; an interrupted run leaves no partial file. */
async function createOnce(file: string, create: (file: string) => Promise<unknown>): Promise<void> {
  if (existsSync(file)) return
  await create(`${file}.part`)
  await rename(`${file}.part`, file)
}

async function flowtrail(args: string[], url: string): Promise<void> {
  const { exit, stderr } = runFlowtrail(args, { DATABASE_URL: url })
  if ((await exit) !== 0) throw new Error(`flowtrail ${args[0]}: ${stderr()}`)
}

async function exportTo(url: string, file: string): Promise<void> {
  const { child, exit, stderr } = runFlowtrail(['export', '--project', DEMO.projectId], { DATABASE_URL: url })
  if (child.stdout) await pipeline(child.stdout, createWriteStream(file))
  if ((await exit) !== 0) throw new Error(`flowtrail export: ${stderr()}`)
}

async function copyOut(url: string, table: string, file: string): Promise<void> {
  const pool = createPool(url, { max: 1 })
  const client = await pool.connect()
  try {
    await pipeline(client.query(copyTo(`COPY ${table} TO STDOUT`)), createWriteStream(file))
  } finally {
    client.release()
    await pool.end()
  }
}

/** All tables in one transaction, as in an import. */
async function copyIn(url: string, directory: string): Promise<void> {
  const pool = createPool(url, { max: 1 })
  const client = await pool.connect()
  try {
    await client.query('BEGIN')
    for (const table of TABLES) {
      await pipeline(createReadStream(tableFile(directory, table)), client.query(copyFrom(`COPY ${table} FROM STDIN`)))
    }
    await client.query('COMMIT')
  } finally {
    client.release()
    await pool.end()
  }
}
