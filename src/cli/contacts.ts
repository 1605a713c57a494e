import { Command, InvalidArgumentError } from 'commander'
import { readConfig } from '../config.ts'
import { withPool } from '../database/open.ts'
import type { Database } from '../database/pool.ts'
import { canonicalValue, type IdentifierNames, identifierKeyIssue, namesOf } from '../domain/identifier.ts'
import { type ContactSummary, findContact, selectIdentifierOwners } from '../queries/contacts.ts'
import { eraseContact } from '../queries/erasures.ts'
import { FLOWTRAIL } from '../release.ts'
import { exportContact } from '../transfer/export.ts'
import { resourceId } from './arguments.ts'
import { confirmation, yesOption } from './confirm.ts'
import type { Context } from './context.ts'
import { onDatabase } from './interruptible.ts'
import { CommandError, flush, print, printRows, report } from './output.ts'
import { requireProject } from './projects.ts'

const COLUMNS = ['contact_id', 'created_at', 'identifiers', 'entries', 'events'] as const

/** Parses an identifier such as email="a@b.c", for commander. @returns the names by which it is found */
function identifier(text: string): IdentifierNames {
  // A key may contain =, too: it ends where JSON follows.
  const splits = [...text.matchAll(/=/g)].map(({ index }) => ({
    key: text.slice(0, index),
    value: canonicalValue(text.slice(index + 1)),
  }))
  const split = splits.find(({ value }) => value.ok) ?? splits[0]
  if (!split) throw new InvalidArgumentError(`Expected a key and JSON, such as 'email="a@example.com"'.`)
  const { key, value } = split
  const issue = identifierKeyIssue(key)
  if (issue !== undefined) throw new InvalidArgumentError(`Its key ${issue}.`)
  if (!value.ok) throw new InvalidArgumentError(`Its value ${value.issue}. Quote it for the shell, too.`)
  return namesOf(key, value.canonical)
}

/** The contact whose id it is, or else that has the identifier. */
async function findByIdentifier(db: Database, projectId: string, { digest, contact_id }: IdentifierNames) {
  const named = contact_id === undefined ? undefined : await findContact(db, projectId, contact_id)
  if (named) return named
  const [owner] = await selectIdentifierOwners.ofOneShard(db, [projectId], [digest])
  return owner && findContact(db, projectId, owner.contact_id)
}

/** @throws CommandError if the contact does not exist */
async function requireContact(db: Database, projectId: string, contactId: string): Promise<ContactSummary> {
  await requireProject(db, projectId)
  const contact = await findContact(db, projectId, contactId)
  if (contact) return contact
  const find = `${FLOWTRAIL} contacts find --project ${projectId} --identifier KEY=JSON`
  throw new CommandError(`Project ${projectId} has no contact ${contactId}. Run: ${find}`)
}

export function contactsCommand(context: Context): Command {
  const { env, stdout, stderr } = context
  const contacts = new Command('contacts').description('find, export or erase a contact')
  contacts
    .command('find')
    .description('find the contact that has an identifier')
    .requiredOption('--project <id>', 'project id (required)', resourceId)
    .requiredOption('--identifier <key=json>', `such as 'email="a@example.com"' (required)`, identifier)
    .option('--json', 'print JSON')
    .action(({ project, identifier, json }: { project: string; identifier: IdentifierNames; json?: boolean }) =>
      onDatabase(readConfig(env), stderr, async (db) => {
        await requireProject(db, project)
        const contact = await findByIdentifier(db, project, identifier)
        if (!contact) throw new CommandError(`No contact of project ${project} has this identifier`)
        await printRows(stdout, [contact], COLUMNS, json)
      }),
    )
  contacts
    .command('export')
    .description('write a contact, its entries, events and idempotency keys, as JSON lines')
    .argument('<contact-id>', 'contact id, as contacts find prints it', resourceId)
    .requiredOption('--project <id>', 'project id (required)', resourceId)
    .action((contactId: string, { project }: { project: string }) =>
      onDatabase(readConfig(env), stderr, async (db, url) => {
        await requireContact(db, project, contactId)
        await withPool(url, (pool) => exportContact(pool, project, contactId, stdout))
        await flush(stdout)
      }),
    )
  contacts
    .command('erase')
    .description('erase a contact, its entries, events and idempotency keys')
    .argument('<contact-id>', 'contact id, as contacts find prints it', resourceId)
    .requiredOption('--project <id>', 'project id (required)', resourceId)
    .addOption(yesOption())
    .action(async (contactId: string, { project }: { project: string }, command: Command) => {
      const confirm = confirmation(context, command)
      await onDatabase(readConfig(env), stderr, async (db) => {
        const { identifiers, entries, events } = await requireContact(db, project, contactId)
        const what = `contact ${contactId} of project ${project}`
        await confirm(`Erase ${what}, with ${counted({ identifiers, entries, events })}?`)
        const erased = await eraseContact(db, project, contactId)
        if (!erased) throw new CommandError(`Another process has erased ${what}`)
        const { erasure_id, entry_ids, ...rows } = erased
        const all = counted({ ...rows, entries: entry_ids.length })
        const done = `Erased ${what}, with ${all}. Erasure: ${erasure_id}`
        await report(done, () => print(stdout, `${done}\n`))
      })
    })
  return contacts
}

const counted = (counts: Record<string, number>): string =>
  Object.entries(counts)
    .map(([rows, count]) =>
      `${count} ${count === 1 ? rows.replace(/ies$/, 'y').replace(/s$/, '') : rows}`.replace('_', ' '),
    )
    .join(', ')
