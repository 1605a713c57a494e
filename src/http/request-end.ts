import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'

/** `cut`: its connection was closed before the response was sent, by the client or by the service. */
export type RequestEnd = 'sent' | 'cut'

/** Calls back once at the end of each request, however it ends; Fastify's own hook only runs when the response is sent. */
export function onRequestEnd(
  app: FastifyInstance,
  callback: (request: FastifyRequest, reply: FastifyReply, end: RequestEnd) => void,
): void {
  app.addHook('onRequest', (request, reply, done) => {
    reply.raw.once('close', () => {
      if (request.socket.destroyed && !reply.raw.writableFinished) callback(request, reply, 'cut')
    })
    done()
  })
  app.addHook('onResponse', (request, reply, done) => {
    callback(request, reply, 'sent')
    done()
  })
}
