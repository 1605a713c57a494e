import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { readDocument } from '../../src/http/document.ts'
import { temporaryDirectory } from '../cli/run.ts'
import { startDemoService } from '../support/demo-service.ts'
import { freePort, runFlowtrail } from '../support/service.ts'

// The alerts and the dashboard of deploy/, with Debian's Prometheus.

const run = promisify(execFile)
const DEPLOY = path.join(import.meta.dirname, '../../deploy')
const PROMETHEUS = path.join(DEPLOY, 'prometheus')

interface Document {
  paths: Record<string, Record<string, { operationId: string; parameters?: { $ref?: string }[] }>>
  components: { parameters: Record<string, { name: string }> }
}

/**
 * The metrics that only a server with replicas or workers has: tests/http/replicas.test.ts and
 * tests/faults/trials/workers.test.ts look for them.
 */
const OF_SOME = /\bflowtrail_(?:replica_|server_reads_|workers)\w*/

interface Dashboard {
  panels: { title: string; targets?: { expr: string }[] }[]
}

describe('promtool accepts', () => {
  test.each([
    ['the configuration', ['check', 'config', 'prometheus.yml']],
    ['the alerts', ['check', 'rules', 'alerts.yml']],
    ['what the alerts do', ['test', 'rules', 'alerts.test.yml']],
  ])('%s', async (_, args) => {
    expect((await run('promtool', args, { cwd: PROMETHEUS })).stdout).toContain('SUCCESS')
  })

  test('and each alert is tested', async () => {
    const names = [...(await readFile(`${PROMETHEUS}/alerts.yml`, 'utf8')).matchAll(/- alert: (\w+)/g)].map(
      ([, name]) => name,
    )
    const tests = await readFile(`${PROMETHEUS}/alerts.test.yml`, 'utf8')
    const fired = [...tests.matchAll(/alertname: (\w+)\n +exp_alerts:\n/g)].map(([, name]) => name)
    expect(names.length).toBeGreaterThan(5)
    expect(new Set(fired)).toEqual(new Set(names))
  })
})

test('operations that wait for what comes are not slow', async () => {
  const { paths, components } = await readDocument().then(({ json }) => json as unknown as Document)
  const waiting = Object.values(paths)
    .flatMap((path) => Object.values(path))
    .filter(({ parameters = [] }) =>
      parameters.some(({ $ref = '' }) => components.parameters[path.basename($ref)]?.name === 'wait'),
    )
    .map(({ operationId }) => operationId)
  expect(waiting.length).toBeGreaterThan(1)
  const [, left = ''] = /operation!~"([^"]+)"/.exec(await readFile(`${PROMETHEUS}/alerts.yml`, 'utf8')) ?? []
  expect(left.split('|')).toEqual(expect.arrayContaining(waiting))
})

describe('over a service that is used', () => {
  const cleanup = new AsyncDisposableStack()
  let query: (expression: string) => Promise<unknown[]>

  beforeAll(async () => {
    const folder = cleanup.use(await temporaryDirectory())
    const service = await startDemoService()
    cleanup.defer(service.stop)
    const port = await freePort()
    const config = `
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: ['${PROMETHEUS}/alerts.yml']
scrape_configs:
  - { job_name: flowtrail, static_configs: [{ targets: ['${new URL(service.address).host}'] }] }`
    await writeFile(`${folder.path}/prometheus.yml`, config)
    const files = [`--config.file=${folder.path}/prometheus.yml`, `--storage.tsdb.path=${folder.path}/data`]
    const prometheus = spawn('prometheus', [...files, `--web.listen-address=127.0.0.1:${port}`], { stdio: 'ignore' })
    const ended = once(prometheus, 'close')
    cleanup.defer(async () => {
      prometheus.kill()
      await ended
    })
    query = async (expression) => {
      const url = `http://127.0.0.1:${port}/api/v1/query?query=${encodeURIComponent(expression)}`
      const { status, data, error } = (await (await fetch(url)).json()) as {
        status: string
        data: { result: unknown[] }
        error?: string
      }
      expect([status, error], expression).toEqual(['success', undefined])
      return data.result
    }
    // Of each kind of series there is one before what is counted, so that there is an increase.
    for (const seed of ['1', '2']) {
      const live = ['demo', '--live', '--rate', '100', '--speed', '1000', '--visitors', '20', '--url', service.address]
      const visitors = runFlowtrail([...live, '--seed', seed], { FLOWTRAIL_KEY: service.key })
      expect(await visitors.exit, visitors.stderr()).toBe(0)
      await (
        await fetch(`${service.address}/projects/demo/modules/nope`, { headers: { 'x-api-key': service.key } })
      ).text()
      const scrapes = () =>
        query('count_over_time(up{job="flowtrail"}[1h])').then(
          ([series]) => Number((series as { value: string[] } | undefined)?.value[1] ?? 0),
          () => 0,
        )
      const before = await scrapes()
      await vi.waitUntil(async () => (await scrapes()) > before + 1, { timeout: 30_000, interval: 200 })
    }
  })
  afterAll(() => cleanup.disposeAsync())

  test('every panel of the dashboard has data', async () => {
    const { panels } = JSON.parse(await readFile(`${DEPLOY}/grafana/flowtrail.json`, 'utf8')) as Dashboard
    const targets = panels.flatMap(({ title, targets = [] }) => targets.map(({ expr }) => ({ title, expr })))
    expect(targets.length).toBeGreaterThan(20)
    const empty = []
    for (const { title, expr } of targets.filter(({ expr }) => !OF_SOME.test(expr))) {
      const expression = expr.replaceAll('$__rate_interval', '5m').replaceAll('$instance', '.*')
      if ((await query(expression)).length === 0) empty.push([title, expression])
    }
    expect(empty).toEqual([])
  })

  test('every metric that alerts and dashboard name exists, and no alert is firing', async () => {
    const texts = await Promise.all(
      [`${PROMETHEUS}/alerts.yml`, `${DEPLOY}/grafana/flowtrail.json`].map((file) => readFile(file, 'utf8')),
    )
    const names = new Set(texts.join().match(/\b(flowtrail|nodejs|process)_\w+/g))
    expect(names.size).toBeGreaterThan(15)
    for (const name of names) if (!OF_SOME.test(name)) expect(await query(name), name).not.toEqual([])
    expect(await query('ALERTS{alertstate="firing"}')).toEqual([])
  })
})
