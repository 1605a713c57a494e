import type { FastifyInstance } from 'fastify'
import { routeNotFound } from '../domain/errors.ts'

/** Responds with 404 to every path that has no route, before any check of the API's own. */
export function refuseUnknownRoutes(app: FastifyInstance): void {
  app.addHook('onRequest', (request, _reply, done) => done(request.is404 ? routeNotFound() : undefined))
  app.setNotFoundHandler(() => {
    throw routeNotFound()
  })
}
