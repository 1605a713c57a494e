import type { Socket } from 'node:net'
import pg from 'pg'

const connectionErrors = new WeakSet<Error>()

/** Whether a connection has failed, or could not be made, with this error: also for its certificate, or without a code. */
export const isConnectionError = (error: Error): boolean => connectionErrors.has(error)

/** A client that lets go of the server when it cannot log in, for which pg waits until the server closes the connection. */
export class Client extends pg.Client {
  constructor(config?: string | pg.ClientConfig) {
    super(config)
    this.connection.on('error', (error: Error) => {
      connectionErrors.add(error)
      // What pg says names its own variable and a step of the protocol.
      if (/password must be a/.test(error.message)) {
        error.message = 'The server asks for a password, and DATABASE_URL has none'
      }
      destroySocket(this)
    })
  }
}

/** The socket of a client, which pg does not expose. */
export const socketOf = (client: pg.ClientBase): Socket =>
  ((client as pg.Client).connection as unknown as { stream: Socket }).stream

/** Destroys the socket of a client: the queries under way on it fail. */
export const destroySocket = (client: pg.ClientBase): void => void socketOf(client).destroy()
