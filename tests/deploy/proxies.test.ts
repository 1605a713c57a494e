import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { request } from 'node:https'
import { createServer } from 'node:net'
import path from 'node:path'
import { text } from 'node:stream/consumers'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { ROOT, temporaryDirectory } from '../cli/run.ts'
import { type DemoService, startDemoService } from '../support/demo-service.ts'
import { freePort } from '../support/service.ts'

// The samples of deploy/ for proxies with TLS, each before a service with the settings that it names.

const run = promisify(execFile)
const HOST = 'flows.example.com'
const SETTINGS = { BASE_PATH: '/flowtrail', PUBLIC_URL: `https://${HOST}/flowtrail`, TRUST_PROXY: '127.0.0.1' }
const MiB = 2 ** 20

const cleanup = new AsyncDisposableStack()
let service: DemoService
let folder: string
let certificate: string
/** Of the second server before nginx, which is stopped. */
let stoppedPort: number
beforeAll(async () => {
  folder = cleanup.use(await temporaryDirectory()).path
  service = await startDemoService(SETTINGS)
  stoppedPort = await freePort()
  cleanup.defer(() => service.stop())
  await run('openssl', [
    ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'],
    ...['-subj', `/CN=${HOST}`, '-addext', `subjectAltName=DNS:${HOST}`],
    ...['-keyout', `${folder}/privkey.pem`, '-out', `${folder}/fullchain.pem`],
  ])
  certificate = await readFile(`${folder}/fullchain.pem`, 'utf8')
})
afterAll(() => cleanup.disposeAsync())

function keep(child: ChildProcess): void {
  const ended = once(child, 'close')
  cleanup.defer(async () => {
    child.kill()
    await ended
  })
}

const sample = async (file: string, changes: [from: string, to: string][]) => {
  let content = await readFile(path.join(ROOT, 'deploy', file), 'utf8')
  for (const [from, to] of changes) {
    expect(content, file).toContain(from)
    content = content.replaceAll(from, to)
  }
  for (const [name, value] of Object.entries(SETTINGS)) expect(content, file).toContain(`${name}=${value}`)
  return content
}
const upstream = () => new URL(service.address).host

async function startNginx(port: number): Promise<void> {
  const server = await sample('nginx/tls.conf', [
    ['listen 80;', `listen 127.0.0.1:${await freePort()};`],
    ['listen 443 ssl http2;', `listen 127.0.0.1:${port} ssl http2;`],
    ['/etc/ssl/flowtrail', folder],
    ['127.0.0.1:3000', upstream()],
    ['127.0.0.1:3001', `127.0.0.1:${stoppedPort}`],
  ])
  await mkdir(`${folder}/nginx`)
  const file = `${folder}/nginx/nginx.conf`
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/nginx/${name};`,
  )
  await writeFile(
    file,
    `daemon off;\nmaster_process off;\npid nginx.pid;\nevents {}\nhttp {\naccess_log off;\n${paths.join('\n')}\n${server}\n}\n`,
  )
  keep(spawn('/usr/sbin/nginx', ['-p', `${folder}/nginx`, '-c', file, '-e', 'stderr'], { stdio: 'ignore' }))
}

async function startCaddy(port: number): Promise<void> {
  const site = await sample('caddy/Caddyfile', [
    [`\n${HOST} {`, `\nhttps://${HOST}:${port} {\n\ttls ${folder}/fullchain.pem ${folder}/privkey.pem`],
    ['127.0.0.1:3000', upstream()],
  ])
  const file = `${folder}/Caddyfile`
  await writeFile(file, `{\n\tadmin off\n\thttp_port ${await freePort()}\n}\n${site}`)
  await run('caddy', ['validate', '--config', file, '--adapter', 'caddyfile'])
  const env = { ...process.env, HOME: folder, XDG_DATA_HOME: folder, XDG_CONFIG_HOME: folder }
  keep(spawn('caddy', ['run', '--config', file, '--adapter', 'caddyfile'], { stdio: 'ignore', env }))
}

