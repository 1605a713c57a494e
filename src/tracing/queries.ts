import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { SpanKind } from '@opentelemetry/api'
import { QUERY_CHANNEL, type QueryTiming } from '../database/timed-query.ts'
import type { Spans } from './spans.ts'

/**
 * Makes a span of each statement that code of a recorded span has sent, by the name of its query: neither its text nor its
 * parameters. @returns what ends it
 */
export function traceQueries(spans: Spans): () => void {
  const observe = (timing: unknown) => {
    const { query, duration_ms, error } = timing as QueryTiming
    const attributes = { 'db.system.name': 'postgresql', 'db.query.summary': query }
    const outcome = error === undefined ? {} : failureOf(error)
    spans.record(query, duration_ms, { kind: SpanKind.CLIENT, attributes }, outcome)
  }
  subscribe(QUERY_CHANNEL, observe)
  return () => void unsubscribe(QUERY_CHANNEL, observe)
}

/** The error's SQLSTATE, or of an error of the connection its code or its class. */
function failureOf(error: unknown) {
  const { code, name, severity } = error as { code?: string; name?: string; severity?: string }
  return { 'error.type': code ?? name ?? 'unknown', ...(severity && { 'db.response.status_code': code }) }
}
