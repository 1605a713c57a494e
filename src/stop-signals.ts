/**
 * What ends the server and interrupts a command, in good order: Ctrl-C, a supervisor, and a terminal that is closed, whose
 * processes would otherwise leave the embedded PostgreSQL behind.
 */
export const STOP_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
export type StopSignal = (typeof STOP_SIGNALS)[number]

/**
 * Releases what would outlive this process before a stop signal ends it. For tools; a command is interrupted by
 * src/cli/interruptible.ts.
 */
export function releaseOnStop(release: () => Promise<unknown>): void {
  let isStopping = false
  const stop = async (signal: StopSignal) => {
    // npm forwards signals that the terminal has already sent.
    if (isStopping) return
    isStopping = true
    await release().catch((error: unknown) => console.error(error))
    for (const one of STOP_SIGNALS) process.off(one, stop)
    process.kill(process.pid, signal)
  }
  for (const signal of STOP_SIGNALS) process.on(signal, stop)
}
