import { Command } from 'commander'
import { BackupError, type BackupHeader, type BackupReader, readBackup } from '../backup/format.ts'
import { checkBackup, restoreBackup, TargetError } from '../backup/restore.ts'
import { readConfig } from '../config.ts'
import { requireEncoding } from '../database/encoding.ts'
import { connect, withPool } from '../database/open.ts'
import { FLOWTRAIL } from '../release.ts'
import { STDIO } from './arguments.ts'
import { rowsOf } from './backup.ts'
import type { Context } from './context.ts'
import { openFile } from './input-file.ts'
import { Interrupted, interruptible, onServer } from './interruptible.ts'
import { InputError, printable, printRows, report } from './output.ts'
import { backupProgress } from './progress.ts'

type Rows = Record<string, number>

export const restoreCommand = ({ env, stdin, stdout, stderr }: Context) =>
  new Command('restore')
    .description('restore a backup into an empty database: all of it or nothing')
    .argument('<file>', 'path of the file, or - for standard input')
    .option('--check', 'only check that the backup is complete and undamaged')
    .action(async (file: string, { check }: { check?: boolean }) => {
      const config = readConfig(env)
      const input = file === STDIO ? undefined : await openFile(file).catch(refuse)
      const canRepeat = input?.size !== undefined
      const read = (work: (header: BackupHeader, reader: BackupReader) => Promise<Rows>) =>
        readBackup(input?.read() ?? stdin, work)
      const checked = ({ taken_at, version, postgresql }: BackupHeader, reader: BackupReader) =>
        interruptible((unlessInterrupted, signal) => {
          stderr.write(`${printable(`Backup of ${taken_at}, by Flowtrail ${version} from PostgreSQL ${postgresql}`)}\n`)
          const progress = backupProgress(stderr, 'checking', signal)
          return unlessInterrupted(() => checkBackup(reader, { onProgress: progress.update })).finally(progress.stop)
        })
      let isRestored = false
      const restored = (header: BackupHeader, reader: BackupReader) =>
        onServer(config, stderr, async ({ url }, signal) => {
          await withPool(url, requireEncoding)
          const progress = backupProgress(stderr, 'restoring', signal)
          const db = connect(url, { signal })
          try {
            const onRestored = () => {
              isRestored = true
            }
            const options = { onProgress: progress.update, onRestored }
            return await withPool(url, (pool) => restoreBackup(db, pool, header, reader, options), { signal })
          } finally {
            progress.stop()
            await db.destroy()
          }
        })
      try {
        // What was damaged on its way is told before hours of work.
        const rows = canRepeat || check ? await read(checked) : undefined
        const printed = rowsOf(check && rows ? rows : await read(restored))
        const done = isRestored ? 'Everything is restored' : 'The backup is whole'
        await report(done, () => printRows(stdout, printed, ['table', 'rows']))
      } catch (error) {
        if (isRestored && error instanceof Interrupted) {
          error.message = `everything is restored, and what follows was interrupted. Run: ${FLOWTRAIL} migrate`
        }
        throw described(error, input ? file : 'Standard input')
      } finally {
        await input?.close()
      }
    })

const refuse = ({ message }: Error) => {
  throw new InputError(message)
}

function described(error: unknown, name: string): unknown {
  if (error instanceof BackupError) return new InputError(`${name} ${error.message}`)
  return error instanceof TargetError ? new InputError(`Nothing was restored: ${error.message}`) : error
}
