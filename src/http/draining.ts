import type { Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { serviceUnavailable } from '../domain/errors.ts'

/** How long a closing app waits for the rest of the head of a request: Node's own timeout has ended. */
const HEAD_TIMEOUT_ms = 2_000

/**
 * Once the server is stopping, asks clients to close their connections, so that they connect elsewhere. While the app then
 * closes, finishes the requests in flight and refuses new ones on open connections with 503. Register it after the hooks
 * that refuse what no retry would help.
 *
 * @param headTimeout_ms how long a closing app waits for the rest of the head of a request
 */
export function drainOnClose(
  app: FastifyInstance,
  stopping: AbortSignal | undefined,
  headTimeout_ms = HEAD_TIMEOUT_ms,
): void {
  let isDraining = false
  const connections = new Map<Socket, { requests: number }>()
  app.server.on('connection', (socket) => {
    connections.set(socket, { requests: 0 })
    socket.once('close', () => connections.delete(socket))
  })
  app.server.on('request', ({ socket }, response) => {
    const connection = connections.get(socket) ?? { requests: 0 }
    connection.requests += 1
    response.once('close', () => {
      connection.requests -= 1
    })
  })
  app.addHook('preClose', async () => {
    isDraining = true
    // To Node a connection is not idle before its first request, nor when it has a part of one.
    for (const socket of connections.keys()) if (socket.bytesRead === 0) socket.destroy()
    setTimeout(() => {
      for (const [socket, { requests }] of connections) if (requests === 0) socket.destroy()
    }, headTimeout_ms).unref()
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
