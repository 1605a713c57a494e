import { isDeepStrictEqual } from 'node:util'
import type { Exchange } from './recorder.ts'
import { ONE_OF_MANY, type ReplayResult, type Violation } from './replay.ts'

/** An exchange, its name for messages, and the check that applies to it. */
export interface Case {
  name: string
  exchange: Exchange
  check: (exchange: Exchange, replayed: ReplayResult) => string[]
}

/** A reason, and the condition under which it applies. */
export type Rule<Subject> = readonly [reason: string, applies: (subject: Subject) => boolean]

/** Why an exchange cannot be replayed through Prism 5.16. */
export const NOT_REPLAYABLE: Rule<Exchange>[] = [
  [
    'HEAD is not in the document, and Prism fails on JSON without a body; tests/contract compares HEAD with GET',
    ({ method }) => method === 'HEAD',
  ],
  ['malformed percent-encoding crashes the Prism process', ({ url }) => !isDecodable(url)],
  ['URL parsers such as that of Prism resolve . and .. segments', ({ url }) => /\/(\.|%2e){1,2}(\/|\?|$)/i.test(url)],
  ['Prism fails on a path that begins with two slashes', ({ url }) => url.startsWith('//')],
  ['the request line exceeds the 16 KiB that Node accepts', ({ url }) => url.length > 15_000],
  [
    'Prism rejects the empty parameter at the end of a Content-Type, which RFC 9110 allows',
    ({ headers }) => /;\s*$/.test(String(headers['content-type'])),
  ],
]

/** Why the service rejects with 400 what Prism accepts, by the issues that the response lists. */
export const EXPECTED_DISAGREEMENTS: Rule<string>[] = [
  ['OpenAPI 3.0 cannot close the query of an operation', matches(/^\/query\/.* is not a known parameter; /)],
  [
    'no schema can tie a cursor to one list',
    matches(/^\/query\/cursor is (not a cursor of this list|a cursor of direction=ASC;) /),
  ],
  ['no schema can compare two parameters', matches(/^\/query\/updated_before must be later than updated_after$/)],
  [
    'no schema can tie one parameter to another',
    matches(/^\/query\/(after cannot be combined with cursor|(after|wait) is only possible with direction=ASC$)/),
  ],
  ['no schema can refer to the current time', matches(/^\/body\/timestamp must be at most 24 hours ahead /)],
  ['date-time allows leap seconds and the year 0; timestamps here do not', matches(/ the (second|year) must be /)],
  [
    'OpenAPI 3.0 cannot require that a string contains JSON',
    matches(/ must be (JSON text|the text of a JSON object|nested at most 64)/),
  ],
  ['maxLength counts characters, not bytes', matches(/^\/body\/custom_event_props must be at most 32768 bytes /)],
  ['no schema can make one field of array items unique', matches(/^\/body\/identifiers\/\d+\/key is the same as /)],
  ['the patterns allow U+0080 to U+009F, for engines that match bytes', matches(/ must not hold control characters$/)],
  ['no pattern matches a lone surrogate', matches(/ must not hold NUL or a lone surrogate/)],
  ['Prism coerces strings to numbers loosely: 1e0, 01', matches(/ must be an integer from /)],
  [
    'Prism treats an empty parameter as missing',
    matches(/^\/(query\/.* is empty; |headers\/.* must (not be empty|be 1 to ))/),
  ],
  [
    'Prism removes an unencoded # and what follows from the URL',
    matches(/^The path and query must be percent-encoded/),
  ],
  ['to a schema lines are text', matches(/^(\/body\/\d+(\/\S+)? |The body has no records;)/)],
  ['OpenAPI 3.0 cannot forbid a header', matches(/^\/headers\/Idempotency-Key is for single events; /)],
  [
    'the document describes the Consistency-Token of reads in prose alone: a parameter would break generated clients',
    matches(/^\/headers\/Consistency-Token is not a token of this API; /),
  ],
  ['HTTP/1.1 requires Host; the replayed request has it', matches(/^Send exactly one Host header/)],
]

/** Statuses that mean the service found the request valid. */
const ACCEPTED = [200, 304, 404, 409, 422]

/** Why an exchange cannot be replayed, or `undefined` if it can. */
export const reasonNotReplayable = (exchange: Exchange): string | undefined => reasonFor(NOT_REPLAYABLE, exchange)

