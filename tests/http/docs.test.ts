import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { jsonAt, readDocument, yamlAt } from '../../src/http/document.ts'
import { createTestApp, type TestApp } from '../support/app.ts'

// What the docs page is made of; tests/browser sees what becomes of it.

let api: TestApp
beforeAll(async () => {
  api = await createTestApp()
})
afterAll(() => api.close())

const get = async (path: string, app = api) => {
  const response = await app.call({ path, key: null })
  expect(response.statusCode).toBe(200)
  return response
}

test.each(['/docs/', '/docs/static/swagger-initializer.js'])('%s lets nothing in from elsewhere', async (path) => {
  expect((await get(path)).headers['content-security-policy']).toBe(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; " +
      "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';",
  )
})

test('the page has a title, an icon and the width of the device', async () => {
  const { body } = await get('/docs/')
  expect(body).toContain('<head><meta name="viewport" content="width=device-width, initial-scale=1">')
  expect(body.match(/viewport/g)).toHaveLength(1)
  expect(body).toContain('<title>Flowtrail API</title>')
  expect(body).toContain('<link rel="icon" type="image/svg+xml" href="./static/theme/favicon.svg" sizes="any" />')
})

test.each(['page.css', 'page.js', 'contents.js', 'samples.js', 'responses.js', 'favicon.svg'])(
  'the page has its own %s',
  async (file) => {
    const { body } = await get(`/docs/static/theme/${file}`)
    expect(body).toBe(readFileSync(new URL(`../../src/http/docs/${file}`, import.meta.url), 'utf8'))
  },
)

test('Swagger UI is configured', async () => {
  const { body } = await get('/docs/static/swagger-initializer.js')
  expect(body).toContain(
    'const config = {"persistAuthorization":true,"tryItOutEnabled":true,"deepLinking":true,' +
      '"displayRequestDuration":true,"docExpansion":"list","defaultModelsExpandDepth":0,"plugins":[(system) => ',
  )
  for (const plugin of ['contentsPlugin', 'samplesPlugin', 'responsesPlugin', 'accessibilityPlugin'])
    expect(body).toContain(`${plugin}(system)`)
})

test('the page fills in no optional parameter, which would be sent', async () => {
  const { parameters } = (await get('/docs/json')).json().components
  const filledIn = (all: { name: string; example?: unknown }[]) =>
    all.filter(({ example }) => example !== undefined).map(({ name }) => name)
  expect(filledIn(Object.values(parameters))).toEqual(['projectId', 'moduleId', 'versionNumber', 'entryId'])
})

test('the page shows the document, with another description, fewer examples, and no link to itself', async () => {
  const common = async (path: string) => {
    const response = await get(path)
    expect(response.headers['content-type']).toBe('application/json; charset=utf-8')
    const document = response.json()
    delete document.info.description
    delete document.externalDocs
    for (const parameter of Object.values<{ example?: unknown }>(document.components.parameters))
      delete parameter.example
    return document
  }
  expect(await common('/docs/json')).toEqual(await common('/openapi.json'))
})

describe('the server of the document', () => {
  const DOCUMENTS = ['/openapi.yaml', '/openapi.json', '/openapi.strict.json', '/docs/json']
  const serverIn = async (app: TestApp, path: string, headers: Record<string, string> = {}) => {
    const { body } = await app.call({ path, key: null, headers })
    const { servers, externalDocs } = parse(body)
    // The page does not point to itself.
    const description = 'Guides and an interactive reference'
    expect(externalDocs).toEqual(
      path.endsWith('/docs/json') ? undefined : { url: `${servers[0].url.replace(/\/$/, '')}/docs`, description },
    )
    return servers
  }

  test.each(DOCUMENTS)('of %s is the address that the reader has used', async (path) => {
    const url = 'http://flows.example:8080'
    expect(await serverIn(api, path, { host: 'flows.example:8080' })).toEqual([{ url, description: 'This server' }])
    expect(await serverIn(api, path, { host: '"$&\\' })).toMatchObject([{ url: 'http://"$&\\' }])
  })

  test('is a path for HTTP/1.0, which has no Host', async () => {
    const { json, yaml } = await readDocument()
    const expected = { servers: [{ url: '/' }], externalDocs: { url: '/docs' } }
    expect(jsonAt(json, '/')).toMatchObject(expected)
    expect(parse(yamlAt(yaml, '/'))).toMatchObject(expected)
    for (const basePath of ['', '/flow']) {
      const app = await createTestApp({ config: { basePath } })
      const socket = connect(Number(new URL(await app.listen()).port), '127.0.0.1')
      socket.write(`GET ${basePath}/openapi.json HTTP/1.0\r\n\r\n`)
      const [, body = ''] = (await text(socket)).split('\r\n\r\n')
      const url = `${basePath}/docs`
      expect(JSON.parse(body)).toMatchObject({ servers: [{ url: basePath || '/' }], externalDocs: { url } })
      await app.close()
    }
  })

  test.each(DOCUMENTS)('of %s is that of its reader alone, unless PUBLIC_URL is set', async (path) => {
    const app = await createTestApp({ config: { trustProxy: true } })
    const headers = { host: 'flows.example', 'x-forwarded-host': 'elsewhere.example' }
    expect(await serverIn(app, path, headers)).toMatchObject([{ url: 'http://elsewhere.example' }])
    // A cache between them, whose key has the host alone, would give it to others.
    expect((await get(path, app)).headers['cache-control']).toBe('private, no-cache')
    await app.close()
  })

  test('is PUBLIC_URL when that is set', async () => {
    const publicUrl = 'https://flows.example.com/v1'
    const app = await createTestApp({ config: { publicUrl, basePath: '/v1' } })
    for (const path of DOCUMENTS) {
      expect(await serverIn(app, `/v1${path}`)).toMatchObject([{ url: publicUrl }])
      expect((await get(`/v1${path}`, app)).headers['cache-control']).toBeUndefined()
    }
    // The page's own YAML is the document's.
    const yaml = await app.call({ path: '/v1/docs/yaml', key: null })
    expect([yaml.statusCode, yaml.headers.location]).toEqual([302, '/v1/openapi.yaml'])
    const { headers } = await get('/v1/docs/', app)
    expect(headers['content-security-policy']).toContain("connect-src 'self' https://flows.example.com;")
    await app.close()
  })
})

