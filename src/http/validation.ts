import { Ajv, type ErrorObject, type SchemaValidateFunction } from 'ajv'
import type { FastifySchemaCompiler, SafePromiseLike } from 'fastify'
import { FOREIGN_CURSOR } from '../domain/cursor.ts'
import { invalidRequest, malformedRequest, type ValidationIssue } from '../domain/errors.ts'
import { NOT_AN_OBJECT } from '../domain/event.ts'
import { NOT_A_VALUE } from '../domain/identifier.ts'
import { idIssue, isStorable, quoted } from '../domain/text.ts'
import { parseTimestamp, TIMESTAMP_EXAMPLE } from '../domain/timestamp.ts'
import { Turns } from '../domain/turns.ts'
import { MAX_VALUES, tooManyValues } from './body.ts'
import type { RawQuery } from './query-string.ts'

/** The keywords of the document's JSON schemas that this module reads; Ajv evaluates all of them. */
export interface Schema {
  type?: string
  properties?: Record<string, Schema>
  enum?: unknown[]
  format?: string
  pattern?: string
  minimum?: number
  maximum?: number
  minLength?: number
  maxLength?: number
  items?: Schema
  minItems?: number
  maxItems?: number
  /** Whether an invalid item does not make the array invalid. */
  'x-validated-individually'?: boolean
}

/** Checks a date-time and puts the ISO timestamp in its place. */
const normalizeDateTime: SchemaValidateFunction = (format: string, text: unknown, _schema, context) => {
  if (format !== 'date-time' || typeof text !== 'string') return true
  const parsed = parseTimestamp(text)
  if (parsed.ok && context) context.parentData[context.parentDataProperty] = parsed.iso
  if (!parsed.ok) normalizeDateTime.errors = [{ keyword: 'format', params: { issue: parsed.issue } }]
  return parsed.ok
}

/**
 * The document's patterns stop at U+007F, since regular expressions on bytes, as in Ruby and PHP, take U+0080 to U+009F for
 * parts of UTF-8 characters. Its prose, and so the service, excludes the control characters up to U+009F.
 */
const compilePattern = Object.assign(
  (pattern: string, flags: string) => new RegExp(pattern.replaceAll('\\x7F]', '\\x7F-\\x9F]'), flags),
  { code: 'new RegExp' },
)

const ajv = new Ajv({
  allErrors: true,
  verbose: true,
  useDefaults: true,
  keywords: ['example', 'x-validated-individually'],
  code: { regExp: compilePattern },
})
// Ajv's own `format` could only check: this one also puts the ISO timestamp in the place of each date-time, so that no
// timestamp is parsed twice. Other formats need no check: the minimum and maximum of integers say more.
ajv.removeKeyword('format')
ajv.addKeyword({ keyword: 'format', validate: normalizeDateTime })

const NOT_STORABLE = 'must not hold NUL or a lone surrogate'

/** What the patterns of the document require; `idIssue` describes those of ids. */
const PATTERNS = new Map<string | undefined, string>([
  ['^[^\\x00-\\x1F\\x7F]+$', 'must not hold control characters'],
  ['^[\\x21-\\x7E]+$', 'must hold visible ASCII characters only, and no spaces'],
  ['^[A-Za-z0-9_-]+$', FOREIGN_CURSOR],
  ['^[^\\x00]+$', NOT_STORABLE],
])

/**
 * A Fastify `validatorCompiler`, called for each part of a request. Validates strictly by the document: only integers in
 * paths and queries are coerced, unknown fields and parameters are issues, and every issue has a pointer and a message
 * that says how to fix it.
 */
export const validatorCompiler: FastifySchemaCompiler<Schema> = ({ schema, httpPart }) => {
  // Lines are validated as they are read.
  if (httpPart === 'body') return schema.type === 'string' ? () => true : bodyValidator(schema)
  if (httpPart === 'headers') return headersValidator(schema)
  return parametersValidator(schema, httpPart === 'params' ? '/path' : '/query')
}

function bodyValidator(schema: Schema) {
  const batch = batchOf(schema)
  if (batch) return batchValidator(schema, ...batch)
  const check = objectCheck(schema)
  return (body: unknown) => {
    if (!isObject(body)) return NO_OBJECT
    const issues = check('/body', body)
    return issues.length > 0 ? { error: invalidRequest(issues) } : { value: body }
  }
}

