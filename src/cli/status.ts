import { setTimeout as sleep } from 'node:timers/promises'
import { Command } from 'commander'
import { readConfig } from '../config.ts'
import { type DatabaseLocation, type OpenDatabase, openDatabase } from '../database/open.ts'
import { selectKeys } from '../queries/api-keys.ts'
import { databaseSize, selectLastEvents } from '../queries/projects.ts'
import { addressOf, serverUrl } from './arguments.ts'
import type { Context } from './context.ts'
import { announcing, interruptible, untilInterrupted } from './interruptible.ts'
import { CommandError, describeError, mebibytes, print, printable, table } from './output.ts'
import { parseMetrics, perSecond, quantile, type Scrape, sinceStart, sum } from './scrape.ts'

/** Between two looks at the counters of the server. */
const INTERVAL_ms = 1_000
/** How long the server may take to respond. */
const TIMEOUT_ms = 5_000
/** How many keys are shown, the latest used first. */
const SHOWN_KEYS = 20

/** Of keys that were not used yet, for sorting. */
const NEVER = '1970-01-01T00:00:00Z'

const DURATIONS = 'flowtrail_request_duration_seconds'
const CLEAR_SCREEN = '\x1b[H\x1b[2J'

/** What a server says of itself. */
interface ServerStatus {
  url: string
  /** Why it does not respond, or not with metrics. */
  problem?: string
  /** Whether it takes requests. */
  ready: boolean
  version?: string
  document?: string
  uptime_s?: number
  /** Of the operations in the last second, as the latencies. */
  requests_per_s?: number
  p50_ms?: number
  p99_ms?: number
  events_per_s?: number
  pending_events?: number
  /** Since it was started, the most frequent first. */
  errors?: { status: string; code: string; count: number }[]
}

/** What the database has, or why it cannot be read. */
type DatabaseStatus =
  | {
      database: { bytes: number }
      projects: Awaited<ReturnType<typeof selectLastEvents>>
      keys: Awaited<ReturnType<typeof selectKeys>>
    }
  | { database: { problem: string } }

/** What there is to see at one time. */
type Status = { server: ServerStatus } & DatabaseStatus

interface StatusOptions {
  url?: string
  watch?: boolean
  json?: boolean
}

export const statusCommand = ({ env, stdout, stderr }: Context) =>
  new Command('status')
    .description('show how a running server is doing, its refusals, projects and keys')
    .option('--url <url>', 'where its metrics are (default: where these settings make it listen)', serverUrl)
    .option('--watch', 'go on every second, until Ctrl-C')
    .option('--json', 'print JSON, one object on a line')
    .action((options: StatusOptions) => {
      const config = readConfig(env)
      const url = options.url ?? addressOf(config.server.admin ?? config.server)
      const show = async (database: DatabaseReader) => {
        let before = await scrape(url)
        for (;;) {
          await sleep(INTERVAL_ms)
          const [after, found] = await Promise.all([scrape(url), database.read()])
          const status = { server: serverStatus(url, before, after), ...found }
          const clear = options.watch && stdout.isTTY ? CLEAR_SCREEN : ''
          await print(stdout, options.json ? `${JSON.stringify(status)}\n` : clear + describe(status))
          if (!options.watch) return requireHealthy(status)
          before = after
        }
      }
      const run = () =>
        interruptible(async (unlessInterrupted) => {
          await using database = new DatabaseReader(announcing(config, stderr))
          await unlessInterrupted(() => show(database))
        })
      return options.watch ? untilInterrupted(run) : run()
    })

function requireHealthy({ server, database }: Status): void {
  const problems: string[] = []
  if ('problem' in server)
    problems.push(`No server of Flowtrail responds at ${server.url}; start it, or say where it is with --url`)
  else if (!server.ready) problems.push(`The server at ${server.url} is not ready`)
  if ('problem' in database) problems.push('The database cannot be read')
  if (problems.length > 0) throw new CommandError(problems.join('. '))
}

/** Reads the database, which is opened by the first reading that finds it there. */
class DatabaseReader implements AsyncDisposable {
  readonly #location: DatabaseLocation
  readonly #closing = new AbortController()
  #opening: Promise<OpenDatabase> | undefined
  #opened: OpenDatabase | undefined

  constructor(location: DatabaseLocation) {
    this.#location = location
  }

  async read(): Promise<DatabaseStatus> {
    try {
      const found = await Promise.race([this.#find(), sleep(TIMEOUT_ms, undefined, { ref: false })])
      if (found) return found
      this.#opened?.abandon()
      return { database: { problem: `no response within ${TIMEOUT_ms / 1000} s` } }
    } catch (error) {
      return { database: { problem: printable(describeError(error)) } }
    }
  }

  async #find(): Promise<DatabaseStatus> {
    this.#opening ??= openDatabase(this.#location, { signal: this.#closing.signal })
    this.#opened = await this.#opening.catch((error) => {
      this.#opening = undefined
      throw error
    })
    const { db } = this.#opened
    const [bytes, projects, keys] = await Promise.all([
      databaseSize(db),
      selectLastEvents(db),
      selectKeys(db, undefined),
    ])
    return { database: { bytes }, projects, keys }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort()
    const opened = await this.#opening?.catch(() => undefined)
    await opened?.close()
  }
}

