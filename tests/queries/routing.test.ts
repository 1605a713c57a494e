import { readFileSync } from 'node:fs'
import pg from 'pg'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { Client } from '../../src/database/client.ts'
import type { OperationId } from '../../src/http/operations.ts'
import { findKeysFingerprint } from '../../src/queries/api-keys.ts'
import { COPIED } from '../../src/transfer/stored.ts'
import { ensureTables } from '../../src/transfer/tables.ts'
import { type Call, createTestApp, EXAMPLES, loadExamples, type TestApp } from '../support/app.ts'
import { operations } from '../support/contract.ts'
import { exampleCall, operationIds } from '../support/example-call.ts'
import { holdProject } from '../support/waiting.ts'
import { OF_ALL_PROJECTS, OF_NO_TABLE, QUERIES_OF_A_PROJECT, sentToCluster } from './queries.ts'

// A Citus cluster sends a statement to the one node that has its projects only if PostgreSQL's planner finds every table
// compared with values of the statement (ADR 0033): so does plain PostgreSQL's.

/** Rows with large values, for which there are statements of their own (ADR 0019), and more modules than are read at a time. */
const LARGE_ROWS = `
  INSERT INTO modules SELECT project_id, 'm' || i, group_id, '', created_at FROM modules, generate_series(1, 300) i
    WHERE module_id = 'skin-quiz';
  UPDATE modules SET title = repeat('x', 5000);
  UPDATE module_versions SET json_string = rpad(json_string, 70000);
  UPDATE entries SET entry_data = rpad(entry_data, 70000);
  UPDATE events SET max_page_key = repeat('x', 5000);
  INSERT INTO entry_page_views SELECT project_id, entry_id, '[]' FROM entries ON CONFLICT DO NOTHING;
  UPDATE entry_page_views SET page_views = rpad(page_views, 5000);
  INSERT INTO erasures SELECT project_id, position + 1, erasure_id, contact_id, entry_ids, erased_at FROM erasures;
  UPDATE erasures SET entry_ids = array_fill(entry_ids[1], ARRAY[200])`

interface Statement {
  name?: string | undefined
  sql: string
  parameters: readonly unknown[]
}

let api: TestApp
let client: pg.Client
/** All that the service sends for requests, each text once. */
const sent = new Map<string, Statement>()

beforeAll(async () => {
  api = await createTestApp({
    isDistributed: true,
    twins: false,
    fill: async (url, db) => {
      client = new pg.Client(url)
      await client.connect()
      await loadExamples(url, db)
      await client.query(LARGE_ROWS)
    },
  })
  await ensureTables(client, COPIED)
  await client.query('SET plan_cache_mode = force_generic_plan')

  const query = vi.spyOn(Client.prototype, 'query')
  for (const operationId of operationIds) {
    await send(exampleCall(operationId))
    await readPages(operationId)
  }
  await api.call(exampleCall('getModuleVersion', { path: { versionNumber: '99' } }))
  await recordInAllWays()
  await importInAllWays()
  for (const [statement, values = []] of query.mock.calls) {
    const { text, name, values: parameters = values } = typeof statement === 'string' ? { text: statement } : statement
    if (!sent.has(text)) sent.set(text, { name: name?.replace(/(_\d+)+$/, ''), sql: text, parameters })
  }
  query.mockRestore()
})
afterAll(async () => {
  await client.end()
  await api.close()
})

async function send(call: Call) {
  const response = await api.call(call)
  expect(response.statusCode, response.body.slice(0, 500)).toBe(200)
  return response
}

/** Reads the first two pages of a list in each direction with each selection of its filters, short ones and long ones. */
async function readPages(operationId: OperationId): Promise<void> {
  const names = operations[operationId]?.parameters.map(({ name }) => name)
  if (!names?.includes('limit')) return
  const [path, query] = exampleCall(operationId).path.split('?')
  const selections = [...new URLSearchParams(query)].reduce<[string, string][][]>(
    (all, filter) => all.concat(all.map((filters) => [...filters, filter])),
    [[]],
  )
  for (const filters of selections) {
    for (const direction of ['ASC', 'DESC']) {
      for (const limit of ['1', '1000']) {
        const page = new URLSearchParams([...filters, ['direction', direction], ['limit', limit]])
        const { 'next-cursor': cursor } = (await send({ path: `${path}?${page}` })).headers
        if (cursor !== undefined) await send({ path: `${path}?${page}&cursor=${cursor}` })
      }
    }
  }
  if (names.includes('wait')) await send({ path: `${path}?direction=ASC&after=0&wait=30` })
}

