import type { OutgoingHttpHeaders } from 'node:http'
import type { OperationId } from '../../../src/http/operations.ts'
import { operations } from '../../support/contract.ts'
import { exampleCall, operationIds, type Variation } from '../../support/example-call.ts'
import type { Exchange } from './recorder.ts'
import { type Case, findingsOf, responseFindings } from './verdict.ts'

/** The parts of the document that faults are planted by. */
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

/** A fault, and what it makes of something. */
type Fault<Thing = unknown> = [name: string, thing: Thing]

/** What the document itself shows of each operation and status: the example request with each example answer. */
export function documentedCases(): Case[] {
  return operationIds.flatMap((operationId) =>
    Object.entries(operations[operationId]?.responses ?? {}).flatMap(([status, response]) => {
      const { method = 'GET', path: url, body } = exampleCall(operationId)
      const examples = Object.entries(response.content?.['application/json']?.examples ?? { 'no body': undefined })
      return examples.map(([name, example]) => ({
        name: `${operationId} ${status} ${name}`,
        // The example request is a good one, which no refusal goes with.
        judge: status === '200' ? findingsOf : responseFindings,
        exchange: {
          operationId,
          method,
          url,
          // Prism looks at whether there is a key, not at which.
          headers: { 'x-api-key': 'any', ...(body !== undefined && { 'content-type': 'application/json' }) },
          body: JSON.stringify(body),
          unread: false,
          status: Number(status),
          responseHeaders: {
            ...(example && { 'content-type': 'application/json' }),
            ...headersShown((response.headers ?? {}) as Record<string, Header>),
          },
          responseBody: example ? JSON.stringify(example.value) : '',
        },
      }))
    }),
  )
}

const headersShown = (headers: Record<string, Header>): OutgoingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).map(([name, { example }]) => [name, String(example)]))

/** What the document shows, each time with one fault in it that must be found. */
export function injectedFaults(): Case[] {
  return documentedCases().flatMap(({ name, exchange, judge }) => {
    const faults = [...wrongResponses(exchange), ...(exchange.status === 200 ? wrongDecisions(exchange) : [])]
    return faults.map(([fault, change]) => ({ name: `${name}: ${fault}`, exchange: { ...exchange, ...change }, judge }))
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
    ...documented.flatMap(([name, { schema }]): Fault<string>[] => (takesAnyText(schema) ? [] : [[name, 'no such']])),
    ...(schema ? ['text/html', undefined].map((type): Fault<string | undefined> => ['content-type', type]) : []),
  ]
  return [
    ['undocumented', { status: 418 }],
    ...headers.map(([name, value]): Fault<Partial<Exchange>> => {
      const others = without(responseHeaders, name)
      return [`${name} ${value}`, { responseHeaders: value === undefined ? others : { ...others, [name]: value } }]
    }),
    ...(schema ? wrongValues(schema, JSON.parse(responseBody)) : []).map(
      ([name, value]): Fault<Partial<Exchange>> => [`answer ${name}`, { responseBody: JSON.stringify(value) }],
    ),
  ]
}

/** Requests that ought to have been refused, with the answer to one that is right; and a refusal of one that is right. */
function wrongDecisions({ operationId, headers, body }: Exchange): Fault<Partial<Exchange>>[] {
  const { parameters, requestBody } = operations[operationId ?? ''] ?? { parameters: [] }
  const schema = requestBody?.content['application/json']?.schema
  const ask = (variation: Variation): Partial<Exchange> => {
    const call = exampleCall(operationId as OperationId, variation)
    return { url: call.path, headers: { ...headers, ...call.headers } }
  }
  const refusal = { error: { code: 'invalid_request', message: 'The request is not to our liking.' } }
  return [
    ['refused', { status: 400, responseBody: JSON.stringify(refusal) }],
    ['taken without key', { headers: without(headers, 'x-api-key') }],
    ...(parameters as Parameter[])
      .filter((parameter) => !takesAnyText(parameter.schema))
      .map(({ name, in: place }): Fault<Partial<Exchange>> => {
        // Ids may hold all but control characters, which headers cannot hold.
        const text = place === 'path' ? 'no such\0thing' : 'no such thing'
        return [`taken with a wrong ${name}`, ask({ [place === 'header' ? 'headers' : place]: { [name]: text } })]
      }),
    ...(schema ? wrongRequestBodies(schema, JSON.parse(body ?? '')) : []),
  ]
}

function wrongRequestBodies(schema: Schema, body: object): Fault<Partial<Exchange>>[] {
  const faults: Fault[] = [...wrongValues(schema, body), ['with an unknown field', { ...body, note: '' }]]
  return faults.map(([name, value]) => [`taken with body ${name}`, { body: JSON.stringify(value) }])
}

/** The value with one fault each: something that is not what it should be, or a field left out. */
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

/** Faults of a part as faults of the whole. */
const at = (place: string, faults: Fault[], put: (part: unknown) => unknown): Fault[] =>
  faults.map(([name, part]) => [`${place} ${name}`, put(part)])

function wrongInPlaceOf({ type, format, pattern }: Schema): unknown[] {
  if (type === 'array') return [null, {}]
  if (type === 'object') return [null, []]
  if (type === 'integer') return [null, '2', 1.5, ...(format === 'int32' ? [2 ** 31] : [])]
  return [null, 7, ...(format || pattern ? ['\0'] : [])]
}

const takesAnyText = ({ type, format, pattern, enum: values }: Schema) =>
  type === 'string' && !format && !pattern && !values

const without = (object: object, name: string) =>
  Object.fromEntries(Object.entries(object).filter(([other]) => other !== name))
