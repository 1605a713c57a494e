import { once } from 'node:events'
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import { stringify } from 'yaml'
import type { OperationId } from '../../../src/http/operations.ts'
import { type Outcome, ROOT, shell } from '../../cli/run.ts'
import { createTestApp, type TestApp } from '../../support/app.ts'
import { operations } from '../../support/contract.ts'
import { exampleCall, operationIds, type Variation } from '../../support/example-call.ts'
import { freePort } from '../../support/service.ts'
import { documentedCases } from './fault-injection.ts'
import { DOCUMENT, type Prism, startPrism } from './prism.ts'
import type { Exchange } from './recorder.ts'

// Follows docs/contract-testing.md as a client team would, in a separate folder, and tests what it promises.

const PAGE = await readFile(path.join(ROOT, 'docs/contract-testing.md'), 'utf8')
const blocks = (language: string) =>
  [...PAGE.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)\n\`\`\`$`, 'gms'))].map(([, code = '']) => code)
const [setUp = '', runTests = '', checkRecordings = '', proxyService = ''] = blocks('sh')
const [contractTest = ''] = blocks('ts')

let api: TestApp
let service: string
let folder: string
let mock: Prism

beforeAll(async () => {
  api = await createTestApp()
  service = await api.listen()
  folder = await mkdtemp(path.join(tmpdir(), 'flowtrail-client-'))
  await symlink(path.join(import.meta.dirname, 'node_modules'), path.join(folder, 'node_modules'))
  await writeFile(path.join(folder, 'package.json'), '{}')
  await cp(DOCUMENT, path.join(folder, 'openapi.yaml'))
  await cp(path.join(ROOT, 'docs/check-recordings.mjs'), path.join(folder, 'check-recordings.mjs'))
  mock = await startPrism('mock', DOCUMENT, '--errors')
})
afterAll(async () => {
  await mock.stop()
  await rm(folder, { recursive: true })
  await api.close()
})

const inFolder = (line: string, settings: Record<string, string> = {}): Promise<Outcome> =>
  shell(`cd '${folder}' && ${line}`, settings)

