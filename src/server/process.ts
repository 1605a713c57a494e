import type { Config } from '../config.ts'
import { createLogger, loggerOptions } from '../logger.ts'
import { describeRelease } from '../release.ts'
import { STOP_SIGNALS } from '../stop-signals.ts'

/** How long after requests have drained a process exits anyway, whatever keeps it from stopping. */
const CLEANUP_TIMEOUT_ms = 35_000
/** The same for a worker: in the rest of its own time, the supervisor stops the embedded PostgreSQL. */
const WORKER_CLEANUP_TIMEOUT_ms = 24_000
/** How long a worker may need to notice that its time is over, before the supervisor kills it. */
const KILL_DELAY_ms = 1_000

/** What the steps of a server's process share. */
export interface Running {
  logger: ReturnType<typeof loggerOptions>
  log: ReturnType<typeof createLogger>
  /** How to undo each step, in reverse order. */
  cleanup: AsyncDisposableStack
  /** Aborts when the server is to stop. */
  stop: AbortSignal
}

interface ProcessOptions {
  stop: AbortSignal
  /** The number of the worker, in each line of its log. */
  worker?: number
}

type DrainTimes = Pick<Config['server'], 'drainDelay_ms' | 'drainTimeout_ms'>

const drainingTime = ({ drainDelay_ms, drainTimeout_ms }: DrainTimes) => drainDelay_ms + drainTimeout_ms

/** How long after its stop signal a worker has certainly ended, unless it is blocked. */
export const workerStopTimeout = (times: DrainTimes) => drainingTime(times) + WORKER_CLEANUP_TIMEOUT_ms + KILL_DELAY_ms

/**
 * Runs the work of a server's process, which ends when it is to stop, and cleans up after it. A process that takes too
 * long from the stop signal on, or from the work's failure, exits with status 1.
 * @throws Error what the work throws, after cleaning up
 */
export async function runProcess(
  { logLevel, server }: Pick<Config, 'logLevel' | 'server'>,
  { stop, worker }: ProcessOptions,
  work: (running: Running) => Promise<void>,
): Promise<void> {
  const logger = loggerOptions(logLevel, { worker })
  const log = createLogger(logger)
  const cleanup = new AsyncDisposableStack()
  const limitTime = () => {
    const limit_ms = drainingTime(server) + (worker === undefined ? CLEANUP_TIMEOUT_ms : WORKER_CLEANUP_TIMEOUT_ms)
    const exit = () => {
      log.error(`exiting before all is closed, since that takes longer than ${limit_ms / 1_000} seconds`)
      process.exit(1)
    }
    // It is never cleared: connections to a frozen PostgreSQL stay open, and keep the process alive, after their pool ended.
    setTimeout(exit, limit_ms).unref()
  }
  if (stop.aborted) limitTime()
  else stop.addEventListener('abort', limitTime)
  try {
    log.info({ ...describeRelease(), node: process.version }, 'starting')
    await work({ logger, log, cleanup, stop })
  } finally {
    if (!stop.aborted) limitTime()
    await cleanup.disposeAsync()
    log.info('stopped')
  }
}

/**
 * Aborts on the first stop signal. The listeners stay registered to ignore further signals: npm forwards to us the
 * Ctrl-C that the terminal has already sent.
 */
export function stopSignal(): AbortSignal {
  const controller = new AbortController()
  for (const signal of STOP_SIGNALS) process.on(signal, () => controller.abort())
  return controller.signal
}
