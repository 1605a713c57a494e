import { Command } from 'commander'
import { readConfig } from '../config.ts'
import type { Database } from '../database/pool.ts'
import { insertProject, projectExists, selectProjects } from '../queries/projects.ts'
import { resourceId } from './arguments.ts'
import type { Context } from './context.ts'
import { onDatabase } from './interruptible.ts'
import { CommandError, printRows } from './output.ts'

/** @throws CommandError if the project does not exist */
export async function requireProject(db: Database, projectId: string): Promise<void> {
  if (await projectExists(db, projectId)) return
  throw new CommandError(`Project ${projectId} does not exist. Run: flowtrail projects list`)
}

export function projectsCommand({ env, stdout }: Context): Command {
  const projects = new Command('projects').description('create and list projects')
  projects
    .command('create')
    .description('create a project')
    .argument('<id>', 'project id, which is part of every URL', resourceId)
    .option('--name <name>', 'display name (default: the id)')
    .action((id: string, { name }: { name?: string }) =>
      onDatabase(readConfig(env), async (db) => {
        if (!(await insertProject(db, id, name ?? id))) throw new CommandError(`Project ${id} already exists`)
      }),
    )
  projects
    .command('list')
    .description('list all projects')
    .option('--json', 'print JSON')
    .action(({ json }: { json?: boolean }) =>
      onDatabase(readConfig(env), async (db) =>
        printRows(stdout, await selectProjects(db), ['project_id', 'name'], json),
      ),
    )
  return projects
}
