import type { Config } from '../config.ts'
import { type DatabaseOptions, prepareDatabase } from './database.ts'
import { runProcess, stopSignal } from './process.ts'
import { type RequestsOptions, serveRequests } from './requests.ts'

export type ServeOptions = DatabaseOptions & Pick<RequestsOptions, 'onListening' | 'demoKeyFile'>

/**
 * Runs the server in this process: opens the database, serves requests until a stop signal, drains and closes the
 * database. Resolves after all that.
 *
 * @throws Error with a one-line message when it cannot start, after cleaning up
 */
export const serve = (config: Config, options: ServeOptions = {}): Promise<void> =>
  runProcess(config, { stop: stopSignal() }, async (running) => {
    const url = await prepareDatabase(config, options, running)
    if (url !== undefined) await serveRequests(config, url, options, running)
  })
