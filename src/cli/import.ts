import { Command } from 'commander'
import { readConfig } from '../config.ts'
import { isRetryable } from '../database/failures.ts'
import { withPool } from '../database/open.ts'
import { type ImportSummary, importRecords } from '../transfer/import.ts'
import { STDIO } from './arguments.ts'
import type { Context } from './context.ts'
import { type InputFile, openFile } from './input-file.ts'
import { Interrupted, onDatabase } from './interruptible.ts'
import { CommandError, printable, printRows, report } from './output.ts'
import { importProgress } from './progress.ts'

/** For so many keys it is said that identifiers differ by their type alone. */
const MAX_MISMATCHES = 20
const COLUMNS = ['type', 'read', 'added', 'updated', 'unchanged']

export const importCommand = ({ env, stdin, stdout, stderr }: Context) =>
  new Command('import')
    .description('import newline-delimited JSON in one transaction; idempotent')
    .argument('<file>', 'path of the file, or - for standard input')
    .option('--json', 'print JSON')
    .action(async (file: string, { json }: { json?: boolean }) => {
      const config = readConfig(env)
      const input = file === STDIO ? undefined : await openFile(file)
      let isImported = false
      const onImported = () => {
        isImported = true
      }
      try {
        await onDatabase(config, stderr, async (_, url, signal) => {
          const summary = await load(url, input, { stdin, stderr }, { onImported, signal })
          if (summary.duplicate_lines > 0) {
            stderr.write(`Lines about the same record as an earlier line: ${summary.duplicate_lines}\n`)
          }
          for (const { project_id, key, count } of summary.type_mismatches.slice(0, MAX_MISMATCHES)) {
            stderr.write(
              `Identifiers ${printable(key)} of project ${project_id} whose value another contact has as another JSON type ` +
                `(perhaps one person as two contacts): ${count}. See docs/recording.md#identifiers\n`,
            )
          }
          const rows = rowsOf(summary)
          // What was to write it has failed.
          if (rows.every(({ read }) => read === 0)) throw new CommandError('The input has no record')
          await report('Everything is imported', () => printRows(stdout, rows, COLUMNS, json))
        })
      } catch (error) {
        if (isImported && error instanceof Interrupted) {
          error.message = 'everything is imported, and what follows was interrupted'
        }
        throw error
      } finally {
        await input?.close()
      }
    })

async function load(
  url: string,
  input: InputFile | undefined,
  { stdin, stderr }: Pick<Context, 'stdin' | 'stderr'>,
  { onImported, signal }: { onImported: () => void; signal: AbortSignal },
): Promise<ImportSummary> {
  const progress = importProgress(stderr, input?.size, signal)
  try {
    const options = { onProgress: progress.update, onImported }
    return await withPool(url, (pool) => importRecords(pool, input?.read() ?? stdin, options), { signal })
  } catch (error) {
    if (!isRetryable(error)) throw error
    throw new Error('conflict with a concurrent writer of the same project; nothing was imported, try again', {
      cause: error,
    })
  } finally {
    progress.stop()
  }
}

const rowsOf = ({ records }: ImportSummary) => Object.entries(records).map(([type, counts]) => ({ type, ...counts }))
