import type { components } from '../../generated/api.ts'
import { invalidRequest, type ValidationIssue } from '../domain/errors.ts'
import { customEventPropsIssue } from '../domain/event.ts'
import { canonicalValue, type IdentifierNames, namesOf, ofOtherType } from '../domain/identifier.ts'
import { type IsoTimestamp, MAX_AHEAD_ms } from '../domain/timestamp.ts'

type CustomEventInput = components['schemas']['CustomEventInput']

/** An identifier with what it is found by: its digest or, under the key `contact_id`, the contact's own id. */
export interface ParsedIdentifier extends IdentifierNames {
  key: string
  value: string
  otherType: IdentifierNames | undefined
}

/** A custom event that is valid by itself; whether its module exists and whose it is, only the database knows. */
export interface ParsedEvent {
  module_id: string
  timestamp: IsoTimestamp
  custom_event_name: string
  custom_event_props: string
  identifiers: ParsedIdentifier[]
}

/**
 * Checks what the document's schema cannot express (docs/semantics.md#custom-events).
 *
 * @param input a validated body, or item of a batch
 * @param pointer to the input in the request
 * @throws ApiError invalid_request with every issue found
 */
export function parseCustomEvent(input: CustomEventInput, now: Date, pointer = '/body'): ParsedEvent {
  const issues: ValidationIssue[] = []
  const report = (field: string, message: string) => issues.push({ pointer: `${pointer}/${field}`, message })

  if (Date.parse(input.timestamp) > now.getTime() + MAX_AHEAD_ms) {
    report('timestamp', `must be at most 24 hours ahead of the server's clock, which is at ${now.toISOString()}`)
  }
  const propsIssue = customEventPropsIssue(input.custom_event_props)
  if (propsIssue !== undefined) report('custom_event_props', propsIssue)

  const firstIndexOfKey = new Map<string, number>()
  const identifiers = input.identifiers.map(({ key, value }, i): ParsedIdentifier => {
    const first = firstIndexOfKey.get(key)
    if (first === undefined) firstIndexOfKey.set(key, i)
    else report(`identifiers/${i}/key`, `is the same as identifiers/${first}/key; send each key once`)
    const parsed = canonicalValue(value)
    if (!parsed.ok) report(`identifiers/${i}/value`, parsed.issue)
    const canonical = parsed.ok ? parsed.canonical : ''
    return { key, value, ...namesOf(key, canonical), otherType: ofOtherType({ key, value, canonical }) }
  })

  if (issues.length > 0) throw invalidRequest(issues)
  const { module_id, timestamp, custom_event_name, custom_event_props } = input
  return { module_id, timestamp, custom_event_name, custom_event_props, identifiers }
}
