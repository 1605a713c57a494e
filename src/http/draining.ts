import type { FastifyInstance } from 'fastify'
import { serviceUnavailable } from '../domain/errors.ts'

/**
 * While the app closes, finishes the requests in flight, refuses new ones on open connections with 503, and asks clients
 * to close their connections. Register it after the hooks that refuse what no retry would help.
 */
export function drainOnClose(app: FastifyInstance): void {
  let isDraining = false
  app.addHook('preClose', async () => {
    isDraining = true
  })
  app.addHook('onRequest', (_request, _reply, done) => done(isDraining ? serviceUnavailable() : undefined))
  app.addHook('onSend', (_request, reply, _payload, done) => {
    // Kept alive, a connection that was busy when draining began would keep the server from closing.
    if (isDraining) reply.header('connection', 'close')
    done()
  })
}
