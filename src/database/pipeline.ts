import type pg from 'pg'

interface Stream {
  cork: () => void
  uncork: () => void
  destroy: () => void
}

const streamOf = (client: pg.ClientBase): Stream =>
  ((client as pg.Client).connection as unknown as { stream: Stream }).stream

/** Breaks a connection: what is under way on it fails. */
export const cut = (client: pg.ClientBase): void => streamOf(client).destroy()

/** Sends all that `send` sends on a connection in one packet instead of one each, at once. */
export function inOnePacket<T>(client: pg.ClientBase, send: () => T): T {
  const stream = streamOf(client)
  stream.cork()
  try {
    return send()
  } finally {
    stream.uncork()
  }
}

const gathering = new WeakSet<pg.ClientBase>()

/** Lets all that is sent on a connection in this turn of the event loop leave in one packet, when the turn ends. */
export function gather(client: pg.ClientBase): void {
  if (gathering.has(client)) return
  const stream = streamOf(client)
  gathering.add(client)
  stream.cork()
  setImmediate(() => {
    gathering.delete(client)
    stream.uncork()
  })
}
