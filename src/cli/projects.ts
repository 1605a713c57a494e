import { Command } from 'commander'
import { readConfig } from '../config.ts'
import { withDatabase } from '../database.ts'
import { insertProject, selectProjects } from '../queries/projects.ts'
import { resourceId } from './arguments.ts'
import { CommandError, printRows } from './output.ts'

export function projectsCommand(): Command {
  const projects = new Command('projects').description('create and list projects')
  projects
    .command('create')
    .description('create a project')
    .argument('<id>', 'its id, as it will stand in every path', resourceId)
    .option('--name <name>', 'what people call it; the id by default')
    .action((id: string, { name }: { name?: string }) =>
      withDatabase(readConfig(), async (db) => {
        if (!(await insertProject(db, id, name ?? id))) throw new CommandError(`There is a project ${id} already`)
      }),
    )
  projects
    .command('list')
    .description('list all projects')
    .option('--json', 'print JSON')
    .action(({ json }: { json?: boolean }) =>
      withDatabase(readConfig(), async (db) =>
        printRows(await selectProjects(db), ['project_id', 'name'], json ?? false),
      ),
    )
  return projects
}
