import type { Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { serviceUnavailable } from '../domain/errors.ts'

/**
 * Once the server is stopping, asks clients to close their connections, so that they connect elsewhere. While the app then
 * closes, finishes the requests in flight and refuses new ones on open connections with 503. Register it after the hooks
 * that refuse what no retry would help.
 */
export function drainOnClose(app: FastifyInstance, stopping: AbortSignal | undefined): void {
  let isDraining = false
  const connections = new Set<Socket>()
  app.server.on('connection', (socket) => {
    connections.add(socket)
    socket.once('close', () => connections.delete(socket))
  })
  app.addHook('preClose', async () => {
    isDraining = true
    // To Node a connection is not idle before its first request.
    for (const socket of connections) if (socket.bytesRead === 0) socket.destroy()
  })
  app.addHook('onRequest', (_request, _reply, done) => done(isDraining ? serviceUnavailable() : undefined))
  app.addHook('onSend', (_request, reply, _payload, done) => {
    // Kept alive, a connection that was busy when draining began would keep the server from closing.
    if (isDraining || stopping?.aborted) reply.header('connection', 'close')
    done()
  })
  // So would one whose response had begun before. A request behind it is refused in this turn of the event loop, since they are
  // served in turn. The socket of an injected request has no end.
  app.addHook('onResponse', ({ raw: { socket } }, _reply, done) => {
    if (isDraining) setImmediate(() => socket.end?.())
    done()
  })
}
