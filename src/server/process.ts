import type { Config } from '../config.ts'
import { createLogger, loggerOptions } from '../logger.ts'
import { describeRelease } from '../release.ts'
import { STOP_SIGNALS } from '../stop-signals.ts'

/** How long closing the connections and stopping the embedded PostgreSQL may take before the process exits anyway. */
const CLEANUP_TIMEOUT_ms = 35_000

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
  /** How long requests in progress may take to end once the work has. */
  drainTimeout_ms: number
  /** The number of the worker, in each line of its log. */
  worker?: number
}

/**
 * Runs the work of a server's process, which ends when it is to stop, and cleans up after it.
 * @throws Error what the work throws, after cleaning up
 */
export async function runProcess(
  { logLevel }: Pick<Config, 'logLevel'>,
  { stop, drainTimeout_ms, worker }: ProcessOptions,
  work: (running: Running) => Promise<void>,
): Promise<void> {
  const logger = loggerOptions(logLevel, { worker })
  const log = createLogger(logger)
  const cleanup = new AsyncDisposableStack()
  try {
    log.info({ ...describeRelease(), node: process.version }, 'starting')
    await work({ logger, log, cleanup, stop })
  } finally {
    // It is never cleared: connections to a frozen PostgreSQL stay open, and keep the process alive, after their pool ended.
    setTimeout(() => process.exit(1), drainTimeout_ms + CLEANUP_TIMEOUT_ms).unref()
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
