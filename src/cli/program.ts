import { Command, CommanderError } from 'commander'
import { describeRelease } from '../release.ts'
import { backupCommand } from './backup.ts'
import { compactCommand } from './compact.ts'
import { contactsCommand } from './contacts.ts'
import type { Context } from './context.ts'
import { demoCommand } from './demo.ts'
import { doctorCommand } from './doctor.ts'
import { exportCommand } from './export.ts'
import { importCommand } from './import.ts'
import { keysCommand } from './keys.ts'
import { migrateCommand } from './migrate.ts'
import { projectsCommand } from './projects.ts'
import { restoreCommand } from './restore.ts'
import { serveCommand } from './serve.ts'
import { statusCommand } from './status.ts'
import { tailCommand } from './tail.ts'

const EPILOGUE = `
Settings are environment variables, described in README.md. Without DATABASE_URL
the embedded PostgreSQL in DATA_DIR is used: created if there is none, and started
if it is not running.`

/** Defines the whole command line. Parsing prints usage errors and then throws CommanderError. */
export function createProgram(context: Context): Command {
  const program = new Command('flowtrail')
    .description('HTTP service to read flows, entries and events, and to record custom events')
    .option('-V, --version', 'print the versions of Flowtrail and of its document, and the commit')
    .on('option:version', () => {
      const { version, document, commit } = describeRelease()
      context.stdout.write(`${version} (document ${document}, commit ${commit})\n`)
      throw new CommanderError(0, 'flowtrail.version', version)
    })
    .addHelpText('after', EPILOGUE)
  const commands = [
    serveCommand,
    migrateCommand,
    doctorCommand,
    demoCommand,
    projectsCommand,
    keysCommand,
    contactsCommand,
    importCommand,
    exportCommand,
    tailCommand,
    statusCommand,
    compactCommand,
    backupCommand,
    restoreCommand,
  ]
  for (const command of commands) program.addCommand(command(context))
  configureOutput(program, context)
  return program
}

/** Prints usage errors of a command and its subcommands on one line that refers to its help. */
function configureOutput(
  command: Command,
  { stdout, stderr }: Pick<Context, 'stdout' | 'stderr'>,
  path = command.name(),
): void {
  command.exitOverride().configureOutput({
    writeOut: (text) => stdout.write(text),
    writeErr: (text) => stderr.write(text),
    outputError: (text, write) => {
      const message = text
        .replace(/^error: /, '')
        .trim()
        .replace(/\s*\n\s*/g, ' ')
        .replace(/\.$/, '')
      write(`flowtrail: ${message}. See ${path} --help\n`)
    },
  })
  for (const subcommand of command.commands)
    configureOutput(subcommand, { stdout, stderr }, `${path} ${subcommand.name()}`)
}