/** The name and the schema of the array of a body whose items are validated individually, if it has one. */
export const batchOf = (schema: Schema): [string, Schema] | undefined =>
  Object.entries(schema.properties ?? {}).find(([, property]) => property['x-validated-individually'])

/** By the names of fields that hold JSON text: what they require, and whether the text of a JSON value can do. */
const JSON_TEXTS = new Map<string | undefined, { issue: string; allows: (value: unknown) => boolean }>([
  ['custom_event_props', { issue: NOT_AN_OBJECT, allows: (value) => isObject(value) }],
  ['value', { issue: NOT_A_VALUE, allows: (value) => ['number', 'boolean'].includes(typeof value) }],
])

const NO_OBJECT = { error: malformedRequest('The body must be a JSON object.') }

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Checks an object, and fills in defaults. */
function objectCheck(schema: Schema): (pointer: string, value: object) => ValidationIssue[] {
  const validate = ajv.compile(schema)
  return (pointer, value) => (validate(value) ? unstorableStrings(pointer, value) : issuesOf(pointer, validate.errors))
}

/** For a body with an array of items that stand alone: puts the error of an invalid item in its place. */
function batchValidator(schema: Schema, name: string, { items, ...array }: Schema) {
  const validate = ajv.compile({ ...schema, properties: { ...schema.properties, [name]: array } })
  const check = objectCheck(items as Schema)
  const issuesOfItem = (pointer: string, item: unknown): ValidationIssue[] => {
    if (!isObject(item)) return [{ pointer, message: 'must be a JSON object' }]
    // As of the body of a single one.
    if (hasManyValues(item)) return [{ pointer, message: `must have at most ${MAX_VALUES} fields and items in all` }]
    return check(pointer, item)
  }
  const checkItems = async (items: unknown[]) => {
    const turns = new Turns()
    for (const [i, item] of items.entries()) {
      await turns.next()
      const issues = issuesOfItem(`/body/${name}/${i}`, item)
      if (issues.length > 0) items[i] = invalidRequest(issues)
    }
  }
  return (body: unknown) => {
    if (!isObject(body)) return NO_OBJECT
    // Each would be an issue.
    if (Object.keys(body).length > MAX_VALUES) return { error: tooManyValues(MAX_VALUES) }
    if (!validate(body)) return { error: invalidRequest(issuesOf('/body', validate.errors)) }
    // Fastify waits for it.
    return checkItems((body as Record<string, unknown[]>)[name] as unknown[]) as unknown as SafePromiseLike<void>
  }
}

/** Whether an object holds more than {@link MAX_VALUES}. */
function hasManyValues(object: object): boolean {
  const open = [object]
  let values = 0
  for (let next = open.pop(); next && values <= MAX_VALUES; next = open.pop()) {
    const items: unknown[] = Object.values(next)
    values += items.length
    if (values <= MAX_VALUES) open.push(...items.filter((item) => typeof item === 'object' && item !== null))
  }
  return values > MAX_VALUES
}

/** Adds the documented headers under their documented names, for the handler; Node has all names in lower case. */
function headersValidator(schema: Schema) {
  const validate = ajv.compile(schema)
  const names = Object.keys(schema.properties ?? {})
  return (headers: Record<string, unknown>) => {
    const sent = names.filter((name) => headers[name.toLowerCase()] !== undefined)
    const documented = Object.fromEntries(sent.map((name) => [name, headers[name.toLowerCase()]]))
    if (!validate(documented)) return { error: invalidRequest(issuesOf('/headers', validate.errors)) }
    return { value: { ...headers, ...documented } }
  }
}

/** Validates the parameters of the path or the query, which arrive as text. */
function parametersValidator(schema: Schema, root: '/path' | '/query') {
  const validate = ajv.compile(schema)
  const properties = new Map(Object.entries(schema.properties ?? {}))
  const known = [...properties.keys()]
  const unknown =
    known.length > 0
      ? `is not a known parameter; known parameters: ${known.join(', ')}`
      : 'is not a known parameter; this operation has none'

  return (sent: Record<string, string> | RawQuery) => {
    const issues: ValidationIssue[] = []
    const values: Record<string, unknown> = {}
    for (const [name, given] of Object.entries(sent)) {
      const [value, ...repeats] = typeof given === 'string' ? [given] : given
      const property = properties.get(name)
      const addIssue = (message: string) => issues.push({ pointer: `${root}/${escapeToken(name)}`, message })
      if (!property) addIssue(unknown)
      else if (repeats.length > 0) addIssue('occurs more than once; send it once')
      else if (!value) addIssue('is empty; set a value or omit it')
      else values[name] = property.type === 'integer' ? parseInteger(value) : value
    }
    issues.push(...(validate(values) ? unstorableStrings(root, values) : issuesOf(root, validate.errors)))
    return issues.length > 0 ? { error: invalidRequest(issues) } : { value: values }
  }
}

