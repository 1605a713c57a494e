import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, inject, onTestFinished, test } from 'vitest'
import type { ApiDocument } from '../../src/http/document.ts'
import { createTestDatabase } from '../support/database.ts'
import { createDatabaseProxy } from '../support/database-proxy.ts'
import { freePort, kill, runFlowtrail, startService } from '../support/service.ts'
import {
  flowtrailProcessWith,
  flowtrailWith,
  postgresRuns,
  printed,
  shell,
  startShell,
  temporaryDirectory,
  untilPrinted,
} from './run.ts'

/** With an embedded database that the tests of commands share. */
let directory: Awaited<ReturnType<typeof temporaryDirectory>>
beforeAll(async () => {
  directory = await temporaryDirectory()
})
afterAll(() => directory[Symbol.asyncDispose]())

test('serve --demo prints URLs, a key and a call that works when pasted, and stops on Ctrl-C pressed twice', async () => {
  await using directory = await temporaryDirectory()
  const dataDir = `${directory.path}/data dir`
  const settings = { DATA_DIR: dataDir, PORT: String(await freePort()), BASE_PATH: '/flowtrail', LOG_LEVEL: 'warn' }
  const service = runFlowtrail(['serve', '--demo'], settings)
  try {
    const welcome = await untilPrinted(service, 'Press Ctrl-C to stop.', 'stderr')
    const [, api] = /^ +API +(\S+)$/m.exec(welcome) ?? []
    const [, docs] = /^ +Docs +(\S+)$/m.exec(welcome) ?? []
    const [, key] = /^ +Key +(\S+)$/m.exec(welcome) ?? []
    const [, call] = /^ +(curl .+)$/m.exec(welcome) ?? []
    expect(api).toBe(`http://127.0.0.1:${settings.PORT}/flowtrail`)
    expect(key).toBe((await readFile(`${dataDir}/demo-key`, 'utf8')).trim())

    const page = await fetch(docs ?? '')
    expect(page.status).toBe(200)
    expect(page.headers.get('content-type')).toContain('text/html')
    const response = await shell(`${call} --silent --fail`)
    expect(response).toMatchObject({ status: 0, stderr: '' })
    expect(JSON.parse(response.stdout)).toMatchObject([{}, {}, { module_id: 'skin-quiz', project_id: 'demo' }])

    service.child.kill('SIGINT')
    // The second one arrives after the first was handled, as it does through npm.
    await untilPrinted(service, 'stopping PostgreSQL', 'stderr')
    service.child.kill('SIGINT')
    expect(await service.exit).toBe(0)
    expect(await postgresRuns(dataDir)).toBe(false)
  } finally {
    await kill(service)
  }
})

test('serve prints the public URL, and the document names it', async () => {
  const settings = {
    DATA_DIR: directory.path,
    PORT: String(await freePort()),
    BASE_PATH: '/v',
    PUBLIC_URL: 'https://flows.example.com/v',
    LOG_LEVEL: 'warn',
  }
  const service = runFlowtrail(['serve'], settings)
  try {
    const welcome = await untilPrinted(service, '\n', 'stderr')
    expect(welcome).toBe(
      'Flowtrail is listening at https://flows.example.com/v; docs at https://flows.example.com/v/docs\n',
    )
    const response = await fetch(`http://127.0.0.1:${settings.PORT}/v/openapi.json`)
    expect(((await response.json()) as ApiDocument).servers).toEqual([
      { url: settings.PUBLIC_URL, description: 'This server' },
    ])
  } finally {
    await kill(service)
  }
})

