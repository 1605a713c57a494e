/**
 * Rates each difference that `redocly diff` reports by its effect on clients: wording, an addition or a break. What redocly
 * refuses is a break, and so is what it accepts, unless it is listed here as harmless.
 */
import { type Json, placeOf } from './document.ts'

/** By the step of `info.version` that a change requires, in ascending order. */
export const RATINGS = ['patch', 'minor', 'breaking'] as const
export type Rating = (typeof RATINGS)[number]

export interface Change {
  rating: Rating
  /** A JSON pointer into the present document, or into the released one for what was removed. */
  pointer: string
  /** The human-readable place: `FlowModule.title`, `getEntry.404`. */
  place: string
  what: string
}

/** One change in the JSON report of `redocly diff`. */
export interface RedoclyChange {
  path: string
  typeName: string
  kind: 'added' | 'removed' | 'modified'
  impact: 'major' | 'minor' | 'patch'
  verdicts: { message: string }[]
  property?: string
  base?: { pointer: string; value?: unknown }
  revision?: { pointer: string; value?: unknown }
}

/**
 * Harmless changes: patterns for `action type[.property] path`, with the action of `actionOf`. Required properties and limits
 * match in either direction, since redocly refuses tighter requests and looser responses.
 */
const HARMLESS: readonly [RegExp, Rating][] = [
  // Texts, examples, and what only documentation tools and fuzzers look at.
  [/^\w+ (Contact|ExternalDocs|License|Link|LinksMap|Tag)\b/, 'patch'],
  [/^\w+ \w+\.(description|summary|example|value) /, 'patch'],
  [/^added (Example|ExamplesMap) /, 'patch'],
  [/^reordered /, 'patch'],
  // Components whose names do not appear in clients.
  [/^\w+ \w+ #\/components\/(examples|headers|links|responses)\/[^/]+$/, 'patch'],
  [/^added \w+ #\/components\/(parameters|schemas)\/[^/]+$/, 'patch'],
  // Additions. A new error is one; a new success would be mistaken for the known one.
  [/^added (PathItem|Operation|Parameter|Header|HeadersMap|Server|SecurityScheme|SecurityRequirement) /, 'minor'],
  [/^added Schema \S+\/properties\/[^/]+$/, 'minor'],
  [/^added Response \S+\/(304|[45]\d\d)$/, 'minor'],
  [/^\w+ \w+\.deprecated /, 'minor'],
  // Looser requests and tighter responses.
  [/^grown Schema\.enum /, 'minor'],
  [/^set Header\.required /, 'minor'],
  [/^\w+ (Parameter|RequestBody|Schema)\.required /, 'minor'],
  [/^\w+ Schema\.((exclusiveM|m)(in|ax)imum|m(in|ax)(Length|Items)|pattern|uniqueItems|multipleOf|nullable) /, 'minor'],
]

/** Why the other changes break a client, where redocly does not say. */
const REASONS: readonly [RegExp, string][] = [
  [/^\w+ \w+\.default /, 'a client that omits it gets another response'],
  [/^\w+ \w+\.x-required-scope /, 'a key that had access may lose it'],
  [/^\w+ (Operation\.tags|Info\.title) /, 'generated clients name their modules after it'],
  [/^\w+ PathItem\.key /, 'generated clients name their arguments after path parameters'],
  [/^\w+ (Schema|Parameter) #\/components\//, 'generated clients name a type after it'],
  [/^\w+ Schema\.(enum|format|title|type) /, 'generated clients make another type of it'],
  [/^\w+ Example(\.key)? /, 'client teams ask their mock for an example by its name'],
  [/^\w+ Header\.required /, 'a response may lack it'],
  [/^\w+ \w+\.openapi /, "client teams' tools may not read it"],
  [/^added (Response|MediaType) /, 'a client mistakes it for the response that it knows'],
]

/** The gained and lost members of a list; `undefined` if the change is not one of a list. */
function membersOf({ base, revision }: RedoclyChange) {
  if (!Array.isArray(base?.value) || !Array.isArray(revision?.value)) return undefined
  const [before, after] = [new Set<unknown>(base.value), new Set<unknown>(revision.value)]
  return { gained: [...after.difference(before)], lost: [...before.difference(after)] }
}

/** `added`, `removed`, or for a property `set`, `unset`, `grown` or `reordered` (a list), else `changed`. */
function actionOf(change: RedoclyChange): string {
  if (change.kind !== 'modified') return change.kind
  if (change.base?.value === undefined) return 'set'
  if (change.revision?.value === undefined) return 'unset'
  const members = membersOf(change)
  if (members === undefined || members.lost.length > 0) return 'changed'
  return members.gained.length > 0 ? 'grown' : 'reordered'
}

const quoted = (value: unknown) => {
  const text = JSON.stringify(value)
  return `\`${text.length > 60 ? `${text.slice(0, 59)}…` : text}\``
}

function describe(change: RedoclyChange, action: string): string {
  const { typeName, path, property, base, revision } = change
  if (property === undefined) {
    const isField = typeName === 'Schema' && /\/properties\/[^/]+$/.test(path)
    const noun = isField ? 'field' : typeName.replaceAll(/(?<=[a-z])(?=[A-Z])/g, ' ').toLowerCase()
    return action === 'added' ? `new ${noun}` : `${noun} ${action}`
  }
  if (action === 'reordered') return `\`${property}\` reordered`
  if (action === 'set') return `\`${property}\` set to ${quoted(revision?.value)}`
  if (action === 'unset') return `\`${property}\` removed, was ${quoted(base?.value)}`
  const members = Object.entries(membersOf(change) ?? {}).filter(([, values]) => values.length > 0)
  if (members.length === 0) return `\`${property}\` changed from ${quoted(base?.value)} to ${quoted(revision?.value)}`
  return `\`${property}\` ${members.map(([verb, values]) => `${verb} ${values.map(quoted).join(', ')}`).join(', ')}`
}

/** Rates and describes one reported change. */
export function judge(change: RedoclyChange, base: Json, revision: Json): Change {
  const { typeName, property, impact, verdicts, path, kind } = change
  const action = actionOf(change)
  const subject = `${action} ${typeName}${property === undefined ? '' : `.${property}`} ${path}`
  const rating =
    impact === 'major' ? 'breaking' : (HARMLESS.find(([pattern]) => pattern.test(subject))?.[1] ?? 'breaking')
  const pointer = (kind === 'removed' ? change.base : change.revision)?.pointer ?? path
  const reason = REASONS.find(([pattern]) => pattern.test(subject))?.[1] ?? 'it is not known to be harmless to clients'
  const verdict = verdicts.map(({ message }) => message).join(' ')
  const description = describe(change, action)
  return {
    rating,
    pointer,
    place: placeOf(kind === 'removed' ? base : revision, pointer.replace(new RegExp(`/${property}$`), '')),
    what: rating === 'breaking' ? verdict || `${description}: ${reason}` : description,
  }
}
