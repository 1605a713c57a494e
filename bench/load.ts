import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const SCRIPT = path.join(import.meta.dirname, 'load.lua')
const TIMEOUT_s = 10

/** A placeholder in a path or body for a number of 16 digits that differs in each request. */
export const UNIQUE = 'N'.repeat(16)

/** A request that is sent repeatedly. */
export interface Call {
  method: 'GET' | 'POST'
  path: string
  headers?: Record<string, string>
  body?: string
}

/** The result of a load. */
export interface LoadResult {
  requests: number
  perSecond: number
  p50_ms: number
  p99_ms: number
}

interface Counts {
  requests: number
  duration_us: number
  p50_us: number
  p99_us: number
  /** Responses of another class than 2xx, and requests without a response. */
  refused: number
  broken: number
}

/** A program that sends the calls in turn over this many connections, each waiting for the response before the next. */
interface Generator {
  name: string
  send: (address: string, calls: readonly Call[], connections: number, duration_s: number) => Promise<Counts>
}

/** wrk when the machine has it, since it leaves more of the processor to what is measured; else autocannon. */
export async function findGenerator(): Promise<Generator> {
  // Without arguments it prints its usage and ends with 1.
  const missing = await run('wrk', []).then(
    () => false,
    ({ code }) => code === 'ENOENT',
  )
  return missing ? autocannon : wrk
}

/** @throws Error when a response was not a success, since the figure would be meaningless */
export async function load(
  generator: Generator,
  address: string,
  calls: readonly Call[],
  connections: number,
  duration_s: number,
): Promise<LoadResult> {
  const counts = await generator.send(address, calls, connections, duration_s)
  if (counts.requests === 0 || counts.refused + counts.broken > 0) {
    const { requests, refused, broken } = counts
    throw new Error(`${calls[0]?.path}: of ${requests} requests ${refused} were refused and ${broken} broke off`)
  }
  return {
    requests: counts.requests,
    perSecond: counts.requests / (counts.duration_us / 1e6),
    p50_ms: counts.p50_us / 1000,
    p99_ms: counts.p99_us / 1000,
  }
}

/** Greater than in any run before. */
const firstNumber = () => Date.now() * 1000

const headersOf = ({ headers, body }: Call) => ({ ...headers, ...(body && { 'content-type': 'application/json' }) })

function rawRequest(host: string, call: Call): string {
  const { method, path, body = '' } = call
  const lines = Object.entries({ host, ...headersOf(call), ...(body && { 'content-length': Buffer.byteLength(body) }) })
  return [`${method} ${path} HTTP/1.1`, ...lines.map(([name, value]) => `${name}: ${value}`), '', body].join('\r\n')
}

const wrk: Generator = {
  name: 'wrk',
  async send(address, calls, connections, duration_s) {
    const directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-bench-'))
    try {
      const file = path.join(directory, 'requests')
      const { host } = new URL(address)
      await writeFile(file, calls.map((call) => `${rawRequest(host, call)}\0`).join(''))
      const options = ['-t1', `-c${connections}`, `-d${duration_s}s`, '--timeout', `${TIMEOUT_s}s`, '-s', SCRIPT]
      const { stdout } = await run('wrk', [...options, address, '--', file, String(firstNumber())])
      return JSON.parse(stdout.slice(stdout.lastIndexOf('\n{')))
    } finally {
      await rm(directory, { recursive: true })
    }
  },
}

/** The part of autocannon's result that we read; it is installed in this folder, and only where wrk is missing. */
interface AutocannonResult {
  requests: { total: number }
  latency: { p50: number; p99: number }
  duration: number
  non2xx: number
  errors: number
}

const autocannon: Generator = {
  name: 'autocannon',
  async send(url, calls, connections, duration) {
    const name: string = 'autocannon'
    const { default: cannon } = await import(name)
    let number = firstNumber()
    const next = () => {
      number += 1
      return String(number).padStart(UNIQUE.length, '0')
    }
    const requests = calls.map((call) => ({
      method: call.method,
      path: call.path,
      headers: headersOf(call),
      body: call.body,
      ...(call.body?.includes(UNIQUE) && {
        setupRequest: (request: Call) => ({
          ...request,
          body: call.body?.replace(UNIQUE, next()),
        }),
      }),
    }))
    // Each connection cycles through all of them from a different start, so that not all request the same at once.
    let clients = 0
    const setupClient = (client: { setRequests: (all: typeof requests) => void }) => {
      const from = Math.floor((clients * requests.length) / connections)
      clients += 1
      client.setRequests([...requests.slice(from), ...requests.slice(0, from)])
    }
    const options = { url, connections, duration, requests, setupClient, timeout: TIMEOUT_s }
    const result: AutocannonResult = await cannon(options)
    return {
      requests: result.requests.total,
      duration_us: result.duration * 1e6,
      p50_us: result.latency.p50 * 1000,
      p99_us: result.latency.p99 * 1000,
      refused: result.non2xx,
      broken: result.errors,
    }
  },
}
