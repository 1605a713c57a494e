import { readFileSync } from 'node:fs'
import { Ajv, type ValidateFunction } from 'ajv'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Scope } from '../../src/domain/api-key.ts'
import { JsonText } from '../../src/domain/json-text.ts'
import { tapPayload } from './tap.ts'
import { foreignContent, type Watermarks } from './twins.ts'

/** The parts of the bundled document that the checks read, with `$ref`s resolved. */
export interface Schema {
  type?: string
  required?: string[]
  properties?: Record<string, Schema>
  items?: Schema
  'x-extensible-enum'?: string[]
  $ref?: string
}
interface DocumentedHeader {
  required?: boolean
  schema: Schema
}
export interface DocumentedResponse {
  description: string
  headers?: Record<string, DocumentedHeader>
  content?: Record<string, { schema: Schema; examples?: Record<string, { value: unknown }> }>
}
export interface DocumentedOperation {
  operationId: string
  'x-required-scope': Scope
  tags: string[]
  summary: string
  description: string
  parameters: { name: string; in: string; description: string; example?: unknown }[]
  requestBody?: {
    'x-max-bytes'?: number
    content: Record<string, { schema: Schema; examples?: Record<string, { value: unknown }> }>
  }
  responses: Record<string, DocumentedResponse>
}
interface Bundle {
  info: { description: string }
  paths: Record<string, Record<string, DocumentedOperation>>
  components: { schemas: Record<string, Schema>; examples: Record<string, { value: unknown }> }
}

/** Resolves every `$ref` of a part of the document. It has no recursive schema. */
function dereference(source: unknown, value: unknown = source): unknown {
  if (Array.isArray(value)) return value.map((item) => dereference(source, item))
  if (typeof value !== 'object' || value === null) return value
  if ('$ref' in value && typeof value.$ref === 'string') {
    const target = value.$ref
      .split('/')
      .slice(1)
      .reduce((node, token) => (node as Record<string, unknown>)[token], source)
    return dereference(source, target)
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, dereference(source, item)]))
}

function read(file: string): Bundle {
  return dereference(JSON.parse(readFileSync(new URL(`../../generated/${file}`, import.meta.url), 'utf8'))) as Bundle
}

const operationsOf = ({ paths }: Bundle): Record<string, DocumentedOperation> =>
  Object.fromEntries(
    Object.values(paths)
      .flatMap((item) => Object.values(item))
      .map((operation) => [operation.operationId, operation]),
  )

export const document = read('openapi.json')

/** Every operation of the document by its operationId. */
export const operations = operationsOf(document)

/** The strict document, by which responses are validated. */
const strict = read('openapi.strict.json')
const strictOperations = operationsOf(strict)

const ajv = new Ajv({
  allErrors: true,
  strict: true,
  strictRequired: false,
  keywords: ['example', 'x-extensible-enum'],
})
// An existing instant; the strict document's pattern requires UTC with milliseconds.
ajv.addFormat('date-time', (text) => !Number.isNaN(Date.parse(text)) && new Date(text).toISOString() === text)
ajv.addFormat('int64', { type: 'number', validate: Number.isSafeInteger })
ajv.addFormat('int32', { type: 'number', validate: (value) => Number.isInteger(value) && value === (value | 0) })

const validators = new Map<Schema, ValidateFunction>()

function validate(schema: Schema, value: unknown): string[] {
  let validator = validators.get(schema)
  if (!validator) {
    validator = ajv.compile(schema)
    validators.set(schema, validator)
  }
  if (validator(value)) return []
  return (validator.errors ?? []).map(
    ({ instancePath, message, params }) => `${instancePath} ${message} ${JSON.stringify(params)}`,
  )
}

/** What every response has. Those of the docs page may differ, and HTTPS adds one. */
export const SECURITY_HEADERS = {
  'x-content-type-options': 'nosniff',
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'x-frame-options': 'DENY',
  'cross-origin-resource-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
}

/** Headers that any HTTP response may have and that the document need not mention. */
const GENERIC_HEADERS = new Set([
  'content-type',
  'content-encoding',
  'content-length',
  'transfer-encoding',
  'connection',
  ...Object.keys(SECURITY_HEADERS),
  'strict-transport-security',
  // Required where the document says so; with CORS_ORIGINS set, on every other response too.
  'vary',
  'access-control-allow-origin',
  'access-control-expose-headers',
])

