import { Command } from 'commander'
import { readConfig } from '../config.ts'
import { usesPooler } from '../database/pooler-client.ts'
import { rewriteTables } from '../queries/erasures.ts'
import { databaseSize } from '../queries/projects.ts'
import type { Context } from './context.ts'
import { onDatabase } from './interruptible.ts'
import { CommandError, mebibytes, print, printable, report } from './output.ts'

export function compactCommand({ env, stdout, stderr }: Context): Command {
  return new Command('compact')
    .description('rewrite all tables to purge erased data; requests wait meanwhile')
    .action(() =>
      onDatabase(readConfig(env), stderr, async (db, url) => {
        // Its settings would be left in a session of the pooler before it fails.
        if (usesPooler(url)) {
          throw new CommandError(
            'VACUUM cannot run through a pooler. Use a DATABASE_URL that leads to PostgreSQL directly',
          )
        }
        const before_bytes = await databaseSize(db)
        const tables = await rewriteTables(db, (reason) => void stderr.write(`Waiting for ${printable(reason)}\n`))
        const sizes = [before_bytes, await databaseSize(db)].map(mebibytes)
        const done = `Rewrote ${tables} tables`
        await report(done, () => print(stdout, `${done}; the database had ${sizes.join(', and has ')}\n`))
      }),
    )
}
