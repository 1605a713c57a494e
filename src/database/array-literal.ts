/** What JSON writes by an escape that PostgreSQL's arrays do not have: control characters, and halves of surrogate pairs. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: those are meant
const ESCAPED = /[\u0000-\u001f\p{Cs}]/u

const [QUOTE, BACKSLASH] = Buffer.from('"\\')

/**
 * Writes an array as PostgreSQL reads it. That of JSON differs in its brackets, and `JSON.stringify` takes a thirteenth of the
 * time that pg takes for long texts with quotes.
 *
 * @param values of one type
 * @returns the values themselves if JSON cannot hold them, as bytes: pg writes those
 */
export function arrayLiteral(values: readonly unknown[]): string | readonly unknown[] {
  if (!values.every(isOfJson)) return values
  const items = values.some(isEscaped) ? values.map(itemOf).join(',') : JSON.stringify(values).slice(1, -1)
  return `{${items}}`
}

const isOfJson = (value: unknown) =>
  value === null ||
  value === undefined ||
  typeof value === 'string' ||
  typeof value === 'boolean' ||
  Number.isFinite(value)

const isEscaped = (value: unknown): value is string => typeof value === 'string' && ESCAPED.test(value)

const itemOf = (value: unknown): string => (isEscaped(value) ? quoted(value) : JSON.stringify(value ?? null))

/** By bytes, which in UTF-8 are no part of other characters: a regular expression takes ten times as long. */
function quoted(text: string): string {
  const bytes = Buffer.from(text)
  const escaped = Buffer.allocUnsafe(2 * bytes.length)
  let length = 0
  for (let i = 0; i < bytes.length; i += 1) {
    const byte = bytes[i] as number
    if (byte === QUOTE || byte === BACKSLASH) escaped[length++] = BACKSLASH as number
    escaped[length++] = byte
  }
  return `"${escaped.toString('utf8', 0, length)}"`
}
