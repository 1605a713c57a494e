import { type CompiledQuery, sql } from 'kysely'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { QUERIES_OF_A_PROJECT, sentToCluster } from './queries.ts'

// A Citus cluster sends a statement to the one node that has its projects only if PostgreSQL's planner finds every table
// compared with values of the statement (ADR 0033): so does plain PostgreSQL's.

let database: TestDatabase
let db: Database
beforeAll(async () => {
  database = await createTestDatabase()
  db = connect(database.url, { max: 1 })
})
afterAll(async () => {
  await db.destroy()
  await database.drop()
})

/** A node of a plan in the JSON of EXPLAIN. */
interface PlanNode {
  'Relation Name'?: string
  Plans?: PlanNode[]
  [condition: string]: unknown
}

/** The scans of tables in a plan, each with its own conditions. */
function scansOf({ Plans: plans = [], ...node }: PlanNode): { table: string; text: string }[] {
  const below = plans.flatMap(scansOf)
  const table = node['Relation Name']
  // What changes rows has found them by the scans below it.
  return table === undefined || node['Node Type'] === 'ModifyTable'
    ? below
    : [{ table, text: JSON.stringify(node) }, ...below]
}

async function planOf({ sql: text, parameters }: CompiledQuery): Promise<PlanNode> {
  return db.connection().execute(async (session) => {
    await sql`SET plan_cache_mode = force_generic_plan`.execute(session)
    await sql.raw(`PREPARE routed AS ${text}`).execute(session)
    const values = parameters.map(() => 'NULL').join()
    const call = parameters.length === 0 ? 'routed' : `routed(${values})`
    const { rows } = await sql
      .raw<{ 'QUERY PLAN': [{ Plan: PlanNode }] }>(`EXPLAIN (FORMAT JSON) EXECUTE ${call}`)
      .execute(session)
    await sql`DEALLOCATE routed`.execute(session)
    return rows[0]?.['QUERY PLAN'][0].Plan as PlanNode
  })
}

/** A comparison of the project with a parameter of the statement, or an item of one. */
const BOUND = /\(project_id = (\$\d+|\(\$\d+\)::text|ANY \(\$\d+\))\)/

test.each(QUERIES_OF_A_PROJECT)('%s compares each table with given projects', async (_, __, run) => {
  const scans = scansOf(await planOf(await sentToCluster(run)))
  expect(scans.filter(({ text }) => !BOUND.test(text))).toEqual([])
})
