import { access } from 'node:fs/promises'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { createPool } from '../../src/database/pool.ts'
import { importInto } from '../support/app.ts'
import { dumped } from '../transfer/fixture.ts'
import { openProject, type Project } from './project.ts'
import { CONNECTOR_NAMES, KEYS, type Row, sorted, Warehouse } from './warehouse.ts'

const MODULE_ID = 'quiz/ä %2F?'

let project: Project
let nextVersion = 1

/** Publishes a version of a module whose id has to be encoded. */
const addVersion = () => {
  const version_number = nextVersion++
  const module = { project_id: 'demo', module_id: MODULE_ID }
  const at = `2026-04-0${version_number}T00:00:00.000Z`
  return importInto(project.api.databaseUrl, [
    { type: 'module', ...module, group_id: 'growth', title: '2026-01-01', created_at: '2026-04-01T00:00:00.000Z' },
    {
      ...{ type: 'module_version', ...module, version_number, json_string: `{"version": ${version_number}}` },
      ...{ saved_at: at, published_at: at },
    },
  ])
}

beforeAll(async () => {
  project = await openProject()
  for (const _ of 'abc') await addVersion()
})
afterAll(() => project.api.close())

describe.each(CONNECTOR_NAMES)('the source for %s', (name) => {
  let warehouse: Warehouse
  beforeAll(() => {
    warehouse = new Warehouse(name, project)
  })

  test('copies a project, whole and once, and then what is new', { timeout: 180_000 }, async () => {
    const folder = await warehouse.newFolder()
    await warehouse.sync(folder)
    const copy = await warehouse.expectComplete(folder)
    expect(copy.events?.length).toBeGreaterThan(2_500)
    expect(copy.module_versions?.filter((row) => row.module_id === MODULE_ID)).toHaveLength(nextVersion - 1)

    // Everything that an export has of it, too.
    const pool = createPool(project.api.databaseUrl, { max: 1 })
    const exported = await dumped(pool, undefined, 'demo')
    await pool.end()
    for (const [table, type] of Object.entries({
      ...{ modules: 'module', module_versions: 'module_version', entries: 'entry', events: 'event' },
    })) {
      const key = KEYS[table] ?? []
      const records = sorted(
        exported.filter((record) => record.type === type),
        key,
      )
      const rows = sorted(copy[table] ?? [], key)
      const common = (row: Row, other: Row) =>
        Object.fromEntries(Object.entries(row).filter(([field, value]) => field in other && value !== null))
      expect(
        records.map((record, i) => common(record, rows[i] ?? {})),
        table,
      ).toEqual(rows.map((row, i) => common(row, records[i] ?? {})))
    }

    await project.addEvents(10)
    await addVersion()
    const before = project.requests()
    await warehouse.sync(folder)
    // For each module at most: itself, its versions, and the one that was the newest before.
    const modules = copy.modules?.length ?? 0
    expect(project.requests() - before).toBeLessThanOrEqual(3 * modules + 10)
    await warehouse.expectComplete(folder)
  })

  test('is complete after it was killed in the middle', { timeout: 180_000 }, async () => {
    const folder = await warehouse.newFolder()
    for (const count of [2, 5, 8]) {
      const { received, release } = project.holdAfter(count)
      await warehouse.killWhen(folder, () => received)
      release()
    }
    // While it writes.
    await warehouse.killWhen(folder, () =>
      vi.waitFor(() => access(warehouse.file(folder)), { timeout: 60_000, interval: 5 }),
    )
    await project.addEvents(3)
    await warehouse.sync(folder)
    await warehouse.expectComplete(folder)
  })

  test('fails when a request is refused, and is complete afterwards', { timeout: 180_000 }, async () => {
    const folder = await warehouse.newFolder()
    // The versions of the last module, once one of another has been read.
    const { module_id } = (await project.list('modules')).at(-1) ?? {}
    project.refuse(`/projects/demo/modules/${encodeURIComponent(String(module_id))}/versions`, /versions\/\d+$/)
    expect((await warehouse.run(folder)).status).not.toBe(0)
    await warehouse.sync(folder)
    await warehouse.expectComplete(folder)
  })

  test('copies a version again that was saved anew after a backup was restored', { timeout: 180_000 }, async () => {
    const folder = await warehouse.newFolder()
    await warehouse.sync(folder)
    const again = '{"again": true}'
    // Before the next version of another test: a source may remember the latest.
    await sql`UPDATE module_versions SET saved_at = saved_at + interval '1 hour', json_string = ${again}
      WHERE module_id = ${MODULE_ID} AND version_number = ${nextVersion - 1}`.execute(project.api.db)
    await warehouse.sync(folder)
    const { module_versions } = await warehouse.expectComplete(folder)
    expect(module_versions).toContainEqual(expect.objectContaining({ json_string: again }))
  })

  const ofDlt = test.runIf(name === 'dlt')
  ofDlt('has the newest state of an entry that is updated while all are read', { timeout: 180_000 }, async () => {
    const folder = await warehouse.newFolder()
    const { api, environment } = project
    const entry = (i: number, day: number, entry_data: string) => {
      const updated_at = new Date(Date.UTC(2026, 0, day, 0, 0, i)).toISOString()
      return { type: 'entry', entry_id: `e${i}`, module_id: 'm', contact_id: 'c', updated_at, entry_data }
    }
    const inWalk = (records: object[]) =>
      importInto(
        api.databaseUrl,
        records.map((record) => ({ ...record, project_id: 'walk' })),
      )
    const at = '2026-01-01T00:00:00.000Z'
    await inWalk([
      { type: 'project' },
      { type: 'group', group_id: 'g' },
      { type: 'module', module_id: 'm', group_id: 'g', title: 'm' },
      { type: 'module_version', module_id: 'm', version_number: 1, saved_at: at, published_at: at, json_string: '{}' },
      { type: 'contact', contact_id: 'c', identifiers: [] },
      // One more than a page.
      ...Array.from({ length: 1_001 }, (_, i) => entry(i, 1, '"stale"')),
    ])
    const FLOWTRAIL_KEY = await createKey(api.db, 'walk', { name: 'copy', scopes: ['read'], expires_at: null })
    project.before(/^\/projects\/walk\/entries\?.*cursor=/, () => inWalk([entry(0, 2, '"fresh"')]))
    await warehouse.sync(folder, [], { ...environment, FLOWTRAIL_PROJECT: 'walk', FLOWTRAIL_KEY })
    const { entries } = await warehouse.copied(folder)
    expect(entries).toHaveLength(1_001)
    expect(entries?.find(({ entry_id }) => entry_id === 'e0')).toMatchObject({ entry_data: '"fresh"' })
  })

  /** The environment that reaches a project without data. */
  async function emptyProject() {
    const { api, environment } = project
    await importInto(api.databaseUrl, [{ type: 'project', project_id: 'empty' }])
    const FLOWTRAIL_KEY = await createKey(api.db, 'empty', { name: 'copy', scopes: ['read'], expires_at: null })
    return { ...environment, FLOWTRAIL_PROJECT: 'empty', FLOWTRAIL_KEY }
  }

  test('copies an empty project', async () => {
    const environment = await emptyProject()
    const folder = await warehouse.newFolder(environment)
    await warehouse.sync(folder, [], environment)
    expect(Object.values(await warehouse.copied(folder)).flat()).toEqual([])
  })

  test.runIf(name === 'airbyte')('says that its key is refused when it is set up', async () => {
    const folder = await warehouse.newFolder({ ...project.environment, FLOWTRAIL_KEY: 'ft_wrong' })
    const { status, printed } = await warehouse.run(folder)
    expect(status).not.toBe(0)
    expect(printed).toContain('HTTP Status Code: 401')
  })

  test.runIf(name === 'dlt')('copies no other project to the same tables', async () => {
    const folder = await warehouse.newFolder()
    await warehouse.sync(folder, [], await emptyProject())
    const { status, printed } = await warehouse.run(folder)
    expect(status).not.toBe(0)
    expect(printed).toContain('This is a copy of the project empty: use another pipeline and dataset for demo.')
  })

  test.runIf(name === 'dlt')('says which settings it needs', async () => {
    const { status, printed } = await warehouse.run(await warehouse.newFolder(), [], {
      ...project.environment,
      FLOWTRAIL_KEY: 'ft_…',
    })
    expect([status, printed]).toEqual([
      2,
      expect.stringContaining('FLOWTRAIL_KEY to the service, the project and a key'),
    ])
  })

  test.runIf(name === 'dlt')('refuses an option that it does not know', async () => {
    const { status, printed } = await warehouse.run(await warehouse.newFolder(), ['--all-entrys'])
    expect([status, printed]).toEqual([2, expect.stringContaining('unrecognized arguments: --all-entrys')])
  })

  test.runIf(name === 'dlt')('reads all entries again when it is told to', { timeout: 180_000 }, async () => {
    const folder = await warehouse.newFolder()
    await warehouse.sync(folder)
    const [entry] = await project.list('entries?limit=1&direction=ASC')
    const { entry_id, project_id, module_id, contact_id, updated_at } = entry as Row
    const at = new Date(Date.parse(String(updated_at)) - 1_000).toISOString()
    const old = { entry_id: `${entry_id}-old`, project_id, module_id, contact_id, created_at: at, updated_at: at }
    await importInto(project.api.databaseUrl, [{ type: 'entry', ...old, entry_data: '{}' }])
    await warehouse.sync(folder, ['--all-entries'])
    await warehouse.expectComplete(folder)
  })
})