function headerViolations(documented: Record<string, DocumentedHeader>, sent: Record<string, unknown>): string[] {
  const byName = new Map(Object.entries(documented).map(([name, header]) => [name.toLowerCase(), header]))
  const missing = [...byName].filter(([name, header]) => header.required && sent[name] === undefined)
  const unknown = Object.keys(sent).filter((name) => !byName.has(name) && !GENERIC_HEADERS.has(name))
  const wrong = [...byName].flatMap(([name, { schema }]) => {
    const text = sent[name]
    if (text === undefined) return []
    const value = schema.type === 'integer' && /^\d+$/.test(String(text)) ? Number(text) : text
    return validate(schema, value).map((violation) => `header ${name} ${violation}`)
  })
  return [
    ...missing.map(([name]) => `header ${name} is missing`),
    ...unknown.map((name) => `header ${name} is not documented`),
    ...wrong,
  ]
}

/** Where a response violates the document. Without operationId it is a 404 or 405 outside of its paths and methods. */
export function responseViolations(
  operationId: string | undefined,
  status: number,
  headers: Record<string, unknown>,
  body: string,
): string[] {
  const fallback: DocumentedResponse = {
    description: 'An error.',
    content: { 'application/json': { schema: strict.components.schemas.ErrorBody as Schema } },
  }
  const response = operationId === undefined ? fallback : strictOperations[operationId]?.responses[status]
  if (!response) return [`status ${status} is not documented`]
  const violations = operationId === undefined ? [] : headerViolations(response.headers ?? {}, headers)
  const schema = response.content?.['application/json']?.schema
  if (!schema) return body === '' ? violations : [...violations, 'a body where there should be none']
  if (!/^application\/json(; charset=utf-8)?$/.test(String(headers['content-type']))) {
    violations.push(`content-type is ${headers['content-type']}`)
  }
  return [...violations, ...validateText(schema, body)]
}

function validateText(schema: Schema, body: string): string[] {
  let value: unknown
  try {
    value = JSON.parse(body)
  } catch {
    return ['the body is not JSON']
  }
  return validate(schema, value)
}

/** The payload with the values of JSON texts in their place. */
const withoutJsonText = (payload: unknown) =>
  Array.isArray(payload) ? payload.map((row) => (row instanceof JsonText ? JSON.parse(row.text) : row)) : payload

/** The first line of the error that lists the violations found by `watchResponses`. */
export const DOCUMENT_VIOLATED = 'responses that violate the document:'

/**
 * Validates every response of the app against the document, before and after serialization, and collects violations. Only
 * the object shows what serialization hides, such as a Date or a field that is undefined; only the text is what is sent.
 * What is sent must also hold nothing of any project but the request's.
 */
export function watchResponses(app: FastifyInstance, violations: string[], watermarks: Watermarks = new Map()): void {
  // The router also matches a path with an empty segment, which is not in the document; routes.ts empties its params.
  const operationOf = ({ params, routeOptions: { schema } }: FastifyRequest) =>
    schema && 'operationId' in schema && Object.keys(params ?? {}).length > 0 ? String(schema.operationId) : undefined
  const isApi = (request: FastifyRequest) => request.url.includes('/projects/') || request.is404
  const report = (request: FastifyRequest, reply: FastifyReply, found: string[]) => {
    for (const one of found) violations.push(`${request.method} ${request.url} → ${reply.statusCode}: ${one}`)
  }

  // Before a handler can change the parameters.
  app.addHook('onRequest', async (request) => {
    const { projectId } = (request.params ?? {}) as { projectId?: string }
    if (projectId !== undefined) projectIds.set(request, projectId)
  })
  app.addHook('preSerialization', async (request, reply, payload) => {
    const schema =
      strictOperations[operationOf(request) ?? '']?.responses[reply.statusCode]?.content?.['application/json']?.schema
    if (schema)
      report(
        request,
        reply,
        validate(schema, withoutJsonText(payload)).map((violation) => `before serialization ${violation}`),
      )
    return payload
  })
  // Checked in onResponse: hooks of routes may still change the response after this one.
  app.addHook('onSend', async (request, _, payload) => {
    return isApi(request) ? tapPayload(payload, (text) => bodies.set(request, text)) : payload
  })
  app.addHook('onResponse', async (request, reply) => {
    const body = bodies.get(request)
    const isPreflight = request.method === 'OPTIONS' && reply.statusCode === 204
    if (body === undefined || isPreflight) return
    // The route's own onSend hook removes the body of a 304 after this one has stored it.
    const sent = reply.statusCode === 304 ? '' : body
    report(request, reply, responseViolations(operationOf(request), reply.statusCode, reply.getHeaders(), sent))
    const projectId = projectIds.get(request)
    if (projectId === undefined) return
    const given = [request.params, request.body].flatMap((values) => Object.values(values ?? {}))
    report(request, reply, foreignContent(projectId, watermarks, reply.getHeaders(), sent, given))
  })
}

const bodies = new WeakMap<FastifyRequest, string>()
const projectIds = new WeakMap<FastifyRequest, string>()
