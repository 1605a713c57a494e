import { hostname } from 'node:os'
import pino from 'pino'
import pretty from 'pino-pretty'
import type { Config } from './config.ts'

/** What PostgreSQL tells of an error that may hold what is stored. */
const DATA = ['detail', 'where', 'hint', 'internalQuery'] as const

/** An error with its stack, and of PostgreSQL's errors only what holds no rows. */
function serializeError(error: Error): pino.SerializedError {
  const serialized = { ...pino.stdSerializers.err(error) }
  for (const name of DATA) delete serialized[name]
  return serialized
}

/** Where the log goes; for people if it is a terminal. */
type LogStream = Pick<NodeJS.WriteStream, 'write' | 'isTTY'>

interface LoggerOptions {
  stream?: LogStream
  /** The number of the worker that logs. */
  worker?: number
}

/** The options of the server's log: JSON, a line for each entry, or on a terminal a text. */
export const loggerOptions = (level: Config['logLevel'], { stream = process.stdout, worker }: LoggerOptions = {}) => ({
  level,
  base: { pid: process.pid, hostname: hostname(), worker },
  formatters: { level: (label: string) => ({ level: label }) },
  serializers: { err: serializeError },
  timestamp: pino.stdTimeFunctions.isoTime,
  stream: stream.isTTY
    ? pretty({
        destination: stream as NodeJS.WriteStream,
        ignore: 'pid,hostname',
        translateTime: 'SYS:HH:MM:ss.l',
        singleLine: true,
      })
    : stream,
})

/** A log of its own for what happens before the apps are built. */
export function createLogger({ stream, ...options }: ReturnType<typeof loggerOptions>): pino.Logger {
  return pino(options, stream)
}