/** Sends an operation's example request, or a variation of it, to the address. */
function send(address: string, operationId: OperationId, variation: Variation = {}): Promise<Response> {
  const { method, path, body, key = api.key, headers } = exampleCall(operationId, variation)
  const isText = typeof body === 'string'
  return fetch(address + path, {
    method: method ?? 'GET',
    headers: {
      ...(key !== null && { 'x-api-key': key }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body !== undefined && { body: isText ? body : JSON.stringify(body) }),
    signal: AbortSignal.timeout(3_000),
  })
}

const event = exampleCall('recordCustomEvent').body as { identifiers: object[] }

describe('the mock', () => {
  test.each(documentedCases())('responds with $name', async ({ name, exchange }) => {
    const { operationId, status, responseBody, responseHeaders } = exchange
    const example = responseBody === '' ? '' : `, example=${name.split(' ').at(-1)}`
    const headers = { prefer: `code=${status}${example}` }
    const response = await send(mock.address, operationId as OperationId, { headers })
    expect(response.status).toBe(status)
    expect(Object.fromEntries(response.headers)).toMatchObject(
      Object.fromEntries(Object.entries(responseHeaders).map(([header, value]) => [header.toLowerCase(), value])),
    )
    expect(await response.text()).toBe(responseBody)
  })

  test.each(operationIds)('responds to %s with success when nothing is preferred', async (operationId) => {
    expect((await send(mock.address, operationId)).status).toBe(200)
  })

  test.each<[string, OperationId, Variation, number]>([
    ['without key', 'listModules', { key: null }, 401],
    ['with an invalid limit', 'listEntryEvents', { query: { limit: '0' } }, 400],
    ['of another media type', 'recordCustomEvent', { headers: { 'content-type': 'text/plain' } }, 415],
    ['with an incomplete body', 'recordCustomEvent', { body: { ...event, identifiers: undefined } }, 422],
  ])('rejects a request %s, whatever is preferred', async (_, operationId, variation, status) => {
    const headers = { prefer: 'code=503', ...variation.headers }
    const response = await send(mock.address, operationId, { ...variation, headers })
    expect(response.status).toBe(status)
    expect(response.headers.get('sl-violations')).toContain('"location":["request"')
  })

  const value = (text: string) => ({ body: { ...event, identifiers: [{ key: 'email', value: text }] } })
  test.each<[string, OperationId, Variation]>([
    ['an unknown query parameter', 'getModule', { query: { sort: 'title' } }],
    ['an empty parameter', 'listEntryEvents', { query: { limit: '' } }],
    ['a cursor of another list', 'listEntryEvents', { query: { cursor: 'AWJ4' } }],
    ['an empty window', 'listEntryPageViews', { query: { updated_after: '2027-01-01T00:00:00Z' } }],
    ['an event of tomorrow', 'recordCustomEvent', { body: { ...event, timestamp: '2999-01-01T00:00:00Z' } }],
    ['an identifier that is not JSON', 'recordCustomEvent', value('amara.okafor@example.com')],
    ['props that are not JSON', 'recordCustomEvent', { body: { ...event, custom_event_props: 'spring' } }],
    [
      'a key twice',
      'recordCustomEvent',
      { body: { ...event, identifiers: [event.identifiers[0], event.identifiers[0]] } },
    ],
  ])('accepts %s, which the service rejects', async (_, operationId, variation) => {
    expect((await send(mock.address, operationId, variation)).status).toBe(200)
    expect((await send(service, operationId, variation)).status).toBe(400)
  })

  test.each(operationIds.filter((operationId) => operations[operationId]?.responses['200']?.headers?.['Next-Cursor']))(
    'always has a next page of %s',
    async (operationId) => {
      const { headers } = await send(mock.address, operationId)
      const [, next = ''] = /^<([^>]+)>; rel="next"$/.exec(headers.get('link') ?? '') ?? []
      expect(new URL(next, service).pathname).toBe(new URL(exampleCall(operationId).path, service).pathname)
      const again = await fetch(mock.address + next, { headers: { 'x-api-key': 'any' } })
      expect([again.status, again.headers.get('link')]).toEqual([200, headers.get('link')])
      expect(new URL(next, service).searchParams.get('cursor')).toBe(again.headers.get('next-cursor'))
    },
  )

  test('ignores If-None-Match', async () => {
    expect((await send(mock.address, 'getModule', { headers: { 'if-none-match': '*' } })).status).toBe(200)
  })

  test('rejects HEAD', async () => {
    const response = await fetch(mock.address + exampleCall('getModule').path, { method: 'HEAD' })
    expect(response.status).toBe(405)
  })

  test('never responds to malformed JSON', async () => {
    await expect(send(mock.address, 'recordCustomEvent', { body: '{"timestamp": 1,}' })).rejects.toThrow('timeout')
  })

  test('ignores a base path', async () => {
    const file = path.join(folder, 'base-path.yaml')
    await writeFile(file, (await readFile(DOCUMENT, 'utf8')).replace(/- url: .*/, '- url: /flowtrail'))
    const based = await startPrism('mock', file)
    onTestFinished(based.stop)
    expect((await send(based.address, 'listModules')).status).toBe(200)
    expect((await send(`${based.address}/flowtrail`, 'listModules')).status).toBe(404)
  })
})

describe('docs/contract-testing.md', () => {
  const commands = setUp.split('\n')

  test('installs the versions that are tested here', async () => {
    const { dependencies } = JSON.parse(await readFile(path.join(import.meta.dirname, 'package.json'), 'utf8'))
    const install = commands.find((line) => line.startsWith('npm install ')) ?? ''
    const installed = [...install.matchAll(/ (\S+)@([\d.]+)/g)].map(([, name, version]) => [name, version])
    expect(Object.fromEntries(installed)).toEqual(dependencies)
    expect(PAGE).toContain(`here ${dependencies['@stoplight/prism-cli']}`)
  })

  test('lists the error examples of the document', () => {
    const spans = (text: string) => [...text.matchAll(/`(\w+)`/g)].map(([, name = '']) => name)
    const listed = [...PAGE.matchAll(/^\| (\d{3}) \| (.*) \| (.*) \|$/gm)].flatMap(
      ([, status, examples = '', of = '']) => {
        const named = of.startsWith('all') ? operationIds.filter((id) => !spans(of).includes(id)) : spans(of)
        return named.flatMap((operationId) => spans(examples).map((name) => `${operationId} ${status} ${name}`))
      },
    )
    const shown = documentedCases().flatMap(({ name, exchange }) => (exchange.status >= 400 ? [name] : []))
    expect(listed.sort()).toEqual(shown.sort())
  })

  test('runs tests against the mock with one command, and exits with their status', async () => {
    const port = String(await freePort())
    await writeFile(path.join(folder, 'contract.test.mts'), contractTest.replace('4010', port))
    for (const command of commands.filter((line) => !line.startsWith('npm install '))) {
      const adapted = command
        .replace('http://127.0.0.1:3000', service)
        .replace(' mock openapi.yaml', `$& --port ${port}`)
      expect(await inFolder(adapted.replace('4010', port))).toMatchObject({ status: 0 })
    }
    const passed = await inFolder(runTests)
    expect(passed.stdout).toContain('fail 0')
    expect(passed.stdout).toMatch(/pass [1-9]/)
    expect(passed.status).toBe(0)
    expect((await inFolder(runTests, { FLOWTRAIL_URL: 'http://127.0.0.1:1' })).status).not.toBe(0)
  })
})

describe('check-recordings.mjs', () => {
  const documented = documentedCases().map(({ exchange }) => exchange)
  const [first] = documented as [Exchange]
  const URL = 'https://flowtrail.example/v1'
  const pairs = (headers: object) => Object.entries(headers).map(([name, value]) => ({ name, value: String(value) }))
  const lists = (headers: object) => Object.fromEntries(pairs(headers).map(({ name, value }) => [name, [value]]))

  const FORMATS: Record<string, (exchanges: Exchange[]) => object> = {
    HAR: (exchanges) => ({
      log: {
        entries: exchanges.map(({ method, url, headers, body, status, responseHeaders, responseBody }) => ({
          request: { method, url: URL + url, headers: pairs(headers), ...(body && { postData: { text: body } }) },
          response: {
            status,
            headers: pairs(responseHeaders),
            content: { encoding: 'base64', text: Buffer.from(responseBody).toString('base64') },
          },
        })),
      },
    }),
    VCR: (exchanges) => ({
      http_interactions: exchanges.map(
        ({ method, url, headers, body = '', status, responseHeaders, responseBody }) => ({
          request: {
            method: method.toLowerCase(),
            uri: URL + url,
            body: { encoding: 'UTF-8', string: body },
            headers: lists(headers),
          },
          response: {
            status: { code: status, message: '' },
            headers: lists(responseHeaders),
            body: { encoding: 'UTF-8', string: responseBody },
          },
        }),
      ),
    }),
    vcrpy: (exchanges) => ({
      interactions: exchanges.map(({ method, url, headers, body = null, status, responseHeaders, responseBody }) => ({
        request: { method, uri: URL + url, body, headers: lists(headers) },
        response: {
          status: { code: status, message: '' },
          headers: lists(responseHeaders),
          body: { string: responseBody },
        },
      })),
      version: 1,
    }),
  }
  const OTHER = { ...first, url: '/health', responseBody: 'fine' }

  async function check(text: string): Promise<Outcome> {
    await rm(path.join(folder, 'recordings'), { recursive: true, force: true })
    await inFolder('mkdir recordings')
    await writeFile(path.join(folder, 'recordings/cassette'), text)
    return inFolder(checkRecordings)
  }

  test.each(Object.entries(FORMATS))('accepts %s', async (format, write) => {
    const text =
      format === 'HAR' ? JSON.stringify(write([...documented, OTHER])) : stringify(write([...documented, OTHER]))
    expect(await check(text)).toEqual({ status: 0, stdout: `${documented.length} recorded exchanges\n`, stderr: '' })
  })

  test.each<[string, Partial<Exchange>, string]>([
    ['a response that lacks a field', { responseBody: '[{"module_id":"m"}]' }, "must have required property 'title'"],
    ['an undocumented status', { status: 418 }, 'Unable to match the returned status code'],
    [
      'a request that should have been rejected',
      { url: exampleCall('listEntryEvents').path.concat('?limit=0') },
      'must be >= 1',
    ],
    ['an unknown path', { url: '/projects/demo/module' }, 'The route /projects/demo/module hasn'],
  ])('finds %s', async (_, change, message) => {
    for (const write of Object.values(FORMATS)) {
      const { status, stdout, stderr } = await check(stringify(write([first, { ...first, ...change }])))
      expect([status, stdout]).toEqual([1, '2 recorded exchanges\n'])
      expect(stderr).toContain('recordings/cassette: ')
      expect(stderr).toContain(message)
    }
  })

  test('fails when there is no exchange', async () => {
    expect(await check('{"interactions":[]}')).toMatchObject({ status: 1, stdout: '0 recorded exchanges\n' })
  })
})

describe('the proxy', () => {
  const [, , ...args] = proxyService.split(' ')
  async function startProxy(upstream: string): Promise<Prism> {
    const own = args.map((arg) => arg.replace('openapi.yaml', DOCUMENT).replace('http://127.0.0.1:3000', upstream))
    const proxy = await startPrism(...own)
    onTestFinished(proxy.stop)
    return proxy
  }

  test('forwards requests that match the document, and no others', async () => {
    const proxy = await startProxy(service)
    for (const operationId of operationIds) {
      // A recording with a key is replayed, with the id of its event.
      const once = { headers: { 'idempotency-key': 'forwarded' } }
      const keyed = operationId === 'recordCustomEvent' ? once : {}
      // The first response to a batch says that it is the first, and so do the counts of an import.
      if (operationId === 'recordCustomEvents' || operationId === 'importRecords') await send(service, operationId)
      const [direct, through] = [await send(service, operationId, keyed), await send(proxy.address, operationId, keyed)]
      expect([through.status, await through.json()]).toEqual([200, await direct.json()])
    }
    const rejected = await send(proxy.address, 'listEntryEvents', { query: { limit: '0' } })
    expect([rejected.status, await rejected.json()]).toMatchObject([
      422,
      { type: expect.stringContaining('stoplight.io') },
    ])
  })

  test('reports a response that does not match the document', async () => {
    const server = createServer((_, response) =>
      response.writeHead(200, { 'content-type': 'application/json' }).end('[{"module_id":"m"}]'),
    )
    onTestFinished(() => void server.close())
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const proxy = await startProxy(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    const response = await send(proxy.address, 'listModules')
    expect([response.status, await response.json()]).toMatchObject([
      500,
      { type: expect.stringMatching(/#VIOLATIONS$/), validation: expect.arrayContaining([expect.anything()]) },
    ])
  })
})
