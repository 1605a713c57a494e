import { Command, CommanderError } from 'commander'
import packageJson from '../../package.json' with { type: 'json' }
import { demoCommand } from './demo.ts'
import { keysCommand } from './keys.ts'
import { migrateCommand } from './migrate.ts'
import { projectsCommand } from './projects.ts'
import { serveCommand } from './serve.ts'

const FAILURE = 1
const WRONG_USAGE = 2

const program = new Command('flowtrail')
  .description('A service for reading flows, entries and events, and recording custom events')
  .version(packageJson.version)
for (const command of [serveCommand(), migrateCommand(), demoCommand(), projectsCommand(), keysCommand()]) {
  program.addCommand(command)
}
for (const command of [program, ...program.commands, ...program.commands.flatMap((group) => group.commands)]) {
  command.exitOverride().configureOutput({ outputError: (text, write) => write(`flowtrail: ${text}`) })
}

try {
  await program.parseAsync()
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? 0 : WRONG_USAGE
  } else {
    process.stderr.write(`flowtrail: ${explain(error)}\n`)
    process.exitCode = FAILURE
  }
}

/** What went wrong in one line. */
function explain(error: unknown): string {
  const errors = error instanceof AggregateError ? error.errors : [error]
  const messages = errors.map((one) => (one instanceof Error ? one.message || one.name : String(one)))
  return [...new Set(messages)].join('; ').replace(/\s*\n\s*/g, ' ')
}
