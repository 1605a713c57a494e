/**
 * Makes generated/ anew: the bundled document, its strict form and its types from openapi/, the table types from a migrated
 * database. With --check it changes nothing and fails when what is committed differs.
 */
import { execFile } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { Kysely, PostgresDialect } from 'kysely'
import openapiFormat, { type OpenApiDocument } from 'openapi-format'
import openapiTS, { astToString } from 'openapi-typescript'
import pg from 'pg'
import ts from 'typescript'
import { parse } from 'yaml'
import { untilStopped } from '../src/stop-signals.ts'
import { useEmbeddedServer } from './embedded/server.ts'
import { migrate } from './migrate.ts'

const ROOT = path.join(import.meta.dirname, '..')
const GENERATED = path.join(ROOT, 'generated')
/** The module of the type of all timestamps, as generated/ imports it. */
const TIMESTAMP_MODULE = '../src/domain/timestamp.ts'
const ISO_TIMESTAMP = ts.factory.createTypeReferenceNode('IsoTimestamp')
const run = promisify(execFile)

const tool = (name: string, args: string[], stop: AbortSignal) =>
  run(path.join(ROOT, 'node_modules/.bin', name), args, {
    signal: stop,
    cwd: ROOT,
    env: { ...process.env, REDOCLY_TELEMETRY: 'off' },
  })

async function generateApi(directory: string, stop: AbortSignal): Promise<void> {
  const bundle = path.join(directory, 'openapi.json')
  const options = ['--config', 'openapi/redocly.yaml', '--output', bundle]
  await tool('redocly', ['bundle', 'openapi/openapi.yaml', ...options], stop)
  const document = JSON.parse(await readFile(bundle, 'utf8'))
  const types = await openapiTS(document, {
    inject: `import type { IsoTimestamp } from '${TIMESTAMP_MODULE}'\n\n`,
    transform: ({ format }) => (format === 'date-time' ? ISO_TIMESTAMP : undefined),
  })
  await writeFile(path.join(directory, 'api.ts'), astToString(types))
  const strict = JSON.stringify(await applyOverlay(document, 'openapi/strict.overlay.yaml'), undefined, 2)
  await writeFile(path.join(directory, 'openapi.strict.json'), `${strict}\n`)
}

/** Changes the document by an overlay (OpenAPI Overlay 1.0). @throws Error when an action changes nothing */
async function applyOverlay(document: OpenApiDocument, file: string): Promise<unknown> {
  const overlaySet = parse(await readFile(path.join(ROOT, file), 'utf8'))
  const { data, resultData } = await openapiFormat.openapiOverlay(document, { overlaySet })
  const { unusedActions } = resultData as { unusedActions: { target: string }[] }
  const [unused] = unusedActions
  if (unused) throw new Error(`${file}: nothing in the document matches ${unused.target}`)
  return data
}

async function generateDatabase(directory: string, stop: AbortSignal): Promise<void> {
  await using cleanup = new AsyncDisposableStack()
  const dataDir = await mkdtemp(path.join(tmpdir(), 'flowtrail-generate-'))
  cleanup.defer(() => rm(dataDir, { recursive: true }))
  const server = await useEmbeddedServer({ dataDir, settings: { fsync: 'off' }, signal: stop })
  cleanup.defer(server.release)
  const db = new Kysely({ dialect: new PostgresDialect({ pool: new pg.Pool({ connectionString: server.url }) }) })
  await migrate(db).finally(() => db.destroy())
  const options = [
    ...['--dialect', 'postgres', '--url', server.url, '--out-file', path.join(directory, 'database.ts')],
    // What the pool's type parsers return.
    ...['--type-mapping', '{"timestamptz":"IsoTimestamp","int8":"number"}', '--include-pattern', 'public.!(kysely_*)'],
    ...['--custom-imports', JSON.stringify({ IsoTimestamp: TIMESTAMP_MODULE })],
  ]
  await tool('kysely-codegen', options, stop)
}

/** Names of the files that are not the same in both directories. */
async function differences(one: string, other: string): Promise<string[]> {
  const names = new Set([...(await readdir(one)), ...(await readdir(other))])
  const read = (directory: string, name: string) => readFile(path.join(directory, name), 'utf8').catch(() => undefined)
  const differs = await Promise.all(
    [...names].map(async (name) => (await read(one, name)) !== (await read(other, name))),
  )
  return [...names].filter((_, i) => differs[i])
}

async function generate(directory: string, stop: AbortSignal): Promise<void> {
  await generateApi(directory, stop)
  await generateDatabase(directory, stop)
}

async function check(stop: AbortSignal): Promise<void> {
  await using cleanup = new AsyncDisposableStack()
  const directory = await mkdtemp(path.join(tmpdir(), 'flowtrail-generated-'))
  cleanup.defer(() => rm(directory, { recursive: true }))
  await generate(directory, stop)
  const stale = await differences(GENERATED, directory)
  if (stale.length === 0) return
  process.stderr.write(`generated/ is not fresh: ${stale.join(', ')}. Run: make generate\n`)
  process.exitCode = 1
}

await untilStopped((stop) => (process.argv.includes('--check') ? check(stop) : generate(GENERATED, stop)))
