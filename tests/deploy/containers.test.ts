import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import path from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { readConfig } from '../../src/config.ts'
import { ROOT, temporaryDirectory } from '../cli/run.ts'

// The manifests for Kubernetes and the compose file, as the types and schemas of their own projects decode them. .ci/image
// builds the image and runs the compose file; there is no Kubernetes to run the manifests.

const run = promisify(execFile)
const DEPLOY = path.join(ROOT, 'deploy')
const COMPOSE = 'docker/compose.yaml'
const MIGRATE = 'kubernetes/migrate.yaml'
const SERVER = 'kubernetes/flowtrail.yaml'
/** What the image sets; the rest are defaults. */
const IN_IMAGE = { HOST: '0.0.0.0', PORT: '3000', DATA_DIR: '/var/lib/flowtrail' }
/** How long the server may take to close the database, after it has drained. */
const CLOSING_s = 35

const cleanup = new AsyncDisposableStack()
let folder: string
beforeAll(async () => {
  folder = cleanup.use(await temporaryDirectory()).path
  await run('go', ['build', '-o', `${folder}/schemas`, '.'], { cwd: path.join(import.meta.dirname, 'schemas') })
  // It downloads and compiles the types of Kubernetes.
}, 600_000)
afterAll(() => cleanup.disposeAsync())

const kindOf = (file: string) => path.dirname(file).replace('docker', 'compose')
const sample = (file: string) => readFile(path.join(DEPLOY, file), 'utf8')

/** Decodes a file strictly. @throws Error that says what is wrong in it */
async function decode(file: string, content?: string, env: Record<string, string> = { POSTGRES_PASSWORD: 'secret' }) {
  const place = `${folder}/${path.basename(file)}`
  await writeFile(place, content ?? (await sample(file)))
  const { stdout } = await run(`${folder}/schemas`, [kindOf(file), place], { env })
  return JSON.parse(stdout)
}

// biome-ignore lint/suspicious/noExplicitAny: as decoded
type Decoded = any

test.each([
  [SERVER, 'replicas: 2', 'replica: 2', 'unknown field "spec.replica"'],
  [SERVER, 'replicas: 2', 'replicas: two', 'cannot unmarshal string'],
  [SERVER, 'replicas: 2', 'replicas: 2\n  replicas: 2', '"replicas" already set'],
  [SERVER, 'apps/v1', 'apps/v1beta1', 'no kind "Deployment" is registered'],
  [MIGRATE, 'drop: [ALL]', 'dropped: [ALL]', 'unknown field "spec.template.spec.containers[0].securityContext.capa'],
  [COMPOSE, 'read_only: true', 'readonly: true', '.readonly false schema'],
  [COMPOSE, 'condition: service_healthy', 'condition: healthy', 'must be one of'],
  [COMPOSE, '\n  postgres:\n    <<', '\n  database:\n    <<', 'depends on undefined service "postgres"'],
])('of %s, a change of %j to %j is refused', async (file, from, to, message) => {
  const content = await sample(file)
  expect(content).toContain(from)
  await expect(decode(file, content.replace(from, to))).rejects.toThrow(message)
})

test('the image that is run is that of this version', async () => {
  const { version } = JSON.parse(await readFile(path.join(ROOT, 'package.json'), 'utf8'))
  for (const file of [COMPOSE, MIGRATE, SERVER]) {
    const images = new Set((await sample(file)).match(/\bflowtrail:\S+$/gm))
    expect([...images], file).toEqual([`flowtrail:${version}`])
  }
  const guide = await readFile(path.join(ROOT, 'docs/operations.md'), 'utf8')
  expect(new Set(guide.match(/\bflowtrail:\d[\w.-]*/g))).toEqual(new Set([`flowtrail:${version}`]))
  expect((await decode(MIGRATE))[0].metadata.name).toBe(`flowtrail-migrate-${version.replaceAll('.', '-')}`)
})

