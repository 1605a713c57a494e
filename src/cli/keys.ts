import { Command, InvalidArgumentError, Option } from 'commander'
import { readConfig } from '../config.ts'
import type { Database } from '../database/pool.ts'
import { formatKey, generateKey, hashSecret, SCOPES, type Scope } from '../domain/api-key.ts'
import { findKeyById, insertKey, selectKeys, updateKeyExpiry, updateKeyRevoked } from '../queries/api-keys.ts'
import { keyId, resourceId } from './arguments.ts'
import { durationBetween } from './duration.ts'
import { onDatabase } from './interruptible.ts'
import { CommandError, print, printRows } from './output.ts'
import { requireProject } from './projects.ts'

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

const addScope = (scope: string, scopes: string[] | undefined) => {
  if (!SCOPES.includes(scope as Scope)) throw new InvalidArgumentError(`Known scopes are ${SCOPES.join(' and ')}.`)
  return [...new Set([...(scopes ?? []), scope])]
}

async function usableKey(db: Database, id: string) {
  const key = await findKeyById(db, id)
  if (!key) throw new CommandError(`There is no key ${id}; flowtrail keys list shows all`)
  if (key.revoked_at !== null) throw new CommandError(`The key ${id} was revoked at ${key.revoked_at}`)
  return key
}

export function keysCommand(): Command {
  const keys = new Command('keys').description('create, list, revoke and rotate API keys')
  keys
    .command('create')
    .description('create a key and print it, alone and this once')
    .requiredOption('--project <id>', 'the project it opens (required)', resourceId)
    .option('--name <name>', 'what it is for')
    .addOption(
      new Option('--scope <scope>', `${SCOPES.join(' or ')}; repeat for several; all by default`).argParser(addScope),
    )
    .option(
      '--expires <duration>',
      'how long it is valid, such as 90d or 12h; for ever by default',
      durationBetween('1s', '36500d'),
    )
    .action((options: { project: string; name?: string; scope?: string[]; expires?: number }) =>
      onDatabase(readConfig(), async (db) => {
        await requireProject(db, options.project)
        const expires_at = options.expires === undefined ? null : fromNow(options.expires)
        const key = await createKey(db, options.project, {
          name: options.name ?? '',
          scopes: options.scope ?? SCOPES,
          expires_at,
        })
        await print(`${key}\n`)
      }),
    )
  keys
    .command('list')
    .description('list keys, without their secrets')
    .option('--project <id>', 'only those of this project', resourceId)
    .option('--json', 'print JSON')
    .action(({ project, json }: { project?: string; json?: boolean }) =>
      onDatabase(readConfig(), async (db) => {
        if (project !== undefined) await requireProject(db, project)
        await printRows(await selectKeys(db, project), COLUMNS, json)
      }),
    )
  keys
    .command('revoke')
    .description('refuse a key from now on')
    .argument('<key-id>', 'its id, the 12 characters after ft_', keyId)
    .action((id: string) =>
      onDatabase(readConfig(), async (db) => {
        const key = await usableKey(db, id)
        await updateKeyRevoked(db, key.project_id, id, new Date().toISOString())
      }),
    )
  keys
    .command('rotate')
    .description(
      'replace a key: print a new one that has its project, name, scopes and expiry, and let the old one expire',
    )
    .argument('<key-id>', 'its id, the 12 characters after ft_', keyId)
    .addOption(
      new Option('--overlap <duration>', 'how long the old key stays valid, 0h to 30d')
        .argParser(durationBetween('0h', '30d'))
        .default(86_400_000, '24h'),
    )
    .action((id: string, options: { overlap: number }) =>
      onDatabase(readConfig(), async (db) => {
        const rotated = await db.transaction().execute(async (trx) => {
          const { project_id, name, scopes, expires_at } = await usableKey(trx, id)
          if (expires_at !== null && expires_at <= fromNow(0)) {
            throw new CommandError(`The key ${id} expired at ${expires_at}; flowtrail keys create makes a new one`)
          }
          const key = await createKey(trx, project_id, { name, scopes, expires_at })
          const end = fromNow(options.overlap)
          if (expires_at === null || end < expires_at) await updateKeyExpiry(trx, project_id, id, end)
          return key
        })
        await print(`${rotated}\n`)
      }),
    )
  return keys
}
