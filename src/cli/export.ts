import { Command } from 'commander'
import { readConfig } from '../config.ts'
import { withPool } from '../database/open.ts'
import { exportProject } from '../transfer/export.ts'
import { resourceId } from './arguments.ts'
import type { Context, Output } from './context.ts'
import { onDatabase } from './interruptible.ts'
import { flush } from './output.ts'
import { exportProgress } from './progress.ts'
import { requireProject } from './projects.ts'

export const exportCommand = ({ env, stdout, stderr }: Context) =>
  new Command('export')
    .description('write a project, except its API keys, to standard output in import format')
    .requiredOption('--project <id>', 'project id (required)', resourceId)
    .action(({ project }: { project: string }) =>
      onDatabase(readConfig(env), async (db, url) => {
        await requireProject(db, project)
        await write(url, project, stdout, stderr)
      }),
    )

async function write(url: string, projectId: string, stdout: Output, stderr: Output): Promise<void> {
  const progress = exportProgress(stdout, stderr)
  try {
    await withPool(url, (pool) => exportProject(pool, projectId, stdout, { onProgress: progress.update }))
    await flush(stdout)
  } finally {
    progress.stop()
  }
}
