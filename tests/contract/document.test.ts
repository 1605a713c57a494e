import { once } from 'node:events'
import http, { type IncomingMessage } from 'node:http'
import fastify from 'fastify'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { createPool } from '../../src/database/pool.ts'
import { SCOPES } from '../../src/domain/api-key.ts'
import { STATUS_OF } from '../../src/domain/errors.ts'
import { Followers } from '../../src/feed/followers.ts'
import { handlers } from '../../src/handlers/index.ts'
import { Authenticator } from '../../src/http/auth.ts'
import { type ApiDocument, type Operation, readDocument } from '../../src/http/document.ts'
import { ReadGate } from '../../src/http/read-gate.ts'
import { registerRoutes } from '../../src/http/routes.ts'
import { Recorder } from '../../src/recording/recorder.ts'
import { Importer } from '../../src/transfer/importer.ts'
import { type Call, createTestApp, PLAIN_CONFIG, type TestApp } from '../support/app.ts'
import { document, operations, type Schema } from '../support/contract.ts'
import { exampleCall, operationIds } from '../support/example-call.ts'

const documented = Object.values(operations)
const reads = operationIds.filter((operationId) => exampleCall(operationId).method === 'GET')

let api: TestApp
beforeAll(async () => {
  api = await createTestApp()
})
afterAll(() => api.close())

describe('the document', () => {
  test('names every error code with its status, and no other', () => {
    const exemplified = documented.flatMap(({ responses }) =>
      Object.entries(responses).flatMap(([status, { content }]) =>
        Object.values(content?.['application/json']?.examples ?? {}).flatMap(({ value }) => {
          const { error } = value as { error?: { code: string } }
          return error ? [[error.code, Number(status)]] : []
        }),
      ),
    )
    const known = Object.entries(STATUS_OF)
    const inTable = [...document.info.description.matchAll(/^\| (\d+) \| `(\w+)` \|/gm)]
    expect(inTable.map(([, status, code]) => [code, Number(status)])).toEqual(known)
    expect(document.components.schemas.ErrorInfo?.properties?.code?.['x-extensible-enum']).toEqual(
      known.map(([code]) => code),
    )
    // Of these two the document has no response, since it has no such operation.
    const inOperations = known.filter(([code]) => code !== 'route_not_found' && code !== 'method_not_allowed')
    expect([...new Set(exemplified.map(String))].sort()).toEqual(inOperations.map(String).sort())
  })

  const schemasOf = (content: Record<string, { schema: Schema }> | undefined) =>
    Object.values(content ?? {}).flatMap(({ schema }) => objectsIn(schema))
  const sent = documented.flatMap(({ requestBody }) => schemasOf(requestBody?.content))
  const returned = documented.flatMap(({ responses }) =>
    Object.values(responses).flatMap(({ content }) => schemasOf(content)),
  )

  test('closes every object of a request, so that a misspelt field is an error', () => {
    expect(sent.length).toBeGreaterThan(1)
    for (const schema of sent) expect(schema).toHaveProperty('additionalProperties', false)
  })

  test('leaves every object of a response open, so that clients tolerate new fields', () => {
    expect(returned.length).toBeGreaterThan(1)
    for (const schema of returned) expect(schema).not.toHaveProperty('additionalProperties')
  })

  test('lists the required properties of every object', () => {
    for (const { required, properties } of [...sent, ...returned]) {
      expect(required?.length).toBeGreaterThan(0)
      expect(Object.keys(properties ?? {})).toEqual(expect.arrayContaining(required ?? []))
    }
  })

  test('has parameters at operations only, since glue would not validate others', () => {
    for (const item of Object.values(document.paths)) expect(item).not.toHaveProperty('parameters')
  })

  test.each(documented)('describes $operationId in full', (operation) => {
    expect(operation).toMatchObject({
      tags: [expect.stringMatching(/./)],
      operationId: expect.stringMatching(/^(list|get|record|import)[A-Z]/),
      summary: expect.stringMatching(/^[A-Z].*[^.]$/),
      description: expect.stringMatching(/\.\s*$/),
      'x-required-scope': expect.toBeOneOf([...SCOPES]),
    })
    for (const { description } of operation.parameters) expect(description).toMatch(/\.\s*$/)
    for (const [status, response] of Object.entries(operation.responses)) {
      expect(response.description).toMatch(/\.\s*$/)
      const { examples = {} } = response.content?.['application/json'] ?? {}
      expect([status, Object.keys(examples).length > 0]).toEqual([status, status !== '304'])
      for (const example of Object.values(examples)) expect(example).toHaveProperty('summary')
    }
  })
})

