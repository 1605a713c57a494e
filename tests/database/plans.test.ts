import pg from 'pg'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { loadDemo } from '../../src/cli/demo.ts'
import { useGenericPlans } from '../../src/database/generic-plans.ts'
import { connect } from '../../src/database/open.ts'
import { DEMO } from '../../src/demo/project.ts'
import type { OperationId } from '../../src/http/operations.ts'
import { deleteIdempotencyKeys } from '../../src/queries/idempotency.ts'
import { EVENT } from '../http/requests.ts'
import { type Call, createTestApp, type TestApp } from '../support/app.ts'

/** A node of PostgreSQL's plan, as EXPLAIN (FORMAT JSON, ANALYZE) gives it. */
interface PlanNode {
  'Node Type': string
  'Relation Name'?: string
  'Actual Rows': number
  'Actual Loops': number
  'Rows Removed by Filter'?: number
  'Rows Removed by Index Recheck'?: number
  Plans?: PlanNode[]
}

/**
 * Another project, with so many modules that PostgreSQL has a reason to use their indexes too, and with so many entries and
 * events that it expects far more of any project than a page has.
 */
const CROWD = `
  INSERT INTO projects VALUES ('crowd', 'crowd');
  INSERT INTO groups VALUES ('crowd', 'g', 'g');
  INSERT INTO modules SELECT 'crowd', 'm' || i, 'g', 'm', now() FROM generate_series(1, 3000) i;
  INSERT INTO module_versions SELECT 'crowd', 'm' || i, v, now(), now(), '{}'
    FROM generate_series(1, 3000) i, generate_series(1, 3) v;
  INSERT INTO contacts VALUES ('crowd', 'c', now());
  INSERT INTO entries SELECT 'crowd', 'e' || i, 'm1', 'c', now(), now(), '{}' FROM generate_series(1, 60000) i;
  INSERT INTO events (project_id, event_id, entry_id, "timestamp", module_version_number, event_type, position, recorded_at)
    SELECT 'crowd', i, 'e1', now(), 1, 'e', i, now() FROM generate_series(1, 60000) i;
  INSERT INTO erasures SELECT project_id, i, i, 'c', '{}', now() FROM projects, generate_series(1, 3000) i;
  ANALYZE`

interface Statement {
  text: string
  values: unknown[]
}

let api: TestApp
let client: pg.Client

beforeAll(async () => {
  api = await createTestApp({ fill: (url) => loadDemo(url, { entries: 3_000 }), twins: false })
  client = new pg.Client(api.databaseUrl)
  await client.connect()
  await client.query(CROWD)
})
afterAll(async () => {
  await client.end()
  await api.close()
})

const ENTRY = `/projects/demo/entries/${DEMO.entryId}`
const MODULE = `/projects/demo/modules/${DEMO.moduleId}`

/** The most rows that all statements of a request may read, out of some 30,000 events and 3,000 entries. */
const CALLS: Record<Exclude<OperationId, 'importRecords'>, { call: Call; most: number }> = {
  listModules: { call: { path: '/projects/demo/modules' }, most: 10 },
  getModule: { call: { path: MODULE }, most: 5 },
  listModuleVersions: { call: { path: `${MODULE}/versions` }, most: 20 },
  getModuleVersion: { call: { path: `${MODULE}/versions/${DEMO.versionNumber}` }, most: 5 },
  getEntry: { call: { path: ENTRY }, most: 5 },
  listEntryEvents: { call: { path: `${ENTRY}/events?limit=5` }, most: 12 },
  listEntryPageViews: { call: { path: '/projects/demo/entries-page-views?limit=10' }, most: 200 },
  listEntries: { call: { path: '/projects/demo/entries?limit=10' }, most: 50 },
  listProjectEvents: { call: { path: '/projects/demo/events?limit=10' }, most: 50 },
  listErasures: { call: { path: '/projects/demo/erasures?limit=10' }, most: 11 },
  recordCustomEvent: {
    call: {
      method: 'POST',
      path: '/projects/demo/events',
      headers: { 'idempotency-key': 'plans' },
      body: {
        module_id: DEMO.moduleId,
        timestamp: '2026-03-02T00:00:00Z',
        custom_event_name: 'planned',
        identifiers: [{ key: 'email', value: '"amara.okafor@example.com"' }],
      },
    },
    most: 60,
  },
  recordCustomEvents: {
    call: {
      method: 'POST',
      path: '/projects/demo/events/batch',
      body: {
        events: Array.from({ length: 10 }, (_, i) => ({
          module_id: DEMO.moduleId,
          timestamp: '2026-03-02T00:00:00Z',
          custom_event_name: 'planned',
          identifiers: [{ key: 'email', value: '"amara.okafor@example.com"' }],
          idempotency_key: `plans-${i}`,
        })),
      },
    },
    most: 600,
  },
}

