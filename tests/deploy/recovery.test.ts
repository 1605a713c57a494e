import type { ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import pg from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { flowtrailWith, printed, ROOT } from '../cli/run.ts'
import { startTcpPostgres, type TcpPostgres, type TcpServer } from '../support/tcp-postgres.ts'

// "Point-in-time recovery" of docs/operations.md, by its own commands and settings, on the oldest PostgreSQL.

const BINARIES = '/usr/lib/postgresql/15/bin'

const cleanup = new AsyncDisposableStack()
let postgres: TcpPostgres
let guide: string
beforeAll(async () => {
  postgres = await startTcpPostgres({}, 0, BINARIES)
  cleanup.defer(() => postgres.stop())
  const operations = await readFile(path.join(ROOT, 'docs/operations.md'), 'utf8')
  guide = /### Point-in-time recovery\n(.*?)\n## /s.exec(operations)?.[1] ?? ''
})
afterAll(() => cleanup.disposeAsync())

/** What the guide has between two texts, with the directories of the test. */
function fromGuide(start: string, end: string): string {
  const [, found] = guide.split(start)
  expect(found, start).toContain(end)
  return String(found?.split(end)[0]).replaceAll(/\/(archive|backup)/g, `${postgres.directory}/$1`)
}

/** Runs a script as PostgreSQL's user. */
async function shell(script: string): Promise<void> {
  const child = postgres.spawn('bash', ['-ceu', script])
  const [errors, [status]] = await Promise.all([text(child.stderr as NodeJS.ReadableStream), once(child, 'exit')])
  expect(status, errors).toBe(0)
}

async function stop(server: { process: ChildProcess }): Promise<void> {
  const ended = once(server.process, 'exit')
  server.process.kill('SIGINT')
  await ended
}

async function query(server: TcpServer, ...statements: string[]): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(server.url('admin', 'postgres'))
  await client.connect()
  let rows = []
  for (const statement of statements) ({ rows } = await client.query(statement))
  await client.end()
  return rows
}

const flowtrailOn = (server: TcpServer) => flowtrailWith({ DATABASE_URL: server.url('admin', 'flowtrail') })

async function projectsOf(server: TcpServer): Promise<string[]> {
  const projects = JSON.parse(await printed(flowtrailOn(server)('projects', 'list', '--json')))
  return projects.map(({ project_id }: { project_id: string }) => project_id)
}

/** Recovers the archived database into new data. @param more another line of the configuration */
async function recover(name: string, time: string, more = '') {
  const data = `${postgres.directory}/${name}`
  const settings = fromGuide('and add to `postgresql.auto.conf` there\n\n```\n', '```').replace(
    /(?<=recovery_target_time = ')[^']*/,
    time,
  )
  await shell(`mkdir -m 700 ${data}; tar -xzf ${postgres.directory}/backup/*/base.tar.gz -C ${data}
    cat >> ${data}/postgresql.auto.conf <<'END'\n${settings}${more}\nEND
    touch ${data}/recovery.signal`)
  const server = await postgres.startOn(data)
  await expect.poll(() => query(server, 'SELECT pg_is_in_recovery() AS recovers')).toEqual([{ recovers: false }])
  return server
}

test('an archived database is recovered as it was before a mistake, also when that has been tested before', async () => {
  await shell(`mkdir ${postgres.directory}/archive ${postgres.directory}/backup`)
  const archiving = fromGuide('```sql\n', '```').trim().split('\n')
  expect(archiving).toHaveLength(3)
  await query(postgres, 'CREATE DATABASE flowtrail', ...archiving)
  await stop(postgres)
  const server = await postgres.startOn(postgres.data)
  const flowtrail = flowtrailOn(server)
  await printed(flowtrail('migrate'))
  await printed(flowtrail('projects', 'create', 'before-the-backup'))
  const connection = `export PGHOST=localhost PGPORT=${server.port} PGUSER=admin PGPASSWORD=admin`
  await shell(`${connection}; ${fromGuide('Once a day or week, `', '`')}`)
  await printed(flowtrail('projects', 'create', 'after-the-backup'))
  const [now] = await query(server, 'SELECT clock_timestamp()::text AS time')
  await printed(flowtrail('projects', 'create', 'by-mistake'))
  const [last] = await query(server, 'SELECT pg_walfile_name(pg_switch_wal()) AS file')
  const archived = () => readdir(`${postgres.directory}/archive`)
  await expect.poll(archived).toContain(last?.file)
  const [archiver] = await query(server, 'SELECT failed_count::int AS failed FROM pg_stat_archiver')
  expect(archiver).toEqual({ failed: 0 })
  await stop(server)

  const before = await archived()
  const projects = ['after-the-backup', 'before-the-backup']
  const tested = await recover('tested', String(now?.time), /`(archive_mode = off)`/.exec(guide)?.[1])
  expect(await projectsOf(tested)).toEqual(projects)
  await stop(tested)
  expect(await archived()).toEqual(before)

  const recovered = await recover('recovered', String(now?.time))
  expect(await projectsOf(recovered)).toEqual(projects)
  await printed(flowtrailOn(recovered)('projects', 'create', 'afterwards'))
  await expect.poll(archived).toContain('00000002.history')
})