test('serve on the embedded database runs alongside every other command, and stops PostgreSQL on SIGTERM', async () => {
  const settings = { DATA_DIR: directory.path }
  const flowtrail = flowtrailWith(settings)
  const demoLines = `${directory.path}/demo.ndjson`

  /** Runs every command; those that write do so for another project in each round. */
  const runAll = async (round: string) => {
    expect(await printed(flowtrail('migrate', '--status'))).toContain('0001-schema')
    expect(await printed(flowtrail('migrate'))).toMatch(/0001-schema .* false/)
    const demoKey = await printed(flowtrail('demo', '--entries', '3'))
    await printed(flowtrail('projects', 'create', round))
    expect(await printed(flowtrail('projects', 'list'))).toContain(`${round} `)
    const key = await printed(flowtrail('keys', 'create', '--project', round))
    const successor = await printed(flowtrail('keys', 'rotate', key.slice(3, 15)))
    await printed(flowtrail('keys', 'revoke', key.slice(3, 15)))
    expect(await printed(flowtrail('keys', 'list', '--project', round))).toContain(successor.slice(3, 15))
    expect(await shell(`node src/cli/main.ts export --project demo > ${demoLines}`, settings)).toMatchObject({
      status: 0,
      stderr: '',
    })
    expect(await printed(flowtrail('import', demoLines))).toMatch(/^entry +3 +0 +0 +3$/m)
    return demoKey
  }

  await printed(flowtrailProcessWith(settings)('projects', 'list'))
  const keyWithout = await runAll('without')
  expect(await postgresRuns(directory.path)).toBe(false)

  const service = await startService(settings)
  try {
    const keyBeside = await runAll('beside')
    expect(keyBeside).toBe(keyWithout)
    expect(await postgresRuns(directory.path)).toBe(true)
    const response = await fetch(`${service.address}/projects/demo/modules`, { headers: { 'X-Api-Key': keyBeside } })
    expect(response.status).toBe(200)
    service.child.kill('SIGTERM')
    expect(await service.exit).toBe(0)
    expect(await postgresRuns(directory.path)).toBe(false)
  } finally {
    await kill(service)
  }
})

test('an import into the embedded database that is interrupted by SIGINT stops PostgreSQL', async () => {
  const settings = { DATA_DIR: directory.path }
  await printed(flowtrailWith(settings)('migrate'))
  // Its input stays open.
  const child = startShell('exec node src/cli/main.ts import -', settings)
  try {
    await expect.poll(() => postgresRuns(directory.path), { timeout: 30_000 }).toBe(true)
    child.kill('SIGINT')
    const [[status], stderr] = await Promise.all([once(child, 'close'), text(child.stderr)])
    expect({ status, stderr }).toEqual({ status: 130, stderr: 'flowtrail: interrupted\n' })
    expect(await postgresRuns(directory.path)).toBe(false)
  } finally {
    child.kill('SIGKILL')
  }
})

test('serve stops on SIGTERM while its database is silent after the login', async () => {
  const proxy = await createDatabaseProxy(inject('databaseServer'))
  onTestFinished(() => proxy.close())
  const frozen = proxy.freezeAt('pg_backend_pid')
  const server = runFlowtrail(['serve'], { DATABASE_URL: proxy.reach(inject('databaseServer')), PORT: '0' })
  onTestFinished(() => kill(server))
  await frozen
  server.child.kill('SIGTERM')
  expect([await server.exit, server.stderr()]).toEqual([0, ''])
})

test.each(['PORT', 'ADMIN_PORT'])('serve reports in one line that %s is in use', async (setting) => {
  const database = await createTestDatabase()
  const other = createServer()
  await once(other.listen(0, '127.0.0.1'), 'listening')
  const { port } = other.address() as AddressInfo
  const settings = {
    DATABASE_URL: database.url,
    LOG_LEVEL: 'warn',
    PORT: String(await freePort()),
    [setting]: String(port),
  }
  expect(await flowtrailProcessWith(settings)('serve')).toEqual({
    status: 1,
    stdout: '',
    stderr: `flowtrail: Port ${port} on 127.0.0.1 is already in use. Set ${setting} to another, e.g. ${setting}=${port + 1}\n`,
  })
  other.close()
  await database.drop()
})
