import type { OutgoingHttpHeaders } from 'node:http'
import type { OperationId } from '../../../src/http/operations.ts'
import { operations } from '../../support/contract.ts'
import { exampleCall, operationIds, type Variation } from '../../support/example-call.ts'
import type { Exchange } from './recorder.ts'
import { type Case, findingsOf, responseFindings } from './verdict.ts'

/** The parts of the document from which faults are derived. */
interface Schema {
  type?: string
  format?: string
  pattern?: string
  enum?: unknown[]
  items?: Schema
  properties?: Record<string, Schema>
  required?: string[]
}
interface Header {
  required?: boolean
  example?: unknown
  schema: Schema
}
interface Parameter {
  name: string
  in: 'path' | 'query' | 'header'
  schema: Schema
}

/** The name of a fault, and the value with that fault. */
type Fault<Value = unknown> = [name: string, value: Value]

/** The examples of the document, by operation and status: the example request with each example response. */
export function documentedCases(): Case[] {
  return operationIds.flatMap((operationId) =>
    Object.entries(operations[operationId]?.responses ?? {}).flatMap(([status, response]) => {
      const { method = 'GET', path: url, body, headers } = exampleCall(operationId)
      const examples = Object.entries(response.content?.['application/json']?.examples ?? { 'no body': undefined })
      return examples.map(([name, example]) => ({
        name: `${operationId} ${status} ${name}`,
        // The example request is valid, so only a success agrees with it.
        check: status === '200' ? findingsOf : responseFindings,
        exchange: {
          operationId,
          method,
          url,
          // Prism requires a key, but accepts any.
          headers: { 'x-api-key': 'any', ...headers },
          body: typeof body === 'string' ? body : JSON.stringify(body),
          unread: false,
          status: Number(status),
          responseHeaders: {
            ...(example && { 'content-type': 'application/json' }),
            ...exampleHeaders((response.headers ?? {}) as Record<string, Header>),
          },
          responseBody: example ? JSON.stringify(example.value) : '',
        },
      }))
    }),
  )
}

const exampleHeaders = (headers: Record<string, Header>): OutgoingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).map(([name, { example }]) => [name, String(example)]))

/** The examples of the document, each with one fault that must be found. */
export function injectedFaults(): Case[] {
  return documentedCases().flatMap(({ name, exchange, check }) => {
    const faults = [...wrongResponses(exchange), ...(exchange.status === 200 ? wrongDecisions(exchange) : [])]
    return faults.map(([fault, change]) => ({ name: `${name}: ${fault}`, exchange: { ...exchange, ...change }, check }))
  })
}

function wrongResponses({
  operationId = '',
  status,
  responseBody,
  responseHeaders,
}: Exchange): Fault<Partial<Exchange>>[] {
  const response = operations[operationId]?.responses[status]
  const schema = response?.content?.['application/json']?.schema
  const documented = Object.entries((response?.headers ?? {}) as Record<string, Header>)
  const headers = [
    ...documented.flatMap(([name, { required }]): Fault<string | undefined>[] => (required ? [[name, undefined]] : [])),
    ...documented.flatMap(([name, { schema }]): Fault<string>[] => (acceptsAnyText(schema) ? [] : [[name, 'no such']])),
    ...(schema ? ['text/html', undefined].map((type): Fault<string | undefined> => ['content-type', type]) : []),
  ]
  return [
    ['undocumented', { status: 418 }],
    ...headers.map(([name, value]): Fault<Partial<Exchange>> => {
      const others = without(responseHeaders, name)
      return [`${name} ${value}`, { responseHeaders: value === undefined ? others : { ...others, [name]: value } }]
    }),
    ...(schema ? wrongValues(schema, JSON.parse(responseBody)) : []).map(
      ([name, value]): Fault<Partial<Exchange>> => [`response ${name}`, { responseBody: JSON.stringify(value) }],
    ),
  ]
}

/** Invalid requests with a successful response, and a valid request with an error response. */
function wrongDecisions({ operationId, headers, body }: Exchange): Fault<Partial<Exchange>>[] {
  const { parameters, requestBody } = operations[operationId ?? ''] ?? { parameters: [] }
  const schema = requestBody?.content['application/json']?.schema
  const withVariation = (variation: Variation): Partial<Exchange> => {
    const call = exampleCall(operationId as OperationId, variation)
    return { url: call.path, headers: { ...headers, ...call.headers } }
  }
  const rejection = { error: { code: 'invalid_request', message: 'The request is invalid.' } }
  return [
    ['rejected', { status: 400, responseBody: JSON.stringify(rejection) }],
    ['accepted without key', { headers: without(headers, 'x-api-key') }],
    ...(parameters as Parameter[])
      .filter((parameter) => !acceptsAnyText(parameter.schema))
      .map(({ name, in: place }): Fault<Partial<Exchange>> => {
        // Ids may contain anything but control characters, which headers cannot contain.
        const text = place === 'path' ? 'no such\0thing' : 'no such thing'
        return [
          `accepted with an invalid ${name}`,
          withVariation({ [place === 'header' ? 'headers' : place]: { [name]: text } }),
        ]
      }),
    ...(schema ? wrongRequestBodies(schema, JSON.parse(body ?? '')) : []),
  ]
}

function wrongRequestBodies(schema: Schema, body: object): Fault<Partial<Exchange>>[] {
  const faults: Fault[] = [...wrongValues(schema, body), ['with an unknown field', { ...body, note: '' }]]
  return faults.map(([name, value]) => [`accepted with body ${name}`, { body: JSON.stringify(value) }])
}

/** The value with one fault each: a part of the wrong type or format, or a missing field. */
function wrongValues(schema: Schema, value: unknown): Fault[] {
  const wrong = wrongInPlaceOf(schema).map((other): Fault => [`is ${JSON.stringify(other)}`, other])
  if (Array.isArray(value)) {
    const within = value.flatMap((item, i) =>
      at(String(i), wrongValues(schema.items ?? {}, item), (other) => value.with(i, other)),
    )
    return [...wrong, ...within]
  }
  if (typeof value !== 'object' || value === null) return wrong
  const { properties = {}, required = [] } = schema
  const within = Object.entries(value).flatMap(([name, item]) =>
    at(name, wrongValues(properties[name] ?? {}, item), (other) => ({ ...value, [name]: other })),
  )
  return [...wrong, ...required.map((name): Fault => [`lacks ${name}`, without(value, name)]), ...within]
}

/** Faults of a part, as faults of the whole. */
const at = (place: string, faults: Fault[], put: (part: unknown) => unknown): Fault[] =>
  faults.map(([name, part]) => [`${place} ${name}`, put(part)])

function wrongInPlaceOf({ type, format, pattern }: Schema): unknown[] {
  if (type === 'array') return [null, {}]
  if (type === 'object') return [null, []]
  if (type === 'integer') return [null, '2', 1.5, ...(format === 'int32' ? [2 ** 31] : [])]
  return [null, 7, ...(format || pattern ? ['\0'] : [])]
}

const acceptsAnyText = ({ type, format, pattern, enum: values }: Schema) =>
  type === 'string' && !format && !pattern && !values

const without = (object: object, name: string) =>
  Object.fromEntries(Object.entries(object).filter(([other]) => other !== name))
