import type { FastifyRequest } from 'fastify'

/** The operationId, or `other` for all requests outside of the document, so that there is a bounded number of them. */
export function operationOf({ routeOptions }: FastifyRequest): string {
  const schema = routeOptions.schema
  return schema && 'operationId' in schema ? String(schema.operationId) : 'other'
}
