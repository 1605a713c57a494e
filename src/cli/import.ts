import { type FileHandle, open } from 'node:fs/promises'
import { Command } from 'commander'
import { createPool } from '../../db/connection.ts'
import { readConfig } from '../config.ts'
import { withDatabase } from '../database.ts'
import { type ImportSummary, importRecords } from '../transfer/import.ts'
import { CommandError, printRows } from './output.ts'
import { importProgressBar } from './progress.ts'

const STDIN = '-'
const COLUMNS = ['type', 'read', 'added', 'updated', 'unchanged']

export const importCommand = () =>
  new Command('import')
    .description('load newline-delimited JSON, all of it or nothing; loading it again changes nothing')
    .argument('<file>', 'the file, or - for standard input')
    .option('--json', 'print JSON')
    .action(async (file: string, { json }: { json?: boolean }) => {
      const config = readConfig()
      const handle = file === STDIN ? undefined : await openFile(file)
      try {
        await withDatabase(config, async (_, url) => {
          const summary = await load(url, handle)
          if (summary.duplicate_lines > 0) {
            process.stderr.write(`${summary.duplicate_lines} lines repeat an earlier line and counted once\n`)
          }
          printRows(rowsOf(summary), COLUMNS, json ?? false)
        })
      } finally {
        await handle?.close()
      }
    })

async function openFile(file: string): Promise<FileHandle> {
  try {
    const handle = await open(file)
    if ((await handle.stat()).isDirectory())
      throw new CommandError(`${file} is a directory; name a file, or - for standard input`)
    return handle
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') throw new CommandError(`There is no file ${file}`)
    throw error
  }
}

async function load(url: string, handle: FileHandle | undefined): Promise<ImportSummary> {
  const pool = createPool(url, { max: 1 })
  const progress = importProgressBar((await handle?.stat())?.size)
  try {
    const input = handle?.createReadStream({ autoClose: false }) ?? process.stdin
    return await importRecords(pool, input, { onProgress: progress.update })
  } finally {
    progress.stop()
    await pool.end()
  }
}

const rowsOf = ({ records }: ImportSummary) => Object.entries(records).map(([type, counts]) => ({ type, ...counts }))
