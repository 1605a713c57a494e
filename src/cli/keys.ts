import { Command, InvalidArgumentError, Option } from 'commander'
import type { Database } from '../../db/connection.ts'
import { readConfig } from '../config.ts'
import { withDatabase } from '../database.ts'
import { formatKey, generateKey, hashSecret, SCOPES, type Scope } from '../keys.ts'
import { findKeyById, insertKey, selectKeys, updateKeyExpiry, updateKeyRevoked } from '../queries/keys.ts'
import { projectExists } from '../queries/projects.ts'
import { resourceId } from './arguments.ts'
import { parseDuration } from './duration.ts'
import { CommandError, printRows } from './output.ts'

const MAX_OVERLAP_ms = 30 * 86_400_000
const COLUMNS = ['key_id', 'project_id', 'name', 'scopes', 'created_at', 'expires_at', 'last_used_at', 'revoked_at']

export interface KeyOptions {
  name: string
  scopes: readonly string[]
  /** In the wire's form; none for a key that does not expire. */
  expires_at: string | null
}

/** Stores a new key. @returns the key as its holder sends it, which nothing can tell again */
export async function createKey(db: Database, projectId: string, options: KeyOptions): Promise<string> {
  const key = generateKey()
  await insertKey(db, projectId, {
    key_id: key.key_id,
    secret_hash: hashSecret(key.secret),
    name: options.name,
    scopes: [...options.scopes],
    created_at: new Date().toISOString(),
    expires_at: options.expires_at,
  })
  return formatKey(key)
}

const fromNow = (duration_ms: number) => new Date(Date.now() + duration_ms).toISOString()

function overlap(text: string): number {
  const duration_ms = parseDuration(text)
  if (duration_ms > MAX_OVERLAP_ms) throw new InvalidArgumentError('it must be 0h to 30d.')
  return duration_ms
}

const addScope = (scope: string, scopes: string[] | undefined) => {
  if (!SCOPES.includes(scope as Scope)) throw new InvalidArgumentError(`known scopes are ${SCOPES.join(', ')}.`)
  return [...new Set([...(scopes ?? []), scope])]
}

async function usableKey(db: Database, keyId: string) {
  const key = await findKeyById(db, keyId)
  if (!key) throw new CommandError(`There is no key ${keyId}; flowtrail keys list shows all (the id, not the key)`)
  if (key.revoked_at !== null) throw new CommandError(`The key ${keyId} was revoked at ${key.revoked_at}`)
  return key
}

export function keysCommand(): Command {
  const keys = new Command('keys').description('create, list, revoke and rotate API keys')
  keys
    .command('create')
    .description('create a key and print it, alone and this once')
    .requiredOption('--project <id>', 'the project it opens', resourceId)
    .option('--name <name>', 'what it is for', '')
    .addOption(
      new Option('--scope <scope>', `${SCOPES.join(' or ')}; repeat for several; all by default`).argParser(addScope),
    )
    .option('--expires <duration>', 'how long it is valid, such as 90d; for ever by default', parseDuration)
    .action((options: { project: string; name: string; scope?: string[]; expires?: number }) =>
      withDatabase(readConfig(), async (db) => {
        if (!(await projectExists(db, options.project))) {
          throw new CommandError(`There is no project ${options.project}; flowtrail projects create makes one`)
        }
        const expires_at = options.expires === undefined ? null : fromNow(options.expires)
        const key = await createKey(db, options.project, {
          name: options.name,
          scopes: options.scope ?? SCOPES,
          expires_at,
        })
        process.stdout.write(`${key}\n`)
      }),
    )
  keys
    .command('list')
    .description('list keys, without their secrets')
    .option('--project <id>', 'only those of this project', resourceId)
    .option('--json', 'print JSON')
    .action(({ project, json }: { project?: string; json?: boolean }) =>
      withDatabase(readConfig(), async (db) => printRows(await selectKeys(db, project), COLUMNS, json ?? false)),
    )
  keys
    .command('revoke')
    .description('refuse a key from now on')
    .argument('<key-id>', 'its id, the 12 characters after ft_')
    .action((keyId: string) =>
      withDatabase(readConfig(), async (db) => {
        const key = await usableKey(db, keyId)
        await updateKeyRevoked(db, key.project_id, keyId, new Date().toISOString())
      }),
    )
  keys
    .command('rotate')
    .description('replace a key: print a new one like it and let the old one expire')
    .argument('<key-id>', 'its id, the 12 characters after ft_')
    .addOption(
      new Option('--overlap <duration>', 'how long the old key stays valid, 0h to 30d')
        .argParser(overlap)
        .default(86_400_000, '24h'),
    )
    .action((keyId: string, options: { overlap: number }) =>
      withDatabase(readConfig(), async (db) => {
        const rotated = await db.transaction().execute(async (trx) => {
          const { project_id, name, scopes, expires_at } = await usableKey(trx, keyId)
          const key = await createKey(trx, project_id, { name, scopes, expires_at })
          const end = fromNow(options.overlap)
          if (expires_at === null || end < expires_at) await updateKeyExpiry(trx, project_id, keyId, end)
          return key
        })
        process.stdout.write(`${rotated}\n`)
      }),
    )
  return keys
}
