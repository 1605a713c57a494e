import { Ajv, type ErrorObject } from 'ajv'
import type { FastifySchemaCompiler } from 'fastify'
import { FOREIGN_CURSOR } from '../domain/cursor.ts'
import { type Detail, invalidRequest, unreadableRequest } from '../domain/errors.ts'
import { idIssue, isStorable, jsonDepth, quoted } from '../domain/text.ts'
import { parseTimestamp, TIMESTAMP_EXAMPLE } from '../domain/timestamp.ts'
import type { RawQuery } from './query-string.ts'

/** The part of a JSON schema of the document that is looked at here; Ajv knows the rest. */
interface Schema {
  type?: string
  properties?: Record<string, Schema>
  enum?: unknown[]
  format?: string
  pattern?: string
  minimum?: number
  maximum?: number
  minLength?: number
  maxLength?: number
  minItems?: number
  maxItems?: number
}

const ajv = new Ajv({ allErrors: true, verbose: true, useDefaults: true, keywords: ['example'] })
ajv.addFormat('date-time', (text: string) => parseTimestamp(text).ok)
ajv.addFormat('int32', true)

const NOT_STORABLE = 'must not hold NUL or a lone surrogate'

/** What patterns of the document ask for, in words; `idIssue` has the words for those of ids. */
const PATTERNS = new Map<string | undefined, string>([
  ['^[^\\x00-\\x1F\\x7F-\\x9F]+$', 'must not hold control characters'],
  ['^[\\x21-\\x7E]+$', 'must hold visible ASCII characters only, and no spaces'],
  ['^[A-Za-z0-9_-]+$', FOREIGN_CURSOR],
  ['^[^\\x00]+$', NOT_STORABLE],
])

/**
 * Validates as the document says, strictly: nothing is coerced but the integers of paths and queries, nothing unknown is
 * dropped, and what is wrong is said with a pointer and a way to mend it. For Fastify, by part of the request.
 */
export const validatorCompiler: FastifySchemaCompiler<Schema> = ({ schema, httpPart }) => {
  if (httpPart === 'body') return bodyValidator(schema)
  if (httpPart === 'headers') return headersValidator(schema)
  return parametersValidator(schema, httpPart === 'params' ? '/path' : '/query')
}

function bodyValidator(schema: Schema) {
  const validate = ajv.compile(schema)
  return (body: unknown) => {
    if (typeof body !== 'object' || body === null || Array.isArray(body)) {
      return { error: unreadableRequest('The body must be a JSON object.') }
    }
    cutArrays(schema, body)
    const details = validate(body) ? unstorable('/body', body) : explain('/body', validate.errors)
    return details.length > 0 ? { error: invalidRequest(details) } : { value: body }
  }
}

/** Cuts arrays that are too long to one item too many: to fault each of 100,000 items would keep all others waiting. */
function cutArrays({ properties = {} }: Schema, body: object): void {
  for (const [name, { maxItems = Number.POSITIVE_INFINITY }] of Object.entries(properties)) {
    const value = (body as Record<string, unknown>)[name]
    if (Array.isArray(value) && value.length > maxItems) value.length = maxItems + 1
  }
}

/** Gives the handler the documented headers under their documented names; Node has all names in lower case. */
function headersValidator(schema: Schema) {
  const validate = ajv.compile(schema)
  const names = Object.keys(schema.properties ?? {})
  return (headers: Record<string, unknown>) => {
    const sent = names.filter((name) => headers[name.toLowerCase()] !== undefined)
    const known = Object.fromEntries(sent.map((name) => [name, headers[name.toLowerCase()]]))
    if (!validate(known)) return { error: invalidRequest(explain('/headers', validate.errors)) }
    return { value: { ...headers, ...known } }
  }
}

/** Parameters of the path or the query, which arrive as text. */
function parametersValidator(schema: Schema, root: '/path' | '/query') {
  const validate = ajv.compile(schema)
  const properties = new Map(Object.entries(schema.properties ?? {}))
  const known = [...properties.keys()]
  const unknown =
    known.length > 0
      ? `is not a known parameter; known are ${known.join(', ')}`
      : 'is not a known parameter; this operation takes none'

  return (sent: Record<string, string> | RawQuery) => {
    const details: Detail[] = []
    const values: Record<string, unknown> = {}
    for (const [name, given] of Object.entries(sent)) {
      const [value = '', ...repeats] = [given].flat()
      const property = properties.get(name)
      const fault = (message: string) => details.push({ pointer: `${root}/${escapeToken(name)}`, message })
      if (!property) fault(unknown)
      else if (repeats.length > 0) fault('is given more than once; give it once')
      else if (value === '') fault('is empty; give it a value or leave it out')
      else values[name] = property.type === 'integer' ? readInteger(value) : value
    }
    details.push(...(validate(values) ? unstorable(root, values) : explain(root, validate.errors)))
    return details.length > 0 ? { error: invalidRequest(details) } : { value: values }
  }
}

