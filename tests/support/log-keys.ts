import type { AppParts } from '../../src/app.ts'
import { parseKey } from '../../src/domain/api-key.ts'

// No log of the service may hold an API key. Whatever tests start is searched for them, without the test's doing.

type Logger = AppParts['logger']

/** The API keys in a text. What is not well-formed, as a mistyped key, is none. */
export const keysIn = (text: string): string[] =>
  [...text.matchAll(/(?=(ft_[0-9A-Za-z]{12}_[0-9A-Za-z]{33}))/g)]
    .map(([, key = '']) => key)
    .filter((key) => parseKey(key) !== undefined)

/** Fails the run, whichever test it is that runs: Vitest and Node report a rejection that nobody handles. */
function failRun(key: string): void {
  void Promise.reject(new Error(`a log line holds an API key, ${key.slice(0, 15)}…`))
}

/**
 * Makes a function to be called with all that is written to a log, in chunks of any size.
 * @param isLogLine for a stream that also has other lines, which may hold a key
 */
export function logSearch(isLogLine = (_: string) => true, onKey = failRun): (chunk: string | Buffer) => void {
  let unfinished = ''
  return (chunk) => {
    const lines = `${unfinished}${chunk}`.split('\n')
    unfinished = lines.at(-1) ?? ''
    for (const key of lines.filter(isLogLine).flatMap(keysIn)) onKey(key)
  }
}

/** Whether a line of a server's standard output is of its log, not of what the command prints. */
export const isServerLog = (line: string): boolean => line.startsWith('{"level":')

/** Whether a line is not one of those that tell how to try the demo, which show its key. */
export const isNoWelcome = (line: string): boolean => !/^ {4}(Key|curl) /.test(line)

/** A logger for an app under test, whose lines are searched; by default, all that there are. */
export function searchedLogger(logger: Logger = false, onKey = failRun): Logger {
  const options = typeof logger === 'object' ? logger : { level: 'trace' }
  const search = logSearch(undefined, onKey)
  const write = (line: string) => {
    search(line)
    options.stream?.write(line)
  }
  return { ...options, stream: { write } }
}