/** The statements that a request sends, as seen by the driver. */
async function statementsOf(call: Call, app = api): Promise<Statement[]> {
  const query = vi.spyOn(pg.Client.prototype, 'query')
  const response = await app.call(call)
  const statements = query.mock.calls.map(([statement]) => statement as unknown as Statement)
  query.mockRestore()
  expect(response.statusCode).toBe(200)
  // Keys are looked up for any request, and once a second besides.
  return statements.filter(
    ({ text }) => text !== undefined && /^\s*(with|select)\b/i.test(text) && !/\bapi_keys\b/.test(text),
  )
}

async function scansOf({ text, values }: Statement): Promise<PlanNode[]> {
  const literals: string[] = []
  for (const value of values) {
    const { rows } = await client.query('SELECT quote_nullable($1::text) AS literal', [value])
    literals.push(rows[0].literal)
  }
  await client.query(`PREPARE planned AS ${text}`)
  const { rows } = await client.query(
    `EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE planned${values.length > 0 ? `(${literals})` : ''}`,
  )
  await client.query('DEALLOCATE planned')
  const nodes = (node: PlanNode): PlanNode[] => [node, ...(node.Plans ?? []).flatMap(nodes)]
  return nodes(rows[0]['QUERY PLAN'][0].Plan).filter((node) => node['Relation Name'] !== undefined)
}

const LARGE = ['erasures', 'modules', 'module_versions', 'entries', 'events', 'contacts', 'contact_identifiers']

/** The scans of all statements of a request, run one after another on one connection. */
async function allScansOf(call: Call): Promise<PlanNode[]> {
  const scans: PlanNode[] = []
  for (const statement of await statementsOf(call)) scans.push(...(await scansOf(statement)))
  return scans
}

const rowsRead = (scans: PlanNode[]) =>
  scans.reduce((sum, node) => {
    const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0)
    return sum + node['Actual Loops'] * (node['Actual Rows'] + removed)
  }, 0)

/**
 * PostgreSQL plans a prepared statement for its values or, after five executions, possibly once for all values. Those of look-ups
 * and recording it always plans once (ADR 0034).
 */
const MODES = ['force_custom_plan', 'force_generic_plan']

test.each(MODES.flatMap((mode) => (Object.keys(CALLS) as (keyof typeof CALLS)[]).map((id) => [id, mode] as const)))(
  '%s reads by index and no more rows than it needs (%s)',
  async (id, mode) => {
    const { call, most } = CALLS[id]
    await client.query(`SET plan_cache_mode = ${mode}`)
    const scans = await allScansOf(call)
    expect(scans.length).toBeGreaterThan(0)
    const sequential = scans.filter((node) => node['Node Type'] === 'Seq Scan').map((node) => node['Relation Name'])
    expect(sequential.filter((table) => LARGE.includes(table ?? ''))).toEqual([])
    expect(rowsRead(scans)).toBeLessThanOrEqual(most)
  },
)

test('look-ups and recording find each row by an index, also by plans that were made while the tables were small', async () => {
  const small = await createTestApp({ twins: false })
  onTestFinished(() => small.close())
  const { module_id, version_number } = await small.db
    .selectFrom('module_versions')
    .select(['module_id', 'version_number'])
    .where('published_at', 'is not', null)
    .executeTakeFirstOrThrow()
  const { entry_id } = await small.db.selectFrom('entries').select('entry_id').executeTakeFirstOrThrow()
  const calls: Call[] = [
    { path: `/projects/demo/modules/${module_id}` },
    { path: `/projects/demo/modules/${module_id}/versions/${version_number}` },
    { path: `/projects/demo/entries/${entry_id}` },
    { ...CALLS.recordCustomEvent.call, body: EVENT },
    { ...CALLS.recordCustomEvents.call, body: { events: [EVENT, EVENT] } },
  ]
  const statements: Statement[] = []
  for (const call of calls) statements.push(...(await statementsOf(call, small)))
  expect(statements.length).toBeGreaterThan(10)
  const session = new pg.Client(small.databaseUrl)
  await session.connect()
  onTestFinished(() => session.end())
  await useGenericPlans(session)
  for (const isAnalyzed of [false, true]) {
    if (isAnalyzed) await session.query('ANALYZE')
    for (const { text, values = [] } of statements) {
      await session.query(`PREPARE planned AS ${text}`)
      const nulls = values.length > 0 ? `(${values.map(() => 'NULL')})` : ''
      const { rows } = await session.query(`EXPLAIN EXECUTE planned${nulls}`)
      await session.query('DEALLOCATE planned')
      expect(rows.map((row) => row['QUERY PLAN']).join('\n')).not.toMatch(/Seq Scan|Hash Join|Merge Join/)
    }
  }
})

