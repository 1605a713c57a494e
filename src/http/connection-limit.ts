import { promisify } from 'node:util'
import type { FastifyInstance } from 'fastify'

const LOG_INTERVAL_ms = 60_000

/** The connections of clients. */
interface Connections {
  count: () => Promise<number>
  /** How many were closed at once. */
  dropped: () => number
}

/** Closes connections of clients beyond so many at once, and logs that it does, at most once a minute. */
export function limitConnections(app: FastifyInstance, max: number): Connections {
  // A worker that is full would otherwise offer a connection to the others, which may be full as well, again and again.
  Object.assign(app.server, { maxConnections: max, dropMaxConnection: true })
  let dropped = 0
  let logged_ms = Number.NEGATIVE_INFINITY
  app.server.on('drop', () => {
    dropped += 1
    if (performance.now() - logged_ms < LOG_INTERVAL_ms) return
    logged_ms = performance.now()
    app.log.warn({ connections: max }, 'new connections are closed, since there are as many as MAX_CONNECTIONS allows')
  })
  return { count: promisify(app.server.getConnections.bind(app.server)), dropped: () => dropped }
}
