import { createInterface } from 'node:readline'
import { type Command, Option } from 'commander'
import type { Context } from './context.ts'
import { CommandError } from './output.ts'

export const yesOption = () => new Option('--yes', 'do not ask')

/**
 * Lets a command ask before it does what cannot be undone.
 *
 * @param command the one that asks; it fails at once when nobody is there to answer
 * @returns what asks a question; it throws a CommandError unless the reply is yes, or was with `--yes`
 */
export function confirmation({ stdin, stderr }: Context, command: Command): (question: string) => Promise<void> {
  const { yes } = command.opts<{ yes?: boolean }>()
  if (!yes && !stdin.isTTY) command.error('This cannot be undone. Add --yes to do it without being asked')
  return async (question) => {
    if (yes) return
    stderr.write(`${question} This cannot be undone. Type yes to go on: `)
    if ((await readLine(stdin)).trim() !== 'yes') throw new CommandError('Nothing was changed')
  }
}

/** The next line, empty at the end of the input. The terminal keeps editing it, and Ctrl-C its signal. */
async function readLine(input: Context['stdin']): Promise<string> {
  for await (const line of createInterface({ input, terminal: false })) return line
  return ''
}
