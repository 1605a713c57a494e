import type { FastifyBaseLogger } from 'fastify'
import { Counter, type Registry } from 'prom-client'
import type { TypeMismatch } from '../domain/identifier.ts'

const LOG_INTERVAL_ms = 60_000

/**
 * Tells the operator of identifiers that probably split a contact in two (docs/recording.md#identifiers): each is counted, and
 * one a minute is logged, without its value.
 *
 * @param now milliseconds of a clock that is never set
 */
export function reportTypeMismatches(
  registry: Registry,
  log: FastifyBaseLogger,
  now: () => number = () => performance.now(),
): (mismatch: TypeMismatch) => void {
  const counter = new Counter({
    name: 'flowtrail_identifier_type_mismatches_total',
    help: 'New identifiers with the text of one of another contact, one a string and the other a number or boolean.',
    registers: [registry],
  })
  let nextLog_ms = Number.NEGATIVE_INFINITY
  return ({ project_id, key, count }) => {
    counter.inc(count)
    if (now() < nextLog_ms) return
    nextLog_ms = now() + LOG_INTERVAL_ms
    log.warn(
      { project_id, key },
      "a new identifier has the text of another contact's, one a string and the other a number or boolean: the same person twice? (docs/recording.md#identifiers)",
    )
  }
}