test('a page in the middle of a long list reads no more rows than the first', async () => {
  const window = 'updated_after=2026-02-01T00:00:00Z&updated_before=2026-06-01T00:00:00Z'
  const first = await api.call({ path: `/projects/demo/entries-page-views?limit=500&${window}` })
  const path = `/projects/demo/entries-page-views?limit=10&${window}&cursor=${first.headers['next-cursor']}`
  const scans = await allScansOf({ path })
  expect(rowsRead(scans)).toBeLessThanOrEqual(200)
})

test('a page of the feed after a position reads no more rows than the first', async () => {
  const first = await api.call({ path: '/projects/demo/events?limit=500&direction=ASC' })
  const position = first.json().at(-1).position
  // A plan for all limits sorts what follows on PostgreSQL 15; it is never chosen, since one for the limit is cheaper.
  await client.query('SET plan_cache_mode = force_custom_plan')
  for (const place of [`after=${position}`, `cursor=${first.headers['next-cursor']}`]) {
    const scans = await allScansOf({ path: `/projects/demo/events?limit=10&direction=ASC&${place}` })
    expect(rowsRead(scans)).toBeLessThanOrEqual(50)
  }
})

test('recording for an entry reads no more rows the more page views it has', async () => {
  const { call, most } = CALLS.recordCustomEvent
  await client.query(
    `INSERT INTO events (project_id, event_id, entry_id, "timestamp", module_version_number, page_index, event_type,
       view_type, page_id, page_key, total_pages, position, recorded_at)
     SELECT project_id, 'viewed-' || i, entry_id, "timestamp" + i * interval '1 millisecond', module_version_number,
       i % 7, event_type, view_type, page_id, page_key, total_pages,
       position + 1000000 + i, recorded_at
     FROM events, generate_series(1, 20000) i
     WHERE project_id = 'demo' AND event_id = (SELECT min(v.event_id) FROM events v JOIN entries e USING (project_id, entry_id)
       JOIN contact_identifiers c USING (project_id, contact_id)
       WHERE project_id = 'demo' AND v.page_index IS NOT NULL AND c.value = '"amara.okafor@example.com"')`,
  )
  await client.query('SET plan_cache_mode = force_generic_plan')
  const scans = await allScansOf({ ...call, headers: {} })
  expect(rowsRead(scans)).toBeLessThanOrEqual(most)
})

test('a deletion of old Idempotency-Keys reads no more of them than it deletes', async () => {
  await client.query(`
    INSERT INTO idempotency_keys SELECT project_id, 'key of ' || event_id, event_id, '', '{}'
      FROM events WHERE project_id = 'crowd';
    ANALYZE idempotency_keys`)
  const db = connect(api.databaseUrl, { max: 1 })
  const query = vi.spyOn(pg.Client.prototype, 'query')
  expect(await deleteIdempotencyKeys(db, 'crowd', { after: '', before: '0' }, 1_000)).toEqual([])
  const [text, values] = query.mock.lastCall as unknown as [string, unknown[]]
  query.mockRestore()
  await db.destroy()
  for (const mode of MODES) {
    await client.query(`SET plan_cache_mode = ${mode}`)
    for (const before of ['3', '9']) {
      const scans = await scansOf({ text, values: values.map((value) => (value === '0' ? before : value)) })
      expect(scans.filter((node) => node['Node Type'] === 'Seq Scan')).toEqual([])
      // To select, to find and to delete them.
      expect(rowsRead(scans)).toBe(3 * 1_000)
    }
  }
})