describe.each([
  ['nginx', startNginx],
  ['caddy', startCaddy],
])('%s', (name, start) => {
  let port: number
  beforeAll(async () => {
    port = await freePort()
    await start(port)
    await vi.waitFor(() => call('/docs'), { timeout: 30_000, interval: 100 })
  })

  async function call(route: string, { body, base = SETTINGS.BASE_PATH, ...headers }: Record<string, string> = {}) {
    const outgoing = request({
      // A connection of its own: nginx closes one after a refused body, and a request sent on it then is lost.
      agent: false,
      ...{ host: '127.0.0.1', port, servername: HOST, ca: certificate, path: base + route },
      method: body === undefined ? 'GET' : 'POST',
      headers: { host: HOST, 'x-api-key': service.key, ...headers },
    })
    // Rejected below; after the response, it is the rest of a refused body that cannot be sent.
    outgoing.on('error', () => {})
    outgoing.end(body)
    const [response] = await once(outgoing, 'response')
    return { status: response.statusCode as number, headers: response.headers, body: await text(response) }
  }

  test('passes paths as they are, and links and the document have the public ones', async () => {
    const page = await call('/projects/demo/entries?limit=1')
    expect(page.status).toBe(200)
    const [, next = ''] = /^<\/flowtrail(\/[^>]+)>; rel="next"$/.exec(String(page.headers.link)) ?? []
    expect((await call(next)).status).toBe(200)
    const encoded = await call('/projects/demo/modules/a%2Fb%20c')
    expect(JSON.parse(encoded.body)).toMatchObject({ error: { code: 'module_does_not_exist' }, moduleId: 'a/b c' })
    expect((await call('/openapi.yaml')).body).toContain(SETTINGS.PUBLIC_URL)
  })

  test('responds with a 404 to a path that is not of the service', async () => {
    expect(await call('/projects/demo/modules', { base: '' })).toMatchObject({ status: 404 })
  })

  test('passes an import of 16 MiB, and the refusal of a larger one', async () => {
    const line = JSON.stringify({ type: 'group', group_id: 'g', name: 'G'.repeat(100) })
    /** Lines of a kilobyte. */
    const send = (bytes: number) => {
      const body = `${line.padEnd(1_023)}\n`.repeat(bytes / 1_024) + ' '.repeat(bytes % 1_024)
      return call('/projects/demo/records', { 'content-type': 'application/x-ndjson', body })
    }
    expect(await send(16 * MiB)).toMatchObject({ status: 200 })
    // Caddy closes the connection behind the response, which a client that is still sending may then not get to read.
    const refusal = () =>
      send(16 * MiB + 1).then(
        ({ status, body }) => [status, JSON.parse(body).error?.code],
        ({ code }) => code,
      )
    await expect.poll(refusal).toEqual([413, 'payload_too_large'])
  })

  test('waits for events as long as a request does', async () => {
    const last = JSON.parse((await call('/projects/demo/events?limit=1')).body)[0].position
    const waiting = call(`/projects/demo/events?direction=ASC&wait=30&after=${last}`)
    const event = {
      ...{ module_id: 'skin-quiz', timestamp: '2026-03-01T10:00:00Z', custom_event_name: 'waited for' },
      identifiers: [{ key: 'email', value: '"waiting@example.com"' }],
    }
    await call('/projects/demo/events', { 'content-type': 'application/json', body: JSON.stringify(event) })
    expect(JSON.parse((await waiting).body)).toMatchObject([{ custom_event_name: 'waited for' }])
  })

  if (name === 'nginx')
    test('repeats a POST with an Idempotency-Key that a server has read and not answered', async () => {
      let dropped = 0
      const dying = createServer((socket) => {
        socket.once('data', () => {
          dropped += 1
          socket.resetAndDestroy()
        })
      })
      await once(dying.listen(stoppedPort, '127.0.0.1'), 'listening')
      onTestFinished(() => void dying.close())
      const record = (key: string) => {
        const event = {
          ...{ module_id: 'skin-quiz', timestamp: '2026-03-01T10:00:00Z', custom_event_name: 'repeated' },
          identifiers: [{ key: 'email', value: '"repeated@example.com"' }],
        }
        const headers = { 'content-type': 'application/json', 'idempotency-key': key }
        // More than nginx gets together with the headers.
        const body = JSON.stringify(event).padEnd(100 * 1_024)
        return call('/projects/demo/events', { ...headers, body })
      }
      const statuses = []
      // Each twice, so that both servers are asked.
      for (const key of ['key', 'key', '0', '0']) statuses.push((await record(key)).status)
      expect(statuses).toEqual([200, 200, 200, 200])
      expect(dropped).toBeGreaterThan(1)
    })

  test('keeps probes and metrics from the public', async () => {
    for (const route of ['/livez', '/readyz', '/metrics']) expect((await call(route)).status, route).toBe(404)
  })

  test('tells the service the address of the client, whatever that claims', async () => {
    const wrong = (address: string) => call('/projects/nobody/modules', { 'x-forwarded-for': address })
    const statuses = []
    for (let i = 0; i < 61; i += 1) statuses.push((await wrong(`203.0.113.${i}`)).status)
    expect(statuses.at(-1)).toBe(429)
    // Of the address that the proxy has seen, which is its own machine's here.
    const direct = await fetch(`${service.address}/flowtrail/projects/nobody/modules`, {
      headers: { 'x-api-key': service.key, 'x-forwarded-for': '198.51.100.7' },
    })
    expect(direct.status).toBe(401)
  })
})
