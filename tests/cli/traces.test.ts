import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { createTestDatabase } from '../support/database.ts'
import { receiveTraces } from '../support/otlp.ts'
import { kill, startService } from '../support/service.ts'
import { flowtrailProcessWith, temporaryDirectory } from './run.ts'

let database: Awaited<ReturnType<typeof createTestDatabase>>
beforeAll(async () => {
  database = await createTestDatabase()
})
afterAll(() => database.drop())

/** Writes the name of each package of OpenTelemetry that a process imports to a file, but for the API, as prom-client does. */
const RECORD_IMPORTS = `
  import { registerHooks } from 'node:module'
  import { appendFileSync } from 'node:fs'
  registerHooks({
    resolve(name, context, next) {
      if (/^@opentelemetry\\/(?!api$)/.test(name)) appendFileSync(process.env.IMPORTED, name + '\\n')
      return next(name, context)
    },
  })`

/** Serves one request, stops, and says how that ended and which packages of OpenTelemetry were loaded. */
async function serveWith(settings: Record<string, string>) {
  await using directory = await temporaryDirectory()
  const IMPORTED = `${directory.path}/imported`
  const NODE_OPTIONS = `--import=data:text/javascript,${encodeURIComponent(RECORD_IMPORTS)}`
  const service = await startService({
    ...{ DATABASE_URL: database.url, IMPORTED, NODE_OPTIONS },
    // A slow one is logged.
    ...{ SLOW_REQUEST_MS: '600000', ...settings },
  })
  try {
    const { status } = await fetch(`${service.address}/projects/demo/modules`)
    service.child.kill('SIGTERM')
    const exit = await service.exit
    const imported = (await readFile(IMPORTED, 'utf8').catch(() => '')).split('\n')
    return { status, exit, imported, log: service.stdout() }
  } finally {
    await kill(service)
  }
}

test.each([{}, { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9', OTEL_SDK_DISABLED: 'true' }])(
  'nothing of OpenTelemetry is loaded with %j',
  async (settings) => {
    expect(await serveWith(settings as Record<string, string>)).toEqual({
      status: 401,
      exit: 0,
      imported: [''],
      log: '',
    })
  },
)

test('what is not exported yet is when the server stops', async () => {
  const receiver = await receiveTraces()
  const settings = { OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url, OTEL_BSP_SCHEDULE_DELAY: '600000' }
  const { status, exit, imported, log } = await serveWith(settings)
  expect({ status, exit, log }).toEqual({ status: 401, exit: 0, log: '' })
  expect(imported).toContain('@opentelemetry/sdk-trace')
  expect(receiver.requests).toMatchObject([
    { path: '/v1/traces', headers: { 'content-type': 'application/x-protobuf' } },
  ])
  expect(String(receiver.requests[0]?.body)).toContain('GET /projects/:projectId/modules')
  await receiver.close()
})

test('a collector that does not respond keeps the server from stopping no longer than its timeout', async () => {
  const collector = createServer(() => {})
  await once(collector.listen(0, '127.0.0.1'), 'listening')
  const { port } = collector.address() as AddressInfo
  const settings = { OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${port}`, OTEL_EXPORTER_OTLP_TIMEOUT: '200' }
  const { status, exit, log } = await serveWith(settings)
  expect({ status, exit }).toEqual({ status: 401, exit: 0 })
  expect(
    log
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line)),
  ).toMatchObject([{ level: 'warn', msg: expect.stringContaining('OTEL_EXPORTER_OTLP_ENDPOINT') }])
  collector.close()
})

test('serve reports a malformed setting of OpenTelemetry in one line', async () => {
  const settings = { OTEL_TRACES_EXPORTER: 'zipkin', DATABASE_URL: database.url }
  expect(await flowtrailProcessWith(settings)('serve')).toEqual({
    status: 1,
    stdout: '',
    stderr: 'flowtrail: Invalid configuration: OTEL_TRACES_EXPORTER: Value "zipkin" not in choices [otlp,none]\n',
  })
})
