import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { READ_WAIT_CHANNEL, type ReadWait } from '../http/read-gate.ts'
import type { Spans } from './spans.ts'

/** Makes a span of each wait of a read for its admission. @returns what ends it */
export function traceReads(spans: Spans): () => void {
  const observe = (wait: unknown) => spans.record('admission', (wait as ReadWait).duration_ms)
  subscribe(READ_WAIT_CHANNEL, observe)
  return () => void unsubscribe(READ_WAIT_CHANNEL, observe)
}
