import type { OperationId } from '../../src/http/operations.ts'
import type { Call } from './app.ts'
import { type DocumentedOperation, document } from './contract.ts'

/** What differs from an operation's example request. */
export interface Variation extends Omit<Call, 'method' | 'path'> {
  path?: Record<string, string>
  query?: Record<string, string>
}

interface Place {
  method: Call['method']
  template: string
  operation: DocumentedOperation
}

const places = new Map<string, Place>(
  Object.entries(document.paths).flatMap(([template, item]) =>
    Object.entries(item).map(([method, operation]) => [
      operation.operationId,
      { method: method.toUpperCase() as Call['method'], template, operation },
    ]),
  ),
)

export const operationIds = [...places.keys()] as OperationId[]

/**
 * The request that the document itself shows: its parameters' examples and its first example body. With variations, in
 * place of or beside them, what a test is about.
 */
export function exampleCall(operationId: OperationId, { path, query, body, ...rest }: Variation = {}): Call {
  const place = places.get(operationId)
  if (!place) throw new Error(`the document has no operation ${operationId}`)
  const { method, template, operation } = place
  const values = { ...exampleParameters(operation, 'path'), ...path }
  const search = new URLSearchParams({ ...exampleParameters(operation, 'query'), ...query })
  const filled = template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name] ?? ''))
  const [shown] = Object.values(operation.requestBody?.content['application/json']?.examples ?? {})
  return { method, path: search.size > 0 ? `${filled}?${search}` : filled, body: body ?? shown?.value, ...rest }
}

function exampleParameters(operation: DocumentedOperation, place: 'path' | 'query'): Record<string, string> {
  const shown = operation.parameters.filter((parameter) => parameter.in === place && parameter.example !== undefined)
  return Object.fromEntries(shown.map(({ name, example }) => [name, String(example)]))
}
