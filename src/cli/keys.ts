import { Command, InvalidArgumentError, Option } from 'commander'
import { readConfig } from '../config.ts'
import type { Database } from '../database/pool.ts'
import { DEFAULT_SCOPES, formatKey, generateKey, hashSecret, SCOPES, type Scope } from '../domain/api-key.ts'
import { type IsoTimestamp, toIsoTimestamp } from '../domain/timestamp.ts'
import { findKeyById, insertKey, lockKey, selectKeys, updateKeyExpiry, updateKeyRevoked } from '../queries/api-keys.ts'
import { FLOWTRAIL } from '../release.ts'
import { keyId, resourceId } from './arguments.ts'
import type { Context, Output } from './context.ts'
import { durationBetween } from './duration.ts'
import { onDatabase } from './interruptible.ts'
import { CommandError, print, printRows } from './output.ts'
import { requireProject } from './projects.ts'

const COLUMNS = ['key_id', 'project_id', 'name', 'scopes', 'created_at', 'expires_at', 'last_used_at', 'revoked_at']

export interface KeyOptions {
  name: string
  scopes: readonly string[]
  /** As an ISO timestamp; null for a key that does not expire. */
  expires_at: IsoTimestamp | null
}

/** Creates an API key. @returns the whole key, which is not stored and cannot be shown again */
export async function createKey(db: Database, projectId: string, options: KeyOptions): Promise<string> {
  const key = generateKey()
  await insertKey(db, projectId, {
    key_id: key.key_id,
    secret_hash: hashSecret(key.secret),
    name: options.name,
    scopes: [...options.scopes],
    created_at: fromNow(0),
    expires_at: options.expires_at,
  })
  return formatKey(key)
}

const fromNow = (duration_ms: number) => toIsoTimestamp(new Date(Date.now() + duration_ms))

const addScope = (scope: string, scopes: string[] | undefined) => {
  if (!SCOPES.includes(scope as Scope)) throw new InvalidArgumentError(`Allowed scopes are ${SCOPES.join(', ')}.`)
  return [...new Set([...(scopes ?? []), scope])]
}

async function usableKey(db: Database, id: string) {
  const key = await findKeyById(db, id)
  if (!key) throw new CommandError(`Key ${id} does not exist. Run: ${FLOWTRAIL} keys list`)
  if (key.revoked_at !== null) throw new CommandError(`Key ${id} was revoked at ${key.revoked_at}`)
  return key
}

/** To be called within the transaction of the key: one that nobody has seen must not exist. */
async function printKey(stdout: Output, key: string): Promise<void> {
  await print(stdout, `${key}\n`).catch((error: Error) => {
    throw new CommandError(`The key cannot be printed, so it was not created: ${error.message}`)
  })
}

export function keysCommand({ env, stdout, stderr }: Context): Command {
  const keys = new Command('keys').description('create, list, revoke and rotate API keys')
  keys
    .command('create')
    .description('create a key and print it; it cannot be shown again')
    .requiredOption('--project <id>', 'project that it gives access to (required)', resourceId)
    .option('--name <name>', 'name, such as its purpose')
    .addOption(
      new Option(
        '--scope <scope>',
        `one of ${SCOPES.join(', ')}; repeatable (default: ${DEFAULT_SCOPES.join(' and ')})`,
      ).argParser(addScope),
    )
    .option(
      '--expires <duration>',
      'validity, such as 90d or 12h (default: unlimited)',
      durationBetween('1s', '36500d'),
    )
    .action((options: { project: string; name?: string; scope?: string[]; expires?: number }) =>
      onDatabase(readConfig(env), stderr, async (db) => {
        const expires_at = options.expires === undefined ? null : fromNow(options.expires)
        const creating = db.transaction().execute(async (trx) => {
          const key = await createKey(trx, options.project, {
            name: options.name ?? '',
            scopes: options.scope ?? DEFAULT_SCOPES,
            expires_at,
          })
          await printKey(stdout, key)
        })
        await creating.catch(async (error: unknown) => {
          await requireProject(db, options.project)
          throw error
        })
      }),
    )
  keys
    .command('list')
    .description('list keys, without their secrets')
    .option('--project <id>', 'only keys of this project', resourceId)
    .option('--json', 'print JSON')
    .action(({ project, json }: { project?: string; json?: boolean }) =>
      onDatabase(readConfig(env), stderr, async (db) => {
        if (project !== undefined) await requireProject(db, project)
        await printRows(stdout, await selectKeys(db, project), COLUMNS, json)
      }),
    )
  keys
    .command('revoke')
    .description('revoke a key; it is refused within a second')
    .argument('<key-id>', 'key id, the 12 characters after ft_', keyId)
    .action((id: string) =>
      onDatabase(readConfig(env), stderr, async (db) => {
        const key = await usableKey(db, id)
        await updateKeyRevoked(db, key.project_id, id, fromNow(0))
      }),
    )
  keys
    .command('rotate')
    .description('create a key with the same project, name, scopes and expiry, print it, and let the old one expire')
    .argument('<key-id>', 'key id, the 12 characters after ft_', keyId)
    .addOption(
      new Option('--overlap <duration>', 'how long the old key remains valid, 0h to 30d')
        .argParser(durationBetween('0h', '30d'))
        .default(86_400_000, '24h'),
    )
    .action((id: string, options: { overlap: number }) =>
      onDatabase(readConfig(env), stderr, async (db) => {
        const rotating = db.transaction().execute(async (trx) => {
          const { project_id } = await usableKey(trx, id)
          await lockKey(trx, project_id, id)
          // Another command may have revoked or rotated it in between.
          const { name, scopes, expires_at } = await usableKey(trx, id)
          if (expires_at !== null && expires_at <= fromNow(0)) {
            throw new CommandError(
              `Key ${id} expired at ${expires_at}. Create a new one with: ${FLOWTRAIL} keys create`,
            )
          }
          const key = await createKey(trx, project_id, { name, scopes, expires_at })
          const end = fromNow(options.overlap)
          if (expires_at === null || end < expires_at) await updateKeyExpiry(trx, project_id, id, end)
          await printKey(stdout, key)
          return expires_at
        })
        const expires_at = await rotating.catch(async (error: unknown) => {
          // Its project may have been deleted meanwhile.
          await usableKey(db, id)
          throw error
        })
        // That of a key which was rotated before is the end of its overlap, which nobody means to inherit.
        if (expires_at !== null) stderr.write(`The new key expires at ${expires_at}, as key ${id} would have\n`)
      }),
    )
  return keys
}
