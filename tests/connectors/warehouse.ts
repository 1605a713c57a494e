import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished } from 'vitest'
import { type Project, temporaryFolder } from './project.ts'

const CONNECTORS = path.join(import.meta.dirname, '../../connectors')
const ROWS = path.join(import.meta.dirname, 'rows.py')
const GUIDE = path.join(import.meta.dirname, '../../docs/sync.md')

export type Row = Record<string, unknown>
type Tables = Record<string, Row[]>

/** A program that copies a project to a DuckDB database in a folder. */
interface Connector {
  /** Its pinned packages. */
  requirements: string
  program: string
  /** The database's file, and where in it the tables are. */
  file: string
  schema: string
  prepare: (folder: string, environment: Project['environment']) => Promise<void>
  /** What docs/sync.md says to run after each copying. */
  finish?: RegExp
  /** A row as the API shows it. */
  record: (row: Row) => Row
}

const CONNECTOR = {
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
    prepare: async (folder, environment) => {
      const { FLOWTRAIL_URL: url, FLOWTRAIL_PROJECT: project_id, FLOWTRAIL_KEY: api_key } = environment
      const config = { url, project_id, api_key, __injected_declarative_manifest: {} }
      await writeFile(path.join(folder, 'config.json'), JSON.stringify(config))
    },
    finish: /^```sql\n(.*?)^```$/ms,
    record: ({ record }) => parse(record),
  },
} satisfies Record<string, Connector>

export type ConnectorName = keyof typeof CONNECTOR
export const CONNECTOR_NAMES = Object.keys(CONNECTOR) as ConnectorName[]

const parse = (text: unknown) => JSON.parse(String(text))

/** The tables of a copy, each with the fields of its key. */
export const KEYS: Record<string, string[]> = {
  modules: ['module_id'],
  module_versions: ['module_id', 'version_number'],
  entries: ['entry_id'],
  events: ['event_id'],
  page_views: ['event_id'],
  erasures: ['erasure_id'],
}

/** The virtual environment of a connector. */
const environmentOf = (name: ConnectorName) => path.join(import.meta.dirname, `.venv-${name}`)

/** Copies a project by a connector, each copy in a folder of its own. */
export class Warehouse {
  readonly #connector: Connector
  readonly #environment: string
  readonly #python: string
  readonly #project: Project

  constructor(name: ConnectorName, project: Project) {
    this.#connector = CONNECTOR[name]
    this.#environment = environmentOf(name)
    this.#python = path.join(this.#environment, 'bin/python')
    this.#project = project
  }

  /** A folder for a copy, which is removed after the test. */
  async newFolder(environment = this.#project.environment): Promise<string> {
    const folder = await temporaryFolder()
    await this.#connector.prepare(folder, environment)
    return folder
  }

  #start(folder: string, args: string[] = [], of = this.#project.environment) {
    const child = spawn(this.#python, [this.#connector.program, ...args], {
      cwd: folder,
      env: {
        // The home folder of all tests, so that a copy depends on its own folder alone.
        ...{ PATH: process.env.PATH, HOME: this.#environment, DLT_DATA_DIR: this.#environment, ...of },
        ...{ PYTHONDONTWRITEBYTECODE: '1', RUNTIME__DLTHUB_TELEMETRY: 'false' },
      },
      stdio: ['ignore', 'pipe', 'pipe'],
      // With what it starts itself.
      detached: true,
    })
    onTestFinished(() => killGroup(child.pid))
    return child
  }

  /** Runs the program, with the arguments of a command line and the environment that reaches a project. */
  async run(...given: [string, string[]?, Record<string, string>?]): Promise<{ status: number; printed: string }> {
    const child = this.#start(...given)
    const [printed, error, [status]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
    return { status, printed: printed + error }
  }

  /** Brings the copy in a folder up to date. */
  async sync(...given: [string, string[]?, Record<string, string>?]): Promise<void> {
    const { status, printed } = await this.run(...given)
    expect({ status, printed: status === 0 ? '' : printed }).toEqual({ status: 0, printed: '' })
    if (!this.#connector.finish) return
    const [, statements = ''] = this.#connector.finish.exec(await readFile(GUIDE, 'utf8')) ?? []
    expect(statements).toContain('erasures')
    const execute = 'import duckdb, sys; duckdb.connect(sys.argv[1]).execute(sys.argv[2])'
    await output(this.#python, ['-c', execute, this.file(given[0]), statements])
  }

  /** Starts the program and kills it, with what it has started, when it is time; it must not have ended before. */
  async killWhen(folder: string, isTime: () => Promise<unknown>): Promise<void> {
    const child = this.#start(folder)
    const closed = once(child, 'close')
    await Promise.race([isTime(), closed])
    expect(child.exitCode).toBeNull()
    killGroup(child.pid)
    await closed
  }

  /** The database's file in a folder. */
  file(folder: string): string {
    return path.join(folder, this.#connector.file)
  }

  /** The rows of the program's own tables while it loads, as text. */
  staged(folder: string): Promise<string> {
    return output(this.#python, [ROWS, this.file(folder), `${this.#connector.schema}_staging`])
  }

  /** The rows of a copy. */
  async copied(folder: string): Promise<Tables> {
    const tables: Tables = JSON.parse(await output(this.#python, [ROWS, this.file(folder), this.#connector.schema]))
    const { record } = this.#connector
    return Object.fromEntries(Object.keys(KEYS).map((table) => [table, (tables[table] ?? []).map(record)]))
  }

  /** Expects that the copy has what the API shows. @returns the copy */
  async expectComplete(folder: string): Promise<Tables> {
    const [copy, api] = [await this.copied(folder), await shown(this.#project)]
    for (const [table, key] of Object.entries(KEYS)) {
      expect(sorted(copy[table] ?? [], key), table).toEqual(sorted(api[table] ?? [], key))
    }
    return copy
  }
}

/** What a complete copy has, by the API. */
async function shown(project: Project): Promise<Tables> {
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

export const sorted = (rows: Row[], key: string[]): Row[] => {
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

/** Installs the pinned packages of each connector into its virtual environment, unless they are there. */
export async function installConnectors(): Promise<void> {
  await Promise.all(CONNECTOR_NAMES.map((name) => install(CONNECTOR[name].requirements, environmentOf(name))))
}

async function install(requirements: string, environment: string): Promise<void> {
  const wanted = await readFile(requirements, 'utf8')
  const installed = path.join(environment, 'installed')
  if ((await readFile(installed, 'utf8').catch(() => '')) === wanted) return
  await output('python3', ['-m', 'venv', '--clear', environment])
  const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--require-hashes']
  await output(path.join(environment, 'bin/python'), [...pip, '--only-binary', ':all:', '-r', requirements])
  await writeFile(installed, wanted)
}
