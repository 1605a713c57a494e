import { CommanderError } from 'commander'
import type { Context } from './context.ts'
import { Interrupted } from './interruptible.ts'
import { describeError, flush, InputError, watchOutput } from './output.ts'
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
  const onHelp = (error: unknown) => {
    if (!(error instanceof CommanderError) || error.exitCode !== 0) throw error
    // Nobody has waited for what it wrote, help or the version.
    return flush(context.stdout)
  }
  try {
    await createProgram(context).parseAsync(args, { from: 'user' }).catch(onHelp)
    return 0
  } catch (error) {
    if (error instanceof CommanderError) return USAGE_ERROR
    if (error instanceof Interrupted) return error.isUsual ? error.status : fail(error.status, error.message)
    if (error instanceof InputError) return fail(USAGE_ERROR, error.message)
    return (await isBrokenPipe(error)) ? 0 : fail(FAILURE, describeError(error))
  }
}
