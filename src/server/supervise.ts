import { once } from 'node:events'
import type { Config } from '../config.ts'
import { prepareDatabase } from './database.ts'
import { choosePort } from './listen.ts'
import { runProcess, stopSignal } from './process.ts'
import type { ServeOptions } from './serve.ts'
import { Workers } from './workers.ts'

/**
 * Runs the server in several worker processes that share its port (ADR 0029): opens the database, starts the workers,
 * replaces those that end, and on a stop signal has all of them drain. Resolves after all that.
 *
 * @throws Error with a one-line message when no worker can listen, or one was cut off as it stopped, after cleaning up
 */
export function serve(config: Config, options: ServeOptions = {}): Promise<void> {
  return runProcess(config, { stop: stopSignal() }, async (running) => {
    const { log, cleanup, stop } = running
    const databaseUrl = await prepareDatabase(config, options, running)
    if (databaseUrl === undefined) return
    // Left to the workers, 0 would give another port to those that are started when no other is left.
    const server = { ...config.server, port: await choosePort(config.server) }
    const assignment = { config: { ...config, server }, databaseUrl, demoKeyFile: options.demoKeyFile }
    const workers = new Workers(config.server.workers, assignment, log)
    cleanup.defer(() => workers.stop())
    const stopping = stop.aborted ? undefined : once(stop, 'abort').then(() => undefined)
    const url = await Promise.race([workers.listening, workers.failure, stopping])
    if (url !== undefined) options.onListening?.(url)
    await Promise.race([workers.failure, stopping])
    log.info('stopping: waiting for the workers')
  })
}
