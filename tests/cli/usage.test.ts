import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { connect } from '../../src/database/open.ts'
import { createTestDatabase, type TestDatabase } from '../support/database.ts'
import { freePort } from '../support/service.ts'
import { flowtrailProcessWith, flowtrailWith, ROOT, shell, startShell, temporaryDirectory } from './run.ts'

let database: TestDatabase
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database.drop())

const NOWHERE = 'postgres://flowtrail@127.0.0.1:1/flowtrail'
// No test here may start an embedded PostgreSQL.
const settings = { DATABASE_URL: NOWHERE, LOG_LEVEL: 'warn' }
const flowtrail = flowtrailWith(settings)
const flowtrailProcess = flowtrailProcessWith(settings)

const COMMANDS = [
  'serve',
  'migrate',
  'doctor',
  'demo',
  'projects',
  'projects create',
  'projects list',
  'projects rename',
  'projects stats',
  'projects delete',
  'keys',
  'keys create',
  'keys list',
  'keys revoke',
  'keys rotate',
  'contacts',
  'contacts find',
  'contacts export',
  'contacts erase',
  'import',
  'export',
  'tail',
  'status',
  'compact',
  'backup',
  'restore',
]

describe('help', () => {
  test('lists every command and explains the settings', async () => {
    const { status, stdout, stderr } = await flowtrailProcess('--help')
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    expect(stdout).toMatch(/^Usage: flowtrail /)
    for (const command of COMMANDS) expect(stdout).toMatch(new RegExp(`^ {2}${command.split(' ')[0]} `, 'm'))
    expect(stdout).toContain('DATABASE_URL')
  })

  test.each(COMMANDS)('of %s fits 80 columns', async (command) => {
    const { status, stdout, stderr } = await flowtrail(...command.split(' '), '--help')
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    expect(stdout).toMatch(new RegExp(`^Usage: flowtrail ${command} `))
    expect(Math.max(...stdout.split('\n').map((line) => line.length))).toBeLessThanOrEqual(80)
  })

  test.each([[[]], [['projects']], [['keys']]])('is shown on stderr when a command is missing: %j', async (args) => {
    const { status, stdout, stderr } = await flowtrail(...args)
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' })
    expect(stderr).toBe((await flowtrail(...args, '--help')).stdout)
  })
})

test('--version prints what identifies the release, however the command is called', async () => {
  const read = async (file: string) => JSON.parse(await readFile(path.join(ROOT, file), 'utf8'))
  const { version } = await read('package.json')
  const { info } = await read('generated/openapi.json')
  // A copy of the sources has no commit.
  const describe = 'test ! -e .git && echo unknown || git describe --always --dirty --abbrev=40 --exclude="*"'
  const { stdout: commit } = await shell(describe)
  const line = `${version} (document ${info.version}, commit ${commit.trim()})\n`
  await using directory = await temporaryDirectory()
  const installed = `${directory.path}/flowtrail`
  for (const call of [
    'node src/cli/main.ts --version',
    'bin/flowtrail -V',
    'npm run -s flowtrail -- --version',
    `ln -s "$PWD/bin/flowtrail" ${installed} && cd / && ${installed} --version`,
  ]) {
    expect(await shell(call), call).toEqual({ status: 0, stdout: line, stderr: '' })
  }
})

describe('a usage error is one line that refers to the help', () => {
  test.each([
    ['serv', "unknown command 'serv' (Did you mean serve?)", ''],
    ['--nope', "unknown option '--nope'", ''],
    ['serve now', "too many arguments for 'serve'. Expected 0 arguments but got 1: now", 'serve'],
    ['migrate --json=yes', "unknown option '--json=yes'", 'migrate'],
    ['projects drop', "unknown command 'drop'", 'projects'],
    ['projects create', "missing required argument 'id'", 'projects create'],
    ['projects create ..', 'It must not be "." or ".."', 'projects create'],
    [`projects create ${'a'.repeat(129)}`, 'It must be 1 to 128 characters long', 'projects create'],
    ['keys create', "required option '--project <id>' not specified", 'keys create'],
    ['keys create --project', "option '--project <id>' argument missing", 'keys create'],
    ['keys create --project a --scope write', 'Allowed scopes are read, events:write, import', 'keys create'],
    [
      'keys create --project a --scope read --scope all',
      'Allowed scopes are read, events:write, import',
      'keys create',
    ],
    ['keys create --project a --expires 1y', 'from 1s to 36500d', 'keys create'],
    ['keys create --project a --expires 0d', 'from 1s to 36500d', 'keys create'],
    ['keys create --project a --expires 36501d', 'from 1s to 36500d', 'keys create'],
    ['keys revoke', "missing required argument 'key-id'", 'keys revoke'],
    ['keys revoke short', 'Expected the 12 letters and digits after ft_', 'keys revoke'],
    ['keys rotate abcdefghijkl --overlap 31d', 'from 0h to 30d', 'keys rotate'],
    ['keys rotate abcdefghijkl --overlap 721h', 'from 0h to 30d', 'keys rotate'],
    ['keys rotate abcdefghijkl --overlap 24', 'from 0h to 30d', 'keys rotate'],
    ['demo --entries 0', 'Expected an integer from 1 to 999999999', 'demo'],
    ['demo --entries 1e3', 'Expected an integer from 1 to 999999999', 'demo'],
    ['import', "missing required argument 'file'", 'import'],
    ['import a b', "too many arguments for 'import'", 'import'],
    ['export', "required option '--project <id>' not specified", 'export'],
  ])('%s', async (line, message, command) => {
    const { status, stdout, stderr } = await flowtrail(...line.split(' '))
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' })
    expect(stderr).toMatch(/^flowtrail: [^\n]+\n$/)
    expect(stderr).toContain(message)
    expect(stderr).toMatch(new RegExp(`[^.]\\. See flowtrail ${command && `${command} `}--help\n$`))
  })
})

