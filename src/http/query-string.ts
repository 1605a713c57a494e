/** The query of a request as sent: each parameter's values, in order. */
export type RawQuery = Record<string, string[]>

/** Under this key a query keeps the first text that is not percent-encoded UTF-8. The router's parser must not throw. */
export const MALFORMED = Symbol('malformed')

const decode = (text: string) => decodeURIComponent(text.replaceAll('+', ' '))

/** Parses a query string strictly, where Node and most parsers quietly turn broken percent-encoding into U+FFFD. */
export function parseQueryString(text: string): RawQuery {
  const query: RawQuery & { [MALFORMED]?: string } = Object.create(null)
  for (const pair of text.split('&')) {
    if (pair === '') continue
    const [rawName = '', ...rest] = pair.split('=')
    try {
      const name = decode(rawName)
      const value = decode(rest.join('='))
      query[name] ??= []
      query[name].push(value)
    } catch {
      query[MALFORMED] ??= pair
    }
  }
  return query
}
