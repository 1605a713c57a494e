import { Command } from 'commander'
import { migrate, migrationStatus } from '../../db/migrate.ts'
import { readConfig } from '../config.ts'
import { connect } from '../database/open.ts'
import type { Context } from './context.ts'
import { onServer } from './interruptible.ts'
import { printRows } from './output.ts'

export const migrateCommand = ({ env, stdout }: Context) =>
  new Command('migrate')
    .description('apply pending migrations; idempotent, and safe to run concurrently')
    .option('--status', 'only list the migrations and when each was applied')
    .option('--json', 'print JSON')
    .action(({ status, json }: { status?: boolean; json?: boolean }) =>
      onServer(readConfig(env), async ({ url }) => {
        const db = connect(url)
        try {
          const applied = status ? [] : await migrate(db)
          const rows = (await migrationStatus(db)).map(({ name, executedAt }) => ({
            migration: name,
            applied_at: executedAt?.toISOString() ?? null,
            ...(!status && { new: applied.includes(name) }),
          }))
          await printRows(stdout, rows, ['migration', 'applied_at', ...(status ? [] : ['new'])], json)
        } finally {
          await db.destroy()
        }
      }),
    )
