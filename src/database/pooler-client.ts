import pg from 'pg'
import { Client } from './client.ts'

// A pooler in transaction mode (ADR 0026): each transaction gets any session of PostgreSQL, and another one may use that
// session next. So nothing may be left in it: settings are those of a transaction, and statements have no name. The trade:
// every statement is parsed and planned anew, and three messages take the place of one outside of transactions.

const PARAMETER = /[?&]pgbouncer=([^&]*)/

/** Whether a connection string says that it leads through a pooler in transaction mode. */
export const usesPooler = (url: string): boolean => PARAMETER.exec(url)?.[1] === 'true'

/** The connection string, saying that it leads through a pooler in transaction mode. */
export const asPooler = (url: string): string =>
  usesPooler(url) ? url : `${url}${url.includes('?') ? '&' : '?'}pgbouncer=true`

const BEGIN = /^\s*(begin|start\s+transaction)\b/i
const ISOLATION = /\bisolation\s+level\b/i
const END = /^\s*(commit|rollback(?!\s+to)|end|abort)\b/i

type Callback = (error: unknown, result?: unknown) => void

/**
 * A class of clients that leave nothing behind in the session that a transaction has got: statements lose their names, and a
 * transaction begins with the settings. A statement that comes in none gets one of its own.
 *
 * @param settings by PostgreSQL's names
 */
export function poolerClient(settings: Readonly<Record<string, string>>): new () => pg.Client {
  // Unlike set_config, they take no snapshot, which a transaction may want to take later.
  const set = Object.entries(settings)
    .map(([name, value]) => `SET LOCAL ${name} = ${pg.escapeLiteral(value)}`)
    .join('; ')
  /** A single message, whose statements are run one after the other. */
  const begin = (text: string) =>
    `${text};${ISOLATION.test(text) ? '' : ' SET TRANSACTION ISOLATION LEVEL READ COMMITTED;'} ${set}`

  return class PoolerClient extends Client {
    /** Whether the statement that is sent next is in a transaction. */
    #inTransaction = false

    // biome-ignore lint/suspicious/noExplicitAny: the forms of pg's own query, of which it has seven
    override query(statement: any, values?: any, callback?: any): any {
      // A COPY, which is always in a transaction of ours.
      if (typeof statement?.submit === 'function') return super.query(statement)
      const [parameters, done] = typeof values === 'function' ? [undefined, values] : [values, callback]
      const config = typeof statement === 'string' ? { text: statement } : { ...statement, name: undefined }
      const result = this.#send(parameters === undefined ? config : { ...config, values: parameters })
      if (done === undefined) return result
      result.then((found) => (done as Callback)(undefined, found), done as Callback)
    }

    #send(config: pg.QueryConfig): Promise<pg.QueryResult> {
      if (BEGIN.test(config.text)) {
        this.#inTransaction = true
        return super.query({ ...config, text: begin(config.text) })
      }
      const isEnd = END.test(config.text)
      const isAlone = !this.#inTransaction && !isEnd
      if (isEnd) this.#inTransaction = false
      return isAlone ? this.#sendAlone(config) : super.query(config)
    }

    async #sendAlone(config: pg.QueryConfig): Promise<pg.QueryResult> {
      const steps = [
        () => super.query(begin('BEGIN')),
        () => super.query(config),
        // It ends the transaction in any case: PostgreSQL rolls a failed one back. It is no COMMIT, during which the client
        // would take the warnings of others for its own: many such statements may be under way on a connection.
        () => super.query('END'),
      ] as const
      const results: PromiseSettledResult<pg.QueryResult>[] = []
      if ((this as unknown as { pipeline: boolean }).pipeline) {
        results.push(...(await Promise.allSettled(steps.map((step) => step()))))
      } else {
        for (const step of steps) {
          const [result] = await Promise.allSettled([step()])
          results.push(result)
          // A connection that is silent or broken would only be waited for once more.
          if (result.status === 'rejected' && !(result.reason instanceof pg.DatabaseError)) break
        }
      }
      // The first error is the cause of the others.
      const failed = results.find((result) => result.status === 'rejected')
      if (failed) throw failed.reason
      return (results[1] as PromiseFulfilledResult<pg.QueryResult>).value
    }
  }
}

/** Whether the sessions of a pool's connections are those of a pooler in transaction mode. */
export const isPooler = (pool: pg.Pool): boolean => usesPooler(String(pool.options.connectionString))