/** The metrics of a server and whether it is ready, or why there are none. */
type Look = { metrics: Scrape; ready: boolean } | { problem: string }

async function scrape(url: string): Promise<Look> {
  const get = (path: string) => fetch(`${url}${path}`, { signal: AbortSignal.timeout(TIMEOUT_ms) })
  try {
    const [ready, metrics] = await Promise.all([get('/readyz'), get('/metrics')])
    const text = await metrics.text()
    if (!text.includes(DURATIONS))
      return {
        problem: `no metrics of Flowtrail there (status ${metrics.status}); they are at ADMIN_PORT if that is set`,
      }
    return { metrics: parseMetrics(text, performance.now()), ready: ready.ok }
  } catch (error) {
    const { message, cause } = error as Error
    return { problem: `no response: ${cause instanceof Error && cause.message ? cause.message : message}` }
  }
}

function serverStatus(url: string, before: Look, after: Look): ServerStatus {
  if ('problem' in after) return { url, problem: after.problem, ready: false }
  const { metrics, ready } = after
  const earlier =
    'problem' in before ? { ...metrics, time_ms: metrics.time_ms - INTERVAL_ms } : sinceStart(before.metrics, metrics)
  const build = metrics.series.find(({ name }) => name === 'flowtrail_build_info')?.labels
  const milliseconds = (q: number) => {
    const seconds = quantile(ofApi(earlier), ofApi(metrics), DURATIONS, q)
    return seconds === undefined ? undefined : seconds * 1_000
  }
  return {
    ...{ url, ready, version: build?.version, document: build?.document },
    uptime_s: Math.round(Date.now() / 1_000 - sum(metrics, 'process_start_time_seconds')),
    requests_per_s: perSecond(ofApi(earlier), ofApi(metrics), `${DURATIONS}_count`),
    ...{ p50_ms: milliseconds(0.5), p99_ms: milliseconds(0.99) },
    events_per_s: perSecond(earlier, metrics, 'flowtrail_events_total', { outcome: 'recorded' }),
    pending_events: sum(metrics, 'flowtrail_pending_events'),
    errors: errorsOf(metrics),
  }
}

/** Without requests outside of the document, such as those of this command. */
const ofApi = ({ time_ms, series }: Scrape): Scrape => ({
  time_ms,
  series: series.filter(({ labels }) => labels.operation !== 'other'),
})

function errorsOf({ series }: Scrape): ServerStatus['errors'] {
  const counts = new Map<string, { status: string; code: string; count: number }>()
  for (const { name, labels, value } of series) {
    const { status = '', error_code: code = '' } = labels
    if (name !== `${DURATIONS}_count` || code === '') continue
    const key = `${status} ${code}`
    counts.set(key, { status, code, count: (counts.get(key)?.count ?? 0) + value })
  }
  return [...counts.values()].sort((a, b) => b.count - a.count || (a.code < b.code ? -1 : 1))
}

/** The status as text for a terminal. */
function describe(status: Status): string {
  return [...serverLines(status.server), ...databaseLines(status)].map((line) => `${line}\n`).join('')
}

function databaseLines(status: DatabaseStatus): string[] {
  if (!('keys' in status)) return [`Database  ${status.database.problem}`]
  const { database, projects, keys } = status
  const used = keys
    .filter(({ revoked_at }) => revoked_at === null)
    .sort((a, b) => Date.parse(b.last_used_at ?? NEVER) - Date.parse(a.last_used_at ?? NEVER))
  const hidden = used.length - SHOWN_KEYS
  return [
    `Database  ${mebibytes(database.bytes)}\n`,
    table(projects, ['project_id', 'name', 'last_event_at']),
    table(used.slice(0, SHOWN_KEYS), ['project_id', 'key_id', 'name', 'last_used_at', 'expires_at']).trimEnd(),
    ...(hidden > 0 ? [`and ${hidden} others: flowtrail keys list`] : []),
  ]
}

function serverLines(server: ServerStatus): string[] {
  const { url, problem, ready, version, document, uptime_s = 0 } = server
  if (problem !== undefined) return [`Server    ${url}: ${problem}`]
  const { requests_per_s = 0, p50_ms, p99_ms, events_per_s = 0, pending_events = 0, errors = [] } = server
  const latencies = p50_ms === undefined ? '' : `, half within ${duration(p50_ms)}, 99% within ${duration(p99_ms)}`
  return [
    `Server    ${url}: ${ready ? 'ready' : 'NOT READY'}, ${version} (document ${document}), up ${uptime(uptime_s)}`,
    `Requests  ${requests_per_s.toFixed(1)} a second${latencies}`,
    `Events    ${events_per_s.toFixed(1)} a second recorded, ${pending_events} pending`,
    `Errors    ${errors.map(({ status, code, count }) => `${status} ${code}: ${count}`).join(', ') || 'none'}, since the start`,
  ]
}

const duration = (ms = 0) => `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`

function uptime(s: number): string {
  const [days, hours, minutes] = [Math.floor(s / 86_400), Math.floor(s / 3_600) % 24, Math.floor(s / 60) % 60]
  return `${days > 0 ? `${days} d ` : ''}${hours} h ${minutes} min`
}
