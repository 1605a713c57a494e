import { CommanderError } from 'commander'
import { Interrupted } from './interruptible.ts'
import { createProgram } from './program.ts'

const FAILURE = 1
const USAGE_ERROR = 2

// Each write reports its own error; without a listener the event would end the process. A server whose terminal is gone
// must still stop in order.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})

try {
  await createProgram().parseAsync()
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : USAGE_ERROR
  } else if (error instanceof Interrupted) {
    printError(error.message)
    // The interrupted work may keep connections and streams open.
    process.exit(error.status)
  } else if (!isBrokenPipe(error)) {
    printError(describe(error))
    process.exitCode = FAILURE
  }
}

function printError(message: string): void {
  process.stderr.write(`flowtrail: ${message}\n`)
}

/** Whether the reader of our output has closed it, as `head` does. */
function isBrokenPipe(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EPIPE'
}

/** A one-line message. */
function describe(error: unknown): string {
  const errors = error instanceof AggregateError ? error.errors : [error]
  const messages = errors.map((one) => (one instanceof Error ? one.message || one.name : String(one)))
  const message = [...new Set(messages)].join('; ').replace(/\s*\n\s*/g, ' ')
  const isUnreachable = errors.some((one) => ['connect', 'getaddrinfo'].includes(one?.syscall))
  return isUnreachable ? `Cannot connect to the database: ${message}` : message
}
