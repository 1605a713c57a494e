import { execFile } from 'node:child_process'
import { globSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { CUSTOM_EVENT } from '../../src/domain/event.ts'
import type { LoadResult } from '../load.ts'

const run = promisify(execFile)
const SCRIPT = path.join(import.meta.dirname, 'record-event.sql')

/** The pgbench of this machine, if it has one; Debian does not put it on the path. */
export async function findPgbench(): Promise<string | undefined> {
  const candidates = ['pgbench', ...globSync('/usr/lib/postgresql/*/bin/pgbench').sort().reverse()]
  for (const program of candidates) {
    const works = await run(program, ['--version']).then(
      () => true,
      () => false,
    )
    if (works) return program
  }
  return undefined
}

export interface PgbenchOptions {
  databaseUrl: string
  /** It needs as many entries as there are clients. */
  projectId: string
  clients: number
  duration_s: number
}

/** Has pgbench insert events, one a commit. */
export async function runPgbench(
  program: string,
  { databaseUrl, projectId, clients, duration_s }: PgbenchOptions,
): Promise<LoadResult> {
  const directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-pgbench-'))
  try {
    const variables = {
      is_chosen: 0,
      project: projectId,
      type: CUSTOM_EVENT,
      props: '{"coupon":"SPRING-10","value":10}',
    }
    await run(program, [
      ...['--no-vacuum', '--protocol=prepared', `--client=${clients}`, `--time=${duration_s}`],
      ...['--log', `--log-prefix=${path.join(directory, 'log')}`],
      ...Object.entries(variables).map(([name, value]) => `--define=${name}=${value}`),
      ...[`--file=${SCRIPT}`, databaseUrl],
    ])
    return await readLog(directory, duration_s)
  } finally {
    await rm(directory, { recursive: true })
  }
}

/** Of each transaction the log has a line, whose third word is how many microseconds it took. */
async function readLog(directory: string, duration_s: number): Promise<LoadResult> {
  const logs = await Promise.all((await readdir(directory)).map((file) => readFile(path.join(directory, file), 'utf8')))
  const lines = logs.join('').trimEnd().split('\n')
  const times_us = Float64Array.from(lines, (line) => Number(line.split(' ')[2])).sort()
  const quantile_ms = (share: number) => (times_us[Math.floor(share * times_us.length)] ?? Number.NaN) / 1000
  return {
    requests: times_us.length,
    perSecond: times_us.length / duration_s,
    p50_ms: quantile_ms(0.5),
    p99_ms: quantile_ms(0.99),
  }
}
