import { readFile } from 'node:fs/promises'

/** The parts of the OpenAPI document that the service itself reads. */
export interface ApiDocument {
  openapi: string
  info: { title: string; version: string; description: string }
  externalDocs?: { url: string; description?: string }
  servers: { url: string; description?: string }[]
  paths: Record<string, Record<string, Operation>>
  components: { parameters: Record<string, { required?: boolean; example?: unknown }> }
}

export interface Operation {
  operationId: string
  requestBody?: { required?: boolean; content: Record<string, unknown>; 'x-max-bytes'?: number }
  responses: Record<string, { headers?: Record<string, unknown> }>
  'x-required-scope'?: string
}

const YAML_FILE = new URL('../../openapi/openapi.yaml', import.meta.url)
const JSON_FILE = new URL('../../generated/openapi.json', import.meta.url)
const STRICT_FILE = new URL('../../generated/openapi.strict.json', import.meta.url)

/** The document, as JSON and, with its comments and anchors, as the original YAML, and its strict form as JSON. */
export interface DocumentFiles {
  json: ApiDocument
  yaml: string
  strict: ApiDocument
}

export async function readDocument(): Promise<DocumentFiles> {
  const files = [JSON_FILE, YAML_FILE, STRICT_FILE].map((file) => readFile(file, 'utf8'))
  const [json = '', yaml = '', strict = ''] = await Promise.all(files)
  return { json: JSON.parse(json), yaml, strict: JSON.parse(strict) }
}

/** What the document says of the server that serves it; the file names one on the reader's own machine. */
const placeAt = (url: string) => ({
  externalDocs: { url: `${url.replace(/\/$/, '')}/docs`, description: 'Guides and an interactive reference' },
  servers: [{ url, description: 'This server' }],
})

/** The document for readers of a server with this URL. */
export const jsonAt = (json: ApiDocument, url: string): ApiDocument => ({ ...json, ...placeAt(url) })

/** The same as `jsonAt`, in YAML. It replaces the text, since parsing the file would take a tenth of the start. */
export function yamlAt(yaml: string, url: string): string {
  let served = yaml
  for (const [name, value] of Object.entries(placeAt(url))) {
    served = served.replace(new RegExp(`^${name}:\\n(?: .*\\n)+`, 'm'), () => `${name}: ${JSON.stringify(value)}\n`)
  }
  return served
}
