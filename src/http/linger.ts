import type { Socket } from 'node:net'

/** How long a client whose connection is closed may take to read the last response. */
export const LINGER_ms = 5_000

/**
 * Lets a connection on which the next response is the last one be closed only when its client has closed it too, or after
 * {@link LINGER_ms}: what still arrives would reset it, and a client that is still sending would not get the response (RFC
 * 9112, section 9.6).
 */
export function closeAfterClient(socket: Socket): void {
  socket.destroySoon = () => {
    socket.end().once('end', () => socket.destroy())
    setTimeout(() => socket.destroy(), LINGER_ms).unref()
  }
}
