/**
 * What ends the server and interrupts a command, in good order: Ctrl-C, a supervisor, and a terminal that is closed, whose
 * processes would otherwise leave the embedded PostgreSQL behind.
 */
export const STOP_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
export type StopSignal = (typeof STOP_SIGNALS)[number]