const INTEGER = /^-?(0|[1-9]\d*)$/

/** Parses a plain decimal integer; other text stays text, which no integer schema accepts. */
function parseInteger(text: string): number | string {
  return INTEGER.test(text) ? Number(text) : text
}

/** One issue per pointer: of several errors at one place the first is enough. */
function issuesOf(root: string, errors: ErrorObject[] | null | undefined): ValidationIssue[] {
  const issues = new Map<string, ValidationIssue>()
  for (const error of errors ?? []) {
    const pointer = root + pointerOf(error)
    if (!issues.has(pointer)) issues.set(pointer, { pointer, message: messageOf(error) })
  }
  return [...issues.values()]
}

/** The JSON pointer of an error: for a missing or unknown field of that field, not of its object. */
function pointerOf({ keyword, instancePath, params }: ErrorObject): string {
  if (keyword === 'required') return `${instancePath}/${escapeToken(params.missingProperty)}`
  if (keyword === 'additionalProperties') return `${instancePath}/${escapeToken(params.additionalProperty)}`
  return instancePath
}

function messageOf({ keyword, parentSchema, params, instancePath, data }: ErrorObject): string {
  const schema = (parentSchema ?? {}) as Schema
  if (keyword === 'format') return params.issue
  if (keyword === 'required') return 'is required'
  if (keyword === 'additionalProperties') {
    return `is not a known field; known fields: ${Object.keys(schema.properties ?? {}).join(', ')}`
  }
  if (schema.type === 'integer') return `must be an integer from ${schema.minimum} to ${schema.maximum}`
  if (schema.enum) return `must be ${schema.enum.join(' or ')}`
  if (schema.type === 'array' && Array.isArray(data)) {
    return `must hold ${schema.minItems} to ${schema.maxItems} items`
  }
  if (schema.type !== 'string') return `must be a JSON ${schema.type}`
  const jsonText = JSON_TEXTS.get(instancePath.split('/').at(-1))
  const isPossible = typeof data === 'string' ? keyword !== 'minLength' : jsonText?.allows(data)
  if (jsonText && !isPossible) return jsonText.issue
  return typeof data === 'string' ? stringMessage(schema, keyword, data) : nonStringMessage(schema, data)
}

function stringMessage(schema: Schema, keyword: string, text: string): string {
  if (keyword === 'pattern') return PATTERNS.get(schema.pattern) ?? idIssue(text) ?? `must match ${schema.pattern}`
  const { minLength = 0, maxLength } = schema
  return maxLength === undefined ? 'must not be empty' : `must be ${minLength} to ${maxLength} characters long`
}

/** For a value that is not a string. A JSON value that was probably meant as text is quoted as a string. */
function nonStringMessage(schema: Schema, data: unknown): string {
  if (schema.format === 'date-time') return `must be a string; for example "${TIMESTAMP_EXAMPLE}"`
  const isExact = typeof data === 'boolean' || Number.isSafeInteger(data) || (typeof data === 'object' && data !== null)
  if (!isExact) return 'must be a string'
  return `must be a string; as a string this value is ${quoted(JSON.stringify(data))}`
}

/** An issue for each string in the value that PostgreSQL cannot store. */
function unstorableStrings(pointer: string, value: object): ValidationIssue[] {
  const issues: ValidationIssue[] = []
  for (const [name, item] of Object.entries(value)) {
    if (typeof item === 'string' ? isStorable(item) : typeof item !== 'object' || item === null) continue
    const place = `${pointer}/${escapeToken(name)}`
    if (typeof item === 'string') issues.push({ pointer: place, message: NOT_STORABLE })
    else issues.push(...unstorableStrings(place, item))
  }
  return issues
}

/** A name as a token of a JSON pointer (RFC 6901). */
const escapeToken = (name: string) => name.replaceAll('~', '~0').replaceAll('/', '~1').toWellFormed()