/** What Prism reports about the response, and whether it routes the request to the same operation. */
export function responseFindings(
  { operationId, url, status, responseBody }: Exchange,
  replayed: ReplayResult,
): string[] {
  if (!replayed.reached) return [`Prism responds with ${replayed.status} by itself`]
  if (replayed.status !== status || !isDeepStrictEqual(parsed(replayed.responseBody), parsed(responseBody))) {
    return [`Prism changes the response: ${replayed.status} ${replayed.responseBody}`]
  }
  const isRouted = !replayed.violations.some(({ message }) => message === 'Selected route not found')
  if (operationId !== undefined)
    return isRouted ? about('response', replayed).map(describe) : ['Prism finds no operation']
  // Prism accepts an empty segment as a parameter.
  return isRouted && !/\/(\/|\?|$)/.test(url) ? ['Prism finds an operation where the service finds none'] : []
}

/** What Prism reports about the response or, if nothing, where it disagrees with the service about the request. */
export function findingsOf(exchange: Exchange, replayed: ReplayResult): string[] {
  const findings = responseFindings(exchange, replayed)
  return findings.length > 0 || exchange.operationId === undefined ? findings : requestFindings(exchange, replayed)
}

function requestFindings(exchange: Exchange, replayed: ReplayResult): string[] {
  const { status, unread, responseBody } = exchange
  const violations = about('request', replayed)
  if (status !== 401 && violations.some(({ code }) => code === 401)) return [`responded ${status} without a key`]
  if (ACCEPTED.includes(status)) {
    const refused = refusedItems(exchange)
    const accepted = violations
      // The recorder has no body that the service did not read, such as that of a GET, or that is nested too deeply.
      .filter(({ message }) => !unread || message !== 'Body parameter is required')
      .filter((violation) => !refused.has(itemOf(violation)))
      .map((violation) => `accepted, but ${describe(violation)}`)
    const reported = new Set(violations.map(itemOf))
    const isComplete = !unread && !violations.some(({ message }) => message === ONE_OF_MANY)
    const rejected = [...refused].filter(([item]) => isComplete && !reported.has(item))
    return [...accepted, ...rejected.flatMap(([, error]) => unreported(error))]
  }
  return status !== 400 || violations.length > 0 ? [] : unreported(JSON.parse(responseBody).error)
}

/** The issues of an error of which Prism reports none, without those that it cannot find. */
const unreported = (error: ErrorInfo): string[] =>
  issuesOf(error)
    .filter((issue) => !reasonFor(EXPECTED_DISAGREEMENTS, issue))
    .map((issue) => `rejected, but Prism reports nothing: ${issue}`)

interface ErrorInfo {
  message: string
  details?: { pointer: string; message: string }[]
}

const ITEM = /^\/body\/events\/\d+(?=\/)/

/** The issues that an error lists, each with its pointer; those of an item of a batch as if it had been sent alone. */
const issuesOf = ({ message, details }: ErrorInfo): string[] =>
  details?.map(({ pointer, message }) => `${pointer.replace(ITEM, '/body')} ${message}`) ?? [message]

/** The issues that an error response lists. */
export const reportedIssues = ({ responseBody }: Exchange): string[] => issuesOf(JSON.parse(responseBody).error)

/** The items of a batch that are not valid, by their index: an invalid item has a result of its own in a 200. */
function refusedItems({ operationId, status, responseBody }: Exchange): Map<string | undefined, ErrorInfo> {
  if (operationId !== 'recordCustomEvents' || status !== 200) return new Map()
  const { results }: { results: { status: number; error: ErrorInfo }[] } = JSON.parse(responseBody)
  return new Map(results.flatMap(({ status, error }, i) => (status === 400 ? [[String(i), error]] : [])))
}

/** The item of a batch in which Prism sees a violation. */
const itemOf = ({ location }: Violation): string | undefined =>
  location[1] === 'body' && location[2] === 'events' ? location[3] : undefined

/** The reason of the first rule that applies. */
export const reasonFor = <Subject>(rules: Rule<Subject>[], subject: Subject): string | undefined =>
  rules.find(([, applies]) => applies(subject))?.[0]

const about = (part: 'request' | 'response', { violations }: ReplayResult) =>
  violations.filter(({ location }) => location[0] === part)

const describe = ({ location, message }: Violation) => `${location.join('/')}: ${message}`

/** JSON as its value, since Prism reserializes it; other text unchanged. */
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

function matches(pattern: RegExp) {
  return (text: string) => pattern.test(text)
}
