import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { extendServiceEnvironment, extendTestApps } from '../../support/extensions.ts'

// A Vitest setup file: records the exchanges of every service of the tests in the directory RECORD_EXCHANGES, if it is set.
const { RECORD_EXCHANGES } = process.env
if (RECORD_EXCHANGES) {
  const { recordExchanges } = await import('./recorder.ts')
  extendTestApps(recordExchanges)
  const preload = pathToFileURL(path.join(import.meta.dirname, 'record-process.ts'))
  extendServiceEnvironment({ RECORD_EXCHANGES, NODE_OPTIONS: `--import=${preload}` })
}