test.each([
  ['127.0.0.1', (port: string) => ({ PORT: port })],
  ['127.0.0.2', (port: string) => ({ HOST: '127.0.0.2', PORT: port })],
  ['127.0.0.1', (port: string) => ({ ADMIN_PORT: port })],
  ['127.0.0.2', (port: string) => ({ ADMIN_HOST: '127.0.0.2', ADMIN_PORT: port })],
  // A port that fetch refuses.
  ['127.0.0.3', (port: string) => ({ HOST: '127.0.0.3', PORT: port }), 10_080],
])('the image is healthy if the server is ready at %s, where the settings say', async (host, settings, own = 0) => {
  const dockerfile = (await sample('docker/Dockerfile')).replaceAll('\\\n', '')
  const [, command] = /^HEALTHCHECK .* CMD (\[.*\])$/m.exec(dockerfile) ?? []
  // The image has the package, which is JavaScript.
  const inCheckout = (command as string).replaceAll(/\/opt\/flowtrail\/dist\/(.*?)\.js/g, `${ROOT}/$1.ts`)
  const [program, ...args] = JSON.parse(inCheckout)
  let status = 200
  const server = createServer(({ url }, response) => response.writeHead(url === '/readyz' ? status : 404).end())
  server.listen(own, host)
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  const { port } = server.address() as AddressInfo
  const check = () => run(program, args, { env: { PATH: process.env.PATH, ...IN_IMAGE, ...settings(String(port)) } })
  await check()
  status = 503
  await expect(check()).rejects.toMatchObject({ code: 1 })
})

describe('kubernetes', () => {
  let job: Decoded
  let deployment: Decoded
  let service: Decoded
  let budget: Decoded
  beforeAll(async () => {
    ;[job] = await decode(MIGRATE)
    ;[deployment, service, budget] = await decode(SERVER)
  })

  const containerOf = ({ spec }: Decoded) => {
    expect(spec.template.spec.containers).toHaveLength(1)
    return spec.template.spec.containers[0]
  }
  const serverConfig = () => {
    const variables = containerOf(deployment).env.map(({ name, value }: Decoded) => [name, value])
    expect(Object.fromEntries(variables)).toHaveProperty('DATABASE_URL', undefined)
    return readConfig({ ...IN_IMAGE, ...Object.fromEntries(variables) })
  }

  test('has a job for the migration, and two servers, of which one may be away', () => {
    expect([job, deployment, service, budget].map(({ kind }) => kind)).toEqual([
      ...['Job', 'Deployment', 'Service', 'PodDisruptionBudget'],
    ])
    expect(containerOf(job).args).toEqual(['migrate'])
    expect([deployment.spec.replicas, budget.spec.maxUnavailable]).toEqual([2, 1])
    expect(deployment.spec.strategy.rollingUpdate).toEqual({ maxUnavailable: 0, maxSurge: 1 })
  })

  test('all selectors select the servers and not the job', () => {
    const { labels } = deployment.spec.template.metadata
    const selectors = [
      ...[deployment.spec.selector.matchLabels, service.spec.selector, budget.spec.selector.matchLabels],
      deployment.spec.template.spec.topologySpreadConstraints[0].labelSelector.matchLabels,
    ]
    for (const selector of selectors) {
      expect(labels).toMatchObject(selector)
      expect(job.spec.template.metadata.labels).not.toMatchObject(selector)
    }
  })

  test('ports are those that the server listens on, and only that of the API is for clients', () => {
    const { server } = serverConfig()
    const { ports, startupProbe, livenessProbe, readinessProbe } = containerOf(deployment)
    expect(ports.map(({ name, containerPort }: Decoded) => [name, containerPort])).toEqual([
      ['http', server.port],
      ['admin', server.admin?.port],
    ])
    expect(server.admin?.host).toBe('0.0.0.0')
    expect(service.spec.ports).toMatchObject([{ targetPort: 'http' }])
    expect([startupProbe, livenessProbe, readinessProbe].map(({ httpGet }) => [httpGet.path, httpGet.port])).toEqual([
      ['/livez', 'admin'],
      ['/livez', 'admin'],
      ['/readyz', 'admin'],
    ])
  })

  test('a pod has the time that the server may take to stop', () => {
    const { drainDelay_ms, drainTimeout_ms } = serverConfig().server
    const stop_s = (drainDelay_ms + drainTimeout_ms) / 1_000 + CLOSING_s
    expect(deployment.spec.template.spec.terminationGracePeriodSeconds).toBeGreaterThanOrEqual(stop_s)
    const { periodSeconds, timeoutSeconds } = containerOf(deployment).readinessProbe
    expect(drainDelay_ms / 1_000).toBeGreaterThan(periodSeconds + timeoutSeconds)
  })

  test('nothing runs as root or may become more than it is', async () => {
    for (const workload of [job, deployment]) {
      const pod = workload.spec.template.spec
      expect(pod).toMatchObject({
        automountServiceAccountToken: false,
        securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
      })
      expect(containerOf(workload).securityContext).toEqual({
        allowPrivilegeEscalation: false,
        readOnlyRootFilesystem: true,
        capabilities: { drop: ['ALL'] },
      })
      expect(containerOf(workload).resources).toMatchObject({ requests: {}, limits: { memory: expect.any(String) } })
    }
    // Kubernetes does not know what a name stands for, and would not start it.
    expect(await sample('docker/Dockerfile')).toMatch(/^USER [1-9]\d+:[1-9]\d+$/m)
  })

  test('the URL of the database comes from the secret that the guide creates', async () => {
    for (const workload of [job, deployment]) {
      const [{ valueFrom }] = containerOf(workload).env
      expect(valueFrom.secretKeyRef).toEqual({ name: 'flowtrail', key: 'DATABASE_URL' })
    }
    const guide = await readFile(path.join(ROOT, 'docs/operations.md'), 'utf8')
    expect(guide).toContain('kubectl create secret generic flowtrail --from-file=DATABASE_URL=')
    expect(guide).toContain(`kubectl wait --for=condition=complete job/${job.metadata.name}`)
  })
})

