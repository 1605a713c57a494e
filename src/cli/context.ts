import type { Readable, Writable } from 'node:stream'

/** Where a command writes; what is meant for people is left out where it is no terminal. */
export type Output = Writable & { isTTY?: boolean }

/** Where a command reads; it asks questions where it is a terminal. */
type Input = Readable & { isTTY?: boolean }

/** What commands use of the process that they run in. */
export interface Context {
  env: Record<string, string | undefined>
  stdin: Input
  stdout: Output
  stderr: Output
}
