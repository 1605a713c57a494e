import { readFile } from 'node:fs/promises'
import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import type { FastifyInstance } from 'fastify'
import type { ServedDocument } from './document.ts'

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

/** Swagger UI's page says nothing of phones, which then show it as wide as a desk and too small to read. */
const VIEWPORT = '<meta name="viewport" content="width=device-width, initial-scale=1">'

/** The plugin of Swagger UI that docs/page.js defines in the browser. */
declare const flowtrailDocs: (system: unknown) => object

interface Docs {
  document: ServedDocument
  basePath: string
  /** File that holds the demo project's key, when the demo project is there. The page names it and never the key. */
  demoKeyFile: string | undefined
}

/** Serves the contract, at /openapi.yaml and /openapi.json, and Swagger UI on it at /docs, all from this origin. */
export async function serveDocs(app: FastifyInstance, { document, basePath, demoKeyFile }: Docs): Promise<void> {
  app.get(`${basePath}/openapi.yaml`, (_, reply) => reply.type('application/yaml; charset=utf-8').send(document.yaml))
  app.get(`${basePath}/openapi.json`, (_, reply) => reply.type('application/json; charset=utf-8').send(document.json))

  const { info } = document.json
  const description = forBrowsers(info.description, howToStart(basePath, demoKeyFile))
  const shown = { ...document.json, info: { ...info, description } }
  const [css, js, favicon] = await Promise.all([readAsset('page.css'), readAsset('page.js'), readAsset('favicon.svg')])
  await app.register(async (scope) => {
    await scope.register(swagger, { mode: 'static', specification: { document: shown as never } })
    scope.addHook('onSend', async (_, reply, payload) => {
      const isPage = typeof payload === 'string' && String(reply.getHeader('content-type')).startsWith('text/html')
      return isPage ? payload.replace('<head>', `<head>${VIEWPORT}`) : payload
    })
    await scope.register(swaggerUi, {
      routePrefix: `${basePath}/docs`,
      staticCSP: CONTENT_SECURITY_POLICY,
      theme: {
        title: 'Flowtrail API',
        css: [{ filename: 'page.css', content: css }],
        js: [{ filename: 'page.js', content: js }],
        favicon: [{ filename: 'favicon.svg', rel: 'icon', type: 'image/svg+xml', sizes: 'any', content: favicon }],
      },
      uiConfig: {
        persistAuthorization: true,
        tryItOutEnabled: true,
        deepLinking: true,
        displayRequestDuration: true,
        docExpansion: 'list',
        defaultModelsExpandDepth: 0,
        // Goes to the browser as source text.
        plugins: [(system) => flowtrailDocs(system)],
      },
    })
  })
}

const readAsset = (file: string) => readFile(new URL(`docs/${file}`, import.meta.url), 'utf8')

/**
 * The document's description as a first-time reader needs it: what the service is, then how to start, so that the
 * operations are on the first screen. Its chapters are folded in between.
 */
function forBrowsers(description: string, start: string): string {
  const [summary, ...chapters] = description.split(/^(?=## )/m)
  const names = chapters.map((chapter) => chapter.slice('## '.length, chapter.indexOf('\n')).toLowerCase())
  const fold = `<details><summary>Read more: ${names.join(', ')}</summary>\n\n${chapters.join('')}\n\n</details>`
  return [summary, fold, start].join('\n\n')
}

/** The way to a first answer: with the demo project's key, or with one of the reader's own project. */
function howToStart(basePath: string, demoKeyFile: string | undefined): string {
  const [key, operation] = demoKeyFile
    ? [
        `Take the key of the demo project: the server printed it when it started and keeps it in \`${demoKeyFile}\`.`,
        'Open any operation and press **Execute**: its fields hold values that exist.',
      ]
    : [
        'Get a key of your project from the operator of this server, who makes it with `flowtrail keys create`.',
        'Open *List modules*, write your project into `projectId` and press **Execute**. What the fields hold are examples; take your own ids from the answers.',
      ]
  return `## Try it

1. ${key}
2. Press **Authorize** and paste it.
3. ${operation} The answer comes with a \`curl\` line to copy.

For your tools, the contract: [openapi.yaml](${basePath}/openapi.yaml), [openapi.json](${basePath}/openapi.json).`
}
