import { Ajv, type ErrorObject } from 'ajv'
import type { FastifySchemaCompiler } from 'fastify'
import { type Detail, invalidRequest } from '../errors.ts'
import { idProblem, isStorable } from '../text.ts'
import { parseTimestamp } from '../timestamp.ts'
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
    const details = validate(body) ? unstorable('/body', body) : explain('/body', validate.errors)
    return details.length > 0 ? { error: invalidRequest(details) } : { value: body }
  }
}

/** Gives the handler the documented headers only, under their documented names. */
function headersValidator(schema: Schema) {
  const validate = ajv.compile(schema)
  const names = Object.keys(schema.properties ?? {})
  return (headers: Record<string, unknown>) => {
    if (!validate(headers)) return { error: invalidRequest(explain('/headers', validate.errors)) }
    const known = names.filter((name) => headers[name] !== undefined)
    return { value: { ...headers, ...Object.fromEntries(known.map((name) => [titleCase(name), headers[name]])) } }
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

  return (sent: RawQuery) => {
    const details: Detail[] = []
    const values: Record<string, unknown> = {}
    for (const [name, value] of Object.entries(sent)) {
      const property = properties.get(name)
      const fault = (message: string) => details.push({ pointer: `${root}/${escapeToken(name)}`, message })
      if (!property) fault(unknown)
      else if (Array.isArray(value)) fault('is given more than once; give it once')
      else if (value === '') fault('is empty; give it a value or leave it out')
      else if (!isStorable(value)) fault(NOT_STORABLE)
      else values[name] = property.type === 'integer' ? readInteger(value) : value
    }
    if (details.length === 0 && validate(values)) return { value: values }
    return { error: invalidRequest([...details, ...explain(root, validate.errors)]) }
  }
}

const INTEGER = /^-?(0|[1-9]\d*)$/

/** A plain decimal integer as a number; other text stays text, which no integer schema lets pass. */
function readInteger(text: string): number | string {
  if (!INTEGER.test(text)) return text
  // Past the largest double there is only infinity, which JSON cannot write back.
  return Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, Number(text)))
}

/** One detail for each faulty place: of several errors at one place the first tells enough. */
function explain(root: string, errors: ErrorObject[] | null | undefined): Detail[] {
  const details = new Map<string, Detail>()
  for (const error of errors ?? []) {
    const pointer = root + place(root, error)
    if (!details.has(pointer)) details.set(pointer, { pointer, message: describe(error) })
  }
  return [...details.values()]
}

/** Where an error is, below its root; a missing or unknown field is named itself, not the object it should be in. */
function place(root: string, { keyword, instancePath, params }: ErrorObject): string {
  if (keyword === 'required') return `${instancePath}/${escapeToken(params.missingProperty)}`
  if (keyword === 'additionalProperties') return `${instancePath}/${escapeToken(params.additionalProperty)}`
  return root === '/headers' ? `/${titleCase(instancePath.slice(1))}` : instancePath
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
  if (schema.type === 'string' && typeof data === 'string') return describeText(schema, keyword, data)
  const article = /^[aeiou]/.test(schema.type ?? '') ? 'an' : 'a'
  return `must be ${article} ${schema.type === 'array' || schema.type === 'object' ? 'JSON ' : ''}${schema.type}`.replace(
    'an JSON',
    'a JSON',
  )
}

function describeText(schema: Schema, keyword: string, text: string): string {
  if (schema.format === 'date-time') {
    const parsed = parseTimestamp(text)
    return parsed.ok ? 'must be a date-time' : parsed.problem
  }
  if (keyword !== 'pattern') {
    const { minLength = 0, maxLength } = schema
    return maxLength === undefined
      ? `must be at least ${minLength} characters long`
      : `must be ${minLength} to ${maxLength} characters long`
  }
  const problem = schema.maxLength === 128 ? idProblem(text) : undefined
  return problem ?? `must match ${schema.pattern}`
}

/** Strings in a value, names of fields included, that PostgreSQL cannot store. */
function unstorable(pointer: string, value: unknown): Detail[] {
  if (typeof value === 'string') return isStorable(value) ? [] : [{ pointer, message: NOT_STORABLE }]
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, item]) => unstorable(`${pointer}/${escapeToken(name)}`, item))
}

/** A name as a token of a JSON pointer (RFC 6901). */
const escapeToken = (name: string) => name.replaceAll('~', '~0').replaceAll('/', '~1').toWellFormed()

/** `idempotency-key` as `Idempotency-Key`. */
const titleCase = (name: string) => name.replace(/\b[a-z]/g, (letter) => letter.toUpperCase())
