import { execFile } from 'node:child_process'
import { copyFile, mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { startDemoService } from '../../support/demo-service.ts'
import { operationIds } from '../../support/example-call.ts'

/**
 * The Postman part of `make sdks`: makes the collection by the command of docs/sdks.md and has newman, Postman's command
 * line, send its requests as they are to a service with demo data. Each must succeed.
 */
const HERE = import.meta.dirname
const ROOT = path.join(HERE, '../../..')
const run = promisify(execFile)

/** What newman reports of a request. */
interface Execution {
  item: { name: string }
  response?: { code: number; stream: { data: number[] } }
}

/** The arguments of the documented command; the converter is this folder's, at the documented version. */
async function documentedArguments(): Promise<string[]> {
  const page = await readFile(path.join(ROOT, 'docs/sdks.md'), 'utf8')
  const [, version, args = ''] = /npx openapi-to-postmanv2@(\S+) (.*)$/m.exec(page) ?? []
  const { dependencies } = JSON.parse(await readFile(path.join(HERE, 'package.json'), 'utf8'))
  if (version !== dependencies['openapi-to-postmanv2']) throw new Error(`docs/sdks.md names ${version}`)
  return args.split(' ')
}

await run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'], { cwd: HERE })
const tool = (name: string) => path.join(HERE, 'node_modules/.bin', name)
const folder = await mkdtemp(path.join(tmpdir(), 'flowtrail-postman-'))
const service = await startDemoService()
try {
  await copyFile(path.join(ROOT, 'openapi/openapi.yaml'), path.join(folder, 'openapi.yaml'))
  await run(tool('openapi2postmanv2'), await documentedArguments(), { cwd: folder })
  const variables = { baseUrl: service.address, apiKey: service.key }
  const settings = Object.entries(variables).flatMap(([name, value]) => ['--env-var', `${name}=${value}`])
  const reporter = ['--reporters', 'json', '--reporter-json-export', 'report.json']
  await run(tool('newman'), ['run', 'flowtrail.postman.json', ...settings, ...reporter], { cwd: folder })
  const { executions }: { executions: Execution[] } = JSON.parse(
    await readFile(path.join(folder, 'report.json'), 'utf8'),
  ).run
  for (const { item, response } of executions) {
    const body = response?.code === 200 ? '' : Buffer.from(response?.stream.data ?? []).toString()
    console.log(`Postman: ${item.name}: ${response?.code ?? 'no response'} ${body}`)
  }
  const succeeded = executions.filter(({ response }) => response?.code === 200).length
  console.log(`Postman: ${succeeded} of ${operationIds.length} requests succeeded`)
  if (succeeded !== operationIds.length) process.exitCode = 1
} finally {
  await service.stop()
  await rm(folder, { recursive: true })
}
