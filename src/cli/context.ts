import type { Readable, Writable } from 'node:stream'

/** What commands use of the process that they run in. */
export interface Context {
  env: Record<string, string | undefined>
  stdin: Readable
  stdout: Writable
  stderr: Writable
}
