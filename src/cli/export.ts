import { Command } from 'commander'
import { readConfig } from '../config.ts'
import { withPool } from '../database/open.ts'
import { exportProject } from '../transfer/export.ts'
import { resourceId } from './arguments.ts'
import { onDatabase } from './interruptible.ts'
import { exportProgress } from './progress.ts'
import { requireProject } from './projects.ts'

export const exportCommand = () =>
  new Command('export')
    .description('write a project, except its API keys, to standard output in import format')
    .requiredOption('--project <id>', 'project id (required)', resourceId)
    .action(({ project }: { project: string }) =>
      onDatabase(readConfig(), async (db, url) => {
        await requireProject(db, project)
        await write(url, project)
      }),
    )

async function write(url: string, projectId: string): Promise<void> {
  const progress = exportProgress()
  try {
    await withPool(url, (pool) => exportProject(pool, projectId, process.stdout, { onProgress: progress.update }))
  } finally {
    progress.stop()
  }
}
