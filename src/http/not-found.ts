import type { FastifyInstance } from 'fastify'
import { routeNotFound } from '../domain/errors.ts'

/** Answers 404 for every path that has no route, before any check of the API's own. */
export function refuseUnknownRoutes(app: FastifyInstance): void {
  app.addHook('onRequest', async (request) => {
    if (request.is404) throw routeNotFound()
  })
  app.setNotFoundHandler(() => {
    throw routeNotFound()
  })
}