describe('compose', () => {
  test('the migration follows PostgreSQL, and the server the migration', async () => {
    const { services } = await decode(COMPOSE)
    expect(services.migrate).toMatchObject({
      command: ['migrate'],
      depends_on: { postgres: { condition: 'service_healthy' } },
    })
    expect(services.flowtrail.depends_on).toMatchObject({ migrate: { condition: 'service_completed_successfully' } })
    expect(services.postgres.volumes).toMatchObject([{ type: 'volume', target: '/var/lib/postgresql' }])
  })

  test('nothing may become more than it is, and only the server can be reached, from this machine', async () => {
    const { services } = await decode(COMPOSE)
    expect(Object.keys(services).sort()).toEqual(['flowtrail', 'migrate', 'postgres'])
    for (const service of Object.values<Decoded>(services)) {
      expect(service).toMatchObject({ read_only: true, cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] })
    }
    const published = Object.values<Decoded>(services).flatMap(({ ports = [] }) => ports)
    expect(published).toMatchObject([{ host_ip: '127.0.0.1', published: '3000', target: 3000 }])
  })

  test('a container has the time that the server may take to stop', async () => {
    const { services } = await decode(COMPOSE)
    const [, minutes, seconds] = /^(?:(\d+)m)?(\d+)s$/.exec(services.flowtrail.stop_grace_period) ?? []
    const { drainDelay_ms, drainTimeout_ms } = readConfig({ ...IN_IMAGE, ...services.flowtrail.environment }).server
    const stop_s = (drainDelay_ms + drainTimeout_ms) / 1_000 + CLOSING_s
    expect(Number(minutes ?? 0) * 60 + Number(seconds)).toBeGreaterThanOrEqual(stop_s)
  })

  test('there is no password unless one is given', async () => {
    await expect(decode(COMPOSE, undefined, {})).rejects.toThrow('POSTGRES_PASSWORD')
  })
})
