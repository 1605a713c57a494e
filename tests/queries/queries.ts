import { isDistributed, markDistributed } from '../../src/database/distribution.ts'
import type { Database } from '../../src/database/pool.ts'
import type { NamedQuery, Prepared } from '../../src/database/prepared.ts'
import { toIsoTimestamp } from '../../src/domain/timestamp.ts'
import { findKey, findKeysFingerprint, updateKeysUsed } from '../../src/queries/api-keys.ts'
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
  lockFreeProjectsOfShard,
  lockProjects,
  lockProjectsOfShard,
  lockRecording,
  ping,
  setLockTimeout,
} from '../../src/queries/projects.ts'
import { UNLIMITED as lease } from '../support/lease.ts'

const NOW = toIsoTimestamp(new Date())
const query = { limit: 1, direction: 'ASC' } as const
const ofProject = { path: { projectId: 'p' }, query, lease }
const ofModule = { path: { projectId: 'p', moduleId: 'm' }, query, lease }
const ofEntry = { path: { projectId: 'p', entryId: 'e' }, query, lease }
const digests = [Buffer.alloc(32)]

/** The form in which a batch is read. */
const formFor = <Args extends readonly unknown[], Row>(db: Database, query: Prepared<Args, Row>) =>
  isDistributed(db) ? query.ofOneShard : query

/** The queries that are of no project. */
export const OF_ALL_PROJECTS = ['selectKeysFingerprint']

/** The queries that read no table, to which the coordinator of a cluster responds. */
export const OF_NO_TABLE = ['selectOne', 'selectSize', 'setLockTimeout', 'lockRecording']

/** Each query that the service prepares, by its name in the metrics and in pg_prepared_statements, and its kind. */
export const QUERIES: [name: string, kind: string, run: (db: Database) => Promise<unknown>][] = [
  ['findKey', 'look-up', (db) => findKey(db, 'p', 'k')],
  ['selectKeysFingerprint', 'list', findKeysFingerprint],
  ['updateLastUsed', 'list', (db) => updateKeysUsed(db, [{ project_id: 'p', key_id: 'k', minute: NOW }])],
  ['selectIdentifierOwners', 'list', (db) => formFor(db, selectIdentifierOwners)(db, ['p'], digests)],
  ['selectContacts', 'list', (db) => formFor(db, selectContacts)(db, ['p'], ['c'])],
  ['findEntry', 'look-up', (db) => findEntry(db, lease, 'p', 'e')],
  ['findEventContext', 'look-up', (db) => findEventContext(db, 'p', 'e')],
  [
    'selectEntriesInEffect',
    'list',
    (db) => formFor(db, selectEntriesInEffect)(db, ['p'], ['c'], digests, ['m'], [NOW]),
  ],
  ['listEntries', 'list', (db) => selectEntriesPage(db, ofProject)],
  ['listEntryPageViews', 'list', (db) => selectEntryPageViewsPage(db, ofProject)],
  ['listErasures', 'list', (db) => selectErasuresPage(db, ofProject)],
  ['listEntryEvents', 'list', (db) => selectEventsPage(db, ofEntry)],
  ['listProjectEvents', 'list', (db) => selectFeedPage(db, ofProject)],
  ['findLastPositions', 'list', (db) => findLastPositions(db, 'p')],
  ['selectNextPositions', 'list', (db) => formFor(db, selectNextPositions)(db, ['p'])],
  ['selectIdempotencyKeys', 'list', (db) => formFor(db, selectIdempotencyKeys)(db, ['p'], ['k'])],
  ['listModules', 'list', (db) => selectModulesPage(db, ofProject)],
  ['findModule', 'look-up', (db) => findModule(db, lease, 'p', 'm')],
  ['findModuleId', 'look-up', (db) => findModuleId(db, 'p', 'm')],
  ['listModuleVersions', 'list', (db) => selectModuleVersionsPage(db, ofModule)],
  ['findModuleVersion', 'look-up', (db) => findModuleVersion(db, lease, 'p', 'm', 1)],
  ['selectModulesInEffect', 'list', (db) => formFor(db, selectModulesInEffect)(db, ['p'], ['m'], [NOW])],
  ['selectOne', 'look-up', ping],
  ['selectSize', 'list', databaseSize],
  ['setLockTimeout', 'list', (db) => setLockTimeout(db, '1ms')],
  ['lockProjects', 'list', (db) => lockProjects(db, ['p'])],
  ['lockProjects', 'list', (db) => lockProjectsOfShard(db, ['p'])],
  ['lockFreeProjects', 'list', (db) => lockFreeProjects(db, ['p'])],
  ['lockFreeProjects', 'list', (db) => lockFreeProjectsOfShard(db, ['p'])],
  ['lockRecording', 'list', (db) => lockRecording(db, '1ms', 1)],
]

/** Those that are of one project. */
export const QUERIES_OF_A_PROJECT = QUERIES.filter(([name]) => !OF_ALL_PROJECTS.includes(name))

/** What a query sends to a distributed database. */
export async function sentToCluster(run: (db: Database) => Promise<unknown>): Promise<NamedQuery> {
  const sent: NamedQuery[] = []
  const executeQuery = async (one: NamedQuery) => {
    sent.push(one)
    return { rows: [] }
  }
  const cluster = { executeQuery } as unknown as Database
  markDistributed(cluster)
  await run(cluster)
  return sent[0] as NamedQuery
}
