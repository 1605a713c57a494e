import { isDeepStrictEqual } from 'node:util'
import type { Exchange } from './recorder.ts'
import type { ReplayResult, Violation } from './replay.ts'

/** An exchange with a name to speak of it by, and how it is judged. */
export interface Case {
  name: string
  exchange: Exchange
  judge: (exchange: Exchange, replayed: ReplayResult) => string[]
}

/** A reason, and what it applies to. */
export type Rule<Subject> = readonly [reason: string, applies: (subject: Subject) => boolean]

/** Why an exchange cannot go through Prism 5.16. */
export const NOT_REPLAYABLE: Rule<Exchange>[] = [
  [
    'HEAD is not in the document, and Prism fails on JSON without a body; tests/contract holds HEAD to GET',
    ({ method }) => method === 'HEAD',
  ],
  ['broken percent-encoding ends the Prism process', ({ url }) => !isDecodable(url)],
  ['readers of URLs such as Prism resolve . and .. segments', ({ url }) => /\/(\.|%2e){1,2}(\/|\?|$)/i.test(url)],
  ['the request line is past the 16 KiB that Node takes from a network', ({ url }) => url.length > 15_000],
  [
    'Prism does not know the empty parameter that a Content-Type may end with (RFC 9110)',
    ({ headers }) => /;\s*$/.test(String(headers['content-type'])),
  ],
]

/** Why the service refuses with 400 what Prism lets pass, by what the refusal says. */
export const EXPECTED_DISAGREEMENTS: Rule<string>[] = [
  ['OpenAPI 3.0 cannot close the query of an operation', says(/^\/query\/.* is not a known parameter; /)],
  ['a cursor goes with one list, which no schema knows', says(/^\/query\/cursor is not a cursor of this list /)],
  ['no schema compares two parameters', says(/^\/query\/updated_before must be later than updated_after$/)],
  ['no schema knows the time', says(/^\/body\/timestamp must be at most 24 hours ahead /)],
  ['date-time has leap seconds and a year 0; instants here do not', says(/ the (second|year) must be /)],
  ['3.0 cannot say that a string holds JSON', says(/ must be (JSON text|the text of a JSON object|nested at most 64)/)],
  ['maxLength counts characters, not bytes', says(/^\/body\/custom_event_props must be at most 32768 bytes /)],
  ['no schema makes one field of array items unique', says(/^\/body\/identifiers\/\d+\/key is the same as /)],
  ['no pattern sees a lone surrogate', says(/ must not hold NUL or a lone surrogate/)],
  ['Prism turns text into numbers loosely: 1e0, 01', says(/ must be (a plain decimal integer|an integer from )/)],
  [
    'Prism takes an empty parameter for none',
    says(/^\/(query\/.* is empty; |headers\/.* must (not be empty|be 1 to ))/),
  ],
  ['Prism cuts a raw # off the address', says(/^The path and query must be percent-encoded/)],
  ['a request without Host is no HTTP/1.1; Prism is sent one', says(/^This is not a valid HTTP\/1\.1 request/)],
]

/** Statuses that the service gives to no request that is not as documented. */
const ACCEPTED = [200, 304, 404, 409, 422]

/** Why an exchange is not sent through Prism, if it is not. */
export const reasonNotReplayable = (exchange: Exchange): string | undefined => reasonFor(NOT_REPLAYABLE, exchange)

/** What Prism finds wrong with a response, and whether it finds the operation that the service found. */
export function responseFindings(
  { operationId, url, status, responseBody }: Exchange,
  replayed: ReplayResult,
): string[] {
  if (!replayed.reached) return [`Prism answers ${replayed.status} by itself`]
  if (replayed.status !== status || !isDeepStrictEqual(parsed(replayed.responseBody), parsed(responseBody))) {
    return [`Prism changes the response: ${replayed.status} ${replayed.responseBody}`]
  }
  const isRouted = !replayed.violations.some(({ message }) => message === 'Selected route not found')
  if (operationId !== undefined) return isRouted ? about('response', replayed).map(told) : ['Prism finds no operation']
  // Prism takes an empty segment for a parameter.
  return isRouted && !/\/(\/|\?|$)/.test(url) ? ['Prism finds an operation where the service finds none'] : []
}

/** What Prism finds wrong with a response, and else whether it judges the request as the service does. */
export function findingsOf(exchange: Exchange, replayed: ReplayResult): string[] {
  const findings = responseFindings(exchange, replayed)
  return findings.length > 0 || exchange.operationId === undefined ? findings : requestFindings(exchange, replayed)
}

function requestFindings(exchange: Exchange, replayed: ReplayResult): string[] {
  const { status, unread } = exchange
  const violations = about('request', replayed)
  if (status !== 401 && violations.some(({ code }) => code === 401)) return [`answered ${status} without a key`]
  if (ACCEPTED.includes(status)) {
    return (
      violations
        // A body that was not read is not sent either: that of a GET.
        .filter(({ message }) => !unread || message !== 'Body parameter is required')
        .map((violation) => `accepted, but ${told(violation)}`)
    )
  }
  if (status !== 400 || violations.length > 0) return []
  return refusalIssues(exchange)
    .filter((fault) => !reasonFor(EXPECTED_DISAGREEMENTS, fault))
    .map((fault) => `refused, but Prism finds nothing: ${fault}`)
}

/** The faults that a refusal tells, each with its pointer. */
export function refusalIssues({ responseBody }: Exchange): string[] {
  const { error }: { error: { message: string; details?: { pointer: string; message: string }[] } } =
    JSON.parse(responseBody)
  return error.details?.map(({ pointer, message }) => `${pointer} ${message}`) ?? [error.message]
}

/** The reason out of the rules that applies, if one does. */
export const reasonFor = <Subject>(rules: Rule<Subject>[], subject: Subject): string | undefined =>
  rules.find(([, applies]) => applies(subject))?.[0]

const about = (part: 'request' | 'response', { violations }: ReplayResult) =>
  violations.filter(({ location }) => location[0] === part)

const told = ({ location, message }: Violation) => `${location.join('/')}: ${message}`

/** JSON as its value, since Prism writes it anew; other text as it is. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

function isDecodable(url: string): boolean {
  try {
    decodeURIComponent(url)
    return true
  } catch {
    return false
  }
}

function says(pattern: RegExp) {
  return (text: string) => pattern.test(text)
}
