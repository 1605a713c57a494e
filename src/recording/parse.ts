import type { components } from '../../generated/api.ts'
import { type Detail, invalidRequest } from '../domain/errors.ts'
import { customEventPropsIssue } from '../domain/event.ts'
import { canonicalValue, identifierDigest } from '../domain/identifier.ts'
import { MAX_AHEAD_ms, parseTimestamp } from '../domain/timestamp.ts'

type CustomEventInput = components['schemas']['CustomEventInput']

/** An identifier ready to be looked up: by its digest, or, under the key `contact_id`, by the contact's own id. */
export interface ParsedIdentifier {
  key: string
  value: string
  canonical: string
  digest: Buffer
}

/** A custom event that is right in itself; whether its module exists and whose it is, the database tells. */
export interface ParsedEvent {
  module_id: string
  /** In the wire's form. */
  timestamp: string
  custom_event_name: string
  custom_event_props: string
  identifiers: ParsedIdentifier[]
}

/**
 * Checks what the document's schema cannot say (decisions, "Recording a custom event").
 *
 * @param input a body that the schema let pass
 * @throws ApiError invalid_request with every fault found
 */
export function parseCustomEvent(input: CustomEventInput, now: Date): ParsedEvent {
  const details: Detail[] = []
  const fault = (field: string, message: string) => details.push({ pointer: `/body/${field}`, message })

  const timestamp = parseTimestamp(input.timestamp)
  if (!timestamp.ok) fault('timestamp', timestamp.problem)
  else if (Date.parse(timestamp.iso) > now.getTime() + MAX_AHEAD_ms) {
    fault('timestamp', `must be at most 24 hours ahead of the server's clock, which is at ${now.toISOString()}`)
  }
  const propsIssue = customEventPropsIssue(input.custom_event_props)
  if (propsIssue !== undefined) fault('custom_event_props', propsIssue)

  const firstWithKey = new Map<string, number>()
  const identifiers = input.identifiers.map(({ key, value }, i): ParsedIdentifier => {
    const first = firstWithKey.get(key)
    if (first === undefined) firstWithKey.set(key, i)
    else fault(`identifiers/${i}/key`, `is the same as identifiers/${first}/key; send each key once`)
    const parsed = canonicalValue(value)
    if (!parsed.ok) fault(`identifiers/${i}/value`, parsed.issue)
    const canonical = parsed.ok ? parsed.canonical : ''
    return { key, value, canonical, digest: identifierDigest(key, canonical) }
  })

  if (details.length > 0 || !timestamp.ok) throw invalidRequest(details)
  const { module_id, custom_event_name, custom_event_props } = input
  return { module_id, timestamp: timestamp.iso, custom_event_name, custom_event_props, identifiers }
}
