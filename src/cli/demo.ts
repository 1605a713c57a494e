import { hash } from 'node:crypto'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { Command, Option } from 'commander'
import { type Config, readConfig } from '../config.ts'
import { withPool } from '../database/open.ts'
import type { Database } from '../database/pool.ts'
import { DEMO, type DemoOptions, demoRecords } from '../demo/project.ts'
import { isAccepted, parseKey, SCOPES } from '../domain/api-key.ts'
import { findKey } from '../queries/api-keys.ts'
import { projectExists } from '../queries/projects.ts'
import { importRecords } from '../transfer/import.ts'
import { count, rate, resourceId, serverUrl } from './arguments.ts'
import type { Context, Output } from './context.ts'
import { type LiveCommandOptions, runLiveDemo } from './demo-live.ts'
import { onDatabase } from './interruptible.ts'
import { createKey } from './keys.ts'
import { print } from './output.ts'
import { importProgress } from './progress.ts'

/**
 * Imports the demo project. Of records that exist, the groups, modules and entries become the demo's again.
 * @param stderr where to show progress
 * @param signal breaks the connection, so that nothing is imported
 */
export async function loadDemo(
  url: string,
  options: DemoOptions,
  stderr?: Output,
  signal?: AbortSignal,
): Promise<void> {
  const progress = importProgress(stderr, undefined, signal)
  try {
    const importing = { onProgress: progress.update }
    await withPool(url, (pool) => importRecords(pool, demoLines(options), importing), { signal })
  } finally {
    progress.stop()
  }
}

async function* demoLines(options: DemoOptions): AsyncGenerator<string> {
  for (const record of demoRecords(options)) yield `${JSON.stringify(record)}\n`
}

/** File systems allow 255 bytes, with what stands before it. */
const MAX_ID_IN_NAME = 246

/** The file with a demo project's key: `demo-key`, or with a suffix for a project with another id. */
export function demoKeyFile(config: Config, projectId: string): string {
  if (projectId === DEMO.projectId) return path.join(config.dataDir, 'demo-key')
  const encoded = encodeURIComponent(projectId)
  const isLong = encoded.length > MAX_ID_IN_NAME
  return path.join(config.dataDir, `demo-key-${isLong ? hash('sha256', encoded) : encoded}`)
}

/** The demo project's key from its file, replaced by a new one if it is not valid. Only the file's owner can read it. */
export async function demoKey(config: Config, db: Database, projectId: string): Promise<string> {
  const file = demoKeyFile(config, projectId)
  const stored = await readFile(file, 'utf8').then(
    (text) => text.trim(),
    () => '',
  )
  if (await isValid(db, projectId, stored)) return stored
  // If the file cannot be written, there is no key that nobody knows.
  return db.transaction().execute(async (trx) => {
    const key = await createKey(trx, projectId, { name: 'demo', scopes: SCOPES, expires_at: null })
    await mkdir(path.dirname(file), { recursive: true })
    await rm(file, { force: true })
    await writeFile(file, `${key}\n`, { mode: 0o600 })
    return key
  })
}

async function isValid(db: Database, projectId: string, text: string): Promise<boolean> {
  const key = parseKey(text)
  if (!key) return false
  const stored = await findKey(db, projectId, key.key_id)
  // One of an earlier release lacks scopes.
  const hasScopes = SCOPES.every((scope) => stored?.scopes.includes(scope))
  return stored !== undefined && hasScopes && isAccepted(key, stored, new Date())
}

const LIVE_OPTIONS = 'With --live:'

const liveOption = <T>(flags: string, description: string, parse: (text: string) => T, preset?: T) =>
  new Option(flags, description).argParser(parse).default(preset).helpGroup(LIVE_OPTIONS)

interface DemoCommandOptions {
  entries: number
  project: string
  live?: boolean
}

export const demoCommand = ({ env, stdout, stderr }: Context) =>
  new Command('demo')
    .description('load a realistic, reproducible project and print an API key for it, or simulate its visitors')
    .option('--project <id>', 'project id', resourceId, DEMO.projectId)
    .option('--entries <n>', 'number of entries, with about ten events each', count, 400)
    .addOption(
      new Option('--live', 'simulate visitors of a running server until Ctrl-C, over its API').conflicts('entries'),
    )
    .addOption(liveOption('--rate <n>', 'new visitors per second', rate, 1))
    .addOption(liveOption('--speed <n>', 'how many times faster than real people they act', rate, 1))
    .addOption(liveOption('--visitors <n>', 'end after this number of visitors', count))
    .addOption(liveOption('--seed <n>', 'random seed; the same seed repeats what the visitors do', count, 1))
    .addOption(
      liveOption(
        '--url <url>',
        'where the server is (default: FLOWTRAIL_URL, or where these settings make it listen)',
        serverUrl,
      ),
    )
    .addHelpText(
      'after',
      `
The key is kept in DATA_DIR/demo-key, or in demo-key-ID for another project.
With --live, FLOWTRAIL_KEY is used instead if it is set. The key needs all
scopes, the project must exist, and no database is needed.`,
    )
    .action(async (options: DemoCommandOptions & LiveCommandOptions, command: Command) => {
      const config = readConfig(env)
      if (options.live)
        return runLiveDemo(config, demoKeyFile(config, options.project), options, { env, stdout, stderr })
      const misplaced = command.options.find(
        (option) =>
          option.helpGroupHeading === LIVE_OPTIONS && command.getOptionValueSource(option.attributeName()) === 'cli',
      )
      if (misplaced) command.error(`option '${misplaced.flags}' needs --live`)
      await onDatabase(config, stderr, async (db, url, signal) => {
        const { project: projectId, entries } = options
        const isExisting = await projectExists(db, projectId)
        await loadDemo(url, { projectId, entries, isExisting }, stderr, signal)
        await print(stdout, `${await demoKey(config, db, projectId)}\n`)
      })
    })
