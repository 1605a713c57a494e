import { Command } from 'commander'
import { readConfig } from '../config.ts'
import { rewriteTables } from '../queries/erasures.ts'
import type { Context } from './context.ts'
import { onDatabase } from './interruptible.ts'
import { printable } from './output.ts'

export function compactCommand({ env, stderr }: Context): Command {
  return new Command('compact')
    .description('rewrite all tables without what was erased; requests wait')
    .action(() =>
      onDatabase(readConfig(env), (db) =>
        rewriteTables(db, (reason) => void stderr.write(`Waiting for ${printable(reason)}\n`)),
      ),
    )
}
