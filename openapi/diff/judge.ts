/**
 * What a difference that `redocly diff` reports means to a client: wording, an addition or a break. What redocly refuses
 * is refused. What it lets pass is a break all the same unless it is known here to be harmless.
 */
import { type Json, placeOf } from './document.ts'

/** What a change asks of `info.version`, in rising order. */
export const RATINGS = ['patch', 'minor', 'breaking'] as const
export type Rating = (typeof RATINGS)[number]

export interface Change {
  rating: Rating
  /** Where it is: a JSON pointer into the present document, into the released one when it is gone. */
  pointer: string
  /** The place for people: `FlowModule.title`, `getEntry.404`. */
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
 * What passes: patterns for `action type[.property] path`, where the action is that of `actionOf`. What is required and
 * the limits stand without a direction, since redocly refuses tighter requests and looser responses.
 */
const HARMLESS: readonly [RegExp, Rating][] = [
  // Texts, examples, and what only documentation tools and fuzzers look at.
  [/^\w+ (Contact|ExternalDocs|License|Link|LinksMap|Tag)\b/, 'patch'],
  [/^\w+ \w+\.(description|summary|example|value) /, 'patch'],
  [/^added (Example|ExamplesMap) /, 'patch'],
  [/^reordered /, 'patch'],
  // Components whose names clients do not see.
  [/^\w+ \w+ #\/components\/(examples|headers|links|responses)\/[^/]+$/, 'patch'],
  [/^added \w+ #\/components\/(parameters|schemas)\/[^/]+$/, 'patch'],
  // Additions. A new error may come; a new success would be taken for the known one.
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

/** Why what does not pass breaks a client, where redocly does not say it. */
const REASONS: readonly [RegExp, string][] = [
  [/^\w+ \w+\.default /, 'a client that leaves it out gets another answer'],
  [/^\w+ \w+\.x-required-scope /, 'a key that worked may not any more'],
  [/^\w+ (Operation\.tags|Info\.title) /, 'generated clients name their modules after it'],
  [/^\w+ PathItem\.key /, 'generated clients name their arguments after path parameters'],
  [/^\w+ (Schema|Parameter) #\/components\//, 'generated clients name a type after it'],
  [/^\w+ Schema\.(enum|format|title|type) /, 'generated clients make another type of it'],
  [/^\w+ Example(\.key)? /, 'client teams ask their mock for an example by its name'],
  [/^\w+ Header\.required /, 'an answer may come without it'],
  [/^\w+ \w+\.openapi /, "client teams' tools may not read it"],
  [/^added (Response|MediaType) /, 'a client takes it for the answer that it knows'],
]

/** What a list gained and lost; `undefined` when the change is not one of a list. */
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

const shown = (value: unknown) => {
  const text = JSON.stringify(value)
  return `\`${text.length > 60 ? `${text.slice(0, 59)}…` : text}\``
}

function tell(change: RedoclyChange, action: string): string {
  const { typeName, path, property, base, revision } = change
  if (property === undefined) {
    const isField = typeName === 'Schema' && /\/properties\/[^/]+$/.test(path)
    const noun = isField ? 'field' : typeName.replaceAll(/(?<=[a-z])(?=[A-Z])/g, ' ').toLowerCase()
    return action === 'added' ? `new ${noun}` : `${noun} ${action}`
  }
  if (action === 'reordered') return `\`${property}\` reordered`
  if (action === 'set') return `\`${property}\` set to ${shown(revision?.value)}`
  if (action === 'unset') return `\`${property}\` removed, was ${shown(base?.value)}`
  const members = Object.entries(membersOf(change) ?? {}).filter(([, values]) => values.length > 0)
  if (members.length === 0) return `\`${property}\` changed from ${shown(base?.value)} to ${shown(revision?.value)}`
  return `\`${property}\` ${members.map(([verb, values]) => `${verb} ${values.map(shown).join(', ')}`).join(', ')}`
}

/** Rates one reported change and says what it is. */
export function judge(change: RedoclyChange, base: Json, revision: Json): Change {
  const { typeName, property, impact, verdicts, path, kind } = change
  const action = actionOf(change)
  const subject = `${action} ${typeName}${property === undefined ? '' : `.${property}`} ${path}`
  const rating =
    impact === 'major' ? 'breaking' : (HARMLESS.find(([pattern]) => pattern.test(subject))?.[1] ?? 'breaking')
  const pointer = (kind === 'removed' ? change.base : change.revision)?.pointer ?? path
  const reason = REASONS.find(([pattern]) => pattern.test(subject))?.[1] ?? 'it is not known to be harmless to clients'
  const verdict = verdicts.map(({ message }) => message).join(' ')
  const told = tell(change, action)
  return {
    rating,
    pointer,
    place: placeOf(kind === 'removed' ? base : revision, pointer.replace(new RegExp(`/${property}$`), '')),
    what: rating === 'breaking' ? verdict || `${told}: ${reason}` : told,
  }
}
