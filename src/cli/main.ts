import { type Command, CommanderError, program } from 'commander'
import packageJson from '../../package.json' with { type: 'json' }
import { Interrupted } from './database.ts'
import { demoCommand } from './demo.ts'
import { exportCommand } from './export.ts'
import { importCommand } from './import.ts'
import { keysCommand } from './keys.ts'
import { migrateCommand } from './migrate.ts'
import { projectsCommand } from './projects.ts'
import { serveCommand } from './serve.ts'

const FAILURE = 1
const WRONG_USAGE = 2

program
  .name('flowtrail')
  .description('A service for reading flows, entries and events, and recording custom events')
  .version(packageJson.version)
  .addCommand(serveCommand())
  .addCommand(migrateCommand())
  .addCommand(demoCommand())
  .addCommand(projectsCommand())
  .addCommand(keysCommand())
  .addCommand(importCommand())
  .addCommand(exportCommand())
  .addHelpText(
    'after',
    '\nSettings come from the environment. Without DATABASE_URL the embedded PostgreSQL\nunder DATA_DIR is used; it is started when it is not running. README.md has more.',
  )
reportInOneLine(program)

// Whoever writes is told what went wrong; without a listener it would end the process.
process.stdout.on('error', () => {})

try {
  await program.parseAsync()
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

/** Makes wrong usage of a command and its subcommands an error of one line that points to the help. */
function reportInOneLine(command: Command, path = command.name()): void {
  command.exitOverride().configureOutput({
    outputError: (text) => {
      const problem = text
        .replace(/^error: /, '')
        .trim()
        .replace(/\s*\n\s*/g, ' ')
        .replace(/\.$/, '')
      say(`${problem}. See ${path} --help`)
    },
  })
  for (const subcommand of command.commands) reportInOneLine(subcommand, `${path} ${subcommand.name()}`)
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
  const isUnreached = errors.some((one) => one.syscall === 'connect' || one.syscall === 'getaddrinfo')
  const message = [...new Set(messages)].join('; ').replace(/\s*\n\s*/g, ' ')
  return isUnreached ? `The database cannot be reached: ${message}` : message
}
