import { CompiledQuery } from 'kysely'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { connect } from '../../src/database/open.ts'
import type { Database } from '../../src/database/pool.ts'
import { OF_NO_TABLE, QUERIES_OF_A_PROJECT, sentToCluster } from '../queries/queries.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'

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

/** How many tasks each of Citus's plans within a plan has, each for a shard. */
function taskCountsOf(plan: unknown): number[] {
  if (typeof plan !== 'object' || plan === null) return []
  return Object.entries(plan).flatMap(([name, value]) =>
    name === 'Task Count' ? [Number(value)] : taskCountsOf(value),
  )
}

test.each(QUERIES_OF_A_PROJECT)('%s asks one shard', async (name, _, run) => {
  const query = await sentToCluster(run)
  const { rows } = await db.executeQuery(CompiledQuery.raw(`EXPLAIN (FORMAT JSON) ${query.sql}`, [...query.parameters]))
  const counts = taskCountsOf(rows)
  expect(counts.filter((count) => count !== 1)).toEqual([])
  expect(counts.length > 0).toBe(!OF_NO_TABLE.includes(name))
})
