import type { OperationId } from '../../src/http/operations.ts'
import type { Call } from './app.ts'
import { type DocumentedOperation, document } from './contract.ts'

/** The differences from an operation's example request. */
export interface Variation extends Omit<Call, 'method' | 'path'> {
  path?: Record<string, string>
  query?: Record<string, string>
}

interface DocumentedRoute {
  method: Call['method']
  template: string
  operation: DocumentedOperation
}

const routes = new Map<string, DocumentedRoute>(
  Object.entries(document.paths).flatMap(([template, item]) =>
    Object.entries(item).map(([method, operation]) => [
      operation.operationId,
      { method: method.toUpperCase() as Call['method'], template, operation },
    ]),
  ),
)

/** Whether an operation writes. */
export const isWrite = (operationId: OperationId): boolean => routes.get(operationId)?.method === 'POST'

export const operationIds = [...routes.keys()] as OperationId[]

/**
 * The request that the document itself gives as an example, from its parameters' examples and its first example body. The
 * variation replaces or adds parts of it.
 */
export function exampleCall(operationId: OperationId, { path, query, body, ...rest }: Variation = {}): Call {
  const route = routes.get(operationId)
  if (!route) throw new Error(`the document has no operation ${operationId}`)
  const { method, template, operation } = route
  const values = { ...exampleParameters(operation, 'path'), ...path }
  const search = new URLSearchParams({ ...exampleParameters(operation, 'query'), ...query })
  const filled = template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(values[name] ?? ''))
  const [[mediaType, { examples = {} }] = ['', {}]] = Object.entries(operation.requestBody?.content ?? {})
  const [example] = Object.values(examples)
  return {
    method,
    path: search.size > 0 ? `${filled}?${search}` : filled,
    body: body ?? example?.value,
    ...rest,
    headers: { ...(mediaType && { 'content-type': mediaType }), ...rest.headers },
  }
}

function exampleParameters(operation: DocumentedOperation, location: 'path' | 'query'): Record<string, string> {
  const examples = operation.parameters.filter(
    (parameter) => parameter.in === location && parameter.example !== undefined,
  )
  return Object.fromEntries(examples.map(({ name, example }) => [name, String(example)]))
}
