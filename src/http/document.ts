import { readFile } from 'node:fs/promises'

/** The parts of the OpenAPI document that the service itself reads. */
export interface ApiDocument {
  openapi: string
  info: { title: string; version: string; description: string }
  servers: { url: string; description?: string }[]
  paths: Record<string, Record<string, Operation>>
}

export interface Operation {
  operationId: string
  requestBody?: { required?: boolean }
  responses: Record<string, { headers?: Record<string, unknown> }>
  'x-required-scope'?: string
}

const YAML_FILE = new URL('../../openapi/openapi.yaml', import.meta.url)
const JSON_FILE = new URL('../../generated/openapi.json', import.meta.url)

/** The document as it is served: as JSON and, with its comments and anchors, as the original YAML. */
export interface ServedDocument {
  json: ApiDocument
  yaml: string
}

/** Reads the document and sets its server URL. @param basePath `''` for none */
export async function readDocument(basePath: string): Promise<ServedDocument> {
  const [json, yaml] = await Promise.all([readFile(JSON_FILE, 'utf8'), readFile(YAML_FILE, 'utf8')])
  const url = basePath || '/'
  const document = JSON.parse(json) as ApiDocument
  return {
    json: { ...document, servers: document.servers.map((server) => ({ ...server, url })) },
    yaml: basePath === '' ? yaml : await withServerUrl(yaml, url),
  }
}

/** Sets the server's URL and keeps the document's comments. Loading and running the parser takes a tenth of the start. */
async function withServerUrl(yaml: string, url: string): Promise<string> {
  const { parseDocument } = await import('yaml')
  const document = parseDocument(yaml)
  document.setIn(['servers', 0, 'url'], url)
  return document.toString()
}
