import { setTimeout as sleep } from 'node:timers/promises'
import type { components } from '../../generated/api.ts'
import type { DemoRecord } from './visits.ts'

type Schemas = components['schemas']
type CustomEvent = Schemas['CustomEventBatchItem']

/** Told what goes wrong and does not end the work, in one line. */
export type ProblemHandler = (problem: string) => void

export interface ApiClientOptions {
  /** Of the server, with its base path. */
  url: string
  projectId: string
  key: string
  /** Aborts requests and waits. */
  signal: AbortSignal
  /** How long to wait for a server that does not say so. */
  retry_ms?: number
  /** How long a response may take. */
  timeout_ms?: number
}

/** A failure that another attempt does not change. */
class Refused extends Error {
  /** The number of the line that is to blame, from 1. */
  readonly line: number | undefined

  constructor({ message, details }: Schemas['ErrorInfo']) {
    super(message)
    const [, line] = /^\/body\/(\d+)/.exec(details?.[0]?.pointer ?? '') ?? []
    this.line = line === undefined ? undefined : Number(line)
  }
}

const RETRY_ms = 1_000
const TIMEOUT_ms = 30_000

/** Calls operations of the API, again and again while the server cannot be reached or is busy. */
export class ApiClient {
  readonly #options: ApiClientOptions
  readonly #onProblem: ProblemHandler

  constructor(options: ApiClientOptions, onProblem: ProblemHandler) {
    this.#options = options
    this.#onProblem = onProblem
  }

  /** @throws Error when there is no server, or it refuses the key or the project */
  async check(): Promise<void> {
    const { url, projectId } = this.#options
    const response = await this.#fetch('modules').catch(({ message, cause }: Error) => {
      const reason = cause instanceof Error ? cause.message || cause.name : message
      throw new Error(`No server responds at ${url} (${reason}). Start it (flowtrail serve), or say where with --url`)
    })
    if (response.status === 401)
      throw new Error(`The server at ${url} does not accept this key for project ${projectId}`)
    if (!response.ok) throw await refusal(response)
  }

  /** The number of the newest version of a module. */
  async newestVersion(moduleId: string): Promise<number> {
    const path = `modules/${encodeURIComponent(moduleId)}/versions?limit=1&direction=DESC`
    const [version] = await this.#call<Schemas['ModuleVersion'][]>(path)
    return version?.version_number ?? 0
  }

  /** Imports records. Those that the server refuses are left out, as a problem. @returns how many it has accepted */
  async importRecords(records: readonly DemoRecord[]): Promise<number> {
    let accepted = records
    while (accepted.length > 0) {
      try {
        const body = accepted.map((record) => JSON.stringify(record)).join('\n')
        await this.#call<Schemas['ImportResult']>('records', 'application/x-ndjson', body)
        break
      } catch (error) {
        if (!(error instanceof Refused) || error.line === undefined) throw error
        this.#onProblem(error.message)
        accepted = accepted.toSpliced(error.line - 1, 1)
      }
    }
    return accepted.length
  }

  /** Records events with idempotency keys. Those that the server refuses are a problem. @returns how many it has recorded */
  async recordEvents(events: readonly CustomEvent[]): Promise<number> {
    let recorded = 0
    for (let rest = events; rest.length > 0; ) {
      const body = JSON.stringify({ events: rest })
      const { results } = await this.#call<Schemas['CustomEventBatchResult']>('events/batch', 'application/json', body)
      recorded += results.filter(({ status }) => status === 200).length
      for (const { status, error } of results) if (error && status !== 503) this.#onProblem(error.message)
      rest = rest.filter((_, i) => results[i]?.status === 503)
      if (rest.length > 0) await this.#wait()
    }
    return recorded
  }

  /** @throws Refused */
  async #call<T>(path: string, contentType?: string, body?: string): Promise<T> {
    for (let isWaiting = false; ; isWaiting = true) {
      const response = await this.#fetch(path, contentType, body).catch(() => undefined)
      // A proxy's own errors are as temporary.
      const isAvailable = response !== undefined && response.status !== 429 && response.status < 500
      if (isAvailable && !response.ok) throw await refusal(response)
      const result = isAvailable ? await response.json().catch(() => undefined) : undefined
      if (result !== undefined) return result as T
      this.#options.signal.throwIfAborted()
      if (!isWaiting) this.#onProblem(`${await reasonOf(response)} Trying again.`)
      const retryAfter_s = Number(response?.headers.get('retry-after'))
      await this.#wait(retryAfter_s > 0 ? retryAfter_s * 1_000 : undefined)
    }
  }

  #fetch(path: string, contentType?: string, body?: string): Promise<Response> {
    const { url, projectId, key, signal, timeout_ms = TIMEOUT_ms } = this.#options
    return fetch(`${url}/projects/${encodeURIComponent(projectId)}/${path}`, {
      headers: { 'x-api-key': key, ...(contentType && { 'content-type': contentType }) },
      ...(body !== undefined && { method: 'POST', body }),
      signal: AbortSignal.any([signal, AbortSignal.timeout(timeout_ms)]),
    })
  }

  #wait(duration_ms = this.#options.retry_ms ?? RETRY_ms): Promise<void> {
    return sleep(duration_ms, undefined, { signal: this.#options.signal })
  }
}

async function refusal(response: Response): Promise<Refused> {
  const { error } = (await response.json().catch(() => ({}))) as Partial<Schemas['ErrorBody']>
  return new Refused(error ?? { code: '', message: `The server responded with ${response.status}.` })
}

const reasonOf = async (response: Response | undefined): Promise<string> =>
  response && !response.ok ? (await refusal(response)).message : 'The server cannot be reached.'
