import { CommanderError } from 'commander'
import { adviceFor, isConnecting } from '../database/advice.ts'
import type { Context } from './context.ts'
import { Interrupted } from './interruptible.ts'
import { InputError, watchOutput } from './output.ts'
import { createProgram } from './program.ts'

const FAILURE = 1
const USAGE_ERROR = 2

/** Runs a command line; failures are a line on stderr. @returns the exit status */
export async function run(args: readonly string[], context: Context): Promise<number> {
  const fail = (status: number, message: string) => {
    context.stderr.write(`flowtrail: ${message}\n`)
    return status
  }
  const isBrokenPipe = watchOutput(context.stdout)
  try {
    await createProgram(context).parseAsync(args, { from: 'user' })
    return 0
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE_ERROR
    if (error instanceof Interrupted) return fail(error.status, error.message)
    if (error instanceof InputError) return fail(USAGE_ERROR, error.message)
    return (await isBrokenPipe(error)) ? 0 : fail(FAILURE, describe(error))
  }
}

/** A one-line message. */
function describe(error: unknown): string {
  const errors = error instanceof AggregateError ? error.errors : [error]
  const messages = errors.map((one) => (one instanceof Error ? one.message || one.name : String(one)))
  const message = [...new Set(messages)].join('; ').replace(/\s*\n\s*/g, ' ')
  const advice = adviceFor(error)
  const described = errors.some(isConnecting) ? `Cannot connect to the database: ${message}` : message
  return advice === undefined ? described : `${described}. ${advice}`
}