describe('the root', () => {
  const HTML = 'text/html,application/xhtml+xml,*/*;q=0.8'

  test.each([
    ['', '/'],
    ['/flow', '/flow'],
    ['/flow', '/flow/'],
  ])('leads browsers to the page, and tells others where it is: base path "%s", path %s', async (basePath, path) => {
    const app = basePath === '' ? api : await createTestApp({ config: { basePath } })
    const browser = await app.call({ path, key: null, headers: { accept: HTML } })
    expect([browser.statusCode, browser.headers.location]).toEqual([302, `${basePath}/docs`])
    for (const accept of ['*/*', 'application/json']) {
      const { statusCode, body } = await app.call({ path, key: null, headers: { accept } })
      expect(statusCode).toBe(404)
      expect(JSON.parse(body).error).toEqual({
        code: 'route_not_found',
        message: 'No such path. All paths are documented at /docs and in /openapi.yaml, below the URL of the API.',
      })
    }
    if (app !== api) await app.close()
  })

  test('is not what an unknown path is taken for', async () => {
    const { statusCode } = await api.call({ path: '/modules', key: null, headers: { accept: HTML } })
    expect(statusCode).toBe(404)
  })
})

describe('the description', () => {
  const descriptionOf = async (app = api, basePath = ''): Promise<string> =>
    (await get(`${basePath}/docs/json`, app)).json().info.description

  test('begins with what the service is, and folds the chapters', async () => {
    const description = await descriptionOf()
    expect(description).toMatch(/^<figure><svg .*<\/svg><\/figure>\n\nFlowtrail lets you read the \*\*modules\*\*/s)
    expect(description).toContain('\n\nUse it to see who went through which flow')
    const chapters = (await get('/openapi.json')).json().info.description.split(/^## /m).slice(1)
    expect(chapters.length).toBeGreaterThan(4)
    for (const chapter of chapters) {
      const [name, ...text] = chapter.split('\n')
      const id = `chapter-${name.toLowerCase().replaceAll(' ', '-')}`
      expect(description).toContain(
        `<details id="${id}"><summary><h3>${name}</h3></summary>\n\n${text.join('\n')}\n\n</details>\n\n`,
      )
    }
  })

  test('has guides that call the address that the reader has used', async () => {
    const { body } = await api.call({ path: '/docs/json', key: null, headers: { host: 'flows.example:8080' } })
    const { description } = JSON.parse(body).info
    expect(description).toContain('<details id="guide-first-call">')
    expect(description).toContain('FLOWTRAIL_URL=http://flows.example:8080 ')
    expect(description).toContain('FLOWTRAIL_PROJECT=your-project ')
    expect(description).not.toMatch(/\{(address|project)\}/)
  })

  test('says who has keys, and links to the document', async () => {
    const description = await descriptionOf()
    expect(description).toContain('1. Get a key of your project from the operator of this server')
    expect(description).toContain('2. Press **Authorize** and paste it.')
    expect(description).toContain('3. Open *List modules*, enter your project')
    expect(description).toContain('[openapi.yaml](/openapi.yaml), [openapi.json](/openapi.json)')
  })

  test('says where the key of the demo project is, and links below the base path', async () => {
    const demo = await createTestApp({ config: { basePath: '/flow' }, demoKeyFile: '.data/demo-key' })
    const description = await descriptionOf(demo, '/flow')
    expect(description).toContain(
      '1. Copy the key of the demo project: the server printed it at startup and keeps it in `.data/demo-key`.',
    )
    expect(description).toContain('3. Open any operation and press **Execute**')
    expect(description).toContain('FLOWTRAIL_PROJECT=demo ')
    expect(description).toContain('[openapi.yaml](/flow/openapi.yaml), [openapi.json](/flow/openapi.json)')
    await demo.close()
  })
})
