import { Command } from 'commander'
import { migrate, migrationStatus } from '../../db/migrate.ts'
import { readConfig } from '../config.ts'
import { requireEncoding } from '../database/encoding.ts'
import { connect, withPool } from '../database/open.ts'
import type { Context } from './context.ts'
import { onServer } from './interruptible.ts'
import { printRows, report } from './output.ts'

export const migrateCommand = ({ env, stdout, stderr }: Context) =>
  new Command('migrate')
    .description('apply pending migrations; idempotent, and safe to run concurrently')
    .option('--status', 'only list the migrations, when each was applied, and whether this release knows it')
    .option('--json', 'print JSON')
    .action(({ status, json }: { status?: boolean; json?: boolean }) =>
      onServer(readConfig(env), stderr, async ({ url }) => {
        if (!status) await withPool(url, requireEncoding)
        const db = connect(url)
        try {
          const onBlocked = (message: string) => void stderr.write(`${message}\n`)
          const applied = status ? [] : await migrate(db, { onBlocked })
          const rows = (await migrationStatus(db)).map(({ name, appliedAt, isKnown }) => ({
            migration: name,
            applied_at: appliedAt?.toISOString() ?? null,
            known: isKnown,
            ...(!status && { new: applied.includes(name) }),
          }))
          const columns = ['migration', 'applied_at', 'known', ...(status ? [] : ['new'])]
          const print = () => printRows(stdout, rows, columns, json)
          await (status ? print() : report('The schema is up to date', print))
        } finally {
          await db.destroy()
        }
      }),
    )
