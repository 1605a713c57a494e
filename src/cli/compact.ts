import { Command } from 'commander'
import { readConfig } from '../config.ts'
import { rewriteTables } from '../queries/erasures.ts'
import { databaseSize } from '../queries/projects.ts'
import type { Context } from './context.ts'
import { onDatabase } from './interruptible.ts'
import { print, printable, report } from './output.ts'

export function compactCommand({ env, stdout, stderr }: Context): Command {
  return new Command('compact').description('rewrite all tables without what was erased; requests wait').action(() =>
    onDatabase(readConfig(env), async (db) => {
      const before_bytes = await databaseSize(db)
      const tables = await rewriteTables(db, (reason) => void stderr.write(`Waiting for ${printable(reason)}\n`))
      const sizes = [before_bytes, await databaseSize(db)].map((bytes) => `${(bytes / 2 ** 20).toFixed(1)} MiB`)
      const done = `Rewrote ${tables} tables`
      await report(done, () => print(stdout, `${done}; the database had ${sizes.join(', and has ')}\n`))
    }),
  )
}
