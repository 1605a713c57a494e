import { Command } from 'commander'
import { readConfig } from '../config.ts'
import { rewriteTables } from '../queries/erasures.ts'
import type { Context } from './context.ts'
import { onDatabase } from './interruptible.ts'

export function compactCommand({ env, stderr }: Context): Command {
  return new Command('compact')
    .description('rewrite all tables without what was erased; requests wait')
    .action(() =>
      onDatabase(readConfig(env), (db) =>
        rewriteTables(db, () => stderr.write('Waiting for transactions that began before and may see erased rows.\n')),
      ),
    )
}
