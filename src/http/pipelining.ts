import type { Socket } from 'node:net'
import type { onRequestHookHandler } from 'fastify'

/** How many requests a client may send before it has the response to the first. */
const MAX_WAITING = 100

const waiting = new WeakMap<Socket, number>()

/**
 * An onRequest hook that serves the requests of a connection one at a time, in their order: those that a client sends
 * without waiting for responses must not each hold a response in memory. A client that sends too many is disconnected.
 */
export const serveInTurn: onRequestHookHandler = ({ socket }, { raw }, done) => {
  // Node gives a response its socket when those before it are sent.
  if (raw.socket) {
    done()
    return
  }
  const count = (waiting.get(socket) ?? 0) + 1
  waiting.set(socket, count)
  if (count > MAX_WAITING) {
    socket.destroy()
    return
  }
  raw.once('socket', () => {
    waiting.set(socket, (waiting.get(socket) ?? 1) - 1)
    done()
  })
}