describe('a failure is one line, with status 1', () => {
  test.each([
    ['serve', flowtrailProcess],
    ['migrate', flowtrail],
    ['projects list', flowtrail],
    ['import -', flowtrail],
  ])('%s, without a database', async (line, run) => {
    expect(await run(...line.split(' '))).toEqual({
      status: 1,
      stdout: '',
      stderr:
        'flowtrail: Cannot connect to the database: connect ECONNREFUSED 127.0.0.1:1. ' +
        'Nothing listens there: start PostgreSQL, or correct host and port in DATABASE_URL\n',
    })
  })

  test('lists every invalid setting', async () => {
    const wrong = {
      HOST: 'not a host',
      PORT: '99999',
      DATABASE_URL: 'mysql://root@localhost/flowtrail',
      LOG_LEVEL: 'loud',
      BASE_PATH: 'flowtrail/',
      CORS_ORIGINS: 'example.com',
      RATE_LIMIT_PER_MINUTE: '0',
      TRUST_PROXY: 'maybe',
    }
    for (const outcome of [flowtrailProcessWith(wrong)('serve'), flowtrailWith(wrong)('keys', 'list')]) {
      const { status, stdout, stderr } = await outcome
      expect({ status, stdout }).toEqual({ status: 1, stdout: '' })
      expect(stderr).toMatch(/^flowtrail: Invalid configuration: [^\n]+\n$/)
      for (const name of Object.keys(wrong)) expect(stderr).toContain(`${name}: `)
    }
  })

  test.runIf(process.platform === 'linux')('when the disk is full', async () => {
    expect(await shell('node src/cli/main.ts projects list > /dev/full', { DATABASE_URL: database.url })).toEqual({
      status: 1,
      stdout: '',
      stderr: 'flowtrail: ENOSPC: no space left on device, write\n',
    })
  })

  test.runIf(process.platform === 'linux')('when a part of the output is as much as the disk takes', async () => {
    await using directory = await temporaryDirectory()
    const db = connect(database.url, { max: 1 })
    const project = { project_id: 'full', name: 'x'.repeat(10_000) }
    await db.insertInto('projects').values(project).execute()
    onTestFinished(async () => {
      await db.deleteFrom('projects').execute()
      await db.destroy()
    })
    // Of 512 or 1024 bytes each, by the shell.
    const line = `ulimit -f 8; node src/cli/main.ts projects list > ${directory.path}/list`
    expect(await shell(line, { DATABASE_URL: database.url, NODE_COMPILE_CACHE: '' })).toEqual({
      status: 1,
      stdout: '',
      stderr: 'flowtrail: EFBIG: file too large, write\n',
    })
  })
})

test.runIf(process.platform === 'linux')('a server whose log finds the disk full goes on', async () => {
  await using directory = await temporaryDirectory()
  const PORT = String(await freePort())
  const line = `ulimit -f 0; exec node src/cli/main.ts serve > ${directory.path}/log`
  const server = startShell(line, { DATABASE_URL: database.url, PORT, LOG_LEVEL: 'info', NODE_COMPILE_CACHE: '' })
  onTestFinished(() => void server.kill('SIGKILL'))
  const ended = once(server, 'close')
  await Promise.race([once(server.stderr, 'data'), ended])
  for (let i = 0; i < 3; i += 1) expect((await fetch(`http://127.0.0.1:${PORT}/livez`)).status).toBe(200)
  server.kill('SIGTERM')
  expect(await ended).toEqual([0, null])
})

test('a reader that closes the pipe is not a failure', async () => {
  const line = '{ node src/cli/main.ts keys list; echo "status $?" >&2; } | true'
  expect(await shell(line, { DATABASE_URL: database.url })).toEqual({ status: 0, stdout: '', stderr: 'status 0\n' })
})
