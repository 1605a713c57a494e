import type { FastifyBaseLogger } from 'fastify'
import { Counter, type Registry } from 'prom-client'
import type { TypeMismatch } from '../domain/identifier.ts'

const LOG_INTERVAL_ms = 60_000
/** A key that names what its values are. A client may send anything, such as an address, in place of one. */
const PLAIN_KEY = /^[A-Za-z][\w.-]{0,39}$/
/** Of so many projects it is kept when they were logged. */
const MAX_PROJECTS = 1_000

/**
 * Tells the operator of identifiers that probably split a contact in two (docs/recording.md#identifiers): each is counted, and
 * at most one a minute is logged for each project, without its value.
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
  /** When the next of a project may be logged. */
  const next_ms = new Map<string, number>()
  return ({ project_id, key, count }) => {
    counter.inc(count)
    if (now() < (next_ms.get(project_id) ?? 0)) return
    if (next_ms.size >= MAX_PROJECTS) next_ms.clear()
    next_ms.set(project_id, now() + LOG_INTERVAL_ms)
    log.warn(
      { project_id, ...(PLAIN_KEY.test(key) && { key }), count },
      "a new identifier has the text of another contact's, one a string and the other a number or boolean: the same person twice? (docs/recording.md#identifiers)",
    )
  }
}
