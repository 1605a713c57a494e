import type { Socket } from 'node:net'
import pg from 'pg'

const connectionErrors = new WeakSet<Error>()

/** Whether a connection has failed, or could not be made, with this error: also for its certificate, or without a code. */
export const isConnectionError = (error: Error): boolean => connectionErrors.has(error)

/** The SQLSTATE of a notice; a warning has another. */
const NOTICE = '00000'

/**
 * A client that lets go of the server when it cannot log in, for which pg waits until the server closes the connection.
 *
 * Its COMMIT fails where PostgreSQL only warns: Citus does when the node that has the rows breaks off meanwhile, and PostgreSQL
 * when the wait for a synchronous standby server is cancelled. Whether the rows are kept is unknown then (`isUnavailable`).
 * Nothing else may be under way on the connection but the transaction.
 */
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

  // biome-ignore lint/suspicious/noExplicitAny: the forms of pg's own query, of which it has seven
  override query(statement: any, values?: any, callback?: any): any {
    const result = super.query(statement, values, callback) as unknown
    const text: unknown = typeof statement === 'string' ? statement : statement?.text
    const isCommit = text === 'COMMIT' || text === 'commit'
    return isCommit && result instanceof Promise ? this.#withoutWarnings(result) : result
  }

  async #withoutWarnings<T>(committed: Promise<T>): Promise<T> {
    let warning: string | undefined
    const onNotice = ({ code, message }: { code?: string | undefined; message?: string | undefined }) => {
      if (code !== NOTICE) warning ??= message
    }
    this.on('notice', onNotice)
    try {
      const result = await committed
      if (warning !== undefined) throw new Error(`Connection terminated to a node of the database: ${warning}`)
      return result
    } finally {
      this.off('notice', onNotice)
    }
  }
}

/** The socket of a client, which pg does not expose. */
export const socketOf = (client: pg.ClientBase): Socket =>
  ((client as pg.Client).connection as unknown as { stream: Socket }).stream

/** Destroys the socket of a client: the queries under way on it fail. */
export const destroySocket = (client: pg.ClientBase): void => void socketOf(client).destroy()