/** Records for contacts that are named in all ways, new ones too, and for a project that is locked. */
async function recordInAllWays(): Promise<void> {
  const { body, ...call } = exampleCall('recordCustomEvent', { headers: { 'idempotency-key': 'k' } })
  const identifiers = ['contact_id', 'email', 'phone'].map((key) => ({ key, value: '"new"' }))
  const held = await holdProject(api.databaseUrl)
  const recording = send({ ...call, body: { ...(body as object), identifiers } })
  await held.waiting(1)
  await held.release()
  await recording
}

/** Imports records of each kind, a few and many. */
async function importInAllWays(): Promise<void> {
  const records = readFileSync(EXAMPLES, 'utf8')
    .replace(/{"type":"project",.+\n/g, '')
    // A stored version cannot change.
    .replaceAll('"version_number":', '"version_number":1')
  for (const body of [records, records.repeat(30)]) await send(exampleCall('importRecords', { body }))
}

/** A node of a plan in the JSON of EXPLAIN. */
interface PlanNode {
  'Relation Name'?: string
  Schema?: string
  Plans?: PlanNode[]
  [condition: string]: unknown
}

/** The scans of tables in a plan, but temporary ones, each with its own conditions. */
function scansOf({ Plans: plans = [], ...node }: PlanNode): { table: string; text: string }[] {
  const below = plans.flatMap(scansOf)
  const table = node['Relation Name']
  // What changes rows has found them by the scans below it.
  return table === undefined || node.Schema !== 'public' || node['Node Type'] === 'ModifyTable'
    ? below
    : [{ table, text: JSON.stringify([node['Index Cond'], node['Recheck Cond'], node.Filter]) }, ...below]
}

async function planOf({ sql, parameters }: Statement): Promise<PlanNode> {
  await client.query(`PREPARE routed AS ${sql}`)
  const call = parameters.length === 0 ? 'routed' : `routed(${parameters.map(() => 'NULL')})`
  const { rows } = await client.query(`EXPLAIN (VERBOSE, FORMAT JSON) EXECUTE ${call}`)
  await client.query('DEALLOCATE routed')
  return rows[0]['QUERY PLAN'][0].Plan
}

/** A comparison of the project with a parameter of the statement, or an item of one. */
const BOUND = /\((\S+\.)?project_id = (\$\d+|\(\$\d+\)::text|ANY \(\$\d+\))\)/

/** The scans of a statement that may find rows of any project. */
const unboundScansOf = async (statement: Statement) =>
  scansOf(await planOf(statement)).filter(({ text }) => !BOUND.test(text))

test.each(QUERIES_OF_A_PROJECT)('%s compares each table with given projects', async (_, __, run) => {
  expect(await unboundScansOf(await sentToCluster(run))).toEqual([])
})

test('a query of all projects is found', async () => {
  expect(await unboundScansOf(await sentToCluster(findKeysFingerprint))).toMatchObject([{ table: 'api_keys' }])
})

/** What PostgreSQL has no plan of. The only tables that are created or analyzed are temporary. */
const COMMAND = /^(BEGIN|COMMIT|ROLLBACK|SET|CREATE TEMPORARY TABLE|ANALYZE)\b/

test('each statement of each operation compares each table with given projects', async () => {
  const unbound: object[] = []
  for (const statement of sent.values()) {
    const { name = '', sql } = statement
    if (COMMAND.test(sql) || OF_ALL_PROJECTS.includes(name)) continue
    for (const scan of await unboundScansOf(statement)) unbound.push({ name, sql, ...scan })
  }
  expect(unbound).toEqual([])
})

/** How many texts a query has that has several. */
const FORMS = {
  // Without the values of large rows, and with them.
  ...{ findEntry: 2, findModule: 2, findModuleVersion: 2 },
  // The same of a first page and of a later one in each direction; and whole rows by their ids.
  ...{ listEntryEvents: 9, listErasures: 9, listProjectEvents: 9 },
  // With each of two filters, with both and with none.
  ...{ listEntries: 33, listEntryPageViews: 33 },
  // In one direction only.
  listModules: 5,
  // Without values that may be large.
  listModuleVersions: 4,
}

test('each query is among them in all its forms', () => {
  // The statements of inserts and imports are not among those that are listed, and a fingerprint only comes after a while.
  const isOther = (name: string) => /^$|^(insert|merge|staged)_/.test(name) || OF_ALL_PROJECTS.includes(name)
  const names = [...sent.values()].map(({ name = '' }) => name).filter((name) => !isOther(name))
  const forms = Object.entries(Object.groupBy(names, (name) => name)).map(([name, same]) => [name, same?.length])
  const ofTables = QUERIES_OF_A_PROJECT.map(([name]) => name).filter((name) => !OF_NO_TABLE.includes(name))
  const inOneForm = Object.fromEntries(ofTables.map((name) => [name, 1]))
  expect(Object.fromEntries(forms)).toEqual({ ...inOneForm, ...FORMS })
})
