import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Command } from 'commander'
import { type Config, readConfig } from '../config.ts'
import { withPool } from '../database/open.ts'
import type { Database } from '../database/pool.ts'
import { DEMO, type DemoOptions, demoRecords } from '../demo/project.ts'
import { isAccepted, parseKey, SCOPES } from '../domain/api-key.ts'
import { findKey } from '../queries/api-keys.ts'
import { importRecords } from '../transfer/import.ts'
import { count, resourceId } from './arguments.ts'
import type { Context, Output } from './context.ts'
import { onDatabase } from './interruptible.ts'
import { createKey } from './keys.ts'
import { print } from './output.ts'
import { importProgress } from './progress.ts'

/** Imports the demo project. Records that exist stay as they are. @param stderr where to show progress */
export async function loadDemo(url: string, options: DemoOptions, stderr?: Output): Promise<void> {
  const progress = importProgress(stderr)
  try {
    await withPool(url, (pool) => importRecords(pool, demoLines(options), { onProgress: progress.update }))
  } finally {
    progress.stop()
  }
}

async function* demoLines(options: DemoOptions): AsyncGenerator<string> {
  for (const record of demoRecords(options)) yield `${JSON.stringify(record)}\n`
}

/** The file with a demo project's key: `demo-key`, or with a suffix for a project with another id. */
export function demoKeyFile(config: Config, projectId: string): string {
  const name = projectId === DEMO.projectId ? 'demo-key' : `demo-key-${encodeURIComponent(projectId)}`
  return path.join(config.dataDir, name)
}

/** The demo project's key from its file, replaced by a new one if it is not valid. Only the file's owner can read it. */
export async function demoKey(config: Config, db: Database, projectId: string): Promise<string> {
  const file = demoKeyFile(config, projectId)
  const stored = await readFile(file, 'utf8').then(
    (text) => text.trim(),
    () => '',
  )
  if (await isValid(db, projectId, stored)) return stored
  const key = await createKey(db, projectId, { name: 'demo', scopes: SCOPES, expires_at: null })
  await mkdir(path.dirname(file), { recursive: true })
  await rm(file, { force: true })
  await writeFile(file, `${key}\n`, { mode: 0o600 })
  return key
}

async function isValid(db: Database, projectId: string, text: string): Promise<boolean> {
  const key = parseKey(text)
  if (!key) return false
  const stored = await findKey(db, projectId, key.key_id)
  // One of an earlier release lacks scopes.
  const hasScopes = SCOPES.every((scope) => stored?.scopes.includes(scope))
  return stored !== undefined && hasScopes && isAccepted(key, stored, new Date())
}

export const demoCommand = ({ env, stdout, stderr }: Context) =>
  new Command('demo')
    .description('load a realistic, reproducible project and print an API key for it')
    .option('--entries <n>', 'number of entries, with about ten events each', count, 400)
    .option('--project <id>', 'project id', resourceId, DEMO.projectId)
    .addHelpText('after', '\nThe key is kept in DATA_DIR/demo-key, or in demo-key-ID for another project.')
    .action(({ entries, project }: { entries: number; project: string }) => {
      const config = readConfig(env)
      return onDatabase(config, async (db, url) => {
        await loadDemo(url, { projectId: project, entries }, stderr)
        await print(stdout, `${await demoKey(config, db, project)}\n`)
      })
    })
