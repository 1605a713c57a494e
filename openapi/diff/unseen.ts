/** The changes that `redocly diff` does not detect. */
import { isDeepStrictEqual } from 'node:util'
import { below, child, entriesOf, isRecord, type Json, nodeAt, placeOf, refOf } from './document.ts'
import type { Change, Rating } from './judge.ts'

/** Properties with an open set of values, whose known values appear only in the document's examples. */
const OPEN_SETS = new Set(['code', 'event_type', 'view_type'])

const isOperation = (node: unknown): node is { parameters?: unknown[]; responses: Json } =>
  isRecord(node) && isRecord(node.responses)

const changeAt = (document: Json, rating: Rating, pointer: string, what: string): Change => ({
  rating,
  pointer,
  place: placeOf(document, pointer),
  what,
})

/** Schemas with another name where they are used: the types of generated clients follow it. */
function renamedSchemas(base: Json, revision: Json): Change[] {
  const found = new Map<string, Change>()
  const nameOf = (ref: string | undefined) => ref?.match(/^#\/components\/schemas\/(.*)/)?.[1]
  const walk = (before: unknown, after: unknown, pointer: string): void => {
    if (!isRecord(before) || !isRecord(after)) return
    // Parameters are in a list: one with another name is another parameter.
    if (typeof before.name === 'string' && before.name !== after.name) return
    const [from, to] = [refOf(before), refOf(after)]
    const [was, is] = [nameOf(from), nameOf(to)]
    if (was !== is) {
      const what = `the type ${was ?? '(unnamed)'} is now ${is ?? '(unnamed)'}: generated clients name theirs after it`
      found.set(pointer, changeAt(revision, 'breaking', pointer, what))
    } else if (was !== undefined) {
      return // The schema itself is compared among the components.
    } else if (from !== undefined || to !== undefined) {
      walk(from ? nodeAt(base, from) : before, to ? nodeAt(revision, to) : after, to ?? pointer)
    } else {
      for (const [key, value] of Object.entries(before)) walk(value, after[key], below(pointer, key))
    }
  }
  walk(base.paths, revision.paths, '#/paths')
  walk(base.components, revision.components, '#/components')
  return [...found.values()]
}

/** The operations that both have, with the pointer to each. */
const sharedOperations = (base: Json, revision: Json) =>
  entriesOf(revision.paths).flatMap(([path, item]) =>
    entriesOf(item).flatMap(([method, after]) => {
      const pointer = below(below('#/paths', path), method)
      const before = nodeAt(base, pointer)
      return isOperation(before) && isOperation(after) ? [{ pointer, before, after }] : []
    }),
  )

/** Parameters at another position: generated clients have them as arguments in the document's order. */
function movedParameters(base: Json, revision: Json): Change[] {
  const names = (document: Json, parameters: unknown[] = []) =>
    Object.keys(parameters).map((i) => (child(document, parameters, i) as { name: string }).name)
  return sharedOperations(base, revision).flatMap(({ pointer, before, after }) => {
    const [was, is] = [names(base, before.parameters), names(revision, after.parameters)]
    const isGone = was.some((name) => !is.includes(name))
    if (isGone || isDeepStrictEqual(is.slice(0, was.length), was)) return []
    const what = `${was.join(', ')} are no longer first and in this order: generated clients take them by position`
    return [changeAt(revision, 'breaking', below(pointer, 'parameters'), what)]
  })
}

/** Values of open sets that a response no longer has an example of. */
function lostValues(base: Json, revision: Json): Change[] {
  const known = (value: unknown): string[] =>
    entriesOf(value).flatMap(([key, item]) =>
      OPEN_SETS.has(key) && typeof item === 'string' ? [`\`${key}\` ${item}`] : known(item),
    )
  const exemplified = (document: Json, pointer: string) => {
    const media = entriesOf(nodeAt(document, `${pointer}/content`)).map(([type]) => below(`${pointer}/content`, type))
    const examples = media.map((type) => nodeAt(document, `${type}/examples`))
    return new Set(
      examples.flatMap((named) => Object.keys(named ?? {}).flatMap((name) => known(child(document, named, name)))),
    )
  }
  return sharedOperations(base, revision).flatMap(({ pointer, after }) =>
    Object.keys(after.responses).flatMap((status) => {
      const response = below(`${pointer}/responses`, status)
      const lost = exemplified(base, response).difference(exemplified(revision, response))
      const what = (value: string) => `${value} no longer has an example: clients act on it`
      return [...lost].map((value) => changeAt(revision, 'breaking', response, what(value)))
    }),
  )
}

/** Examples and links with other content, which redocly does not compare. */
const changedTexts = (base: Json, revision: Json): Change[] =>
  ['#/components/examples', '#/components/links'].flatMap((pointer) =>
    Object.keys(nodeAt(revision, pointer) ?? {}).flatMap((name) => {
      const place = below(pointer, name)
      const was = nodeAt(base, place)
      if (was === undefined || isDeepStrictEqual(was, nodeAt(revision, place))) return []
      return [changeAt(revision, 'patch', place, 'changed')]
    }),
  )

/** Changed type names, positions, examples and links. */
export const unseenChanges = (base: Json, revision: Json): Change[] =>
  [renamedSchemas, movedParameters, lostValues, changedTexts].flatMap((check) => check(base, revision))
