import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import type { FastifyInstance } from 'fastify'
import type { ServedDocument } from './document.ts'

const FAVICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#0f766e"/>
<path d="M8 22c5 0 3-12 8-12s3 12 8 12" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/>
<circle cx="8" cy="22" r="2.5" fill="#fff"/><circle cx="24" cy="22" r="2.5" fill="#fff"/></svg>`

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

const STYLE = '.swagger-ui .topbar { display: none } .swagger-ui .info { margin: 24px 0 }'

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

  const hint = demoKeyFile
    ? `> **Try it here.** This server has the demo project \`demo\`. Its key is in the file \`${demoKeyFile}\` on the server: press *Authorize*, paste it, then *Execute* any operation; the values filled in exist.\n\n`
    : ''
  const { info } = document.json
  const shown = { ...document.json, info: { ...info, description: hint + info.description } }
  await app.register(swagger, { mode: 'static', specification: { document: shown as never } })
  await app.register(swaggerUi, {
    routePrefix: `${basePath}/docs`,
    staticCSP: CONTENT_SECURITY_POLICY,
    theme: {
      title: 'Flowtrail API',
      css: [{ filename: 'flowtrail.css', content: STYLE }],
      favicon: [{ filename: 'favicon.svg', rel: 'icon', type: 'image/svg+xml', sizes: 'any', content: FAVICON }],
    },
    uiConfig: {
      persistAuthorization: true,
      tryItOutEnabled: true,
      deepLinking: true,
      displayRequestDuration: true,
      docExpansion: 'list',
      defaultModelsExpandDepth: 0,
    },
  })
}
