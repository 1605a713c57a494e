import { expect, test } from 'vitest'
import type { Database } from '../../src/database/pool.ts'
import type { NamedQuery } from '../../src/database/prepared.ts'
import { toIsoTimestamp } from '../../src/domain/timestamp.ts'
import { findKey, findKeysFingerprint, updateKeyUsed } from '../../src/queries/api-keys.ts'
import { selectContacts, selectIdentifierOwners } from '../../src/queries/contacts.ts'
import {
  findEntry,
  findEventContext,
  selectEntriesInEffect,
  selectEntriesPage,
  selectEntryPageViewsPage,
} from '../../src/queries/entries.ts'
import { selectErasuresPage } from '../../src/queries/erasures.ts'
import { findLastPositions, selectEventsPage, selectFeedPage, selectNextPositions } from '../../src/queries/events.ts'
import { selectIdempotencyKeys } from '../../src/queries/idempotency.ts'
import {
  findModule,
  findModuleId,
  findModuleVersion,
  selectModulesInEffect,
  selectModulesPage,
  selectModuleVersionsPage,
} from '../../src/queries/modules.ts'
import {
  databaseSize,
  lockFreeProjects,
  lockProjects,
  lockRecording,
  ping,
  setLockTimeout,
  tryLockRecording,
} from '../../src/queries/projects.ts'
import { UNLIMITED as lease } from '../support/lease.ts'

const NOW = toIsoTimestamp(new Date())
const query = { limit: 1, direction: 'ASC' } as const
const ofProject = { path: { projectId: 'p' }, query, lease }
const ofModule = { path: { projectId: 'p', moduleId: 'm' }, query, lease }
const ofEntry = { path: { projectId: 'p', entryId: 'e' }, query, lease }
const digests = [Buffer.alloc(32)]

/** Each query that the service prepares, by its name in the metrics and in pg_prepared_statements, and its kind. */
test.each<[string, kind: string, (db: Database) => Promise<unknown>]>([
  ['findKey', 'look-up', (db) => findKey(db, 'p', 'k')],
  ['selectKeysFingerprint', 'list', findKeysFingerprint],
  ['updateLastUsed', 'list', (db) => updateKeyUsed(db, 'p', 'k', NOW)],
  ['selectIdentifierOwners', 'list', (db) => selectIdentifierOwners(db, ['p'], digests)],
  ['selectContacts', 'list', (db) => selectContacts(db, ['p'], ['c'])],
  ['findEntry', 'look-up', (db) => findEntry(db, lease, 'p', 'e')],
  ['findEventContext', 'look-up', (db) => findEventContext(db, 'p', 'e')],
  ['selectEntriesInEffect', 'list', (db) => selectEntriesInEffect(db, ['p'], ['c'], digests, ['m'], [NOW])],
  ['listEntries', 'list', (db) => selectEntriesPage(db, ofProject)],
  ['listEntryPageViews', 'list', (db) => selectEntryPageViewsPage(db, ofProject)],
  ['listErasures', 'list', (db) => selectErasuresPage(db, ofProject)],
  ['listEntryEvents', 'list', (db) => selectEventsPage(db, ofEntry)],
  ['listProjectEvents', 'list', (db) => selectFeedPage(db, ofProject)],
  ['findLastPositions', 'list', (db) => findLastPositions(db, 'p')],
  ['selectNextPositions', 'list', (db) => selectNextPositions(db, ['p'])],
  ['selectIdempotencyKeys', 'list', (db) => selectIdempotencyKeys(db, ['p'], ['k'])],
  ['listModules', 'list', (db) => selectModulesPage(db, ofProject)],
  ['findModule', 'look-up', (db) => findModule(db, lease, 'p', 'm')],
  ['findModuleId', 'look-up', (db) => findModuleId(db, 'p', 'm')],
  ['listModuleVersions', 'list', (db) => selectModuleVersionsPage(db, ofModule)],
  ['findModuleVersion', 'look-up', (db) => findModuleVersion(db, lease, 'p', 'm', 1)],
  ['selectModulesInEffect', 'list', (db) => selectModulesInEffect(db, ['p'], ['m'], [NOW])],
  ['selectOne', 'look-up', ping],
  ['selectSize', 'list', databaseSize],
  ['setLockTimeout', 'list', (db) => setLockTimeout(db, '1ms')],
  ['lockProjects', 'list', (db) => lockProjects(db, ['p'])],
  ['lockFreeProjects', 'list', (db) => lockFreeProjects(db, ['p'])],
  ['tryLockRecording', 'list', (db) => tryLockRecording(db)],
  ['lockRecording', 'list', (db) => lockRecording(db)],
])('%s is called so, and is a %s', async (name, kind, run) => {
  const sent: NamedQuery[] = []
  const executeQuery = async (one: NamedQuery) => {
    sent.push(one)
    return { rows: [] }
  }
  await run({ executeQuery } as unknown as Database)
  expect(sent).toMatchObject([{ name: expect.stringMatching(new RegExp(`^${name}_\\d+$`)), kind }])
})

test.each([
  ['findEntry', findEntry],
  ['findModule', findModule],
  ['findModuleVersion', (db: Database, ...key: [typeof lease, string, string]) => findModuleVersion(db, ...key, 1)],
])('%s reads a large value by a query of its kind', async (name, find) => {
  const sent: NamedQuery[] = []
  for (const value_bytes of [100_000, 1_000_000]) {
    const executeQuery = async (one: NamedQuery) => {
      sent.push(one)
      return { rows: [{ ordinal: 1, value_bytes }] }
    }
    await find({ executeQuery } as unknown as Database, lease, 'p', 'id')
  }
  expect(sent.map(({ kind }) => kind)).toEqual(['look-up', 'list', 'look-up', 'large'])
  for (const one of sent) expect(one.name).toMatch(new RegExp(`^${name}_\\d+$`))
})
