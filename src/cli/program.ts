import { Command } from 'commander'
import packageJson from '../../package.json' with { type: 'json' }
import { demoCommand } from './demo.ts'
import { exportCommand } from './export.ts'
import { importCommand } from './import.ts'
import { keysCommand } from './keys.ts'
import { migrateCommand } from './migrate.ts'
import { projectsCommand } from './projects.ts'
import { serveCommand } from './serve.ts'

const EPILOGUE = `
Settings are environment variables, described in README.md. Without DATABASE_URL
the embedded PostgreSQL in DATA_DIR is used, and started if it is not running.`

/** Defines the whole command line. Parsing prints usage errors and then throws CommanderError. */
export function createProgram(): Command {
  const program = new Command('flowtrail')
    .description('HTTP service to read flows, entries and events, and to record custom events')
    .version(packageJson.version)
    .addHelpText('after', EPILOGUE)
  const data = [importCommand(), exportCommand()]
  for (const command of [serveCommand(), migrateCommand(), demoCommand(), projectsCommand(), keysCommand(), ...data]) {
    program.addCommand(command)
  }
  printErrorsOnOneLine(program)
  return program
}

/** Prints usage errors of a command and its subcommands on one line that refers to its help. */
function printErrorsOnOneLine(command: Command, path = command.name()): void {
  command.exitOverride().configureOutput({
    outputError: (text, write) => {
      const message = text
        .replace(/^error: /, '')
        .trim()
        .replace(/\s*\n\s*/g, ' ')
        .replace(/\.$/, '')
      write(`flowtrail: ${message}. See ${path} --help\n`)
    },
  })
  for (const subcommand of command.commands) printErrorsOnOneLine(subcommand, `${path} ${subcommand.name()}`)
}
