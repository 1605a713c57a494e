import { readFile } from 'node:fs/promises'
import type { Config } from '../config.ts'
import { ApiClient } from '../demo/api-client.ts'
import { LiveDemo, type LiveOptions } from '../demo/live.ts'
import { parseKey } from '../domain/api-key.ts'
import { STOP_SIGNALS } from '../stop-signals.ts'
import { addressOf, serverUrl } from './arguments.ts'
import type { Context } from './context.ts'
import { CommandError, InputError, print } from './output.ts'
import { liveProgress } from './progress.ts'

export interface LiveCommandOptions extends Omit<LiveOptions, 'projectId' | 'visitors'> {
  project: string
  visitors?: number
  url?: string
}

/** How long to go on sending after Ctrl-C. */
const END_TIMEOUT_ms = 4_000
const PROGRESS_INTERVAL_ms = 250

const HOW_TO_GET_A_KEY = 'load the project with flowtrail demo, or set FLOWTRAIL_KEY'

async function readKey(file: string): Promise<string> {
  const text = await readFile(file, 'utf8').catch(({ code, message }: NodeJS.ErrnoException) => {
    throw new CommandError(code === 'ENOENT' ? `There is no key in ${file}: ${HOW_TO_GET_A_KEY}` : message)
  })
  if (!parseKey(text.trim())) throw new CommandError(`${file} does not contain an API key: ${HOW_TO_GET_A_KEY}`)
  return text.trim()
}

/** What is set is not repeated: it may be a key with something else. */
function keyOf(text: string): string {
  if (!parseKey(text.trim()))
    throw new InputError('FLOWTRAIL_KEY is not an API key; set one that flowtrail keys create has printed')
  return text.trim()
}

function urlOf(text: string): string {
  try {
    return serverUrl(text)
  } catch (error) {
    throw new InputError(`FLOWTRAIL_URL is invalid. ${(error as Error).message}`)
  }
}

const endOf = (visitors: number) => (Number.isFinite(visitors) ? `there have been ${visitors}` : 'Ctrl-C')

/**
 * Simulates visitors of a running server until all have gone, or until a stop signal.
 *
 * @param keyFile has the key, unless FLOWTRAIL_KEY is set
 */
export async function runLiveDemo(
  config: Config,
  keyFile: string,
  { project: projectId, visitors = Number.POSITIVE_INFINITY, ...options }: LiveCommandOptions,
  { env, stdout, stderr }: Pick<Context, 'env' | 'stdout' | 'stderr'>,
): Promise<void> {
  const { FLOWTRAIL_URL, FLOWTRAIL_KEY } = env
  const url = options.url ?? (FLOWTRAIL_URL ? urlOf(FLOWTRAIL_URL) : addressOf(config.server) + config.http.basePath)
  const key = FLOWTRAIL_KEY ? keyOf(FLOWTRAIL_KEY) : await readKey(keyFile)
  const [stop, deadline] = [new AbortController(), new AbortController()]
  const progress = liveProgress(stderr)
  const client = new ApiClient({ url, projectId, key, signal: deadline.signal }, (problem) => {
    progress.stop()
    stderr.write(`flowtrail: ${problem}\n`)
  })
  const demo = new LiveDemo(client, { projectId, visitors, ...options })
  const end = () => {
    stop.abort()
    setTimeout(() => deadline.abort(), END_TIMEOUT_ms).unref()
  }
  for (const signal of STOP_SIGNALS) process.on(signal, end)
  let timer: NodeJS.Timeout | undefined
  const summarize = async () => {
    clearInterval(timer)
    progress.stop()
    const { visitors, records, events } = demo.counts
    if (visitors > 0) await print(stdout, `${visitors} visitors, ${records} records, ${events} custom events\n`)
  }
  try {
    await demo.begin()
    await print(stdout, `Simulating visitors to project ${projectId} at ${url}, until ${endOf(visitors)}\n`)
    timer = setInterval(() => progress.update(demo.counts), PROGRESS_INTERVAL_ms)
    await demo.run(stop.signal)
  } catch (error) {
    // Its own failure would hide this one.
    await summarize().catch(() => {})
    if (!deadline.signal.aborted) throw error
    throw new CommandError('The server cannot be reached; what happened last was not sent')
  } finally {
    for (const signal of STOP_SIGNALS) process.off(signal, end)
  }
  await summarize()
}
