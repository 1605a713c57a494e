import { execFile } from 'node:child_process'
import { cp, readFile, symlink } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { openProject, type Project, temporaryFolder } from './project.ts'

const ROOT = path.join(import.meta.dirname, '../..')

let project: Project
beforeAll(async () => {
  project = await openProject()
})
afterAll(() => project.api.close())

test('the commands of docs/sync.md copy a project', { timeout: 600_000 }, async () => {
  const guide = await readFile(path.join(ROOT, 'docs/sync.md'), 'utf8')
  const blocks = [...guide.matchAll(/^```(sh|python)\n(.*?)^```$/gms)].map(([, language, code = '']) => ({
    language,
    code,
  }))
  const [settings, ...commands] = blocks.filter(({ language }) => language === 'sh').map(({ code }) => code)
  const { environment } = project
  for (const name of Object.keys(environment)) expect(settings).toContain(`${name}=`)

  const folder = await temporaryFolder()
  await symlink(path.join(ROOT, 'node_modules'), path.join(folder, 'node_modules'))
  await cp(path.join(ROOT, 'connectors'), path.join(folder, 'connectors'), { recursive: true })
  const run = async (program: string, args: string[]) => {
    const { PATH, HOME } = process.env
    const env = { PATH, HOME, ...environment, DLT_DATA_DIR: folder, RUNTIME__DLTHUB_TELEMETRY: 'false' }
    const { stdout } = await promisify(execFile)(program, args, { cwd: folder, env, maxBuffer: 64 * 1024 * 1024 })
    return stdout
  }
  // tests/connectors/follow.test.ts runs the command that goes on for ever.
  const script = commands.join('').replace(/^WAIT=.*$/m, '')
  const printed = await run('bash', ['-euo', 'pipefail', '-c', script])
  const events = await project.list('events?limit=1000')
  expect(printed).toMatch(new RegExp(`flowpage.viewed.* ${viewsAmong(events)} `))
  // Both loops print how many events the copy has.
  expect(printed.match(new RegExp(`^${events.length}$`, 'gm'))).toHaveLength(2)

  const [pipeline] = blocks.filter(({ language }) => language === 'python').map(({ code }) => code)
  const own = String(pipeline)
    .replace('"flowtrail_copy", destination="postgres"', '"own", destination="duckdb"')
    .replace('"https://flowtrail.example.com"', JSON.stringify(environment.FLOWTRAIL_URL))
    .replace('api_key', JSON.stringify(environment.FLOWTRAIL_KEY))
  await run('.venv/bin/python', ['-c', `import sys; sys.path.append("connectors/dlt")\n${own}`])
  const rows = await run('.venv/bin/python', [path.join(import.meta.dirname, 'rows.py'), 'own.duckdb', 'flowtrail'])
  expect(JSON.parse(rows).events).toHaveLength(events.length)
})

const viewsAmong = (events: Record<string, unknown>[]) =>
  events.filter(({ event_type }) => event_type === 'flowpage.viewed').length