const INTEGER = /^-?(0|[1-9]\d*)$/

/** A plain decimal integer as a number; other text stays text, which no integer schema lets pass. */
function readInteger(text: string): number | string {
  if (!INTEGER.test(text)) return text
  // An error writes it back, and past these not every JSON reader keeps it or takes it for an integer.
  return Math.max(Number.MIN_SAFE_INTEGER, Math.min(Number.MAX_SAFE_INTEGER, Number(text)))
}

/** One detail for each faulty place: of several errors at one place the first tells enough. */
function explain(root: string, errors: ErrorObject[] | null | undefined): Detail[] {
  const details = new Map<string, Detail>()
  for (const error of errors ?? []) {
    const pointer = root + place(error)
    if (!details.has(pointer)) details.set(pointer, { pointer, message: describe(error) })
  }
  return [...details.values()]
}

/** Where an error is, below its root; a missing or unknown field is named itself, not the object it should be in. */
function place({ keyword, instancePath, params }: ErrorObject): string {
  if (keyword === 'required') return `${instancePath}/${escapeToken(params.missingProperty)}`
  if (keyword === 'additionalProperties') return `${instancePath}/${escapeToken(params.additionalProperty)}`
  return instancePath
}

function describe({ keyword, parentSchema, data }: ErrorObject): string {
  const schema = (parentSchema ?? {}) as Schema
  if (keyword === 'required') return 'is required'
  if (keyword === 'additionalProperties') {
    return `is not a known field; known are ${Object.keys(schema.properties ?? {}).join(', ')}`
  }
  if (schema.type === 'integer') {
    return schema.minimum === undefined
      ? 'must be a plain decimal integer, for example 2'
      : `must be an integer from ${schema.minimum} to ${schema.maximum}`
  }
  if (schema.enum) return `must be ${schema.enum.join(' or ')}`
  if (schema.type === 'array' && Array.isArray(data)) {
    return `must hold ${schema.minItems} to ${schema.maxItems} items`
  }
  if (schema.type !== 'string') return `must be a JSON ${schema.type}`
  return typeof data === 'string' ? describeText(schema, keyword, data) : describeOther(schema, data)
}

function describeText(schema: Schema, keyword: string, text: string): string {
  if (schema.format === 'date-time') {
    const parsed = parseTimestamp(text)
    return parsed.ok ? 'must be a date-time' : parsed.problem
  }
  if (keyword === 'pattern') return PATTERNS.get(schema.pattern) ?? idIssue(text) ?? `must match ${schema.pattern}`
  const { minLength = 0, maxLength } = schema
  return maxLength === undefined ? 'must not be empty' : `must be ${minLength} to ${maxLength} characters long`
}

/** What is not a string but should be; JSON that was meant to be sent as text is shown as the text that it should be. */
function describeOther(schema: Schema, data: unknown): string {
  if (schema.format === 'date-time') return `must be a string; write for example "${TIMESTAMP_EXAMPLE}"`
  const isExact = typeof data === 'boolean' || Number.isSafeInteger(data) || (typeof data === 'object' && data !== null)
  // Past this depth JSON.stringify could run out of stack.
  if (!isExact || jsonDepth(data) > MAX_QUOTED_depth) return 'must be a string'
  return `must be a string; as a string this value is ${quoted(JSON.stringify(data))}`
}

const MAX_QUOTED_depth = 64

/** Strings in a value that PostgreSQL cannot store. */
function unstorable(pointer: string, value: unknown): Detail[] {
  if (typeof value === 'string') return isStorable(value) ? [] : [{ pointer, message: NOT_STORABLE }]
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, item]) => unstorable(`${pointer}/${escapeToken(name)}`, item))
}

/** A name as a token of a JSON pointer (RFC 6901). */
const escapeToken = (name: string) => name.replaceAll('~', '~0').replaceAll('/', '~1').toWellFormed()
