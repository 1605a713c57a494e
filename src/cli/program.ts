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
Settings come from the environment. Without DATABASE_URL the embedded PostgreSQL
under DATA_DIR is used; it is started when it is not running. README.md has more.`

/** The whole command line. Parsing throws CommanderError for wrong usage, of which it has told then. */
export function createProgram(): Command {
  const program = new Command('flowtrail')
    .description('A service for reading flows, entries and events, and recording custom events')
    .version(packageJson.version)
    .addHelpText('after', EPILOGUE)
  const data = [importCommand(), exportCommand()]
  for (const command of [serveCommand(), migrateCommand(), demoCommand(), projectsCommand(), keysCommand(), ...data]) {
    program.addCommand(command)
  }
  tellInOneLine(program)
  return program
}

/** Makes wrong usage of a command and its subcommands an error of one line that points to the help. */
function tellInOneLine(command: Command, path = command.name()): void {
  command.exitOverride().configureOutput({
    outputError: (text, write) => {
      const problem = text
        .replace(/^error: /, '')
        .trim()
        .replace(/\s*\n\s*/g, ' ')
        .replace(/\.$/, '')
      write(`flowtrail: ${problem}. See ${path} --help\n`)
    },
  })
  for (const subcommand of command.commands) tellInOneLine(subcommand, `${path} ${subcommand.name()}`)
}
