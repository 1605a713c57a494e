/** The number of Unicode code points, which is what every length limit of the contract counts. */
export function codePoints(text: string): number {
  let count = 0
  for (const _ of text) count += 1
  return count
}

/** Whether the text has more than `max` code points. They are counted only if the UTF-16 units, at most two each, do not tell. */
export const exceedsCodePoints = (text: string, max: number): boolean =>
  text.length > max && (text.length > 2 * max || codePoints(text) > max)

/** Whether the text has 1 to `max` code points. */
export const hasCodePoints = (text: string, max: number): boolean => text !== '' && !exceedsCodePoints(text, max)

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what this matches
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/

export const hasControlCharacter = (text: string): boolean => CONTROL.test(text)

/** Whether PostgreSQL can store the text and JSON can carry it: no NUL and no lone surrogate. */
export const isStorable = (text: string): boolean => !text.includes('\0') && text.isWellFormed()

export const MAX_ID_code_points = 128

/**
 * The issue with the id of a resource, undefined when it is valid (docs/semantics.md#ids): 1 to 128 code points, no
 * control characters, not `.` or `..`, which no URL can carry as a path segment.
 */
export function idIssue(id: string): string | undefined {
  if (!id.isWellFormed()) return 'must not hold a lone surrogate'
  if (hasControlCharacter(id)) return 'must not hold control characters'
  if (!hasCodePoints(id, MAX_ID_code_points)) return `must be 1 to ${MAX_ID_code_points} characters long`
  if (id === '.' || id === '..') return 'must not be "." or ".."'
  return undefined
}

/** The nesting depth of the arrays and objects of a JSON value; that of a scalar is 0. Does not recurse. */
export function jsonDepth(value: unknown): number {
  let deepest = 0
  const open: [unknown, number][] = [[value, 0]]
  for (let next = open.pop(); next; next = open.pop()) {
    const [item, depth] = next
    if (typeof item !== 'object' || item === null) continue
    deepest = Math.max(deepest, depth + 1)
    for (const child of Object.values(item)) open.push([child, depth + 1])
  }
  return deepest
}

const QUOTED_characters = 200

/** The text as a JSON string for messages, truncated when long. */
export function quoted(text: string): string {
  return text.length > QUOTED_characters ? `${JSON.stringify(text.slice(0, QUOTED_characters))}…` : JSON.stringify(text)
}
