import { readFile } from 'node:fs/promises'
import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { routeNotFound } from '../domain/errors.ts'
import { type DocumentFiles, jsonAt, yamlAt } from './document.ts'

/** Swagger UI styles elements inline and draws its icons from data URLs; everything else comes from this server. */
const CONTENT_SECURITY_POLICY = {
  'default-src': ["'none'"],
  'script-src': ["'self'"],
  'style-src': ["'self'", "'unsafe-inline'"],
  'img-src': ["'self'", 'data:'],
  'connect-src': ["'self'"],
  'base-uri': ["'none'"],
  'form-action': ["'none'"],
  'frame-ancestors': ["'none'"],
}

/** Swagger UI's page lacks it, so that phones would lay it out for a desktop and scale it down. */
const VIEWPORT = '<meta name="viewport" content="width=device-width, initial-scale=1">'

/** The scripts of the page, each of which defines a Swagger UI plugin in the browser. */
const SCRIPTS = ['contents.js', 'samples.js', 'responses.js', 'page.js']
declare const contentsPlugin: (system: unknown) => object
declare const samplesPlugin: (system: unknown) => object
declare const responsesPlugin: (system: unknown) => object
declare const accessibilityPlugin: (system: unknown) => object

interface DocsOptions {
  document: DocumentFiles
  basePath: string
  /** The URL of the API for its readers; when undefined, that of their request. */
  publicUrl: string | undefined
  /** The file with the demo project's key, if there is a demo project. The page shows its name, never the key. */
  demoKeyFile: string | undefined
}

/**
 * Serves the document at /openapi.yaml and /openapi.json, its strict form at /openapi.strict.json, and Swagger UI at /docs,
 * with all of its assets. The root leads browsers to the page.
 */
export async function serveDocs(app: FastifyInstance, options: DocsOptions): Promise<void> {
  const { document, basePath, publicUrl, demoKeyFile } = options
  // Not the address that the server listens on: readers may know it by another, and browsers forbid the page to call that.
  const urlFor = ({ protocol, host }: FastifyRequest) =>
    publicUrl ?? (host ? `${protocol}://${host}${basePath}` : basePath || '/')
  // With the host that a client claims, behind a proxy that passes that on, a shared cache could mislead other readers.
  const caching = publicUrl === undefined ? { 'cache-control': 'private, no-cache' } : {}
  const json = 'application/json; charset=utf-8'
  for (const [name, type, render] of [
    ['openapi.yaml', 'application/yaml; charset=utf-8', (url: string) => yamlAt(document.yaml, url)],
    ['openapi.json', json, (url: string) => JSON.stringify(jsonAt(document.json, url))],
    ['openapi.strict.json', json, (url: string) => JSON.stringify(jsonAt(document.strict, url))],
  ] as const) {
    const bytesAt = renderOnce(render)
    app.get(`${basePath}/${name}`, (request, reply) =>
      reply
        .type(type)
        .headers(caching)
        .send(bytesAt(urlFor(request))),
    )
  }
  for (const root of new Set([basePath || '/', `${basePath}/`])) {
    app.get(root, async (request, reply) => {
      if (!request.headers.accept?.includes('text/html')) throw routeNotFound()
      return reply.redirect(`${basePath}/docs`)
    })
  }

  const { info, components } = document.json
  const [model, guides] = await Promise.all([readAsset('model.svg'), readAsset('guides.md')])
  const description = forBrowsers(info.description, model, guides, gettingStarted(basePath, demoKeyFile))
  // Swagger UI would send the examples of optional parameters, too.
  const parameters = Object.fromEntries(
    Object.entries(components.parameters).map(([name, { example, ...parameter }]) => [
      name,
      parameter.required ? { ...parameter, example } : parameter,
    ]),
  )
  const project = demoKeyFile ? 'demo' : 'your-project'
  const shownAt = renderOnce((url) =>
    JSON.stringify({
      ...jsonAt(document.json, url),
      // It is this page.
      externalDocs: undefined,
      components: { ...components, parameters },
      info: { ...info, description: description.replaceAll('{address}', () => url).replaceAll('{project}', project) },
    }),
  )
  const [css, favicon] = await Promise.all([readAsset('page.css'), readAsset('favicon.svg')])
  const js = await Promise.all(SCRIPTS.map(async (filename) => ({ filename, content: await readAsset(filename) })))
  await app.register(async (scope) => {
    await scope.register(swagger, { mode: 'static', specification: { document: document.json as never } })
    // The plugin would write the YAML anew for each request, which takes 30 ms.
    scope.addHook('onRequest', async ({ routeOptions }, reply) => {
      if (routeOptions.url === `${basePath}/docs/yaml`) return reply.redirect(`${basePath}/openapi.yaml`)
    })
    scope.addHook('onSend', async (_, reply, payload) => {
      // A page that opened it must not reach it, since it holds a key.
      reply.header('cross-origin-opener-policy', 'same-origin')
      const isPage = typeof payload === 'string' && String(reply.getHeader('content-type')).startsWith('text/html')
      return isPage ? payload.replace('<head>', `<head>${VIEWPORT}`) : payload
    })
    await scope.register(swaggerUi, {
      routePrefix: `${basePath}/docs`,
      staticCSP: {
        ...CONTENT_SECURITY_POLICY,
        'connect-src': ["'self'", ...(publicUrl ? [new URL(publicUrl).origin] : [])],
      },
      transformSpecification: (_, request, reply) => {
        reply.type(json).headers(caching)
        return shownAt(urlFor(request)) as never
      },
      transformSpecificationClone: false,
      theme: {
        title: 'Flowtrail API',
        css: [{ filename: 'page.css', content: css }],
        js,
        favicon: [{ filename: 'favicon.svg', rel: 'icon', type: 'image/svg+xml', sizes: 'any', content: favicon }],
      },
      uiConfig: {
        persistAuthorization: true,
        tryItOutEnabled: true,
        deepLinking: true,
        displayRequestDuration: true,
        docExpansion: 'list',
        defaultModelsExpandDepth: 0,
        // Sent to the browser as source text.
        plugins: [
          (system) => contentsPlugin(system),
          (system) => samplesPlugin(system),
          (system) => responsesPlugin(system),
          (system) => accessibilityPlugin(system),
        ],
      },
    })
  })
}

