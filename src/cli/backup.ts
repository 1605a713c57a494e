import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createWriteStream } from 'node:fs'
import { open, readlink, realpath, rename, rm, stat, writeFile } from 'node:fs/promises'
import path from 'node:path'
import type { Writable } from 'node:stream'
import { finished } from 'node:stream/promises'
import { Command } from 'commander'
import { backUp, NoSchemaError } from '../backup/backup.ts'
import { readConfig } from '../config.ts'
import { withPool } from '../database/open.ts'
import { STDIO } from './arguments.ts'
import type { Context } from './context.ts'
import { onServer } from './interruptible.ts'
import { CommandError, flush, InputError, printRows, report, watchOutput } from './output.ts'
import { backupProgress } from './progress.ts'

export const backupCommand = ({ env, stdout, stderr }: Context) =>
  new Command('backup')
    .description('write everything that is stored, keys too, while servers run')
    .argument('<file>', 'path of a new file, or - for standard output')
    .option('--force', 'replace the file if it exists')
    .action(async (file: string, { force }: { force?: boolean }) => {
      const config = readConfig(env)
      if (file === STDIO && stdout.isTTY) throw new InputError('Standard output is a terminal; name a file')
      const target = file === STDIO ? undefined : await newFile(file, force)
      const isBrokenPipe = watchOutput(stdout)
      try {
        await onServer(config, stderr, async ({ url }, signal) => {
          const progress = backupProgress(stderr, 'writing', signal)
          const output = target?.stream ?? stdout
          const writing = withPool(url, (pool) => backUp(pool, output, { onProgress: progress.update }))
          const rows = await writing.finally(progress.stop)
          if (!target) return flush(stdout)
          await target.finish()
          await report(`The backup is in ${file}`, () => printRows(stdout, rowsOf(rows), ['table', 'rows']))
        })
      } catch (error) {
        // To other commands it is no failure that their reader has read enough.
        if (!target && (await isBrokenPipe(error))) {
          throw new CommandError('Standard output was closed before the backup was complete')
        }
        throw target?.refusalOf(error) ?? described(error)
      } finally {
        await target?.discard()
      }
    })

/** The rows of a summary. @param rows how many rows each table has */
export const rowsOf = (rows: Record<string, number>) => Object.entries(rows).map(([table, rows]) => ({ table, rows }))

function described(error: unknown): unknown {
  if (error instanceof NoSchemaError) {
    return new InputError(`Nothing to back up: ${error.message}. Check DATABASE_URL or, without it, DATA_DIR`)
  }
  return error
}

/** A file that gets its name once it is whole and on disk. Until then it is another one, which only its owner can read. */
interface NewFile {
  stream: Writable
  finish: () => Promise<void>
  /** What the operator is told of an error of writing; undefined for any other. */
  refusalOf: (error: unknown) => InputError | undefined
  /** Removes what is not finished. */
  discard: () => Promise<void>
}

/** @throws InputError when the file cannot be written */
async function newFile(file: string, force = false): Promise<NewFile> {
  const unwritable = ({ code, message }: NodeJS.ErrnoException, folder = path.dirname(file)) =>
    new InputError(
      code === 'ENOENT'
        ? `Cannot write ${file}: there is no folder ${folder}`
        : `Cannot write ${file}: ${message.split(', ')[0]}`,
    )
  const existing = await stat(file).catch((error) => {
    if (error.code !== 'ENOENT') throw unwritable(error)
  })
  if (existing ? !existing.isFile() : /(^|\/)$/.test(file))
    throw new InputError(`${file || '""'} is not a file; expected one, or - for standard output`)
  const target = await placeOf(file).catch((error) => {
    throw unwritable(error, error.path)
  })
  const taken = () => new InputError(`File ${file} exists; name another, or replace it with --force`)
  if (existing && !force) throw taken()
  const partial = `${target}.${randomUUID()}.partial`
  const stream = createWriteStream(partial, { flags: 'wx', mode: 0o600, flush: true })
  await once(stream, 'open').catch((error) => {
    throw unwritable(error)
  })
  const failures = new Set<unknown>()
  stream.on('error', (error) => failures.add(error))
  return {
    stream,
    refusalOf: (error) => (failures.has(error) ? unwritable(error as Error) : undefined),
    finish: async () => {
      stream.end()
      await finished(stream)
      // Another may have been created meanwhile. Not every file system has the link that would name ours in one step.
      if (!force) {
        await writeFile(target, '', { flag: 'wx' }).catch((error) => {
          throw error.code === 'EEXIST' ? taken() : error
        })
      }
      await rename(partial, target)
      await syncDirectory(path.dirname(target))
    },
    discard: async () => {
      stream.destroy()
      await rm(partial, { force: true })
    },
  }
}

/** Where a file is or will be: at the end of the symbolic links that its name may lead to, and which stay. */
async function placeOf(file: string): Promise<string> {
  const place = path.join(await realpath(path.dirname(file)), path.basename(file))
  const link = await readlink(place).catch(() => undefined)
  return link === undefined ? place : placeOf(path.resolve(path.dirname(place), link))
}

/** What a directory that may be written but not read says, and a file system that cannot sync directories. */
const NO_SYNC = ['EACCES', 'EPERM', 'EINVAL', 'ENOTSUP']

/** Makes the names of its files last, where that can be done. */
async function syncDirectory(directory: string): Promise<void> {
  try {
    await using handle = await open(directory)
    await handle.sync()
  } catch (error) {
    if (!NO_SYNC.includes((error as NodeJS.ErrnoException).code ?? '')) throw error
  }
}
