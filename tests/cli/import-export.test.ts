import { once } from 'node:events'
import { mkdir, writeFile } from 'node:fs/promises'
import { PassThrough, Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { run } from '../../src/cli/run.ts'
import { demoRecords } from '../../src/demo/project.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { runFlowtrail } from '../support/service.ts'
import { holdLock, holdProject } from '../support/waiting.ts'
import { type Flowtrail, flowtrailWith, printed, runOnPipe, shell, temporaryDirectory } from './run.ts'

const ENTRIES = 300
const DEMO_LINES = [...demoRecords({ entries: ENTRIES })].map((record) => `${JSON.stringify(record)}\n`)
const GOOD = '{"type":"project","project_id":"acme"}\n'

let directory: Awaited<ReturnType<typeof temporaryDirectory>>
let databases: TestDatabase[]
let flowtrail: Flowtrail
let elsewhere: Flowtrail
let demoFile: string
beforeAll(async () => {
  directory = await temporaryDirectory()
  databases = await Promise.all([createTestDatabase(), createTestDatabase()])
  const [here, there] = databases.map(({ url }) => flowtrailWith({ DATABASE_URL: url })) as [Flowtrail, Flowtrail]
  flowtrail = here
  elsewhere = there
  demoFile = await file('demo.ndjson', DEMO_LINES.join(''))
})
afterAll(async () => {
  for (const database of databases) await database.drop()
  await directory[Symbol.asyncDispose]()
})

const settings = () => ({ DATABASE_URL: databases[0]?.url ?? '' })

async function file(name: string, content: string): Promise<string> {
  const path = `${directory.path}/${name}`
  await writeFile(path, content)
  return path
}

async function projects(): Promise<string[]> {
  const rows = JSON.parse(await printed(flowtrail('projects', 'list', '--json'))) as { project_id: string }[]
  return rows.map(({ project_id }) => project_id)
}

describe('import', () => {
  test('then export, import elsewhere and export there gives the same bytes', async () => {
    const table = await printed(flowtrail('import', demoFile))
    const header = /^type +read +added +updated +unchanged$/m
    expect(table).toMatch(header)
    expect(table).toMatch(new RegExp(`^entry +${ENTRIES} +${ENTRIES} +0 +0$`, 'm'))
    const exported = await printed(flowtrail('export', '--project', 'demo'))
    expect(exported.split('\n')).toHaveLength(DEMO_LINES.length)

    const copy = await file('copy.ndjson', `${exported}\n`)
    await printed(elsewhere('import', copy))
    expect(await printed(elsewhere('export', '--project', 'demo'))).toBe(exported)

    const again = JSON.parse(await printed(flowtrail('import', copy, '--json'))) as Record<string, unknown>[]
    expect(again.map(({ type }) => type)).toEqual([
      'project',
      'group',
      'module',
      'module_version',
      'contact',
      'entry',
      'event',
    ])
    for (const row of again) expect(row).toEqual({ ...row, added: 0, updated: 0, unchanged: row.read })
    expect(await printed(flowtrail('export', '--project', 'demo'))).toBe(exported)
  })

  test('reads standard input, and reports duplicate lines', async () => {
    const twice = await file('twice.ndjson', GOOD.replace('acme', 'twice') + GOOD.replace('acme', 'twice'))
    const { status, stdout, stderr } = await shell(`node src/cli/main.ts import - < ${twice}`, settings())
    expect({ status, stderr }).toEqual({ status: 0, stderr: 'Lines about the same record as an earlier line: 1\n' })
    expect(stdout).toMatch(/^project +2 +1 +0 +0$/m)
    expect(await projects()).toContain('twice')
  })

  test('reports identifiers that differ from others by their type alone', async () => {
    const contact = (contact_id: string, value: string) =>
      JSON.stringify({ type: 'contact', project_id: 'types', contact_id, identifiers: [{ key: 'number', value }] })
    const types = await file(
      'types.ndjson',
      ['{"type":"project","project_id":"types"}', contact('c1', '5'), contact('c2', '"5"')].join('\n'),
    )
    const { status, stderr } = await flowtrail('import', types)
    expect({ status, stderr }).toEqual({
      status: 0,
      stderr:
        'Identifiers number of project types whose value another contact has as another JSON type (perhaps one person as ' +
        'two contacts): 1. See docs/recording.md#identifiers\n',
    })
  })

  test.each([
    ['no JSON', `${GOOD}{"type":"group"\n`, /^line 2: must be one JSON object: .*$/],
    ['no record', '', /^The input has no record$/],
    [
      'no line of JSON',
      '# "Notes"',
      /^line 1: must be one JSON object: Unexpected token '#', "# "Notes"" is not valid JSON$/,
    ],
    ['an empty line', `${GOOD}\n{"type":"group"}\n`, /^line 2: must be a record; empty lines are not allowed$/],
    ['a missing field', `${GOOD}{"type":"group","project_id":"acme"}`, /^line 2: \/group_id: is required$/],
    [
      'no parent',
      `${GOOD}{"type":"module","project_id":"acme","module_id":"m","group_id":"g","title":"M"}`,
      /^line 2: \/group_id: no group with this id is stored or on an earlier line$/,
    ],
  ])('of a file with %s names the line and stores nothing', async (_, content, message) => {
    const { status, stdout, stderr } = await flowtrail('import', await file('bad.ndjson', content))
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' })
    expect(stderr).toMatch(/^flowtrail: [^\n]+\n$/)
    expect(stderr.slice('flowtrail: '.length).trimEnd()).toMatch(message)
    expect(await projects()).not.toContain('acme')
  })

  test('of a path that is not a file fails', async () => {
    const missing = `${directory.path}/missing.ndjson`
    const folder = `${directory.path}/folder`
    await mkdir(folder)
    const failure = (message: string) => ({ status: 1, stdout: '', stderr: `flowtrail: ${message}\n` })
    expect(await flowtrail('import', missing)).toEqual(failure(`File ${missing} does not exist`))
    expect(await flowtrail('import', folder)).toEqual(
      failure(`${folder} is a directory; expected a file, or - for standard input`),
    )
    expect(await flowtrail('import', `${demoFile}/x`)).toEqual(
      failure(`Cannot read ${demoFile}/x: ENOTDIR: not a directory, open '${demoFile}/x'`),
    )
  })

  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGHUP', 129],
  ] as const)('that is interrupted by %s stores nothing', async (signal, status) => {
    await printed(flowtrail('projects', 'create', signal))
    const obstacle = await holdProject(settings().DATABASE_URL, signal)
    const group = JSON.stringify({ type: 'group', project_id: signal, group_id: 'g1' })
    const process = runFlowtrail(['import', await file('held.ndjson', group)], settings())
    await obstacle.waiting(1)
    process.child.kill(signal)
    expect(await process.exit).toBe(status)
    expect(process.stderr()).toBe('flowtrail: interrupted\n')
    await obstacle.release()
    expect(await printed(flowtrail('export', '--project', signal))).not.toContain('group')
  })

  test('that is interrupted when everything is imported says so', async () => {
    await printed(flowtrail('projects', 'create', 'large'))
    // So many that the tables are analyzed, for which this is in the way.
    const groups = Array.from({ length: 10_000 }, (_, i) => ({ type: 'group', project_id: 'large', group_id: `g${i}` }))
    const obstacle = await holdLock(settings().DATABASE_URL, 'LOCK TABLE contacts IN SHARE MODE')
    const lines = groups.map((group) => JSON.stringify(group)).join('\n')
    const process = runFlowtrail(['import', await file('large.ndjson', lines)], settings())
    await obstacle.waiting(1)
    process.child.kill('SIGTERM')
    expect(await process.exit).toBe(143)
    expect(process.stderr()).toBe('flowtrail: everything is imported, and what follows was interrupted\n')
    await obstacle.release()
    expect(await printed(flowtrail('export', '--project', 'large'))).toContain('g9999')
  })

  test('that waits for a named pipe is interrupted', async () => {
    const { writer, process } = await runOnPipe('import', `${directory.path}/waiting`, settings())
    // More than a pipe and what reads it hold: the command has used some of it then. That it waits for more, nothing tells.
    await writer.write(GOOD.repeat(20_000))
    await sleep(500)
    process.child.kill('SIGINT')
    // By itself, so that nothing is held by what it waits for.
    expect([await process.exit, process.stderr()]).toEqual([130, 'flowtrail: interrupted\n'])
  })

  test('that rejects a line of a named pipe waits for no other', async () => {
    const { writer, process } = await runOnPipe('import', `${directory.path}/rejected`, settings())
    await writer.write('garbage\n')
    expect(await process.exit).toBe(1)
    expect(process.stderr()).toMatch(/^flowtrail: line 1: must be one JSON object: [^\n]+\n$/)
  })
})

describe('export', () => {
  test('of an unknown project fails', async () => {
    expect(await flowtrail('export', '--project', 'nope')).toEqual({
      status: 1,
      stdout: '',
      stderr: 'flowtrail: Project nope does not exist. Run: npm run -s flowtrail -- projects list\n',
    })
  })

  test('succeeds silently when its reader closes the pipe', async () => {
    await printed(flowtrail('import', demoFile))
    const process = runFlowtrail(['export', '--project', 'demo'], settings())
    const [first] = (await once(process.child.stdout as NodeJS.ReadableStream, 'data')) as [Buffer]
    process.child.stdout?.destroy()
    expect(await process.exit).toBe(0)
    expect(process.stderr()).toBe('')
    expect(first.toString()).toMatch(/^\{"type":"project","project_id":"demo"/)
  })
})

test('an input that breaks like a pipe is a failure, unlike an output that is closed', async () => {
  const stdin = new Readable({
    read() {
      this.destroy(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }))
    },
  })
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  expect(await run(['import', '-'], { env: settings(), stdin, stdout, stderr })).toBe(1)
  expect(String(stderr.read())).toBe('flowtrail: write EPIPE\n')
})