const PLACEHOLDER = 'https://flowtrail.invalid'

/**
 * Makes a text for any URL of the API without writing it anew for each reader, who needs no key.
 *
 * @param render writes the text, with the URL in JSON strings
 */
function renderOnce(render: (url: string) => string): (url: string) => Buffer {
  const parts = render(PLACEHOLDER)
    .split(PLACEHOLDER)
    .map((part) => Buffer.from(part))
  // A URL of `/` alone must not become `//docs`.
  const atRoot = Buffer.from(render('/'))
  return (url) => {
    if (url === '/') return atRoot
    const place = Buffer.from(JSON.stringify(url).slice(1, -1))
    return Buffer.concat(parts.flatMap((part, i) => (i === 0 ? [part] : [place, part])))
  }
}

const readAsset = (file: string) => readFile(new URL(`docs/${file}`, import.meta.url), 'utf8')

/**
 * The document's description for a first-time reader: what the service is, what it is for and how to start. Guides and
 * chapters are folded, so that the operations are on the first screen. Ids are for the table of contents.
 */
function forBrowsers(description: string, model: string, guides: string, start: string): string {
  const [summary, ...chapters] = description.split(CHAPTER)
  const [purpose, ...steps] = guides.split(CHAPTER)
  const parts = [folds('Guides', 'guide', steps), folds('Concepts', 'chapter', chapters)]
  return [`<figure>${model.trim()}</figure>`, summary, purpose, start, ...parts].join('\n\n')
}

const CHAPTER = /^## /m

/** Chapters, each folded under its name. */
function folds(title: string, kind: string, chapters: string[]): string {
  const folded = chapters.map((chapter) => {
    const [name = '', ...lines] = chapter.split('\n')
    const id = `${kind}-${name.toLowerCase().replaceAll(' ', '-')}`
    return `<details id="${id}"><summary><h3>${name}</h3></summary>\n\n${lines.join('\n')}\n\n</details>`
  })
  return `## ${title}\n\n<div>\n\n${folded.join('\n\n')}\n\n</div>`
}

/** The steps to a first response: with the demo project's key, or with one of the reader's own project. */
function gettingStarted(basePath: string, demoKeyFile: string | undefined): string {
  const [key, operation] = demoKeyFile
    ? [
        `Copy the key of the demo project: the server printed it at startup and keeps it in \`${demoKeyFile}\`.`,
        'Open any operation and press **Execute**: its fields are filled with values that exist.',
      ]
    : [
        'Get a key of your project from the operator of this server, who creates it with `flowtrail keys create`.',
        'Open *List modules*, enter your project in `projectId` and press **Execute**. The fields are filled with examples; replace them with ids from the responses.',
      ]
  return `<h2 id="start-try-it">Try it</h2>

1. ${key}
2. Press **Authorize** and paste it.
3. ${operation}

The OpenAPI document for your tools: [openapi.yaml](${basePath}/openapi.yaml), [openapi.json](${basePath}/openapi.json), and
for validators of responses [openapi.strict.json](${basePath}/openapi.strict.json).`
}
