/**
 * What ends the server and interrupts a command, in good order: Ctrl-C, a supervisor, and a terminal that is closed, whose
 * processes would otherwise leave the embedded PostgreSQL behind.
 */
export const STOP_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
export type StopSignal = (typeof STOP_SIGNALS)[number]

/**
 * Runs the work of a tool and lets it clean up when a stop signal comes, by which the process then ends. A command is interrupted by
 * src/cli/interruptible.ts.
 *
 * @param work gets a signal that then aborts; what it fails with afterwards is ignored
 * @throws what the work throws otherwise
 */
export async function untilStopped(work: (stop: AbortSignal) => Promise<void>): Promise<void> {
  const controller = new AbortController()
  let received: StopSignal | undefined
  const stop = (signal: StopSignal) => {
    // npm forwards signals that the terminal has already sent.
    received ??= signal
    controller.abort(new Error(`stopped by ${signal}`))
  }
  for (const signal of STOP_SIGNALS) process.on(signal, stop)
  try {
    await work(controller.signal)
  } catch (error) {
    if (!received) throw error
  } finally {
    for (const signal of STOP_SIGNALS) process.off(signal, stop)
  }
  if (received) process.kill(process.pid, received)
}