/** The schema and all below it that are objects. */
function objectsIn(schema: Schema): Schema[] {
  const below = [...Object.values(schema.properties ?? {}), ...(schema.items ? [schema.items] : [])].flatMap(objectsIn)
  return schema.type === 'object' ? [schema, ...below] : below
}

describe('the service refuses to start', () => {
  const change = (edit: (paths: ApiDocument['paths']) => void) => async () => {
    const { json } = await readDocument()
    const changed = structuredClone(json)
    edit(changed.paths)
    return registerRoutes(fastify(), {
      document: changed,
      handlers,
      context: {
        db: api.db,
        recorder: new Recorder(createPool(api.databaseUrl)),
        followers: new Followers(api.db, { maxFollowers: 1 }),
        importer: new Importer(createPool(api.databaseUrl)),
      },
      authenticator: new Authenticator(api.db, undefined, () => {}),
      gate: new ReadGate(),
      maxImport_bytes: PLAIN_CONFIG.maxImport_bytes,
      basePath: '',
    })
  }
  const MODULES = '/projects/{projectId}/modules'
  const listModules = (paths: ApiDocument['paths']) => paths[MODULES]?.get as Operation

  test('only if something is wrong', async () => {
    await change(() => {})()
  })
  test.each([
    [
      'on an operation without handler',
      change((paths) =>
        Object.assign(paths[MODULES] ?? {}, { put: { ...listModules(paths), operationId: 'putModules' } }),
      ),
      'operations without handler: [putModules]',
    ],
    [
      'on a handler without operation',
      change((paths) => delete paths[MODULES]),
      'handlers without operation: [listModules]',
    ],
    [
      'on a misspelt operation',
      change((paths) => Object.assign(listModules(paths), { operationId: 'listModule' })),
      'operations without handler: [listModule]; handlers without operation: [listModules]',
    ],
    [
      'on an operation without scope',
      change((paths) => Object.assign(listModules(paths), { 'x-required-scope': undefined })),
      'listModules needs an x-required-scope out of read, events:write',
    ],
    [
      'on an unknown scope',
      change((paths) => Object.assign(listModules(paths), { 'x-required-scope': 'write' })),
      'listModules needs an x-required-scope',
    ],
  ])('%s', async (_, boot, message) => {
    await expect(boot()).rejects.toThrow(message)
  })
})

describe('HEAD', () => {
  const both = async (call: Call) => {
    const headers = { ...call.headers, 'x-request-id': 'both' }
    return Promise.all((['GET', 'HEAD'] as const).map((method) => api.call({ ...call, method, headers })))
  }
  const comparable = ({ date: _, ...headers }: Record<string, unknown>) => headers

  test.each(
    reads.flatMap((operationId): [string, Call][] => [
      [`${operationId}`, exampleCall(operationId)],
      [`${operationId} with an unknown filter`, exampleCall(operationId, { query: { sort: 'title' } })],
      [`${operationId} without key`, exampleCall(operationId, { key: null })],
      [`${operationId} of an unmodified resource`, exampleCall(operationId, { headers: { 'if-none-match': '*' } })],
    ]),
  )('of %s is its GET without the body', async (_, call) => {
    const [get, head] = await both(call)
    expect(head?.statusCode).toBe(get?.statusCode)
    expect(comparable(head?.headers ?? {})).toEqual(comparable(get?.headers ?? {}))
    expect(head?.body).toBe('')
  })

  test('of a list with more than one page links to the next', async () => {
    const [, head] = await both(exampleCall('listModuleVersions', { query: { limit: '1' } }))
    expect(head?.headers.link).toContain(String(head?.headers['next-cursor']))
  })
})

