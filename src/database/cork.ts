import type pg from 'pg'

// Corking: what is written to a connection's socket is held back and then flushed in one packet, which saves a system
// call for each statement. The trade: it reaches below pg's interface, to the socket of its connection.

interface Stream {
  cork: () => void
  uncork: () => void
  destroy: () => void
}

const streamOf = (client: pg.ClientBase): Stream =>
  ((client as pg.Client).connection as unknown as { stream: Stream }).stream

/** Destroys the client's socket: the queries under way on it fail. */
export const destroySocket = (client: pg.ClientBase): void => streamOf(client).destroy()

/** Flushes together, at once, what `send` sends on a connection. */
export function flushTogether<T>(client: pg.ClientBase, send: () => T): T {
  const stream = streamOf(client)
  stream.cork()
  try {
    return send()
  } finally {
    stream.uncork()
  }
}

const corked = new WeakSet<pg.ClientBase>()

/** Holds back what is sent on a connection until the end of this turn of the event loop, and flushes it together. */
export function corkForTurn(client: pg.ClientBase): void {
  if (corked.has(client)) return
  const stream = streamOf(client)
  corked.add(client)
  stream.cork()
  setImmediate(() => {
    corked.delete(client)
    stream.uncork()
  })
}
