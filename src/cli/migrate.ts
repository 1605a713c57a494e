import { Command } from 'commander'
import { connect } from '../../db/connection.ts'
import { migrate, migrationStatus } from '../../db/migrate.ts'
import { readConfig } from '../config.ts'
import { openServer } from '../database.ts'
import { printRows } from './output.ts'

export const migrateCommand = () =>
  new Command('migrate')
    .description('bring the database to the newest schema; running it again, or twice at once, does no harm')
    .option('--status', 'only list the migrations and when each was applied')
    .option('--json', 'print JSON')
    .action(async ({ status, json }: { status?: boolean; json?: boolean }) => {
      const server = await openServer(readConfig())
      const db = connect(server.url)
      try {
        const applied = status ? [] : await migrate(db)
        const rows = (await migrationStatus(db)).map(({ name, executedAt }) => ({
          migration: name,
          applied_at: executedAt?.toISOString() ?? null,
          ...(!status && { new: applied.includes(name) }),
        }))
        printRows(rows, status ? ['migration', 'applied_at'] : ['migration', 'applied_at', 'new'], json ?? false)
      } finally {
        await db.destroy()
        await server.release()
      }
    })