describe('a method that a path does not support', () => {
  const SENDABLE = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const
  const refused = operationIds.flatMap((operationId) => {
    const call = exampleCall(operationId)
    const methods = Object.values(document.paths).find((item) =>
      Object.values(item).some((operation) => operation.operationId === operationId),
    )
    const allow = Object.keys(methods ?? {}).flatMap((method) =>
      method === 'get' ? ['GET', 'HEAD'] : [method.toUpperCase()],
    )
    const { path } = call
    return SENDABLE.filter((method) => !allow.includes(method)).map((method) => ({ method, path, allow }))
  })

  test.each(refused)('$method $path gets a 405', async ({ method, path, allow }) => {
    for (const key of [api.key, null]) {
      const response = await api.call({ method, path, key, body: method === 'HEAD' ? undefined : '{' })
      expect(response.statusCode).toBe(405)
      expect(response.headers).toMatchObject({ allow: allow.join(', '), 'cache-control': 'no-store' })
      if (method !== 'HEAD') {
        expect(response.json()).toEqual({
          error: { code: 'method_not_allowed', message: `Method not allowed; this path supports ${allow.join(', ')}.` },
          projectId: 'demo',
        })
      }
    }
  })

  test('gets a 405 whatever method Node knows', async () => {
    const address = await api.listen()
    // CONNECT never reaches a route.
    for (const method of http.METHODS.filter((method) => !['GET', 'HEAD', 'CONNECT'].includes(method))) {
      const request = http.request(`${address}/projects/demo/modules`, { method }).end()
      const [response] = (await once(request, 'response')) as [IncomingMessage]
      response.resume()
      expect([method, response.statusCode, response.headers.allow]).toEqual([method, 405, 'GET, HEAD'])
    }
  })
})

describe.each([
  ['at the root', '', '/v1'],
  ['under a base path', '/flow.trail/v1', ''],
])('the service %s', (_, basePath, elsewhere) => {
  let based: TestApp
  beforeAll(async () => {
    based = await createTestApp({ config: { basePath } })
  })
  afterAll(() => based.close())

  const get = (path: string) => based.call({ path, key: null })

  test.each(operationIds)('serves %s there and nowhere else', async (operationId) => {
    const call = exampleCall(operationId)
    expect((await based.call({ ...call, path: basePath + call.path })).statusCode).toBe(200)
    const response = await based.call({ ...call, path: elsewhere + call.path })
    expect(response.statusCode).toBe(404)
    expect(response.json()).toEqual({ error: { code: 'route_not_found', message: expect.any(String) } })
  })

  test('links to next pages that exist', async () => {
    const versions = `${basePath}/projects/demo/modules/skin-quiz/versions`
    const first = await based.call({ path: `${versions}?limit=1&direction=ASC` })
    const cursor = first.headers['next-cursor']
    const next = `${versions}?cursor=${cursor}&direction=ASC&limit=1`
    expect(first.headers.link).toBe(`<${next}>; rel="next"`)
    const second = await based.call({ path: next })
    expect(second.json()).toMatchObject([{ version_number: 2 }])
    expect(second.headers).not.toHaveProperty('link')
    expect(second.headers).not.toHaveProperty('next-cursor')
  })

  test('refuses other methods there, and names the project', async () => {
    const response = await based.call({ method: 'DELETE', path: `${basePath}/projects/demo/modules` })
    expect([response.statusCode, response.headers.allow, response.json().projectId]).toEqual([405, 'GET, HEAD', 'demo'])
  })

  test('serves the same document as YAML and as JSON, with its own server URL', async () => {
    const [yaml, json] = [await get(`${basePath}/openapi.yaml`), await get(`${basePath}/openapi.json`)]
    expect(yaml.headers['content-type']).toBe('application/yaml; charset=utf-8')
    expect(json.headers['content-type']).toBe('application/json; charset=utf-8')
    expect(parse(yaml.body)).toEqual(json.json())
    expect(json.json().servers).toEqual([{ url: `http://localhost:80${basePath}`, description: 'This server' }])
  })

  test('serves /docs there, with its own assets and document', async () => {
    const page = await get(`${basePath}/docs/`)
    expect(page.statusCode).toBe(200)
    expect(page.headers['content-type']).toContain('text/html')
    const files = [...page.body.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, file]) => file ?? '')
    expect(files.length).toBeGreaterThan(3)
    for (const file of files) {
      const { pathname } = new URL(file, `http://docs.invalid${basePath}/docs/`)
      expect(pathname.startsWith(`${basePath}/docs/`)).toBe(true)
      expect([file, (await get(pathname)).statusCode]).toEqual([file, 200])
    }
    expect((await get(`${basePath}/docs/json`)).json().servers[0].url).toBe(`http://localhost:80${basePath}`)
  })

  test.each(['/livez', '/readyz', '/metrics'])('serves %s there and at the root', async (probe) => {
    for (const prefix of ['', basePath]) expect((await get(prefix + probe)).statusCode).toBe(200)
  })

  test.each(['/openapi.yaml', '/openapi.json', '/docs', '/docs/'])('has %s nowhere else', async (path) => {
    expect((await get(elsewhere + path)).statusCode).toBe(404)
  })
})
