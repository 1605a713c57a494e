import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { access, readdir, readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { gunzipSync } from 'node:zlib'
import { sql } from 'kysely'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { createKey } from '../../src/cli/keys.ts'
import { createPool } from '../../src/database/pool.ts'
import { importInto } from '../support/app.ts'
import { dumped } from '../transfer/fixture.ts'
import { openProject, type Project, temporaryFolder } from './project.ts'

const CONNECTORS = path.join(import.meta.dirname, '../../connectors')
const ROWS = path.join(import.meta.dirname, 'rows.py')
const GUIDE = path.join(import.meta.dirname, '../../docs/sync.md')

type Row = Record<string, unknown>
type Tables = Record<string, Row[]>

/** A program that copies a project to a DuckDB database in a folder. */
interface Connector {
  /** Its pinned packages. */
  requirements: string
  program: string
  /** The database's file, and where in it the tables are. */
  file: string
  schema: string
  prepare: (folder: string, project: Project) => Promise<void>
  /** What docs/sync.md says to run after each copying. */
  finish?: RegExp
  /** A row as the API shows it. */
  record: (row: Row) => Row
}

const CONNECTOR: Record<string, Connector> = {
  dlt: {
    requirements: path.join(CONNECTORS, 'dlt/requirements.txt'),
    program: path.join(CONNECTORS, 'dlt/flowtrail.py'),
    file: 'flowtrail_copy.duckdb',
    schema: 'flowtrail',
    prepare: async () => {},
    record: ({ erasure_position: _, ...row }) => {
      const fields = Object.entries(row).filter(([name, value]) => value !== null && !name.startsWith('_dlt'))
      return Object.fromEntries(fields.map(([name, value]) => [name, name === 'entry_ids' ? parse(value) : value]))
    },
  },
  airbyte: {
    requirements: path.join(import.meta.dirname, 'airbyte/requirements.txt'),
    program: path.join(import.meta.dirname, 'airbyte/sync.py'),
    file: 'copy.duckdb',
    schema: 'main',
    prepare: async (folder, { environment }) => {
      const { FLOWTRAIL_URL: url, FLOWTRAIL_PROJECT: project_id, FLOWTRAIL_KEY: api_key } = environment
      const config = { url, project_id, api_key, __injected_declarative_manifest: {} }
      await writeFile(path.join(folder, 'config.json'), JSON.stringify(config))
    },
    finish: /^```sql\n(.*?)^```$/ms,
    record: ({ record }) => parse(record),
  },
}

/** What a compressed file begins with. */
const GZIP = 0x1f8b

const parse = (text: unknown) => JSON.parse(String(text))

/** The tables of a copy, each with the fields of its key. */
const KEYS: Record<string, string[]> = {
  modules: ['module_id'],
  module_versions: ['module_id', 'version_number'],
  entries: ['entry_id'],
  events: ['event_id'],
  page_views: ['event_id'],
  erasures: ['erasure_id'],
}

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

/** What a complete copy has, by the API. */
async function shown(): Promise<Tables> {
  const modules = await project.list('modules')
  const get = async (rest: string): Promise<Row> => (await project.api.call({ path: `/projects/demo/${rest}` })).json()
  const pathOf = (module: Row) => `modules/${encodeURIComponent(String(module.module_id))}`
  const versions = async (module: Row) => {
    const listed = await project.list(`${pathOf(module)}/versions?limit=1000`)
    return Promise.all(listed.map(({ version_number }) => get(`${pathOf(module)}/versions/${version_number}`)))
  }
  const events = await project.list('events?direction=ASC&limit=1000')
  return {
    modules: await Promise.all(modules.map((module) => get(pathOf(module)))),
    module_versions: (await Promise.all(modules.map(versions))).flat(),
    entries: await project.list('entries?limit=1000'),
    events,
    page_views: events.filter((event) => event.event_type === 'flowpage.viewed'),
    erasures: await project.list('erasures?limit=1000'),
  }
}

describe.each(Object.entries(CONNECTOR))('the source for %s', (name, connector) => {
  const environment = path.join(import.meta.dirname, `.venv-${name}`)
  const python = path.join(environment, 'bin/python')

  beforeAll(() => install(connector.requirements, environment), 600_000)

  function start(folder: string, args: string[] = [], of = project.environment) {
    const child = spawn(python, [connector.program, ...(name === 'airbyte' ? [folder] : args)], {
      cwd: folder,
      env: {
        // The home folder of all tests, so that a copy depends on its own folder alone.
        ...{ PATH: process.env.PATH, HOME: environment, DLT_DATA_DIR: environment, ...of },
        ...{ PYTHONDONTWRITEBYTECODE: '1', RUNTIME__DLTHUB_TELEMETRY: 'false' },
      },
      stdio: ['ignore', 'pipe', 'pipe'],
      // With what it starts itself.
      detached: true,
    })
    onTestFinished(() => killGroup(child.pid))
    return child
  }

  async function run(...given: Parameters<typeof start>): Promise<{ status: number; printed: string }> {
    const child = start(...given)
    const [printed, error, [status]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
    return { status, printed: printed + error }
  }

  async function sync(...given: Parameters<typeof start>): Promise<void> {
    const { status, printed } = await run(...given)
    expect({ status, printed: status === 0 ? '' : printed }).toEqual({ status: 0, printed: '' })
    if (!connector.finish) return
    const [, statements = ''] = connector.finish.exec(await readFile(GUIDE, 'utf8')) ?? []
    expect(statements).toContain('erasures')
    const execute = 'import duckdb, sys; duckdb.connect(sys.argv[1]).execute(sys.argv[2])'
    await output(python, ['-c', execute, path.join(given[0], connector.file), statements])
  }

  async function killWhen(folder: string, isTime: () => Promise<unknown>): Promise<void> {
    const child = start(folder)
    const closed = once(child, 'close')
    await Promise.race([isTime(), closed])
    expect(child.exitCode).toBeNull()
    killGroup(child.pid)
    await closed
  }

  async function copied(folder: string): Promise<Tables> {
    const file = path.join(folder, connector.file)
    const tables: Tables = JSON.parse(await output(python, [ROWS, file, connector.schema]))
    return Object.fromEntries(Object.keys(KEYS).map((table) => [table, (tables[table] ?? []).map(connector.record)]))
  }

  async function expectComplete(folder: string): Promise<Tables> {
    const [copy, api] = [await copied(folder), await shown()]
    for (const [table, key] of Object.entries(KEYS)) {
      expect(sorted(copy[table] ?? [], key), table).toEqual(sorted(api[table] ?? [], key))
    }
    return copy
  }

  test('copies a project, whole and once, and then what is new', { timeout: 180_000 }, async () => {
    const folder = await temporaryFolder()
    await connector.prepare(folder, project)
    await sync(folder)
    const copy = await expectComplete(folder)
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
    await sync(folder)
    // For each module at most: itself, its versions, and the one that was the newest before.
    const modules = copy.modules?.length ?? 0
    expect(project.requests() - before).toBeLessThanOrEqual(3 * modules + 10)
    await expectComplete(folder)
  })

  test('is complete after it was killed in the middle', { timeout: 180_000 }, async () => {
    const folder = await temporaryFolder()
    await connector.prepare(folder, project)
    for (const count of [2, 5, 8]) {
      const { received, release } = project.holdAfter(count)
      await killWhen(folder, () => received)
      release()
    }
    // While it writes.
    await killWhen(folder, () =>
      vi.waitFor(() => access(path.join(folder, connector.file)), { timeout: 60_000, interval: 5 }),
    )
    await project.addEvents(3)
    await sync(folder)
    await expectComplete(folder)
  })

  test('fails when a request is refused, and is complete afterwards', { timeout: 180_000 }, async () => {
    const folder = await temporaryFolder()
    await connector.prepare(folder, project)
    // The versions of the last module, once one of another has been read.
    const { module_id } = (await project.list('modules')).at(-1) ?? {}
    project.refuse(`/projects/demo/modules/${encodeURIComponent(String(module_id))}/versions`, /versions\/\d+$/)
    expect((await run(folder)).status).not.toBe(0)
    await sync(folder)
    await expectComplete(folder)
  })

  test('erases who is erased, and a later copy has who came back', { timeout: 180_000 }, async () => {
    const [folder, contactId] = [await temporaryFolder(), `${name}-erased`]
    await connector.prepare(folder, project)
    await project.addContact(contactId, 3)
    await project.addEvents(1)
    await sync(folder)
    await project.eraseContact(contactId)
    await sync(folder)
    await expectComplete(folder)

    await sql`UPDATE erasures SET erased_at = erased_at - interval '2 days'`.execute(project.api.db)
    await project.addContact(contactId, 2)
    const later = await temporaryFolder()
    await connector.prepare(later, project)
    await sync(later)
    const { entries = [], events = [] } = await expectComplete(later)
    const ofContact = (rows: Row[]) => rows.filter(({ contact_id }) => contact_id === contactId).length
    expect([ofContact(entries), ofContact(events)]).toEqual([1, 2])
  })

  test('erases who is erased when it is killed in the middle', { timeout: 180_000 }, async () => {
    const folder = await temporaryFolder()
    await connector.prepare(folder, project)
    for (const count of [4, 8, 12]) {
      const contactId = `${name}-killed-${count}`
      await project.addContact(contactId, 3)
      const { received, release } = project.holdAfter(count)
      await killWhen(folder, async () => {
        await received
        await project.eraseContact(contactId)
      })
      release()
    }
    await sync(folder)
    await expectComplete(folder)
  })

  test.runIf(name === 'dlt')(
    'keeps who comes back at once, and no file of what it has read',
    { timeout: 180_000 },
    async () => {
      const [folder, contactId] = [await temporaryFolder(), `${name}-back`]
      await project.addContact(contactId, 3)
      await sync(folder)
      await project.eraseContact(contactId)
      await project.addContact(contactId, 2)
      await sync(folder)
      await expectComplete(folder)
      await sync(folder)
      await expectComplete(folder)
      const work = path.join(folder, 'dlt_pipelines')
      const files = await readdir(work, { recursive: true, withFileTypes: true })
      const texts = await Promise.all(
        files
          .filter((file) => file.isFile())
          .map(async (file) => {
            const bytes = await readFile(path.join(file.parentPath, file.name))
            return bytes.length > 1 && bytes.readUInt16BE() === GZIP ? gunzipSync(bytes) : bytes
          }),
      )
      expect(texts.length).toBeGreaterThan(0)
      expect(texts.filter((text) => text.includes(contactId))).toEqual([])
      const staged = await output(python, [ROWS, path.join(folder, connector.file), `${connector.schema}_staging`])
      expect(staged).not.toContain(contactId)
      // In a copy by Airbyte its entry would be missing for a day.
      await project.eraseContact(contactId)
    },
  )

  test.runIf(name === 'dlt')('copies an empty project, and no other one to the same tables', async () => {
    const folder = await temporaryFolder()
    const { api, environment } = project
    await importInto(api.databaseUrl, [{ type: 'project', project_id: 'empty' }])
    const FLOWTRAIL_KEY = await createKey(api.db, 'empty', { name: 'copy', scopes: ['read'], expires_at: null })
    await sync(folder, [], { ...environment, FLOWTRAIL_PROJECT: 'empty', FLOWTRAIL_KEY })
    const { status, printed } = await run(folder)
    expect(status).not.toBe(0)
    expect(printed).toContain('This is a copy of the project empty: use another pipeline and dataset for demo.')
  })

  test.runIf(name === 'dlt')('says which settings it needs', async () => {
    const { status, printed } = await run(await temporaryFolder(), [], {
      ...project.environment,
      FLOWTRAIL_KEY: 'ft_…',
    })
    expect([status, printed]).toEqual([
      2,
      expect.stringContaining('FLOWTRAIL_KEY to the service, the project and a key'),
    ])
  })

  test.runIf(name === 'dlt')('refuses an option that it does not know', async () => {
    const { status, printed } = await run(await temporaryFolder(), ['--all-entrys'])
    expect([status, printed]).toEqual([2, expect.stringContaining('unrecognized arguments: --all-entrys')])
  })

  test.runIf(name === 'dlt')('reads all entries again when it is told to', { timeout: 180_000 }, async () => {
    const folder = await temporaryFolder()
    await sync(folder)
    const [entry] = await project.list('entries?limit=1&direction=ASC')
    const { entry_id, project_id, module_id, contact_id, updated_at } = entry as Row
    const at = new Date(Date.parse(String(updated_at)) - 1_000).toISOString()
    const old = { entry_id: `${entry_id}-old`, project_id, module_id, contact_id, created_at: at, updated_at: at }
    await importInto(project.api.databaseUrl, [{ type: 'entry', ...old, entry_data: '{}' }])
    await sync(folder, ['--all-entries'])
    await expectComplete(folder)
  })
})

const sorted = (rows: Row[], key: string[]) => {
  const keyOf = (row: Row) => JSON.stringify(key.map((field) => row[field]))
  return [...rows].sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
}

/** Kills a process and what it has started. */
function killGroup(pid = 0): void {
  try {
    process.kill(-pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** What a program prints. @throws Error with what it says if it fails */
async function output(command: string, args: string[]): Promise<string> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  const [printed, error, [status]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${status}: ${error}`)
  return printed
}

/** Installs pinned packages into a virtual environment, unless it has them. */
async function install(requirements: string, environment: string): Promise<void> {
  const wanted = await readFile(requirements, 'utf8')
  const installed = path.join(environment, 'installed')
  if ((await readFile(installed, 'utf8').catch(() => '')) === wanted) return
  await output('python3', ['-m', 'venv', '--clear', environment])
  const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--require-hashes']
  await output(path.join(environment, 'bin/python'), [...pip, '--only-binary', ':all:', '-r', requirements])
  await writeFile(installed, wanted)
}
