import { Command } from 'commander'
import { readConfig } from '../config.ts'
import type { Database } from '../database/pool.ts'
import { deleteProject } from '../queries/erasures.ts'
import {
  insertProject,
  projectExists,
  selectProjectStats,
  selectProjects,
  updateProjectName,
} from '../queries/projects.ts'
import { FLOWTRAIL } from '../release.ts'
import { resourceId } from './arguments.ts'
import { confirmation, yesOption } from './confirm.ts'
import type { Context } from './context.ts'
import { onDatabase } from './interruptible.ts'
import { CommandError, print, printRows, report } from './output.ts'

const STATS = [
  'project_id',
  'modules',
  'module_versions',
  'contacts',
  'entries',
  'events',
  'bytes',
  'last_event_at',
] as const

/** @throws CommandError if the project does not exist */
export async function requireProject(db: Database, projectId: string): Promise<void> {
  if (await projectExists(db, projectId)) return
  throw new CommandError(`Project ${projectId} does not exist. Run: ${FLOWTRAIL} projects list`)
}

export function projectsCommand(context: Context): Command {
  const { env, stdout, stderr } = context
  const projects = new Command('projects').description('create, list, rename and delete projects, count their rows')
  projects
    .command('create')
    .description('create a project')
    .argument('<id>', 'project id, which is part of every URL', resourceId)
    .option('--name <name>', 'display name (default: the id)')
    .action((id: string, { name }: { name?: string }) =>
      onDatabase(readConfig(env), stderr, async (db) => {
        if (!(await insertProject(db, id, name ?? id))) throw new CommandError(`Project ${id} already exists`)
      }),
    )
  projects
    .command('list')
    .description('list all projects')
    .option('--json', 'print JSON')
    .action(({ json }: { json?: boolean }) =>
      onDatabase(readConfig(env), stderr, async (db) =>
        printRows(stdout, await selectProjects(db), ['project_id', 'name'], json),
      ),
    )
  projects
    .command('rename')
    .description('change the display name of a project')
    .argument('<id>', 'project id, which stays as it is', resourceId)
    .argument('<name>', 'new display name')
    .action((id: string, name: string) =>
      onDatabase(readConfig(env), stderr, async (db) => {
        if (!(await updateProjectName(db, id, name))) await requireProject(db, id)
      }),
    )
  projects
    .command('stats')
    .description('count what is stored of each project; reads all of it')
    .argument('[id]', 'only of this project', resourceId)
    .option('--json', 'print JSON')
    .action((id: string | undefined, { json }: { json?: boolean }) =>
      onDatabase(readConfig(env), stderr, async (db) => {
        if (id !== undefined) await requireProject(db, id)
        await printRows(stdout, await selectProjectStats(db, id), STATS, json)
      }),
    )
  projects
    .command('delete')
    .description('delete a project, its API keys and all that is stored of it')
    .argument('<id>', 'project id', resourceId)
    .addOption(yesOption())
    .action(async (id: string, _options: object, command: Command) => {
      const confirm = confirmation(context, command)
      await onDatabase(readConfig(env), stderr, async (db) => {
        await requireProject(db, id)
        await confirm(`Delete project ${id}, its API keys and all that is stored of it?`)
        const rows = await deleteProject(db, id)
        if (rows === undefined) throw new CommandError(`Another process has deleted project ${id}`)
        const done = `Deleted project ${id}, ${rows} rows in all`
        await report(done, () => print(stdout, `${done}\n`))
      })
    })
  return projects
}
