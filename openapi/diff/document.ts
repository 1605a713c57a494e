/** Navigating an OpenAPI document. */

export type Json = Record<string, unknown>
export type ApiDocument = Json & { info: { version: string } }

export const isRecord = (value: unknown): value is Json => typeof value === 'object' && value !== null
export const entriesOf = (value: unknown): [string, unknown][] => (isRecord(value) ? Object.entries(value) : [])
/** The pointer to a key of the node that `pointer` refers to. */
export const below = (pointer: string, key: string) => `${pointer}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`
const keysOf = (pointer: string) =>
  pointer
    .split('/')
    .slice(1)
    .map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'))

export const refOf = (node: unknown) => (isRecord(node) && typeof node.$ref === 'string' ? node.$ref : undefined)

/** The node at `key`, with `$ref`s resolved. */
export function child(document: Json, node: unknown, key: string): unknown {
  const next = isRecord(node) ? node[key] : undefined
  const ref = refOf(next)
  return ref === undefined ? next : nodeAt(document, ref)
}

/** The node at the pointer, with `$ref`s resolved. */
export function nodeAt(document: Json, pointer: string): unknown {
  return keysOf(pointer).reduce<unknown>((node, key) => child(document, node, key), document)
}

const STRUCTURE =
  /^(components|paths|schemas|schema|properties|content|application\/json|responses|headers|parameters)$/

/** A human-readable pointer: the name of the operation or component, and the part of it. */
export function placeOf(document: Json, pointer: string): string {
  let node: unknown = document
  let names: string[] = []
  for (const key of keysOf(pointer)) {
    node = child(document, node, key)
    const { operationId, responses, name, in: where } = isRecord(node) ? node : {}
    if (responses !== undefined && typeof operationId === 'string') names = [operationId]
    else if (!STRUCTURE.test(key)) names.push(typeof where === 'string' ? String(name) : key)
  }
  return names.join('.')
}
