import type { FastifyInstance } from 'fastify'
import { REQUEST_TIMEOUT_ms } from './client-errors.ts'

/**
 * How long nothing may be received or sent while a request arrives or its response is sent. It is longer than the timeout of
 * requests, which is reported to the client.
 */
export const IDLE_TIMEOUT_ms = REQUEST_TIMEOUT_ms + 30_000

/**
 * Lets a request be worked on for as long as it takes, without a byte on its connection: what it waits for has timeouts of its own,
 * which the operator may set higher, and which end in a response. Meanwhile the rest of a body has the timeout of requests.
 */
export function allowLongWork(app: FastifyInstance): void {
  app.addHook('preHandler', ({ raw }, _reply, done) => {
    raw.socket.setTimeout?.(0)
    done()
  })
  app.addHook('onSend', ({ raw }, _reply, _payload, done) => {
    raw.socket.setTimeout?.(IDLE_TIMEOUT_ms)
    done()
  })
}
