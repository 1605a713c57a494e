import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type { FastifyInstance } from 'fastify'
import { onTestFinished } from 'vitest'

/**
 * Opens a connection to an app, which listens if it does not yet.
 *
 * @param options.allowHalfOpen whether the client may still send after the app has ended its side
 * @returns both ends; that of the client is destroyed when the test ends, and its errors are ignored
 */
export async function openConnection(
  app: FastifyInstance,
  { allowHalfOpen = false } = {},
): Promise<{ client: Socket; connection: Socket }> {
  if (!app.server.listening) await app.listen({ host: '127.0.0.1', port: 0 })
  const { hostname, port } = new URL(app.listeningOrigin)
  const accepted = once(app.server, 'connection')
  const client = connect({ port: Number(port), host: hostname, allowHalfOpen })
  client.on('error', () => {})
  onTestFinished(() => void client.destroy())
  const [connection] = (await accepted) as [Socket]
  return { client, connection }
}
