import type { IncomingMessage } from 'node:http'
import { Socket } from 'node:net'

/** How long a client whose connection is closed may take to send the rest, and to read the last response. */
export const LINGER_ms = 5_000

/**
 * Lets a connection on which the next response is the last one be closed only when its request has arrived as a whole, its client
 * has closed it too, or after {@link LINGER_ms}: what still arrives would reset it, and a client that is still sending would
 * not get the response (RFC 9112, section 9.6).
 *
 * @param request without it more than a request arrives, so that its end says nothing
 */
export function closeAfterClient(socket: Socket, request?: IncomingMessage): void {
  const close = () => Socket.prototype.destroySoon.call(socket)
  socket.destroySoon = () => {
    if (request?.readableEnded) return close()
    socket.end()
    request?.once('end', close)
    setTimeout(() => socket.destroy(), LINGER_ms).unref()
  }
}
