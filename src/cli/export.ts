import { Command } from 'commander'
import { readConfig } from '../config.ts'
import { withPool } from '../database/open.ts'
import { exportProject } from '../transfer/export.ts'
import { resourceId } from './arguments.ts'
import type { Context } from './context.ts'
import { onDatabase } from './interruptible.ts'
import { flush } from './output.ts'
import { exportProgress } from './progress.ts'
import { requireProject } from './projects.ts'

export const exportCommand = ({ env, stdout, stderr }: Context) =>
  new Command('export')
    .description('write a project, except its API keys, to standard output in import format')
    .requiredOption('--project <id>', 'project id (required)', resourceId)
    .action(({ project }: { project: string }) =>
      onDatabase(readConfig(env), stderr, async (db, url, signal) => {
        await requireProject(db, project)
        await write(url, project, { stdout, stderr }, signal)
      }),
    )

async function write(
  url: string,
  projectId: string,
  { stdout, stderr }: Pick<Context, 'stdout' | 'stderr'>,
  signal: AbortSignal,
): Promise<void> {
  const progress = exportProgress(stdout, stderr, signal)
  try {
    await withPool(url, (pool) => exportProject(pool, projectId, stdout, { onProgress: progress.update }), { signal })
    await flush(stdout)
  } finally {
    progress.stop()
  }
}
