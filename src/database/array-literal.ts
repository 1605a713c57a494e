/** What JSON writes by an escape that PostgreSQL's arrays do not have: control characters, and halves of surrogate pairs. */
const ESCAPED = /[\p{Cc}\p{Cs}]/u

/**
 * Writes an array as PostgreSQL reads it. That of JSON differs in its brackets, and `JSON.stringify` takes a tenth of the time
 * that pg takes for long texts with quotes.
 *
 * @param values of one type
 * @returns the values themselves if they are bytes, which pg writes
 */
export function arrayLiteral(values: readonly unknown[]): string | readonly unknown[] {
  if (values.some(Buffer.isBuffer)) return values
  const isEscaped = values.some((value) => typeof value === 'string' && ESCAPED.test(value))
  const items = isEscaped ? values.map(itemOf).join(',') : JSON.stringify(values).slice(1, -1)
  return `{${items}}`
}

const itemOf = (value: unknown): string =>
  typeof value === 'string' ? `"${value.replaceAll(/[\\"]/g, '\\$&')}"` : JSON.stringify(value ?? null)
