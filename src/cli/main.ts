import { CommanderError } from 'commander'
import { Interrupted } from './interruptible.ts'
import { createProgram } from './program.ts'

const FAILURE = 1
const WRONG_USAGE = 2

// Whoever writes is told what went wrong; without a listener it would end the process.
process.stdout.on('error', () => {})

try {
  await createProgram().parseAsync()
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : WRONG_USAGE
  } else if (error instanceof Interrupted) {
    say(error.message)
    // The work that was broken off may hold on to connections and streams.
    process.exit(error.status)
  } else if (!isBrokenPipe(error)) {
    say(explain(error))
    process.exitCode = FAILURE
  }
}

function say(message: string): void {
  process.stderr.write(`flowtrail: ${message}\n`)
}

/** Whether whoever reads our output has had enough, as `head` has. */
function isBrokenPipe(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EPIPE'
}

/** What went wrong in one line. */
function explain(error: unknown): string {
  const errors = error instanceof AggregateError ? error.errors : [error]
  const messages = errors.map((one) => (one instanceof Error ? one.message || one.name : String(one)))
  const message = [...new Set(messages)].join('; ').replace(/\s*\n\s*/g, ' ')
  const isUnreached = errors.some((one) => ['connect', 'getaddrinfo'].includes(one?.syscall))
  return isUnreached ? `The database cannot be reached: ${message}` : message
}
